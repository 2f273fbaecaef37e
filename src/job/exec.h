/* SPDX-License-Identifier: Apache-2.0 */
/* A further command in a running job, from another process: the client of the verb `exec`. */
#ifndef PV_JOB_EXEC_H
#define PV_JOB_EXEC_H

#include <sys/ioctl.h>
#include "base/err.h"
#include "job/store.h"

struct pv_exec_request {
        char *const *argv;
        const char *cwd;     /* the caller's directory; or NULL */
        const char *term;    /* the caller's TERM; NULL: the job's */
        int stdio[3];        /* borrowed; -1: of a terminal that is made inside */
        bool terminal;       /* make one */
        struct winsize size; /* of it */
};

/* May a command in a job have this descriptor? A socket or a directory is more than bytes to read and write. */
bool pv_exec_may_have(int fd);

/*
 * Returns when the command was exec'd. *conn is the caller's; closing it hangs the command up. *terminal: the master of
 * the terminal, the caller's, non-blocking; or -1. Errors as of `run`, and PV_ERR_STATE when the job does not run any
 * more.
 */
int pv_exec_begin(const struct pv_job *job, const struct pv_exec_request *x, int *conn, int *terminal,
                  struct pv_err *err);
/* To its process group. Errors will be seen by pv_exec_end(). */
void pv_exec_signal(int conn, int sig);
/* Takes the end from a readable conn: *code as a shell has it. PV_ERR_STATE: the job ended first. */
int pv_exec_end(int conn, int *code, struct pv_err *err);

#endif
