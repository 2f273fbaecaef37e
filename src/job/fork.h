/* SPDX-License-Identifier: Apache-2.0 */
/* A run that starts on what another job has staged. */
#ifndef PV_JOB_FORK_H
#define PV_JOB_FORK_H

#include "job/run.h"

/*
 * Decides a run of argv in the boundary that the parent had, on its stage as it was at the checkpoint (NULL: as it is
 * now). Nothing is made: pv_run_execute() does it. The plan is the parent's but for the command, the directory it
 * starts in, and what pv_admit_again() decides anew: the agent's profile and the environment. PV_ERR_STATE: the parent
 * was not staged.
 */
int pv_fork_decide(const struct pv_job *parent, const char *checkpoint, const struct pv_run *run,
                   struct pv_run_plan *out, struct pv_err *err);

#endif
