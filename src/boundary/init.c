/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "boundary/report.h"

int pv_init_die_with_parent(int control)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return -1;
        struct pollfd p = { .fd = control, .events = 0 };
        return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) ? -1 : 0;
}

/* Kills the children there are: their own children become ours in turn. False when there were none. */
static bool kill_children(void)
{
        char path[64], text[4096];
        (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
                (void)close(fd);
        if (n <= 0)
                return false;
        text[n] = '\0';
        for (char *p = text, *end; *p; p = end + strspn(end, " ")) {
                long pid = strtol(p, &end, 10);
                if (end == p)
                        break;
                (void)kill((pid_t)pid, SIGKILL);
        }
        return true;
}

/*
 * Ambient runs have no namespace to end. A child that is another user's (sudo) cannot be killed and is left after a
 * moment, rather than waited for for ever.
 */
static void sweep(void)
{
        for (int rounds = 0; rounds < 500 && kill_children(); rounds++) {
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                (void)poll(NULL, 0, rounds < 50 ? 0 : 2);
        }
}

_Noreturn static void finish(const struct pv_init *init, int code)
{
        if (!init->is_pid1)
                sweep();
        _exit(code);
}

/*
 * Reaps whatever ended; returns when nothing is left to reap, or does not return when it was the command. *listener
 * becomes ours to answer when it was the rename helper.
 */
static void reap(const struct pv_init *init, int *listener)
{
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
                if (init->rename && pv_rename_reaped(init->rename, pid))
                        *listener = pv_rename_take_over(init->rename);
                if (pid != init->command)
                        continue;
                if (WIFSTOPPED(status)) {
                        (void)pv_message_send(init->control, PV_MESSAGE_STOPPED, WSTOPSIG(status));
                        continue;
                }
                (void)pv_message_send(init->control, PV_MESSAGE_ENDED, status);
                finish(init, 0);
        }
}

static void obey(const struct pv_init *init)
{
        struct pv_message c;
        int r = pv_message_receive(init->control, &c, MSG_DONTWAIT);
        if (r == 0) {
                (void)kill(init->command, SIGKILL);
                finish(init, 1);
        }
        if (r < 0)
                return;
        switch (c.kind) {
        case PV_MESSAGE_SIGNAL:
                (void)kill(init->command, c.value);
                break;
        case PV_MESSAGE_FOREGROUND:
                if (init->tty >= 0)
                        (void)tcsetpgrp(init->tty, init->command);
                (void)kill(-init->command, SIGCONT);
                break;
        case PV_MESSAGE_SIGNAL_GROUP:
                if (kill(-init->command, c.value) < 0)
                        (void)kill(init->command, c.value);
                break;
        default:
                break;
        }
}

void pv_init_run(const struct pv_init *init)
{
        sigset_t chld;
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        int sfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
        struct pollfd p[3] = { { .fd = sfd, .events = POLLIN },
                               { .fd = init->control, .events = POLLIN },
                               { .fd = -1, .events = POLLIN } };
        for (;;) {
                reap(init, &p[2].fd); /* first: the command may have ended before the descriptor was there */
                if (poll(p, 3, sfd < 0 ? 10 : -1) < 0 && errno != EINTR)
                        finish(init, 1);
                struct signalfd_siginfo si;
                while (sfd >= 0 && read(sfd, &si, sizeof si) > 0)
                        ;
                if (p[1].revents)
                        obey(init);
                if (p[2].fd >= 0 && p[2].revents && !pv_rename_continue(p[2].fd))
                        p[2].fd = -1;
        }
}
