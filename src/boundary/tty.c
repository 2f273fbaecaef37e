/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/tty.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

/* The same terminal, for output alone: a descriptor of its own that does not read. */
static int open_for_output(int fd)
{
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC);
}

static int set_apart(struct pv_tty *t, const int stdio[3], unsigned run, struct pv_err *err)
{
        t->apart = true;
        for (int i = 0; i < 3; i++) {
                int flags = stdio[i] < 0 || !isatty(stdio[i]) ? -1 : fcntl(stdio[i], F_GETFL);
                if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY)
                        continue;
                if (i == STDIN_FILENO)
                        t->instead[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                else if (run & PV_TTY_REOPENS)
                        errno = EPERM;
                else
                        t->instead[i] = open_for_output(stdio[i]);
                if (t->instead[i] >= 0)
                        continue;
                (void)pv_err_set(err, PV_ERR_SYS, errno, "in the background: open the terminal for output alone");
                return pv_err_hint(err, "redirect it to a file, or use --detach");
        }
        if (t->instead[STDIN_FILENO] >= 0)
                pv_log_note(
                        "in the background: the command gets no input, since it could read what you type elsewhere");
        return 0;
}

void pv_tty_note_settings(struct pv_tty *t)
{
        if (!t->noted)
                t->noted = tcgetattr(t->fd, &t->settings) == 0;
}

int pv_tty_open(struct pv_tty *t, const int stdio[3], unsigned flags, struct pv_err *err)
{
        t->own = getpgrp();
        t->fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
        t->given = (flags & PV_TTY_STDIO) && pv_tty_is_ours(t);
        if (t->given)
                pv_tty_note_settings(t);
        t->guarded = t->fd >= 0 && (flags & PV_TTY_GUARDED);
        return t->guarded && !pv_tty_is_ours(t) ? set_apart(t, stdio, flags, err) : 0;
}

void pv_tty_close(struct pv_tty *t)
{
        pv_fd_closep(&t->fd);
        for (int i = 0; i < 3; i++)
                pv_fd_closep(&t->instead[i]);
}

char *pv_tty_path(const struct pv_tty *t, const int stdio[3])
{
        char path[64];
        for (int i = 0; t->fd >= 0 && !t->apart && i < 3; i++)
                if (stdio[i] >= 0 && ttyname_r(stdio[i], path, sizeof path) == 0)
                        return pv_strdup(path);
        return NULL;
}

bool pv_tty_is_ours(const struct pv_tty *t)
{
        return t->fd >= 0 && tcgetpgrp(t->fd) == t->own;
}

bool pv_tty_allows(const struct pv_tty *t)
{
        return !t->guarded || t->apart || pv_tty_is_ours(t);
}

void pv_tty_take(struct pv_tty *t)
{
        if (t->given) {
                (void)tcsetpgrp(t->fd, t->own); /* a terminal that hung up is nobody's */
                (void)tcflow(t->fd, TCOON);     /* what the command stopped by tcflow(3) no key lets go on */
        }
        t->given = false;
}

static bool same_settings(const struct termios *a, const struct termios *b)
{
        return a->c_iflag == b->c_iflag && a->c_oflag == b->c_oflag && a->c_cflag == b->c_cflag &&
               a->c_lflag == b->c_lflag && memcmp(a->c_cc, b->c_cc, sizeof a->c_cc) == 0;
}

/*
 * What programs that want the keys to themselves ask of a terminal besides: out of the other screen, the cursor
 * shown, mouse, focus and bracketed paste not reported, plain keys and letters. Each does nothing where it is so.
 */
static void reset_screen(const struct pv_tty *t)
{
        static const char plain[] = "\033[?1047l\033[?25h\033[?1000l\033[?1002l\033[?1003l\033[?1004l\033[?1006l"
                                    "\033[?2004l\033[?1l\033>\033[>4;0m\033[<9u\033[0m\r\n";
        const char *term = getenv("TERM");
        struct pollfd p = { .fd = t->fd, .events = POLLOUT };
        if (!term || !*term || pv_streq(term, "dumb") || poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT))
                return;
        if (write(t->fd, plain, sizeof plain - 1) < 0)
                return; /* the terminal is gone */
}

void pv_tty_restore_settings(const struct pv_tty *t)
{
        struct termios now;
        if (!t->noted || !pv_tty_is_ours(t) || tcgetattr(t->fd, &now) < 0 || same_settings(&now, &t->settings))
                return;
        (void)tcsetattr(t->fd, TCSANOW, &t->settings);
        if ((now.c_lflag & ICANON) == 0 && (t->settings.c_lflag & ICANON))
                reset_screen(t);
}

int pv_tty_lead_group(const struct pv_tty *t)
{
        if (t->apart)
                return setsid() < 0 ? -1 : 0;
        if (setpgid(0, 0) < 0)
                return -1;
        if (t->given)
                (void)tcsetpgrp(t->fd, getpid());
        return 0;
}

void pv_tty_stop_with_group(int sig)
{
        struct sigaction dfl = { .sa_handler = SIG_DFL }, old;
        sigset_t one, mask;
        if (sig == SIGSTOP) /* it would stop the sandbox's init as well, which is in this group */
                sig = SIGTSTP;
        sigemptyset(&one);
        sigaddset(&one, sig);
        (void)sigaction(sig, &dfl, &old);
        (void)kill(0, sig);
        (void)sigprocmask(SIG_UNBLOCK, &one, &mask); /* stops here; an orphaned group goes on at once */
        (void)sigprocmask(SIG_SETMASK, &mask, NULL);
        (void)sigaction(sig, &old, NULL);
}
