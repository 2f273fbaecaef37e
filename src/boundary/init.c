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
#include "base/fd.h"
#include "boundary/exec.h"
#include "boundary/launch.h"
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
                if (end == p || *end != ' ') /* the buffer's end may cut a number: it is whole in the next round */
                        break;
                (void)kill((pid_t)pid, SIGKILL);
        }
        return true;
}

static bool was_killed(int status)
{
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/*
 * Ambient runs have no namespace to end. A child that is another user's (sudo) cannot be killed and is left after a
 * moment, rather than waited for for ever. How many were killed.
 */
static unsigned sweep(void)
{
        unsigned killed = 0;
        for (int rounds = 0; rounds < 500 && kill_children(); rounds++) {
                for (int status; waitpid(-1, &status, WNOHANG) > 0;)
                        killed += was_killed(status);
                (void)poll(NULL, 0, rounds < 50 ? 0 : 2);
        }
        return killed;
}

_Noreturn static void finish(const struct pv_init *init, int code)
{
        if (!init->is_pid1)
                (void)sweep();
        _exit(code);
}

/*
 * The command and those that came after it. A place stays taken as long as a process of its command's filter may be
 * there: the rename helper, and the listener when the helper has died, serve also what a command left behind.
 */
struct place {
        unsigned number; /* 0: the first command */
        pid_t pid;       /* 0: it has ended */
        struct pv_rename rename;
        bool helped; /* a helper may live */
};

/* The first command's, and as many as the supervisor lets be at a time, and as many again that left something. */
#define PLACES (1 + 2 * PV_BOUNDARY_EXECS)

struct state {
        const struct pv_init *init;
        struct place place[PLACES];
        bool over;                      /* the first command has ended... */
        int status;                     /* ...so */
        struct pollfd poll[2 + PLACES]; /* signals, control, each place's listener */
};
enum { POLL_SIGNALS, POLL_CONTROL, POLL_LISTENERS };

static bool is_helper(const struct state *s, pid_t pid)
{
        for (size_t i = 0; i < PLACES; i++)
                if (s->place[i].helped && pv_rename_reaped(&s->place[i].rename, pid))
                        return true;
        return false;
}

/*
 * kill(2) of all misses nobody who forks meanwhile, and an orphan has no other parent than us: when there is nobody
 * left to wait for, there is nobody left. How many had to be killed.
 */
static unsigned end_all(struct state *s)
{
        unsigned killed = 0;
        int status;
        pid_t pid;
        if (!s->init->is_pid1)
                return sweep();
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                ;
        if (pid < 0 && errno == ECHILD)
                return 0; /* kill(2) of all looks at every process of the machine */
        (void)kill(-1, SIGKILL);
        while ((pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR)
                killed += pid > 0 && !is_helper(s, pid) && was_killed(status);
        return killed;
}

/* The supervisor goes on with the record, while our own end dissolves the mounts. */
_Noreturn static void tell_the_end(struct state *s)
{
        const struct pv_init *init = s->init;
        struct pv_message m = { .kind = PV_MESSAGE_ENDED, .value = s->status };
        m.number = end_all(s);
        if (init->tty >= 0) /* who reads the other side of it sees its end */
                (void)close(init->tty);
        (void)getrusage(RUSAGE_CHILDREN, &m.usage);
        (void)pv_message_send_fds(init->control, &m, NULL, 0);
        _exit(0);
}

static bool is_free(const struct state *s, size_t i)
{
        return s->place[i].pid == 0 && !s->place[i].helped && s->poll[POLL_LISTENERS + i].fd < 0;
}

static void ended(struct state *s, struct place *p, int status)
{
        const struct pv_init *init = s->init;
        p->pid = 0;
        if (p->number) {
                if (p->helped && !pv_rename_has_helper(&p->rename)) { /* it did not come so far */
                        p->helped = false;
                        pv_rename_fini(&p->rename);
                }
                (void)pv_message_send_about(init->control, PV_MESSAGE_EXEC_ENDED, p->number, status);
                return;
        }
        s->over = true;
        s->status = status;
}

static void reaped(struct state *s, pid_t pid, int status)
{
        for (size_t i = 0; i < PLACES; i++) {
                struct place *p = &s->place[i];
                if (p->helped && pv_rename_reaped(&p->rename, pid)) {
                        p->helped = false;
                        s->poll[POLL_LISTENERS + i].fd = pv_rename_take_over(&p->rename);
                        pv_rename_fini(&p->rename);
                }
                if (pid != p->pid)
                        continue;
                if (!WIFSTOPPED(status))
                        ended(s, p, status);
                else if (p->number == 0)
                        (void)pv_message_send(s->init->control, PV_MESSAGE_STOPPED, WSTOPSIG(status));
        }
}

/* Whatever ended; does not return when it was the command. */
static void reap(struct state *s)
{
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
                reaped(s, pid, status);
        if (!s->over) /* what ended with the command was told first */
                return;
        tell_the_end(s);
}

/* -1: sent as the report of a launcher that is not started. */
static int start(struct state *s, size_t i, unsigned number, int *fds, struct pv_err *err)
{
        struct pv_launch *l = s->init->launch;
        struct place *p = &s->place[i];
        p->rename = (struct pv_rename)PV_RENAME_INIT;
        if (l->renames && pv_rename_prepare(&p->rename, err) < 0)
                return -1;
        pid_t pid = fork();
        if (pid == 0) {
                l->rename = p->rename;
                pv_launcher_exec(l, s->init->userns, fds);
        }
        if (pid < 0) {
                pv_rename_fini(&p->rename);
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: start a process");
        }
        p->number = number;
        p->pid = pid;
        p->helped = l->renames;
        pv_fd_closep(&p->rename.to_init[0]);
        return 0;
}

static void exec_another(struct state *s, unsigned number, int *fds)
{
        struct pv_err err = PV_ERR_INIT;
        size_t i = 1;
        while (i < PLACES && !is_free(s, i))
                i++;
        if (i == PLACES)
                (void)pv_err_set(&err, PV_ERR_BUSY, 0, "exec: too many commands have left processes in the job");
        if (i == PLACES || start(s, i, number, fds, &err) < 0)
                pv_report_error(fds[PV_EXEC_REPORT], &err);
}

static void signal_another(const struct state *s, unsigned number, int sig)
{
        for (size_t i = 1; i < PLACES; i++)
                if (s->place[i].number == number && s->place[i].pid > 0 && kill(-s->place[i].pid, sig) < 0)
                        (void)kill(s->place[i].pid, sig); /* it leads no group yet */
}

static void obey(struct state *s)
{
        const struct pv_init *init = s->init;
        struct pv_message c;
        int fds[PV_MESSAGE_FDS];
        int r = pv_message_receive_fds(init->control, &c, fds, MSG_DONTWAIT);
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
        case PV_MESSAGE_EXEC:
                exec_another(s, c.number, fds);
                break;
        case PV_MESSAGE_EXEC_SIGNAL:
                signal_another(s, c.number, c.value);
                break;
        default:
                break;
        }
        for (size_t i = 0; i < PV_MESSAGE_FDS; i++)
                pv_fd_closep(&fds[i]);
}

static void state_init(struct state *s, const struct pv_init *init)
{
        sigset_t chld;
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        s->init = init;
        s->place[0].pid = init->command;
        for (size_t i = 0; i < POLL_LISTENERS + PLACES; i++)
                s->poll[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
        if (init->rename) {
                s->place[0].rename = *init->rename;
                s->place[0].helped = init->rename->shared;
        }
        s->poll[POLL_SIGNALS].fd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
        s->poll[POLL_CONTROL].fd = init->control;
}

void pv_init_run(const struct pv_init *init)
{
        static struct state s;
        state_init(&s, init);
        const int sfd = s.poll[POLL_SIGNALS].fd;
        for (;;) {
                reap(&s); /* first: the command may have ended before the descriptor was there */
                if (poll(s.poll, POLL_LISTENERS + PLACES, sfd < 0 ? 10 : -1) < 0 && errno != EINTR)
                        finish(init, 1);
                struct signalfd_siginfo si;
                while (sfd >= 0 && read(sfd, &si, sizeof si) > 0)
                        ;
                if (s.poll[POLL_CONTROL].revents)
                        obey(&s);
                for (size_t i = POLL_LISTENERS; i < POLL_LISTENERS + PLACES; i++)
                        if (s.poll[i].fd >= 0 && s.poll[i].revents && !pv_rename_continue(s.poll[i].fd))
                                pv_fd_closep(&s.poll[i].fd);
        }
}
