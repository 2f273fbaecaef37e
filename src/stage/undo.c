/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a batch back, dropping changes, and the list of batches. */
#include "stage/run_batch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "stage/build.h"
#include "stage/journal.h"

#define TRIES 3 /* exchange, copies beside the target, copies without flags */

static int compare_batches(const void *a, const void *b)
{
        return strcmp(((const struct pv_batch *)a)->id, ((const struct pv_batch *)b)->id);
}

static bool is_empty(int dir)
{
        pv_auto_dir d = pv_dir_open(dir, ".");
        struct dirent *e;
        return d && pv_dir_next(d, &e) == 0;
}

/* Reads what the record says of itself; false where it is damaged. */
static bool read_head(int dir, struct pv_batch *out, unsigned *marks)
{
        struct pv_batch_head head;
        struct pv_err ignored = PV_ERR_INIT;
        if (pv_journal_read_head(dir, PV_RECORD_NAME, &head, &out->n_paths, marks, &ignored) < 0)
                return false;
        out->when = head.when;
        return *marks & PV_MARK_READY;
}

/*
 * False for a directory that was cut off before it became a batch: it has no record, and nothing in it (or, while a
 * journal is there, it is of the batch that is under way).
 */
static bool read_batch(const struct pv_stage *s, int backup, const char *id, struct pv_batch *out)
{
        unsigned marks = 0;
        pv_auto_fd dir = openat(backup, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0 || strlen(id) >= sizeof out->id)
                return false;
        *out = (struct pv_batch){ 0 };
        memcpy(out->id, id, strlen(id) + 1);
        if (faccessat(dir, PV_RECORD_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
                if (pv_apply_is_unfinished(s) || is_empty(dir))
                        return false;
                out->damaged = true;
        } else {
                out->damaged = !read_head(dir, out, &marks);
        }
        out->undone = marks & PV_MARK_PARTLY || faccessat(dir, PV_UNDONE_NAME, F_OK, 0) == 0;
        return true;
}

int pv_batches_list(struct pv_stage *s, struct pv_batch **out, size_t *n, struct pv_err *err)
{
        pv_auto_free struct pv_batch *list = NULL;
        size_t have = 0;
        pv_auto_dir d = pv_dir_open(pv_stage_dirfd(s).fd, "backup");
        struct dirent *e;
        int more = d || errno != ENOENT ? -1 : 0;
        while (d && (more = pv_dir_next(d, &e)) > 0) {
                list = pv_realloc(list, have + 1, sizeof *list);
                have += read_batch(s, dirfd(d), e->d_name, &list[have]);
        }
        if (more < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read backup/");
        if (have > 1)
                qsort(list, have, sizeof *list, compare_batches);
        *out = pv_steal(&list);
        *n = have;
        return 0;
}

size_t pv_batches_count_standing(struct pv_stage *s)
{
        pv_auto_free struct pv_batch *batches = NULL;
        struct pv_err ignored = PV_ERR_INIT;
        size_t n = 0, paths = 0;
        if (pv_batches_list(s, &batches, &n, &ignored) < 0)
                return 1;
        for (size_t i = 0; i < n; i++)
                paths += batches[i].undone ? 0 : batches[i].n_paths + batches[i].damaged;
        return paths;
}

/* The batch by its id, or the newest that is not undone. */
static int find_batch(struct pv_stage *s, const char *want, char id[PV_BATCH_ID], struct pv_err *err)
{
        pv_auto_free struct pv_batch *list = NULL;
        size_t n = 0;
        if (pv_batches_list(s, &list, &n, err) < 0)
                return -1;
        for (size_t i = n; i-- > 0;) {
                if (want ? !pv_streq(list[i].id, want) : list[i].undone)
                        continue;
                if (list[i].undone)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "batch %s was undone already", want);
                memcpy(id, list[i].id, sizeof list[i].id);
                return 0;
        }
        if (want)
                return pv_err_set(err, PV_ERR_USAGE, 0, "there is no batch %s", want);
        return pv_err_set(err, PV_ERR_USAGE, 0, "nothing to undo: %s",
                          n ? "every batch was taken back already" : "no batch was applied");
}

int pv_batch_read_record(int slots, struct pv_plan_list *out, struct pv_err *err)
{
        if (pv_journal_read(slots, PV_RECORD_NAME, out, err) < 0)
                return -1;
        if (!(out->marks & PV_MARK_READY)) {
                pv_plan_list_fini(out);
                return pv_err_set(err, PV_ERR_INPUT, 0, "its record is damaged: not all of its paths are known");
        }
        bool let_go = faccessat(slots, PV_LET_GO_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        for (size_t i = 0; let_go && i < out->n; i++) {
                struct pv_item *it = &out->item[i];
                it->flags &= ~(uint32_t)PV_ITEM_KEEP;
                if (it->in.mode != 0 && it->op != PV_OP_META)
                        it->flags |= PV_ITEM_ESCAPES; /* the copy has its attributes as the command set them */
        }
        return 0;
}

int pv_batches_note_let_go(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_free struct pv_batch *list = NULL;
        size_t n;
        if (pv_batches_list(s, &list, &n, err) < 0)
                return -1;
        for (size_t i = 0; i < n; i++) {
                pv_auto_free char *name = pv_strf("backup/%s/" PV_LET_GO_NAME, list[i].id);
                pv_auto_fd fd = openat(pv_stage_dirfd(s).fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
                if (fd < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "note what is let go of batch %s", list[i].id);
        }
        return 0;
}

static int read_record(struct pv_stage *s, const char *id, struct pv_plan_list *out, struct pv_err *err)
{
        pv_auto_free char *dir = pv_strf("backup/%s", id);
        pv_auto_fd slots = openat(pv_stage_dirfd(s).fd, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (slots < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", dir);
        if (pv_batch_read_record(slots, out, err) < 0) {
                (void)pv_err_wrap(err, "batch %s", id);
                return pv_err_hint(err, "what it displaced is in %s/backup/%s; other batches: --list and --batch",
                                   pv_stage_dir(s), id);
        }
        if (out->head.n_roots != pv_stage_n_roots(s)) {
                pv_plan_list_fini(out);
                return pv_err_set(err, PV_ERR_INPUT, 0, "batch %s is not of this stage", id);
        }
        return 0;
}

/* What is staged again goes into the top layer: nobody may be running in it. */
static int check_top_layer(const struct pv_engine *e, const struct pv_plan_list *record, struct pv_err *err)
{
        for (size_t i = 0; e->shared[e->n_layers - 1] && i < record->n; i++)
                if (!(record->item[i].flags & PV_ITEM_KEEP) && record->item[i].op != PV_OP_WITHIN)
                        return pv_err_set(err, PV_ERR_BUSY, 0,
                                          "undo: it was applied before the job went on: what it took would have to go "
                                          "back under the running command");
        return 0;
}

static int try_undo(struct pv_stage *s, const struct pv_plan_list *record, uint32_t *modes,
                    struct pv_apply_result *result, enum pv_publish_outcome *outcome, struct pv_err *err)
{
        struct pv_plan_list plan = { 0 };
        pv_auto_engine e = { 0 };
        struct pv_batch_source source = { .record = record };
        plan.head.root_mode =
                memcpy(pv_calloc(record->head.n_roots + 1, sizeof *modes), modes, record->head.n_roots * sizeof *modes);
        int r = pv_batch_start(s, &plan, PV_BATCH_UNDO, record->head.id, err);
        if (r == 0)
                r = pv_engine_init(&e, s, &plan, result, err);
        if (r == 0)
                r = check_top_layer(&e, record, err);
        if (r == 0)
                r = pv_engine_open_slots(&e, false, err);
        if (r == 0)
                r = pv_build_undo(&e, record, err);
        *outcome = PV_PUBLISH_CONFLICT;
        if (r == 0 && result->n_conflicts == 0)
                *outcome = pv_batch_run(&e, &source, err);
        memcpy(modes, plan.head.root_mode, record->head.n_roots * sizeof *modes);
        pv_plan_list_fini(&plan);
        (void)unlinkat(pv_stage_dirfd(s).fd, PV_JOURNAL_NEW, 0);
        return r;
}

static int undo_record(struct pv_stage *s, const struct pv_plan_list *record, struct pv_apply_result *result,
                       struct pv_err *err)
{
        pv_auto_free uint32_t *modes = pv_calloc(record->head.n_roots + 1, sizeof *modes);
        enum pv_publish_outcome outcome = PV_PUBLISH_RETRY;
        if (record->head.n_roots > 0)
                memcpy(modes, record->head.root_mode, record->head.n_roots * sizeof *modes);
        for (int i = 0; i < TRIES && outcome == PV_PUBLISH_RETRY; i++)
                if (try_undo(s, record, modes, result, &outcome, err) < 0)
                        return -1;
        if (outcome == PV_PUBLISH_CONFLICT)
                return pv_err_set(err, PV_ERR_CONFLICT, 0, "undo: the host changed %zu of the paths since%s",
                                  result->n_conflicts, result->partly ? "" : "; nothing was changed");
        if (outcome != PV_PUBLISHED)
                return outcome == PV_PUBLISH_RETRY
                               ? pv_err_set(err, PV_ERR_SYS, EXDEV, "undo: the target takes no renames")
                               : -1;
        memcpy(result->batch, record->head.id, sizeof result->batch);
        result->applied = record->n;
        for (uint32_t k = 0; k < record->head.n_roots; k++)
                result->weaker |= (modes[k] & PV_ROOT_WEAK) != 0;
        return 0;
}

int pv_undo(struct pv_stage *s, const char *batch, struct pv_apply_result *result, struct pv_err *err)
{
        char id[PV_BATCH_ID];
        struct pv_plan_list record = { 0 };
        pv_auto_target_lock lock = { 0 };
        *result = (struct pv_apply_result){ 0 };
        if (pv_batch_take_targets(s, &lock, err) < 0 || pv_batch_refuse_unfinished(s, err) < 0 ||
            find_batch(s, batch, id, err) < 0 || read_record(s, id, &record, err) < 0)
                return -1;
        int r = undo_record(s, &record, result, err);
        pv_plan_list_fini(&record);
        return r;
}

int pv_drop_changes(struct pv_stage *s, struct pv_changes *changes, const bool *selected, struct pv_err *err)
{
        if (pv_batch_refuse_unfinished(s, err) < 0)
                return -1;
        return pv_changes_forget(s, changes, selected, PV_CHANGES_DROPPED, err);
}
