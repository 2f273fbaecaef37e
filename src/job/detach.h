/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run that goes on without the terminal that it was started from (`run --detach`): in a process and a session of its
 * own, its output kept in the job's directory. When the person's output is a terminal, the command gets another one,
 * which the supervisor holds and `attach` gives a window on. The theory of operation heads detach.c.
 */
#ifndef PV_JOB_DETACH_H
#define PV_JOB_DETACH_H

#include "boundary/boundary.h"
#include "job/output.h"
#include "job/store.h"

struct pv_detached {
        int channel;       /* to the waiting starter; -1 once it was told */
        int summary;       /* of --json, the starter's (borrowed); in the new process its own until the command runs */
        bool tty[3];       /* which of the starter's standard descriptors were its terminal */
        int master, slave; /* of the command's terminal, the supervisor's controlling one; -1: there is none */
        struct pv_output output; /* of the terminal */
};
#define PV_DETACHED_INIT                                                                          \
        {                                                                                         \
                .channel = -1, .summary = -1, .master = -1, .slave = -1, .output = PV_OUTPUT_INIT \
        }
void pv_detached_fini(struct pv_detached *d);
#define pv_auto_detached __attribute__((cleanup(pv_detached_fini))) struct pv_detached

/*
 * Forks. In the new process (*starter false): a session of its own; standard descriptors stay the starter's until
 * pv_detached_started(), and so does d->summary, so that errors are seen; everything else is closed. In the starter:
 * waits; *id is the job's once it runs, else *id is "" and *code what the other one exited with.
 */
int pv_detach(struct pv_detached *d, bool *starter, char id[PV_JOB_ID_TEXT], int *code, struct pv_err *err);

/* Is standard descriptor fd to be the terminal's? */
bool pv_detached_has_terminal(const struct pv_detached *d, int fd);

/*
 * The command runs: lets go of the person's terminal (our own words go to closing.log from now on) and tells the
 * starter. PV_ERR_STATE: it is gone, so that nobody would know of the job.
 */
int pv_detached_started(struct pv_detached *d, const struct pv_job *job, int job_dir, struct pv_err *err);

/* Keeps what the terminal says in log (borrowed), within pv_boundary_wait(). No terminal is silence. */
void pv_detached_serve(struct pv_detached *d, struct pv_boundary *b, int log);
/* Must: before the boundary is freed. */
void pv_detached_stop(struct pv_detached *d);
/* When nothing of the command is left: keeps the rest. */
void pv_detached_drain(struct pv_detached *d);

#endif
