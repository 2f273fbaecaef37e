/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that review and diff look at: a job, its changes, what git/ says of them. */
#ifndef PV_CMD_LOOK_H
#define PV_CMD_LOOK_H

#include "cmd/verdicts.h"
#include "job/contained.h"
#include "job/store.h"
#include "stage/change.h"

struct pv_look {
        struct pv_job *job;
        struct pv_stage *stage;     /* NULL: not staged, dropped, or never made */
        struct pv_changes *changes; /* NULL with stage */
        struct pv_verdicts verdicts;
        struct pv_contained *result, *host; /* NULL: the views cannot be made; see verdicts.no_git */
        struct pv_git_runner view, base;    /* of those two */
};
/*
 * Opens the job for looking; job is taken. A stage that is not there any more is no error, a damaged one is. All of it
 * works while the job runs, on what is there at this moment.
 */
int pv_look_open(struct pv_job *job, struct pv_look *out, struct pv_err *err);
void pv_look_close(struct pv_look *l);

#endif
