/* SPDX-License-Identifier: Apache-2.0 */
/* How many changes there are as a person would count them, at the end of a run and in lists; review tells more. */
#ifndef PV_JOB_TALLY_H
#define PV_JOB_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include "policy/plan.h"
#include "stage/change.h"

struct pv_tally {
        size_t paths; /* without what lies below a deleted or replaced directory, and without git's own files */
        bool git;     /* git's own files changed */
};

/* roots: those of the changes. */
void pv_tally_changes(const struct pv_root *roots, size_t n_roots, const struct pv_changes *changes,
                      struct pv_tally *out);

#endif
