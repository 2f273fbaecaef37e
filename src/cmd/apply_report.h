/* SPDX-License-Identifier: Apache-2.0 */
/* What apply tells: what it took, what it left and why, and what to type next. */
#ifndef PV_CMD_APPLY_REPORT_H
#define PV_CMD_APPLY_REPORT_H

#include "cmd/commits.h"
#include "cmd/resolve.h"

/* What an apply came to. */
struct pv_apply_outcome {
        const struct pv_decision *decision;
        const struct pv_apply_result *result;
        const struct pv_resolution *resolved;
        const struct pv_cmd_commits *commits; /* NULL without --commits */
        bool dry_run, refused;
};
/* To stdout. */
int pv_apply_report(const struct pv_apply_outcome *o, struct pv_err *err);
json_t *pv_apply_report_json(const struct pv_apply_outcome *o);

#endif
