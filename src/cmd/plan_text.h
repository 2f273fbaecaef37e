/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a run for people and programs: `run --dry-run`. */
#ifndef PV_CMD_PLAN_TEXT_H
#define PV_CMD_PLAN_TEXT_H

#include <stdbool.h>
#include "policy/plan.h"

/* To stdout. 0 or -1. */
int pv_plan_show(const struct pv_plan *plan, bool as_json, struct pv_err *err);

#endif
