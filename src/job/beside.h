/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding on a job whose command still runs: what a decider asks of the supervisor, over one connection that is made
 * first of all (a decider may have to enter a user namespace of its own, from where no connection is taken). The job
 * stands still between freezer.freeze() and freezer.thaw(), or the end of the connection, or the decider's.
 */
#ifndef PV_JOB_BESIDE_H
#define PV_JOB_BESIDE_H

#include "job/store.h"
#include "stage/apply.h"
#include "stage/stage.h"

struct pv_beside {
        const struct pv_job *job; /* borrowed; NULL: not beside a run */
        int conn;
        bool held, unstoppable;
        uint64_t since_us, held_us;
        struct pv_freezer freezer; /* refers to this struct, which must stay where it is */
};

/* PV_ERR_STATE: it does not run any more. */
int pv_beside_open(const struct pv_job *job, struct pv_beside *b, struct pv_err *err);

/* Opens the job's stage. PV_ERR_STATE as above; PV_ERR_BUSY: somebody else decides, and goes on to. */
int pv_beside_open_stage(struct pv_beside *b, struct pv_stage **out, struct pv_err *err);

/* Gives the mounted views to a stage that was opened by other means, to look at it. */
int pv_beside_give_views(struct pv_beside *b, struct pv_stage *s, struct pv_err *err);

/* Lets go, should it be held, and notes in the job's events for how long it stood still; what: "apply", ... */
void pv_beside_close(struct pv_beside *b, const char *what);

#endif
