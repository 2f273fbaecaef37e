/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding on a stage in which a command runs: what an apply does besides. The theory heads beside.c. Inside
 * src/stage.
 */
#ifndef PV_STAGE_BESIDE_H
#define PV_STAGE_BESIDE_H

#include "stage/engine.h"

/*
 * With the job held still and the copies made: a new directory that is about to be published gets the mark of one that
 * hides what lies below, so that the command goes on seeing its own and nothing that others put into the published one.
 */
int pv_beside_mark_directories(struct pv_engine *e, struct pv_err *err);
bool pv_beside_is_marked(struct pv_engine *e, const struct pv_item *it);

/* With the job let go, before anything is published: what each item will be the baseline of. */
int pv_beside_look_at_copies(struct pv_engine *e, const struct pv_changes *changes, struct pv_err *err);

/* The directories above what is published, known to be the ones that the command sees, are noted as such. */
int pv_beside_note_directories(struct pv_engine *e, const struct pv_changes *changes, struct pv_err *err);

/* So is what else the command has touched of a file with several names, of which one is moved: all get a new ctime. */
int pv_beside_note_other_names(struct pv_engine *e, const struct pv_changes *looked_at, struct pv_err *err);

/* Was the plan made beside a run? */
static inline bool pv_beside_made(const struct pv_plan_list *p)
{
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].flags & PV_ITEM_LANDS)
                        return true;
        return false;
}

/* Is it what the item brought, though another inode? An undo of a later batch may have copied it back. */
bool pv_beside_is_landed(const struct pv_item *it, const struct pv_place *at);

/* After the publication: what landed becomes the baseline. After a rollback: what is there again. */
int pv_beside_settle(struct pv_engine *e, struct pv_err *err);
int pv_beside_settle_back(struct pv_engine *e, struct pv_err *err);

#endif
