/* SPDX-License-Identifier: Apache-2.0 */
/* The network's part of admission: mode, rules, limits and published ports of a request into the plan. */
#ifndef PV_POLICY_NETWORK_H
#define PV_POLICY_NETWORK_H

#include "policy/plan.h"
#include "policy/request.h"

/* plan->safe and plan->profile are set already. PV_ERR_USAGE: a rule that is none, or options that contradict each other. */
int pv_admit_network(const struct pv_request *r, struct pv_plan *plan, struct pv_err *err);

#endif
