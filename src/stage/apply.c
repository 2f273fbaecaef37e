/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to bring a selection of staged changes into their target whole or not at all, without ever losing what the host
 * wrote there, and to be able to take it back. Non-job: which changes there are (change.c), which of them the person
 * wants (the caller), what git makes of them (src/git).
 *
 * Actors. The host: any program of the person's, writing to the target at any time, before, between and after each of
 * our system calls; it is not hostile, but knows nothing of us. The staged content is hostile, but it is only moved:
 * nothing of it is read but attribute names, and no path of it is followed (walk.c). Other pVisor processes stay out
 * by the target's lock (lock.c) and the stage's.
 *
 * A batch is a list of items (batch.h), one for each change, and an item is one move between a path of the target and
 * its *counterpart*, the place where the new version lies before and the old one after:
 *
 *     modified   EXCHANGE  target <-> the layer's entry            deleted   REMOVE  target -> backup slot
 *     added      PLACE     layer -> target, if nothing is there    metadata of a directory that stays: META, in place
 *
 * New directories whose content goes with them, and old ones that go, are one move; what is in them are WITHIN items,
 * which are checked but not moved. Where the staged entry must stay (another job stands on its layer, the job runs) the
 * counterpart is a copy in a backup slot; where a rename says EXDEV it is a copy beside the target. Both are made
 * before anything is published.
 *
 * The sequence, and what a crash leaves after each step:
 *
 *  1. Lock the target; finish what any stage left unfinished there (recover.c).
 *  2. Check every preimage. A conflict ends it here: nothing was written but a scratch file.
 *  3. Make the copies, write the plan and its READY mark, note the batch where it can be found from the target, sync
 *     once. Crash before READY: copies are removed. From here on the plan decides.
 *  4. Publish item by item (publish.c). An exchange is atomic; what came out of the target is looked at afterwards,
 *     so that no write of the host's can fall between a look and a move: if it is not the preimage, or somebody has
 *     it open for writing, the whole batch is taken back (rollback.c). No step is noted: where an inode lies says
 *     whether its move happened. Crash: back, or forward when all had been moved.
 *  5. COMMITTED mark, sync again. Crash: forward.
 *  6. Originals move from the layers to the backup, the changes leave the stage (keep.c), and the journal is renamed
 *     to the batch's record: done.
 *
 * Undo is the record turned round and the same sequence; its counterparts are the slots.
 *
 * Invariants: a path of the target always holds its old or its new version, never nothing (but for filesystems without
 * RENAME_EXCHANGE, see move.c) and never a part. Nothing that came out of the target is deleted: it goes back, or into
 * the backup. What the host wrote after we moved is never moved away for good: where a rollback meets it, it stays, the
 * item is KEPT, and the batch is reported as partly applied.
 *
 * Limits: a store through a shared mapping of a tmpfs file that was unmapped again moves no time; the original is then
 * in the backup, not in the target. Directories' own times are not kept. flock(2) does not reach other machines.
 */
#include "stage/run_batch.h"

#include <errno.h>
#include <string.h>
#include "base/statedir.h"
#include "stage/build.h"
#include "stage/close.h"

#define TRIES 3 /* exchange, copies beside the target, copies without flags */

static int check_closed(const struct pv_changes *changes, const bool *selected, struct pv_err *err)
{
        pv_auto_free bool *closed = pv_calloc(changes->n + 1, sizeof *closed);
        if (changes->n > 0)
                memcpy(closed, selected, changes->n * sizeof *closed);
        pv_close_over_needs(changes, closed);
        for (size_t i = 0; i < changes->n; i++)
                if (closed[i] != selected[i])
                        return pv_err_set(err, PV_ERR_USAGE, 0, "apply: the selection also needs %s",
                                          changes->item[i].path);
        return 0;
}

