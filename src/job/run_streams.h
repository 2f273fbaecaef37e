/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The standard streams of a run's command: the person's own, a detached job's terminal, or files of the job's
 * (--stdio capture, and what of a detached job's is no terminal). fd is 0, 1 or 2 in all of this.
 */
#ifndef PV_JOB_RUN_STREAMS_H
#define PV_JOB_RUN_STREAMS_H

#include "job/detach.h"
#include "job/output.h"

struct pv_run_streams {
        struct pv_detached *detached; /* borrowed; NULL: the job is in the foreground */
        bool captured;
        int log[2];                 /* of stdout and stderr, where they are kept */
        struct pv_output output[2]; /* what goes there, of a command without a terminal */
        int theirs[2];              /* the command's ends of it, until it has them */
        int null;                   /* /dev/null for a terminal's stdin */
};
#define PV_RUN_STREAMS_INIT                                                                                        \
        {                                                                                                          \
                .log = { -1, -1 }, .output = { PV_OUTPUT_INIT, PV_OUTPUT_INIT }, .theirs = { -1, -1 }, .null = -1, \
        }
void pv_run_streams_fini(struct pv_run_streams *s);

/* Is it the detached job's own terminal? */
bool pv_run_streams_is_terminal(const struct pv_run_streams *s, int fd);
/* The command's descriptor, as far as it is there before the job is; borrowed, -1: it comes late. */
int pv_run_streams_early(const struct pv_run_streams *s, int fd);

/* Makes the job's files. */
int pv_run_streams_open(struct pv_run_streams *s, int job_dir, struct pv_err *err);
/* What pv_run_streams_early() left open; -1: it did not. Borrowed. */
int pv_run_streams_late(const struct pv_run_streams *s, int fd);
/* The command has its ends. */
void pv_run_streams_given(struct pv_run_streams *s);

/* Keeps what comes within pv_boundary_wait(). */
void pv_run_streams_serve(struct pv_run_streams *s, struct pv_boundary *b);
/* When nothing writes any more: keeps what is still on its way. Must: before the boundary is freed. */
void pv_run_streams_finish(struct pv_run_streams *s);

#endif
