/* SPDX-License-Identifier: Apache-2.0 */
/* Removing jobs from the store. */
#ifndef PV_JOB_REMOVE_H
#define PV_JOB_REMOVE_H

#include "job/store.h"

struct pv_job_removal {
        struct pv_job *const *jobs; /* all of the store, NULL for those that are gone: some may go on with its stage */
        size_t n;
        bool dry_run; /* all checks, nothing removed */
};

/* It was to go on in a stage that was there before, and never did: the stage does not go with it. */
bool pv_job_only_borrows_stage(const struct pv_job *job);

/* Another job that works on the same stage (the newest, as the list is), or NULL. */
const struct pv_job *pv_job_shares_stage(const struct pv_job *job, const struct pv_job_removal *how);

/*
 * Removes a job and its stage; *bytes is what the stage took. A stage that another job works on stays when it lies
 * elsewhere, and keeps the job when it lies in the job's own directory. PV_ERR_BUSY: it runs, somebody decides on it,
 * or another job stands on its layers or works on its stage. A batch that a crash left is finished first.
 */
int pv_job_remove(const struct pv_job *job, const struct pv_job_removal *how, uint64_t *bytes, struct pv_err *err);

/* Calls back for each job directory that cannot be read, with the reason. */
int pv_job_each_damaged(void (*each)(void *ctx, const char *id, const struct pv_err *reason), void *ctx,
                        struct pv_err *err);
/* Removes one; refused (PV_ERR_BUSY) while its lock or its stage's is held. */
int pv_job_remove_damaged(const char *id, struct pv_err *err);

/* Removes what interrupted makings and removals left behind an hour ago or longer. */
int pv_store_sweep(struct pv_err *err);

#endif
