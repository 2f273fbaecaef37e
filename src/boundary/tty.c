/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/tty.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/str.h"

void pv_tty_open(struct pv_tty *t, enum pv_tty_flags flags)
{
        t->own = getpgrp();
        t->fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
        t->given = (flags & PV_TTY_STDIO) && pv_tty_is_ours(t);
}

void pv_tty_close(struct pv_tty *t)
{
        pv_fd_closep(&t->fd);
}

char *pv_tty_path(const struct pv_tty *t, const int stdio[3])
{
        char path[64];
        for (int i = 0; t->fd >= 0 && i < 3; i++)
                if (stdio[i] >= 0 && ttyname_r(stdio[i], path, sizeof path) == 0)
                        return pv_strdup(path);
        return NULL;
}

bool pv_tty_is_ours(const struct pv_tty *t)
{
        return t->fd >= 0 && tcgetpgrp(t->fd) == t->own;
}

void pv_tty_take(struct pv_tty *t)
{
        if (t->given)
                (void)tcsetpgrp(t->fd, t->own); /* a terminal that hung up is nobody's */
        t->given = false;
}

int pv_tty_lead_group(const struct pv_tty *t)
{
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
