/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One apply at a time on a target, whatever store or stage it comes from, and the notice that one is under way.
 *
 * The lock is flock(2) on the target directory's own descriptor. The notice is found from the target: a file in the
 * store, `pending/<hash of the target's path>`, that names the stage; and, for a stage of another store, a hint in an
 * attribute of the target itself, `user.pvisor.pending`. What the file says is acted upon, since the store is hidden
 * from every command. The hint is not: whoever may write to the target could have planted it, so it can only refuse.
 * docs/decisions/0050-finding-an-unfinished-batch.md
 */
#ifndef PV_STAGE_LOCK_H
#define PV_STAGE_LOCK_H

#include "stage/stage.h"

struct pv_target_lock {
        int *fd; /* one a root */
        size_t n;
};
/* Waits some seconds for another apply to end; PV_ERR_BUSY then. */
int pv_target_lock(struct pv_stage *s, struct pv_target_lock *out, struct pv_err *err);
void pv_target_unlock(struct pv_target_lock *l);
#define pv_auto_target_lock __attribute__((cleanup(pv_target_unlock))) struct pv_target_lock

/* Notes that this stage's journal holds a batch for its targets; durable with the caller's next sync. */
int pv_pending_set(struct pv_stage *s, struct pv_err *err);
void pv_pending_clear(struct pv_stage *s);
/* Does the store have such a notice of this stage? */
bool pv_pending_is_set(struct pv_stage *s);
/*
 * The directory of another stage that left a batch unfinished on target i, *dir the caller's; NULL: none did. A hint
 * that cannot be acted upon is PV_ERR_BUSY with the way out.
 */
int pv_pending_find(struct pv_stage *s, size_t i, char **dir, struct pv_err *err);
/* A notice whose stage is gone or done. */
void pv_pending_forget(struct pv_stage *s, size_t i);
/* The filesystem of the notices takes part in the sync: a descriptor of their directory or -1. */
int pv_pending_open_dir(void);

#endif
