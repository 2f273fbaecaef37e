/* SPDX-License-Identifier: Apache-2.0 */
#include "job/run_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/fd.h"
#include "job/store.h"

void pv_run_streams_fini(struct pv_run_streams *s)
{
        for (int i = 0; i < 2; i++) {
                pv_output_fini(&s->output[i]);
                pv_fd_closep(&s->log[i]);
        }
        pv_run_streams_given(s);
        pv_fd_closep(&s->null);
}

bool pv_run_streams_is_terminal(const struct pv_run_streams *s, int fd)
{
        return s->detached && !s->captured && pv_detached_has_terminal(s->detached, fd);
}

/* Is it the job's file, or /dev/null? */
static bool is_kept(const struct pv_run_streams *s, int fd)
{
        if (pv_run_streams_is_terminal(s, fd) || (!s->captured && !s->detached))
                return false;
        return fd != STDIN_FILENO || isatty(STDIN_FILENO);
}

int pv_run_streams_early(const struct pv_run_streams *s, int fd)
{
        return pv_run_streams_is_terminal(s, fd) ? s->detached->slave : is_kept(s, fd) ? -1 : fd;
}

static int open_output(struct pv_run_streams *s, int job_dir, int fd, const char *name, struct pv_err *err)
{
        int i = fd - STDOUT_FILENO;
        s->log[i] = openat(job_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
        if (s->log[i] < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", name);
        return is_kept(s, fd) ? pv_output_open(&s->output[i], s->log[i], &s->theirs[i], err) : 0;
}

/* A captured command has no terminal; reading from one in the background would stop it. */
int pv_run_streams_open(struct pv_run_streams *s, int job_dir, struct pv_err *err)
{
        if (!s->captured && !s->detached)
                return 0;
        if (open_output(s, job_dir, STDOUT_FILENO, PV_JOB_STDOUT, err) < 0 ||
            open_output(s, job_dir, STDERR_FILENO, PV_JOB_STDERR, err) < 0)
                return -1;
        if (!is_kept(s, STDIN_FILENO))
                return 0;
        s->null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return s->null < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "/dev/null") : 0;
}

int pv_run_streams_late(const struct pv_run_streams *s, int fd)
{
        return !is_kept(s, fd) ? -1 : fd == STDIN_FILENO ? s->null : s->theirs[fd - STDOUT_FILENO];
}

void pv_run_streams_given(struct pv_run_streams *s)
{
        for (int i = 0; i < 2; i++)
                pv_fd_closep(&s->theirs[i]);
}

void pv_run_streams_serve(struct pv_run_streams *s, struct pv_boundary *b)
{
        if (s->detached)
                pv_detached_serve(s->detached, b, s->log[0]);
        for (int i = 0; i < 2; i++)
                pv_output_serve(&s->output[i], b);
}

void pv_run_streams_finish(struct pv_run_streams *s)
{
        if (s->detached) {
                pv_detached_stop(s->detached);
                pv_detached_drain(s->detached);
        }
        for (int i = 0; i < 2; i++) {
                pv_output_stop(&s->output[i]);
                pv_output_drain(&s->output[i], 0);
        }
}
