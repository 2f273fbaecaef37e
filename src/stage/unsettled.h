/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The preimages that conflicts were about, kept with the batch that a person's decision let through: backup/<batch>/
 * preimages-<root>. An undo puts them back, so that what was a conflict is one again. Inside src/stage only.
 */
#ifndef PV_STAGE_UNSETTLED_H
#define PV_STAGE_UNSETTLED_H

#include "stage/engine.h"
#include "stage/settle.h"

/* Writes those of the selected changes, if there are any; e->slots is open. Durable with the batch's next sync. */
int pv_unsettled_save(struct pv_engine *e, const struct pv_changes *changes, const bool *selected, struct pv_err *err);

/* Puts them into a list that is in the order of a change list; facts live in text. */
int pv_unsettled_load(struct pv_engine *e, struct pv_rebase *list, size_t n, struct pv_arena *text, struct pv_err *err);

#endif
