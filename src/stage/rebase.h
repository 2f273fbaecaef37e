/* SPDX-License-Identifier: Apache-2.0 */
/* Moving the baseline of paths that were decided on. Inside src/stage; settle.h has the form for all roots. */
#ifndef PV_STAGE_REBASE_H
#define PV_STAGE_REBASE_H

#include "stage/preimage.h"
#include "stage/settle.h"

/*
 * Writes the preimages of one root anew, in their file of now and in those of its frozen layers: with the paths of
 * that root in the list, which is in the order of a change list, replaced or left out.
 */
int pv_rebase_root(struct pv_stage *s, unsigned root, const struct pv_rebase *paths, size_t n,
                   enum pv_preimage_flags flags, struct pv_err *err);
/* Into the order of a change list. */
void pv_rebase_sort(struct pv_rebase *paths, size_t n);

#endif
