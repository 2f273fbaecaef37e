/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that continue one another, found when the list is complete. */
#ifndef PV_STAGE_RENAMES_H
#define PV_STAGE_RENAMES_H

#include "stage/change.h"

/*
 * Sets renamed_from: a deleted file and an added one of the same content; a directory whose entries went to the same
 * places under another. A doubt that a rename explains is taken back.
 */
void pv_changes_find_renames(struct pv_stage *s, struct pv_changes *c);
/* One such pair; both of the same list. */
void pv_change_set_renamed(struct pv_change *to, const struct pv_change *from);

#endif
