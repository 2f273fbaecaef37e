/* SPDX-License-Identifier: Apache-2.0 */
/* What apply tells: what it took, what it left and why, and what to type next. */
#ifndef PV_CMD_APPLY_REPORT_H
#define PV_CMD_APPLY_REPORT_H

#include "cmd/resolve.h"

/* To stdout. */
int pv_apply_report(const struct pv_decision *d, const struct pv_apply_result *r, const struct pv_resolution *resolved,
                    bool dry_run, struct pv_err *err);
json_t *pv_apply_report_json(const struct pv_decision *d, const struct pv_apply_result *r,
                             const struct pv_resolution *resolved, bool dry_run, bool refused);

#endif
