/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/run_batch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include "base/whiteout.h"
#include "stage/beside.h"
#include "stage/build.h"
#include "stage/journal.h"
#include "stage/ours.h"
#include "stage/unsettled.h"

/* The highest number of the batches so far. */
static unsigned last_number(struct pv_stage *s)
{
        int fd = openat(pv_stage_dirfd(s).fd, "backup", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_dir d = fd >= 0 ? fdopendir(fd) : NULL;
        unsigned last = 0;
        for (struct dirent *e; d && (e = readdir(d));) {
                unsigned long n = strtoul(e->d_name, NULL, 10);
                if (n > last && n < 1000000)
                        last = (unsigned)n;
        }
        return last;
}

/* Different mounts are seen before any name is looked up: nothing of this name has to exist. */
static void probe_mounts(struct pv_stage *s, struct pv_plan_list *p)
{
        static const char nothing[] = PV_BESIDE_PREFIX "nothing";
        for (uint32_t i = 0; i < p->head.n_roots; i++)
                if (renameat(pv_stage_dirfd(s).fd, nothing, pv_stage_target(s, i).fd, nothing) < 0 && errno == EXDEV)
                        p->head.root_mode[i] |= PV_ROOT_BESIDE;
}

int pv_batch_start(struct pv_stage *s, struct pv_plan_list *p, enum pv_batch_kind kind, const char *of,
                   struct pv_err *err)
{
        unsigned nonce;
        if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) != sizeof nonce)
                nonce = (unsigned)getpid();
        p->head.kind = kind;
        (void)snprintf(p->head.id, sizeof p->head.id, "%06u-%08x", last_number(s) + 1, nonce);
        (void)snprintf(p->head.of, sizeof p->head.of, "%s", of);
        p->head.n_roots = (uint32_t)pv_stage_n_roots(s);
        if (!p->head.root_mode)
                p->head.root_mode = pv_calloc(p->head.n_roots + 1, sizeof *p->head.root_mode);
        probe_mounts(s, p);
        /* The time as this filesystem keeps it: what is set on a file and read back must be the same. */
        struct stat st;
        pv_auto_fd fd = openat(pv_stage_dirfd(s).fd, PV_JOURNAL_NEW,
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 || futimens(fd, NULL) < 0 || fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "begin a batch in %s", pv_stage_dir(s));
        p->head.when = st.st_mtim;
        return 0;
}

static int sync_once(int fd, dev_t *seen, size_t *n, struct pv_err *err)
{
        struct stat st;
        if (fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "sync");
        for (size_t i = 0; i < *n; i++)
                if (seen[i] == st.st_dev)
                        return 0;
        seen[(*n)++] = st.st_dev;
        return syncfs(fd) < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "sync") : 0;
}

static int sync_dir(struct pv_pathfd dir, dev_t *seen, size_t *n, struct pv_err *err)
{
        pv_auto_fd fd = openat(dir.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "open for sync") : sync_once(fd, seen, n, err);
}

int pv_batch_sync(struct pv_stage *s, struct pv_err *err)
{
        size_t n = 0;
        pv_auto_free dev_t *seen = pv_calloc(pv_stage_n_roots(s) + 2, sizeof *seen);
        pv_auto_fd notices = pv_pending_open_dir();
        if (sync_dir(pv_stage_dirfd(s), seen, &n, err) < 0)
                return -1;
        for (size_t i = 0; i < pv_stage_n_roots(s); i++)
                if (sync_dir(pv_stage_target(s, i), seen, &n, err) < 0)
                        return -1;
        return notices < 0 ? 0 : sync_once(notices, seen, &n, err);
}

static int remove_backup(struct pv_engine *e, struct pv_err *err)
{
        if (e->plan->head.kind != PV_BATCH_APPLY)
                return 0;
        pv_auto_fd backup = openat(pv_stage_dirfd(e->s).fd, "backup", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (backup < 0)
                return errno == ENOENT ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "open backup/");
        pv_pathfd_closep(&e->slots);
        return pv_path_remove_tree(backup, e->plan->head.id, err);
}

