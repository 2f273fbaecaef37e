/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/terminal.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include "base/fd.h"

int pv_terminal_open(struct pv_terminal *t, struct pv_err *err)
{
        static const int taken[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };
        sigset_t set;
        sigemptyset(&set);
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
                sigaddset(&set, taken[i]);
        t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (t->signals < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "signalfd");
        (void)sigprocmask(SIG_BLOCK, &set, &t->mask);
        (void)signal(SIGPIPE, SIG_IGN);
        return 0;
}

void pv_terminal_raw(struct pv_terminal *t)
{
        struct termios raw;
        if (tcgetattr(STDIN_FILENO, &t->before) < 0)
                return;
        raw = t->before;
        cfmakeraw(&raw);
        t->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

void pv_terminal_cook(struct pv_terminal *t)
{
        if (!t->raw)
                return;
        t->raw = false;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before);
}

void pv_terminal_close(struct pv_terminal *t)
{
        pv_terminal_cook(t);
        if (t->signals >= 0)
                (void)sigprocmask(SIG_SETMASK, &t->mask, NULL);
        pv_fd_closep(&t->signals);
}

int pv_terminal_signal(const struct pv_terminal *t)
{
        struct signalfd_siginfo si;
        return read(t->signals, &si, sizeof si) == sizeof si ? (int)si.ssi_signo : 0;
}

struct winsize pv_terminal_size(void)
{
        struct winsize w = { 0 };
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) < 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &w) < 0)
                w = (struct winsize){ 0 };
        return w;
}

struct pollfd pv_pump_poll(const struct pv_pump *p)
{
        if (p->from < 0 || p->to < 0)
                return (struct pollfd){ .fd = -1 };
        if (p->n > p->at)
                return (struct pollfd){ .fd = p->to, .events = POLLOUT };
        return (struct pollfd){ .fd = p->from, .events = POLLIN };
}

static bool would_wait(void)
{
        return errno == EAGAIN || errno == EINTR;
}

bool pv_pump_move(struct pv_pump *p)
{
        if (p->from < 0 || p->to < 0)
                return false;
        if (p->at == p->n) {
                ssize_t n = read(p->from, p->buf, sizeof p->buf);
                if (n <= 0)
                        return n < 0 && would_wait();
                p->n = (size_t)n;
                p->at = 0;
        }
        ssize_t n = write(p->to, p->buf + p->at, p->n - p->at);
        if (n < 0)
                return would_wait();
        p->at += (size_t)n;
        p->moved += (size_t)n;
        return true;
}
