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
 * What is kept of the log is bounded: old blocks of the file are given back to the file system (its beginning becomes a
 * hole), so that offsets stay what they were. Output that cannot be written (a full disk) is lost, and the command goes
 * on.
 *
 * Failure: before the start errors go to the starter's stderr and the exit code is the starter's. A starter that is
 * gone by then (Ctrl-C) takes the job with it.
 */
#include "job/detach.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include "base/container.h"
#include "base/syscall.h"

#define LOG_KEPT  (UINT64_C(64) << 20)
#define LOG_CHECK (UINT64_C(1) << 20) /* how often, in bytes, it is looked at */
/*
 * At the end: what is still in the terminal comes within that time, and is not more than these bytes. The rest is from
 * a process that outlives the job (sudo, ambient), and may never end.
 */
#define DRAIN_MS  200
#define DRAIN_MAX (1U << 20)

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

/*
 * The terminal's output.
 */

static void let_go_of_old(struct pv_detached *d)
{
        off_t size = lseek(d->log, 0, SEEK_END);
        d->logged = 0;
        /* Whole blocks of any file system: what is left of half a one would be zeros that nobody said. */
        off_t old = (size - (off_t)LOG_KEPT) & ~(off_t)(LOG_CHECK - 1);
        if (old > 0)
                (void)fallocate(d->log, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, old);
}

/* One piece: its bytes. 0: there is nothing now, or never will be (*ended). */
static size_t keep_some(struct pv_detached *d, bool *ended)
{
        char buf[65536];
        struct pv_err ignored = PV_ERR_INIT;
        ssize_t n = read(d->master, buf, sizeof buf);
        *ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        if (n <= 0)
                return 0;
        (void)pv_fd_write_all(d->log, buf, (size_t)n, PV_JOB_STDOUT, &ignored);
        d->logged += (uint64_t)n;
        if (d->logged >= LOG_CHECK)
                let_go_of_old(d);
        return (size_t)n;
}

static void master_ready(struct pv_boundary_watch *w, short revents)
{
        struct pv_detached *d = PV_CONTAINER_OF(w, struct pv_detached, watch);
        bool ended = false;
        (void)revents;
        (void)keep_some(d, &ended);
        if (ended)
                w->fd = -1;
}

void pv_detached_serve(struct pv_detached *d, struct pv_boundary *b, int log)
{
        if (d->master < 0)
                return;
        d->log = log;
        d->watch = (struct pv_boundary_watch){ .fd = d->master, .events = POLLIN, .ready = master_ready };
        if (pv_boundary_watch_add(b, &d->watch) == 0)
                d->boundary = b;
}

void pv_detached_stop(struct pv_detached *d)
{
        if (d->boundary)
                pv_boundary_watch_remove(d->boundary, &d->watch);
        d->boundary = NULL;
}

void pv_detached_drain(struct pv_detached *d)
{
        bool ended = false;
        size_t kept = 0;
        pv_fd_closep(&d->slave); /* the last one: the end will be seen */
        while (d->master >= 0 && d->log >= 0 && !ended && kept < DRAIN_MAX) {
                struct pollfd p = { .fd = d->master, .events = POLLIN };
                size_t n = keep_some(d, &ended);
                kept += n;
                if (n == 0 && !ended && poll(&p, 1, DRAIN_MS) == 0)
                        return;
        }
}