/* The store may lie in a target (HOME as a workspace); what it holds is the way back from every batch. */
static int refuse_store(const struct pv_stage *s, const struct pv_changes *changes, const bool *selected,
                        struct pv_err *err)
{
        pv_auto_free char *named = NULL;
        if (pv_state_dir(&named, err) < 0)
                return -1;
        pv_auto_free char *store = pv_path_real_existing(named);
        for (size_t i = 0; i < changes->n; i++) {
                const char *target = pv_stage_root(s, changes->item[i].root)->target;
                if (!selected[i] || !pv_path_is_within(store, target))
                        continue;
                pv_auto_free char *path = pv_path_join(target, changes->item[i].path);
                if (!pv_path_is_within(path, store))
                        continue;
                (void)pv_err_set(err, PV_ERR_POLICY, 0, "apply: %s is pVisor's own: no job may change or delete it",
                                 path);
                return pv_err_hint(err, "leave it out: pvisor drop --path %s", store);
        }
        return 0;
}

struct attempt {
        struct pv_stage *s;
        struct pv_batch_source source;
        const struct pv_apply_options *options;
        struct pv_apply_result *result;
        uint32_t *modes;         /* of the roots: what earlier attempts learned */
        struct pv_changes *held; /* beside a run: what the job had staged while it was held still, owned */
        bool *held_selected;
};

static void note_result(struct attempt *a, const struct pv_plan_list *plan)
{
        memcpy(a->result->batch, plan->head.id, sizeof a->result->batch);
        a->result->applied = plan->n;
        for (uint32_t i = 0; i < plan->head.n_roots; i++)
                a->result->weaker |= (plan->head.root_mode[i] & PV_ROOT_WEAK) != 0;
}

static void release(struct attempt *a)
{
        if (a->options->freezer)
                a->options->freezer->thaw(a->options->freezer->ctx);
        pv_changes_freep(&a->held);
        pv_freep(&a->held_selected);
}

/* The selection among what is there now. What was left out must not come along by belonging to what was not. */
static int select_again(struct attempt *a, const struct pv_changes *looked_at, const bool *selected, struct pv_err *err)
{
        struct pv_changes *now = a->held;
        a->held_selected = pv_calloc(now->n + 1, sizeof *a->held_selected);
        pv_auto_free bool *wanted = pv_calloc(now->n + 1, sizeof *wanted);
        for (size_t i = 0; i < looked_at->n; i++) {
                const struct pv_change *was = &looked_at->item[i];
                const struct pv_change *is = selected[i] ? pv_changes_find(now, was->root, was->path) : NULL;
                if (is)
                        wanted[is - now->item] = a->held_selected[is - now->item] = true;
        }
        pv_close_over_needs(now, a->held_selected);
        for (size_t i = 0; i < now->n; i++)
                if (a->held_selected[i] && !wanted[i]) {
                        a->result->moved = true;
                        return pv_err_set(err, PV_ERR_BUSY, 0, "apply: the job goes on changing what belongs to %s",
                                          now->item[i].path);
                }
        return 0;
}

/* What was put together before still holds if both sides are what they were. */
static int merge_again(struct attempt *a, const struct pv_changes *looked_at, const bool *selected, struct pv_err *err)
{
        for (size_t i = 0; i < looked_at->n; i++) {
                const struct pv_change *was = &looked_at->item[i];
                if (!selected[i] || !was->merged)
                        continue;
                struct pv_change *is = pv_changes_find(a->held, was->root, was->path);
                if (!is || !pv_facts_same_inode_state(&is->now, &was->now)) {
                        a->result->moved = true;
                        return pv_err_set(err, PV_ERR_BUSY, 0, "apply: the job goes on changing %s", was->path);
                }
                if (!pv_facts_same_inode_state(&is->pre, &was->pre))
                        pv_apply_result_add(a->result, was->root, was->path, "changed on the host while it was merged");
                is->merged = was->merged;
        }
        return 0;
}

/* Holds the job still until the copies are made. */
static int hold(struct attempt *a, const struct pv_changes *looked_at, const bool *selected, struct pv_err *err)
{
        const struct pv_freezer *f = a->options->freezer;
        if (f->freeze(f->ctx, err) < 0 || pv_changes_compute_again(a->s, looked_at, selected, &a->held, err) < 0)
                return -1;
        return select_again(a, looked_at, selected, err) < 0 ? -1 : merge_again(a, looked_at, selected, err);
}