static int unlink_journals(struct pv_stage *s, struct pv_err *err)
{
        int dir = pv_stage_dirfd(s).fd;
        (void)unlinkat(dir, PV_JOURNAL_NEW, 0);
        if (unlinkat(dir, PV_JOURNAL_NAME, 0) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove the journal");
        return 0;
}

static int discard(struct pv_engine *e, struct pv_err *err)
{
        if (pv_access_open(e, PV_ACCESS_BEFORE, err) < 0 || pv_build_remove_copies(e, err) < 0 ||
            pv_access_restore(e, PV_ACCESS_BEFORE, err) < 0 || remove_backup(e, err) < 0)
                return -1;
        pv_pending_clear(e->s); /* before the journal goes: nobody else would, and the target is whole */
        return unlink_journals(e->s, err);
}

/* The journal becomes the batch's record, or the mark that it was taken back. */
static int keep_record(struct pv_engine *e, struct pv_err *err)
{
        const struct pv_batch_head *h = &e->plan->head;
        const char *name = h->kind == PV_BATCH_APPLY ? PV_RECORD_NAME : PV_UNDONE_NAME;
        pv_pending_clear(e->s);
        if (renameat(pv_stage_dirfd(e->s).fd, PV_JOURNAL_NAME, e->slots.fd, name) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "keep the record of batch %s", h->id);
        return 0;
}

/* A directory of slots from a layer: its whiteouts go, and it with them, unless something was left in it. */
static void remove_group(int slots, const char *name)
{
        int fd = openat(slots, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_dir d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d && fd >= 0)
                (void)close(fd);
        for (struct dirent *e; d && (e = readdir(d));) {
                struct stat st;
                if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && pv_whiteout_is(fd, e->d_name, &st))
                        (void)unlinkat(fd, e->d_name, 0);
        }
        (void)unlinkat(slots, name, AT_REMOVEDIR);
}

/*
 * After an undo the slots are empty, but for copies of what the target has again (a batch that went beside it), and
 * the directories that came from layers.
 */
static int empty_slots(struct pv_engine *e, struct pv_err *err)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                struct pv_place at;
                if (it->flags & PV_ITEM_COPY && pv_place_slot(e, it, &at) == 0 &&
                    pv_path_remove_tree(at.dirfd, at.name, err) < 0)
                        return -1;
                if (it->flags & PV_ITEM_GROUPED && it->slot == i && pv_place_group(e, it, &at) == 0)
                        remove_group(at.dirfd, at.name);
        }
        return 0;
}

int pv_batch_finish(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err)
{
        if (e->plan->head.kind == PV_BATCH_APPLY) {
                if (pv_settle_apply(e, source->changes, source->selected, err) < 0)
                        return -1;
        } else if (pv_settle_undo(e, source->record, err) < 0 || empty_slots(e, err) < 0) {
                return -1;
        }
        return keep_record(e, err);
}

static bool any_kept(const struct pv_plan_list *p)
{
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].state == PV_ITEM_KEPT)
                        return true;
        return false;
}

/* An apply around which the host wrote: what stayed is settled as applied, and cannot be undone as a whole. */
static int abandon_partly(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err)
{
        pv_auto_journal j = PV_JOURNAL_INIT;
        if (e->result)
                e->result->partly = true;
        if (pv_journal_append(&j, pv_stage_dirfd(e->s).fd, PV_JOURNAL_NAME, err) < 0 ||
            pv_journal_put_kept(&j, e->plan, err) < 0 || pv_batch_sync(e->s, err) < 0)
                return -1;
        e->plan->marks |= PV_MARK_PARTLY;
        if (pv_access_open(e, PV_ACCESS_BEFORE, err) < 0 || pv_build_remove_copies(e, err) < 0 ||
            pv_access_restore(e, PV_ACCESS_BEFORE, err) < 0)
                return -1;
        if (e->plan->head.kind == PV_BATCH_UNDO) {
                /* The rest of the undone batch is as it was; its originals lie where they lay. */
                pv_pending_clear(e->s);
                return unlink_journals(e->s, err);
        }
        return pv_batch_finish(e, source, err);
}

