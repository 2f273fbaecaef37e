/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large the stage of a running job is, and what happens when it grows beyond its soft limit: one warning and one
 * event, or the end of the run (--stage-max-size). Measured by a short-lived process of the lowest priority, seldom:
 * at once when the file system's use says that the limit may be near, else the less often the longer it takes. So the
 * stage may be larger than the limit for a moment: it protects a disk from an afternoon, not from a second.
 */
#ifndef PV_JOB_STAGE_SIZE_H
#define PV_JOB_STAGE_SIZE_H

#include "boundary/boundary.h"
#include "job/store.h"
#include "stage/stage.h"

struct pv_stage_size; /* of a running job; opaque */

struct pv_stage_size_job {
        const struct pv_job *job;
        int lock;    /* the job's */
        int job_dir; /* what was measured is kept there as "size" */
        const struct pv_plan *plan;
        struct pv_stage *stage;
        struct pv_boundary *boundary;
};

/* All of it is the caller's and outlives *out. Nothing is measured before the first second has passed. */
int pv_stage_size_watch(const struct pv_stage_size_job *job, struct pv_stage_size **out, struct pv_err *err);
/* NULL is silence. */
void pv_stage_size_end(struct pv_stage_size *w);

#endif
