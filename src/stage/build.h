/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making plans. An apply's plan comes from changes and a selection, an undo's from the record of the batch that it
 * takes back. Building one checks every preimage and changes nothing but the copies, which lie in the backup or
 * beside the target and are made by pv_build_copies(). Inside src/stage only.
 */
#ifndef PV_STAGE_BUILD_H
#define PV_STAGE_BUILD_H

#include "stage/engine.h"

/*
 * Fills e->plan (whose head is set) from the selected changes; conflicts go to e->result. Paths are borrowed from the
 * changes. 0 also with conflicts.
 */
int pv_build_apply(struct pv_engine *e, const struct pv_changes *changes, const bool *selected,
                   const struct pv_apply_options *options, struct pv_err *err);
/* Fills e->plan from the record of the batch. Paths are borrowed from it. */
int pv_build_undo(struct pv_engine *e, const struct pv_plan_list *record, struct pv_err *err);

/* Finds the layers' directories that will hold nothing but originals: PV_ITEM_GROUPED. */
void pv_build_groups(struct pv_engine *e, const struct pv_changes *changes);

/* Makes the counterparts that are copies and notes what they became. */
int pv_build_copies(struct pv_engine *e, struct pv_err *err);
/* Removes them again. */
int pv_build_remove_copies(struct pv_engine *e, struct pv_err *err);
static inline bool pv_build_has_copies(const struct pv_plan_list *p)
{
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].flags & PV_ITEM_COPY)
                        return true;
        return false;
}

/*
 * Notes the directories that must be opened up for the moves: parents without write permission, in the target and in
 * the layers. What cannot be opened up (another's) is an error now, before anything moved.
 */
int pv_build_access(struct pv_engine *e, struct pv_err *err);

/* Besides, for the marks of pv_beside_mark_directories(); and back to the n that there were. */
void pv_build_access_for_marks(struct pv_engine *e);
void pv_build_forget_access(struct pv_plan_list *p, size_t n);

#endif
