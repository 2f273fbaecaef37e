/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/tty.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
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

int pv_tty_open(struct pv_tty *t, const int stdio[3], unsigned flags, struct pv_err *err)
{
        t->own = getpgrp();
        t->fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
        t->given = (flags & PV_TTY_STDIO) && pv_tty_is_ours(t);
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
        if (t->given)
                (void)tcsetpgrp(t->fd, t->own); /* a terminal that hung up is nobody's */
        t->given = false;
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
