/* SPDX-License-Identifier: Apache-2.0 */
/* The network's part of a plan in request.json. */
#ifndef PV_JOB_NETWORK_JSON_H
#define PV_JOB_NETWORK_JSON_H

#include "base/json.h"
#include "policy/plan.h"

/*
 * {"layers": [{"name", "allow", "deny"}], "limits": [{"target", "bytes_per_second"}], "allow_private_ips", "publish"}
 */
json_t *pv_job_network_json(const struct pv_plan *p);
/* The reverse, into a zeroed policy. */
int pv_job_network_read(const json_t *j, struct pv_plan *p, struct pv_err *err);

#endif
