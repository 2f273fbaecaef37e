/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a crash. The journal says what was to be done, the directories say how far it came:
 *
 *   no READY mark             nothing was published: copies and journal go; but one that was whole once is damaged,
 *                             and refused (docs/decisions/0215-a-damaged-journal-is-not-one-that-never-began.md)
 *   COMMITTED, nothing left   forward: the stage is brought up to date
 *   PARTLY                    forward, for what the host kept
 *   all published, unmarked   forward, if what came out of the target passes the check that a live batch makes
 *   anything else             back
 */
#include "stage/run_batch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "stage/beside.h"
#include "stage/build.h"
#include "stage/journal.h"

#define TRIES 50

static bool exists(int dirfd, const char *name)
{
        return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int pv_batch_refuse_unfinished(struct pv_stage *s, struct pv_err *err)
{
        if (!exists(pv_stage_dirfd(s).fd, PV_JOURNAL_NAME))
                return 0;
        return pv_err_set(err, PV_ERR_BUSY, 0, "%s: a batch that was cut short waits for recovery", pv_stage_dir(s));
}

bool pv_apply_is_unfinished(const struct pv_stage *s)
{
        return exists(pv_stage_dirfd(s).fd, PV_JOURNAL_NAME);
}

/* Another stage's batch on one of our targets: finished by opening that stage. */
static int recover_other(const char *dir, struct pv_err *err)
{
        pv_auto_stage other = NULL;
        const char *did;
        if (pv_stage_open(dir, PV_STAGE_TAKE, &other, err) == 0 && pv_apply_recover(other, &did, err) == 0)
                return 0;
        (void)pv_err_wrap(err, "finish the batch that was cut short in %s", dir);
        return err->kind == PV_ERR_BUSY
                       ? -1
                       : pv_err_hint(err, "pvisor undo --abandon %s gives it up and says where each version lies", dir);
}

int pv_apply_recover_targets(struct pv_stage *s, struct pv_err *err)
{
        for (size_t i = 0; i < pv_stage_n_roots(s); i++) {
                pv_auto_free char *other = NULL;
                if (pv_pending_find(s, i, &other, err) < 0 || (other && recover_other(other, err) < 0))
                        return -1;
        }
        return 0;
}

int pv_batch_take_targets(struct pv_stage *s, struct pv_target_lock *lock, struct pv_err *err)
{
        for (int tries = 0;; tries++) {
                pv_auto_target_lock l = { 0 };
                pv_auto_free char *other = NULL;
                size_t i = 0;
                if (pv_target_lock(s, &l, err) < 0)
                        return -1;
                for (; i < pv_stage_n_roots(s) && !other; i++)
                        if (pv_pending_find(s, i, &other, err) < 0)
                                return -1;
                if (!other) {
                        *lock = l;
                        l = (struct pv_target_lock){ 0 };
                        return 0;
                }
                /* The other stage takes the lock itself. */
                pv_target_unlock(&l);
                if (recover_other(other, err) < 0) {
                        if (err->kind != PV_ERR_BUSY || tries >= TRIES)
                                return -1;
                        (void)usleep(100 * 1000);
                }
        }
}

static bool verify_all(struct pv_engine *e)
{
        size_t culprit;
        const char *why;
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                if ((it->op == PV_OP_EXCHANGE || it->op == PV_OP_REMOVE) && !pv_publish_verify(e, i, &culprit, &why))
                        return false;
        }
        return true;
}

/* Metadata again, value by value: after a crash nobody knows which of them were set. */
static bool finish_metadata(struct pv_engine *e, struct pv_err *err)
{
        const char *why = NULL;
        if (pv_access_restore(e, PV_ACCESS_BEFORE, err) < 0)
                return false;
        for (size_t i = e->plan->n; i-- > 0;)
                if (e->plan->item[i].op == PV_OP_META && (pv_meta_publish(e, &e->plan->item[i], &why, err) < 0 || why))
                        return false;
        return true;
}

static int close_directory(const struct pv_place *at, const struct pv_ident *want, struct pv_err *err)
{
        struct stat st;
        if (fstatat(at->dirfd, at->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            st.st_ino != want->ino || (st.st_mode & 07777) == (want->mode & 07777))
                return 0;
        if (fchmodat(at->dirfd, at->name, want->mode & 07777, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "restore the mode of %s", at->name);
        return 0;
}

/* Directories that moved with write permission for the move, and still have it. */
static int close_directories(struct pv_engine *e, struct pv_err *err)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                struct pv_place at;
                if (it->flags & PV_ITEM_OPEN_IN && pv_place_target(e, it, &at) == 0 &&
                    close_directory(&at, &it->in, err) < 0)
                        return -1;
                if (!(it->flags & PV_ITEM_OPEN_OUT))
                        continue;
                if (pv_place_counterpart(e, it, &at) == 0 && close_directory(&at, &it->out, err) < 0)
                        return -1;
                if (pv_place_slot(e, it, &at) == 0 && close_directory(&at, &it->out, err) < 0)
                        return -1;
        }
        return 0;
}

static int go_forward(struct pv_engine *e, const struct pv_batch_source *source, const char **did, struct pv_err *err)
{
        *did = "a batch that was cut short was finished";
        if (close_directories(e, err) < 0)
                return -1;
        if (pv_batch_sync(e->s, err) < 0)
                return -1;
        return pv_batch_finish(e, source, err);
}

