/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Observations as the Run Bundle's JSON, and what follows from them for safety. The safety section is made from
 * observations and from nothing else: no plan, no option and no exit code can raise it.
 */
#ifndef PV_EVIDENCE_RECORD_H
#define PV_EVIDENCE_RECORD_H

#include <jansson.h>
#include "evidence/observation.h"

enum pv_record_extent {
        PV_RECORD_WHOLE,   /* the command started: a dimension without a control has none */
        PV_RECORD_PARTIAL, /* set-up ended early: a dimension without a control is not known */
};

/* The array executor_observations; null for NULL. A new reference. */
json_t *pv_record_observations(const struct pv_observations *all);

/*
 * The object safety: for each dimension its level and one boolean (enforced or not), and warnings. All unknown for
 * NULL. A new reference.
 */
json_t *pv_record_safety(const struct pv_observations *all, enum pv_record_extent extent);

/* The level of a dimension as this section tells it: PV_LEVEL_UNKNOWN where it is not known. */
enum pv_level pv_record_level(const struct pv_observations *all, enum pv_record_extent extent, enum pv_dimension d);

#endif