int pv_batch_abandon(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err)
{
        if (any_kept(e->plan))
                return abandon_partly(e, source, err);
        return discard(e, err);
}

/* The copies of what a running job has staged are made: it goes on. */
static int let_go(struct pv_engine *e, const struct pv_changes *changes, struct pv_err *err)
{
        e->freezer->thaw(e->freezer->ctx);
        return pv_beside_look_at_copies(e, changes, err);
}

/* With write permission where the plan's access list says that it lacks. */
static int make_copies(struct pv_engine *e, struct pv_err *err)
{
        if (pv_access_open(e, PV_ACCESS_BEFORE, err) < 0 || pv_build_copies(e, err) < 0)
                return -1;
        return pv_access_restore(e, PV_ACCESS_BEFORE, err);
}

static int mark_directories(struct pv_engine *e, struct pv_err *err)
{
        if (pv_access_open(e, PV_ACCESS_BEFORE, err) < 0 || pv_beside_mark_directories(e, err) < 0)
                return -1;
        return pv_access_restore(e, PV_ACCESS_BEFORE, err);
}

/* What has to be opened up for marks stands in this journal, so that a recovery closes it. */
static int write_first_journal(struct pv_engine *e, struct pv_err *err)
{
        pv_auto_journal first = PV_JOURNAL_INIT;
        if (pv_journal_create(&first, pv_stage_dirfd(e->s).fd, PV_JOURNAL_NAME, err) < 0 ||
            pv_journal_put_plan(&first, e->plan, err) < 0 || pv_journal_flush(&first, err) < 0)
                return -1;
        if (!e->freezer && fsync(first.fd) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "sync the journal");
        return pv_pending_set(e->s, err); /* copies beside the target are somebody's to remove, too */
}

/* The copies are made before anything of the upper is opened up for a mark: they have the modes as they are. */
static int prepare_copies(struct pv_engine *e, struct pv_err *err)
{
        const size_t for_copies = e->plan->n_access;
        if (e->freezer)
                pv_build_access_for_marks(e);
        const size_t for_marks = e->plan->n_access;
        if (write_first_journal(e, err) < 0)
                return -1;
        e->plan->n_access = for_copies;
        int r = make_copies(e, err);
        e->plan->n_access = for_marks;
        if (r < 0 || (e->freezer && mark_directories(e, err) < 0))
                return -1;
        pv_build_forget_access(e->plan, for_copies);
        return 0;
}

/*
 * Originals that no rename brings into the backup are copied there while nothing is published yet: where there is no
 * room for them, nothing is. A recovery knows by the first journal what is to be removed.
 */
static int keep_copies(struct pv_engine *e, struct pv_err *err)
{
        if (!pv_build_has_copies(e->plan) && write_first_journal(e, err) < 0)
                return -1;
        return pv_keep_copies_first(e, err);
}

/*
 * The plan on disk, ready to be carried out. Copies are made between a first plan, which says where they will lie, and
 * the final one, which says what they are.
 */
static int write_journal(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err)
{
        int dir = pv_stage_dirfd(e->s).fd;
        pv_auto_journal j = PV_JOURNAL_INIT;
        if (pv_build_access(e, err) < 0 || (pv_build_has_copies(e->plan) && prepare_copies(e, err) < 0))
                return -1;
        if (e->freezer && let_go(e, source->changes, err) < 0)
                return -1;
        if (pv_keep_has_copies(e->plan) && keep_copies(e, err) < 0)
                return -1;
        pv_clock_boot_id(e->plan->head.boot);
        if (pv_journal_create(&j, dir, PV_JOURNAL_NEW, err) < 0 || pv_journal_put_plan(&j, e->plan, err) < 0 ||
            pv_journal_mark(&j, PV_MARK_READY, err) < 0)
                return -1;
        if (renameat(dir, PV_JOURNAL_NEW, dir, PV_JOURNAL_NAME) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "write the journal");
        if (pv_pending_set(e->s, err) < 0)
                return -1;
        return pv_batch_sync(e->s, err);
}