static int attempt(struct attempt *a, enum pv_publish_outcome *outcome, struct pv_err *err)
{
        const struct pv_batch_source asked = a->source;
        struct pv_plan_list plan = { 0 };
        pv_auto_engine e = { 0 };
        size_t n = pv_stage_n_roots(a->s);
        plan.head.root_mode = memcpy(pv_calloc(n + 1, sizeof *a->modes), a->modes, n * sizeof *a->modes);
        int r = pv_batch_start(a->s, &plan, PV_BATCH_APPLY, "", err);
        if (r == 0)
                r = pv_engine_init(&e, a->s, &plan, a->result, err);
        e.freezer = a->options->freezer;
        if (r == 0 && e.freezer)
                r = hold(a, asked.changes, asked.selected, err);
        if (r == 0 && e.freezer)
                a->source = (struct pv_batch_source){ .changes = a->held,
                                                      .selected = a->held_selected,
                                                      .looked_at = asked.changes };
        if (r == 0)
                r = pv_build_apply(&e, a->source.changes, a->source.selected, a->options, err);
        *outcome = PV_PUBLISH_CONFLICT;
        if (r == 0 && a->result->n_conflicts == 0 && a->options->checked && !a->options->dry_run)
                r = a->options->checked(a->options->ctx, err);
        if (r == 0 && a->result->n_conflicts == 0) {
                pv_build_groups(&e, a->source.changes);
                *outcome = a->options->dry_run || plan.n == 0 ? PV_PUBLISHED : pv_batch_run(&e, &a->source, err);
                if (*outcome == PV_PUBLISHED)
                        note_result(a, &plan);
                if (a->options->dry_run || plan.n == 0)
                        a->result->batch[0] = '\0';
        }
        memcpy(a->modes, plan.head.root_mode, n * sizeof *a->modes);
        pv_plan_list_fini(&plan);
        release(a);
        a->source = asked;
        (void)unlinkat(pv_stage_dirfd(a->s).fd, PV_JOURNAL_NEW, 0);
        return r;
}

int pv_apply(struct pv_stage *s, struct pv_changes *changes, const bool *selected,
             const struct pv_apply_options *options, struct pv_apply_result *result, struct pv_err *err)
{
        pv_auto_target_lock lock = { 0 };
        pv_auto_free uint32_t *modes = pv_calloc(pv_stage_n_roots(s) + 1, sizeof *modes);
        struct attempt a = { .s = s,
                             .source = { .changes = changes, .selected = selected },
                             .options = options,
                             .result = result,
                             .modes = modes };
        enum pv_publish_outcome outcome = PV_PUBLISH_RETRY;
        *result = (struct pv_apply_result){ 0 };
        if (check_closed(changes, selected, err) < 0 || refuse_store(s, changes, selected, err) < 0 ||
            pv_batch_take_targets(s, &lock, err) < 0 || pv_batch_refuse_unfinished(s, err) < 0)
                return -1;
        for (int i = 0; i < TRIES && outcome == PV_PUBLISH_RETRY; i++)
                if (attempt(&a, &outcome, err) < 0)
                        return -1;
        switch (outcome) {
        case PV_PUBLISHED:
                return 0;
        case PV_PUBLISH_CONFLICT:
                return pv_err_set(err, PV_ERR_CONFLICT, 0, "apply: %zu path%s %s%s", result->n_conflicts,
                                  result->n_conflicts == 1 ? "" : "s",
                                  result->n_blocked == 0 ? "changed on the host"
                                  : result->n_blocked == result->n_conflicts
                                          ? "cannot be applied"
                                          : "changed on the host or cannot be applied",
                                  result->partly ? "; some of its versions stayed" : "; nothing was applied");
        case PV_PUBLISH_RETRY:
                return pv_err_set(err, PV_ERR_SYS, EXDEV, "apply: the target takes no renames");
        case PV_PUBLISH_FAILED:
                break;
        }
        return pv_err_wrap(err, "apply");
}
