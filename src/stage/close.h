/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a batch cannot do without: the closure that pv_apply() insists on. The whole of what belongs together for a
 * person is pv_apply_close_selection() (apply.h).
 */
#ifndef PV_STAGE_CLOSE_H
#define PV_STAGE_CLOSE_H

#include "stage/apply.h"

/* Closes over new parents, hard-link groups, what a deleted or replaced directory takes with it. */
void pv_close_over_needs(const struct pv_changes *changes, bool *selected);

#endif