static int commit(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err)
{
        pv_auto_journal j = PV_JOURNAL_INIT;
        if (pv_journal_append(&j, pv_stage_dirfd(e->s).fd, PV_JOURNAL_NAME, err) < 0 ||
            pv_journal_mark(&j, PV_MARK_COMMITTED, err) < 0 || pv_batch_sync(e->s, err) < 0)
                return -1;
        e->plan->marks |= PV_MARK_COMMITTED;
        if (pv_batch_finish(e, source, err) < 0) {
                (void)pv_err_wrap(err, "published, but the stage could not be brought up to date");
                return pv_err_hint(err, "nothing is lost: the next command on this job finishes it");
        }
        return 0;
}

static int settle_back(struct pv_engine *e, struct pv_err *err)
{
        return pv_beside_made(e->plan) ? pv_beside_settle_back(e, err) : 0;
}

static enum pv_publish_outcome take_back(struct pv_engine *e, const struct pv_batch_source *source,
                                         enum pv_publish_outcome why, struct pv_err *err)
{
        struct pv_err trouble = PV_ERR_INIT;
        if (pv_rollback(e, &trouble) < 0 || settle_back(e, &trouble) < 0 || pv_batch_abandon(e, source, &trouble) < 0) {
                *err = trouble;
                (void)pv_err_wrap(err, "the batch could not be taken back now");
                (void)pv_err_hint(err, "nothing is lost: the next command on this job finishes it");
                return PV_PUBLISH_FAILED;
        }
        return any_kept(e->plan) && why == PV_PUBLISH_RETRY ? PV_PUBLISH_CONFLICT : why;
}

static enum pv_publish_outcome publish_and_commit(struct pv_engine *e, const struct pv_batch_source *source,
                                                  struct pv_err *err)
{
        if (e->freezer && (pv_beside_note_directories(e, source->changes, err) < 0 ||
                           pv_beside_note_other_names(e, source->looked_at, err) < 0))
                return take_back(e, source, PV_PUBLISH_FAILED, err);
        pv_auto_ours_watch ours = e->s->state == PV_STATE_RUNNING ? pv_ours_watch(e) : NULL;
        enum pv_publish_outcome r = pv_publish(e, err);
        if (r != PV_PUBLISHED)
                return take_back(e, source, r, err);
        if (commit(e, source, err) == 0) {
                if (ours) /* not after a batch that was taken back: its paths have no records by which to judge them */
                        pv_ours_note(e, ours);
                return PV_PUBLISHED;
        }
        /* Committed is committed: what is left to do is the next command's. Before that, all can be taken back. */
        return e->plan->marks & PV_MARK_COMMITTED ? PV_PUBLISH_FAILED : take_back(e, source, PV_PUBLISH_FAILED, err);
}

/* A key pressed at the wrong moment should not make work for the recovery. *before: the mask to give back. */
static void hold_signals(sigset_t *before)
{
        static const int held[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP };
        sigset_t set;
        sigemptyset(&set);
        for (size_t i = 0; i < sizeof held / sizeof *held; i++)
                sigaddset(&set, held[i]);
        (void)sigprocmask(SIG_BLOCK, &set, before);
}

enum pv_publish_outcome pv_batch_run(struct pv_engine *e, const struct pv_batch_source *source, struct pv_err *err)
{
        sigset_t before;
        struct pv_err ignored;
        enum pv_publish_outcome r = PV_PUBLISH_FAILED;
        hold_signals(&before);
        if (pv_engine_open_slots(e, true, err) < 0 ||
            pv_unsettled_save(e, source->changes, source->selected, err) < 0 || write_journal(e, source, err) < 0)
                (void)discard(e, &ignored);
        else
                r = publish_and_commit(e, source, err);
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        return r;
}
