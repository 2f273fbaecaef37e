/* SPDX-License-Identifier: Apache-2.0 */
/* One batch from its journal to its record: what apply, undo and recovery share. Inside src/stage only. */
#ifndef PV_STAGE_RUN_BATCH_H
#define PV_STAGE_RUN_BATCH_H

#include "stage/engine.h"
#include "stage/lock.h"

#define PV_JOURNAL_NAME "journal"
#define PV_JOURNAL_NEW  "journal.new"
#define PV_RECORD_NAME  "record"
#define PV_UNDONE_NAME  "undone"
#define PV_LET_GO_NAME  "let-go" /* what it brought and left staged was taken out of the layers since */

/* What the batch came from, for bringing the stage up to date afterwards: changes of an apply, record of an undo. */
struct pv_batch_source {
        const struct pv_changes *changes;
        const bool *selected;
        const struct pv_changes *looked_at; /* beside a run: all changes, as they were just before; or NULL */
        const struct pv_plan_list *record;
};

/* Takes the targets' locks and finishes what another stage left unfinished there. */
int pv_batch_take_targets(struct pv_stage *s, struct pv_target_lock *lock, struct pv_err *err);

/* PV_ERR_BUSY when this stage's own journal waits for recovery. */
int pv_batch_refuse_unfinished(struct pv_stage *s, struct pv_err *err);

/* Fills the head: a new id, the time as the stage's filesystem stores it, root modes. */
int pv_batch_start(struct pv_stage *s, struct pv_plan_list *p, enum pv_batch_kind kind, const char *of,
                   struct pv_err *err);

/*
 * Carries out a checked plan: copies, journal, publication, settling. PV_PUBLISH_RETRY: nothing is left of it, plan
 * again with the head's root modes.
 */
enum pv_publish_outcome pv_batch_run(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err);

/* After the commit: settles, renames the journal to the record. The rest of a batch that is done. */
int pv_batch_finish(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err);
/* After a rollback: the rest of one that is not. Partly: what the host kept is settled and recorded. */
int pv_batch_abandon(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err);

/* The record of a batch, from backup/<batch>. What was let go since counts as what went when it was applied. */
int pv_batch_read_record(int slots, struct pv_plan_list *out, struct pv_err *err);
/* Notes that of all batches that stand. */
int pv_batches_note_let_go(struct pv_stage *s, struct pv_err *err);

/* Everything of the stage, the targets and the notices to disk: syncfs(2), once a filesystem. */
int pv_batch_sync(struct pv_stage *s, struct pv_err *err);

#endif
