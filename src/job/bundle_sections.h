/* SPDX-License-Identifier: Apache-2.0 */
/* Sections of the Run Bundle. Each returns a new reference. */
#ifndef PV_JOB_BUNDLE_SECTIONS_H
#define PV_JOB_BUNDLE_SECTIONS_H

#include "boundary/boundary.h"
#include "job/store.h"
#include "stage/change.h"

/* What was wanted of each dimension; says nothing of what was installed. request: the job's, or NULL. */
json_t *pv_bundle_plan(const struct pv_plan *plan, json_t *request);
/* changes NULL: not known. */
json_t *pv_bundle_filesystem(const struct pv_job *job, const struct pv_plan *plan, const struct pv_changes *changes);
json_t *pv_bundle_network(const struct pv_plan *plan, enum pv_level level, const json_t *sums, const json_t *granted);
json_t *pv_bundle_environment(const struct pv_plan *plan);
json_t *pv_bundle_resources(const struct pv_limits *asked, const struct pv_observations *observations, bool started,
                            const struct pv_exit *exit);

#endif
