/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What apply, undo, drop and recovery need of a stage beyond stage.h: its layers one by one, and the baseline (the
 * preimages) moved along when a change has been decided on. Inside src/stage only.
 */
#ifndef PV_STAGE_SETTLE_H
#define PV_STAGE_SETTLE_H

#include "stage/change.h"
#include "stage/stage.h"

/* Borrowed descriptor (O_PATH or O_RDONLY) of a layer's directory; 0 is the oldest, the last one the upper. */
struct pv_pathfd pv_stage_layer(const struct pv_stage *s, size_t root, unsigned layer);
/* Another stage stands on it, this stage does not own it, or it is mounted by a running job: never move out of it. */
bool pv_stage_layer_is_shared(const struct pv_stage *s, size_t root, unsigned layer);

/* One path whose baseline moves. */
struct pv_rebase {
        unsigned root;
        const char *path;
        const struct pv_facts
                *facts; /* the new preimage (mode 0: nothing is there); NULL: forget the path's preimage */
        enum pv_doubt doubt;
        bool landed; /* as in struct pv_preimage */
};

/*
 * Replaces or forgets the preimages of these paths in one durable step; doing it twice is harmless (recovery repeats
 * it). Suspicion noted at stop goes with the old preimage, unless a new one is given. A later change of a forgotten
 * path gets a new preimage at the next stop. While the command runs the new ones go into `landed` (beside.c), and a
 * forgotten path is one at which nothing is.
 */
int pv_stage_rebase(struct pv_stage *s, const struct pv_rebase *paths, size_t n, struct pv_err *err);

#endif