static int go_back(struct pv_engine *e, const struct pv_batch_source *source, const char **did, struct pv_err *err)
{
        *did = "a batch that was cut short was taken back";
        if (pv_rollback(e, err) < 0 || (pv_beside_made(e->plan) && pv_beside_settle_back(e, err) < 0))
                return -1;
        return pv_batch_abandon(e, source, err);
}

static int recover_ready(struct pv_engine *e, const struct pv_batch_source *source, const char **did,
                         struct pv_err *err)
{
        bool all_done;
        if (e->plan->marks & PV_MARK_PARTLY) {
                *did = "a batch around which the host wrote was brought to its end";
                return pv_batch_abandon(e, source, err);
        }
        pv_find_states(e, &all_done);
        if (all_done && e->plan->marks & PV_MARK_COMMITTED)
                return go_forward(e, source, did, err);
        struct pv_err ignored;
        if (all_done && verify_all(e) && finish_metadata(e, &ignored))
                return go_forward(e, source, did, err);
        return go_back(e, source, did, err);
}

/* Nothing was published yet: what there is are copies, under names that the first plan says. */
static int clear_away(struct pv_engine *e, const struct pv_batch_source *source, const char **did, struct pv_err *err)
{
        *did = "a batch that was cut short before it began was cleared away";
        if (e->plan->head.kind != 0)
                return pv_batch_abandon(e, source, err);
        pv_pending_clear(e->s);
        if (unlinkat(pv_stage_dirfd(e->s).fd, PV_JOURNAL_NAME, 0) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove the journal");
        return 0;
}

/*
 * Nothing is published before the final plan is whole on disk. One without its mark was damaged since, and what it
 * published and displaced is not known: it must not be cleared away as one that never began. Only a crash of the
 * machine may have torn it before it was synced; then nothing of it happened.
 */
static int refuse_damaged(struct pv_engine *e, struct pv_err *err)
{
        const struct pv_batch_head *h = &e->plan->head;
        char boot[PV_BOOT_ID_TEXT];
        bool all_done, was_whole = h->kind == 0 ? pv_pending_is_set(e->s) : *h->boot != '\0';
        if (e->plan->marks & PV_MARK_READY || !was_whole)
                return 0;
        pv_clock_boot_id(boot);
        bool published = h->kind == 0 || pv_streq(boot, h->boot);
        pv_find_states(e, &all_done);
        for (size_t i = 0; i < e->plan->n; i++)
                published |= e->plan->item[i].op != PV_OP_META && e->plan->item[i].state != PV_ITEM_PENDING;
        if (!published)
                return 0;
        return pv_err_set(err, PV_ERR_INPUT, 0, "the journal of a batch that was cut short is damaged");
}

static int recover_locked(struct pv_stage *s, const char **did, struct pv_err *err)
{
        struct pv_plan_list plan = { 0 }, record = { 0 };
        struct pv_batch_source source = { .record = &record };
        struct pv_apply_result result = { 0 };
        pv_auto_engine e = { 0 };
        int r = pv_journal_read(pv_stage_dirfd(s).fd, PV_JOURNAL_NAME, &plan, err);
        if (r == 0 && plan.head.kind != 0 && plan.head.n_roots != pv_stage_n_roots(s))
                r = pv_err_set(err, PV_ERR_INPUT, 0, "the journal is not of this stage");
        if (r == 0)
                r = pv_engine_init(&e, s, &plan, &result, err);
        e.recovering = true;
        /* The slots may not have been made yet, or be gone already. */
        struct pv_err ignored;
        if (r == 0 && plan.head.kind != 0 && pv_engine_open_slots(&e, false, &ignored) < 0 &&
            plan.marks & PV_MARK_READY)
                r = pv_engine_open_slots(&e, true, err);
        if (r == 0)
                r = refuse_damaged(&e, err);
        if (r == 0 && plan.head.kind == PV_BATCH_UNDO && plan.marks & PV_MARK_READY) {
                r = pv_batch_read_record(e.slots.fd, &record, err);
                if (r == 0 && record.n != plan.n)
                        r = pv_err_set(err, PV_ERR_INPUT, 0, "the record of batch %s is damaged", plan.head.of);
        }
        if (r == 0)
                r = plan.marks & PV_MARK_READY ? recover_ready(&e, &source, did, err)
                                               : clear_away(&e, &source, did, err);
        if (r < 0)
                (void)pv_err_wrap(err, "recover %s", pv_stage_dir(s));
        pv_apply_result_fini(&result);
        pv_plan_list_fini(&plan);
        pv_plan_list_fini(&record);
        return r;
}

int pv_apply_recover(struct pv_stage *s, const char **did, struct pv_err *err)
{
        pv_auto_target_lock lock = { 0 };
        *did = NULL;
        (void)unlinkat(pv_stage_dirfd(s).fd, PV_JOURNAL_NEW, 0);
        if (!exists(pv_stage_dirfd(s).fd, PV_JOURNAL_NAME))
                return 0;
        if (pv_target_lock(s, &lock, err) < 0)
                return -1;
        return recover_locked(s, did, err);
}
