/* SPDX-License-Identifier: Apache-2.0 */
/* What `run` says when it is over: a line or two for people, a JSON object for programs. */
#ifndef PV_JOB_RUN_REPORT_H
#define PV_JOB_RUN_REPORT_H

#include "base/json.h"
#include "boundary/boundary.h"
#include "job/store.h"
#include "stage/change.h"

struct pv_run_outcome {
        const struct pv_job *job; /* NULL: it failed before there was one */
        const struct pv_plan *plan;
        const struct pv_exit *exit; /* NULL: nothing was started */
        int code;
        const struct pv_changes *changes;           /* NULL: not staged, or not known */
        const struct pv_observations *observations; /* NULL: nothing was started */
        const json_t *network;                      /* what the data plane summed up; NULL: none */
        const struct pv_err *failure;               /* NULL: none */
};

/* "exited", "signaled", "timeout", "killed" */
const char *pv_run_end_name(enum pv_end end);

/* Speaks on stderr, as the log's level allows; writes the summary to its descriptor unless that is -1. */
void pv_run_report(const struct pv_run_outcome *o, int summary);

/* Whether a line of closing.log says what the record itself tells: refusals, and how much was staged. */
bool pv_run_report_repeats_record(const char *line, const char *id);

#endif
