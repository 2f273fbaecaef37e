/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to run a command that nobody waits for, and to let people come and look.
 *
 *   pvisor run --detach           supervisor                       command
 *   fork -----------------------> session, terminal
 *   waits                         job, stage, boundary ----------> exec
 *                       <-- id -- standard descriptors let go
 *   prints the id, exits          serves: terminal -> stdout.log
 *                                 end: closing.log, bundle
 *
 * The terminal is a pseudo-terminal that the supervisor makes, and its own controlling one: to the boundary it is as if
 * a person had started the run there, keys and all. Its master stays with the supervisor, which writes down everything
 * that comes out of it. `attach` gets a copy of the master, to type and to set the size; what it shows it reads from
 * the log. So a window that is slow, stopped or killed holds up nobody, each window sees all, and none is missed.
 *
 * Failure: before the start errors go to the starter's stderr and the exit code is the starter's. A starter that is
 * gone by then (Ctrl-C) takes the job with it.
 */
#include "job/detach.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include "base/syscall.h"

/* What is still in the terminal at the end comes within that time. */
#define SETTLE_MS 200

void pv_detached_fini(struct pv_detached *d)
{
        pv_fd_closep(&d->channel);
        pv_fd_closep(&d->slave);
        pv_fd_closep(&d->master);
}

static int wait_for(pid_t pid, int channel, char id[PV_JOB_ID_TEXT], int *code, struct pv_err *err)
{
        int status;
        ssize_t n;
        while ((n = recv(channel, id, PV_JOB_ID_TEXT, 0)) < 0 && errno == EINTR)
                ;
        if (n == PV_JOB_ID_TEXT)
                return 0;
        id[0] = '\0';
        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "wait for the detached job");
        *code = WIFEXITED(status) ? WEXITSTATUS(status) : 125;
        return 0;
}

/* The person's settings and size, where there are any. */
static int open_terminal(struct pv_detached *d, struct pv_err *err)
{
        struct termios modes;
        struct winsize size;
        char path[64];
        d->master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (d->master < 0 || grantpt(d->master) < 0 || unlockpt(d->master) < 0 ||
            ptsname_r(d->master, path, sizeof path) != 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "a terminal for the job");
        d->slave = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (d->slave < 0 || ioctl(d->slave, TIOCSCTTY, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "a terminal for the job");
        if (tcgetattr(STDOUT_FILENO, &modes) == 0)
                (void)tcsetattr(d->slave, TCSANOW, &modes);
        if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
                (void)ioctl(d->master, TIOCSWINSZ, &size);
        return 0;
}

/* In the new process: closes all but the standard descriptors, the channel and the summary. */
static int keep_only(struct pv_detached *d, int channel)
{
        const int first = STDERR_FILENO + 1, above = first + 2;
        int from[] = { channel, d->summary };
        for (int i = 0; i < 2; i++) /* out of the way of the other one */
                if (from[i] >= 0 && (from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, above)) < 0)
                        return -1;
        if (dup3(from[0], first, O_CLOEXEC) < 0)
                return -1;
        d->channel = first;
        if (from[1] < 0)
                return pv_sys_close_range((unsigned)first + 1, ~0U, 0);
        if (dup3(from[1], first + 1, O_CLOEXEC) < 0)
                return -1;
        d->summary = first + 1;
        return pv_sys_close_range((unsigned)above, ~0U, 0);
}

int pv_detach(struct pv_detached *d, bool *starter, char id[PV_JOB_ID_TEXT], int *code, struct pv_err *err)
{
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach");
        pv_auto_fd ours = pair[0];
        pv_auto_fd theirs = pair[1];
        pid_t pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach");
        *starter = pid > 0;
        if (pid > 0) {
                pv_fd_closep(&theirs);
                return wait_for(pid, ours, id, code, err);
        }
        if (keep_only(d, theirs) < 0 || setsid() < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach");
        (void)pv_fd_steal(&ours);
        (void)pv_fd_steal(&theirs);
        for (int i = 0; i < 3; i++)
                d->tty[i] = isatty(i);
        return d->tty[STDOUT_FILENO] ? open_terminal(d, err) : 0;
}

bool pv_detached_has_terminal(const struct pv_detached *d, int fd)
{
        return d->master >= 0 && d->tty[fd];
}

int pv_detached_started(struct pv_detached *d, const struct pv_job *job, int job_dir, struct pv_err *err)
{
        char id[PV_JOB_ID_TEXT] = { 0 };
        const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
        pv_auto_fd words = openat(job_dir, PV_JOB_CLOSING, flags, 0600);
        pv_auto_fd null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (words < 0 || null < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach");
        memcpy(id, job->id, sizeof id);
        if (send(d->channel, id, sizeof id, MSG_NOSIGNAL) != sizeof id)
                return pv_err_set(err, PV_ERR_STATE, 0, "detach: who started the job is gone");
        pv_fd_closep(&d->channel);
        if (dup2(null, STDIN_FILENO) < 0 || dup2(words, STDOUT_FILENO) < 0 || dup2(words, STDERR_FILENO) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach");
        pv_fd_closep(&d->summary); /* the starter says the rest */
        return 0;
}

void pv_detached_serve(struct pv_detached *d, struct pv_boundary *b, int log)
{
        d->output = (struct pv_output)PV_OUTPUT_INIT;
        d->output.from = d->master;
        d->output.log = log;
        pv_output_serve(&d->output, b);
}

void pv_detached_stop(struct pv_detached *d)
{
        pv_output_stop(&d->output);
}

void pv_detached_drain(struct pv_detached *d)
{
        pv_fd_closep(&d->slave); /* the last one: the end will be seen */
        pv_output_drain(&d->output, SETTLE_MS);
}
