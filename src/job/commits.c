/* SPDX-License-Identifier: Apache-2.0 */
#include "job/commits.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/path.h"

#define RECORD      "commits"
#define DONE_PREFIX "commits-"
#define RECORD_MAX  (256U << 20)
#define FORMAT      1

enum phase {
        PHASE_PREPARED, /* up to the files: after a crash it is taken back, unless the files were published */
        PHASE_MOVING,   /* after them: it is finished */
        PHASE_UNDOING,  /* taken back, as soon as the files were */
};
static const char *const phase_name[] = {
        [PHASE_PREPARED] = "prepared", [PHASE_MOVING] = "moving", [PHASE_UNDOING] = "undoing"
};

void pv_commits_fini(struct pv_commits *c)
{
        for (size_t i = 0; i < c->n; i++)
                pv_carry_fini(&c->item[i]);
        free(c->item);
        pv_git_start_fini(&c->start);
        *c = (struct pv_commits){ 0 };
}

void pv_commits_init(struct pv_commits *c, struct pv_stage *stage, const char *job)
{
        *c = (struct pv_commits){ .stage = stage };
        (void)snprintf(c->job, sizeof c->job, "%s", job);
}

bool pv_commits_any(const struct pv_commits *c)
{
        for (size_t i = 0; i < c->n; i++)
                if (pv_carry_any(&c->item[i]))
                        return true;
        return false;
}

/* --- the record --- */

/*
 * Durable where something is about to be done that a machine which stops would leave behind without a word of it. The
 * files' own batch makes durable what was written before it.
 */
static int write_record(const struct pv_commits *c, enum phase phase, enum pv_file_flags flags, struct pv_err *err)
{
        json_t *repos = json_array();
        for (size_t i = 0; i < c->n; i++)
                (void)json_array_append_new(repos, pv_carry_json(&c->item[i]));
        pv_auto_json record = json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:o}", "version", FORMAT, "job", c->job,
                                        "phase", phase_name[phase], "id", c->id, "batch", c->batch, "before", c->before,
                                        "files", (json_int_t)c->n_files, "repositories", repos);
        if (!record)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "record of commits");
        return pv_json_write_at(pv_stage_dirfd(c->stage).fd, RECORD, record, flags, err);
}

static int read_repos(const json_t *record, struct pv_commits *c, struct pv_err *err)
{
        json_t *repos;
        const char *workspace = pv_stage_root(c->stage, 0)->target;
        if (pv_json_get_array(record, "repositories", 1000, &repos, err) < 0)
                return -1;
        c->item = pv_calloc(json_array_size(repos) + 1, sizeof *c->item);
        for (size_t i = 0; i < json_array_size(repos); i++, c->n++)
                if (pv_carry_from_json(json_array_get(repos, i), workspace, &c->item[i], err) < 0) {
                        c->n++;
                        return -1;
                }
        return 0;
}

static int copy_text(const json_t *record, const char *key, char *out, size_t size, struct pv_err *err)
{
        const char *s;
        if (pv_json_get_str(record, key, &s, err) < 0)
                return -1;
        if (strlen(s) >= size || strchr(s, '/'))
                return pv_err_set(err, PV_ERR_INPUT, 0, "record of commits: %s is damaged", key);
        memcpy(out, s, strlen(s) + 1);
        return 0;
}

static int read_record(struct pv_stage *s, const char *name, struct pv_commits *c, enum phase *phase,
                       struct pv_err *err)
{
        pv_auto_json record = NULL;
        const char *text;
        int64_t files, version;
        c->stage = s;
        if (pv_json_read_at(pv_stage_dirfd(s).fd, name, RECORD_MAX, &record, err) < 0 ||
            pv_json_get_int(record, "version", FORMAT, FORMAT, &version, err) < 0 ||
            copy_text(record, "job", c->job, sizeof c->job, err) < 0 ||
            copy_text(record, "id", c->id, sizeof c->id, err) < 0 ||
            copy_text(record, "batch", c->batch, sizeof c->batch, err) < 0 ||
            copy_text(record, "before", c->before, sizeof c->before, err) < 0 ||
            pv_json_get_int(record, "files", 0, INT64_MAX, &files, err) < 0 ||
            pv_json_get_str(record, "phase", &text, err) < 0 || read_repos(record, c, err) < 0)
                return pv_err_wrap(err, "%s/%s", pv_stage_dir(s), name);
        c->n_files = (size_t)files;
        for (size_t i = 0; i < sizeof phase_name / sizeof *phase_name; i++)
                if (pv_streq(text, phase_name[i])) {
                        *phase = (enum phase)i;
                        return 0;
                }
        return pv_err_set(err, PV_ERR_INPUT, 0, "%s/%s: phase %s is not known", pv_stage_dir(s), name, text);
}

static void remove_record(struct pv_commits *c)
{
        (void)unlinkat(pv_stage_dirfd(c->stage).fd, RECORD, 0);
        c->recorded = false;
}

/* The newest batch, and whether it was taken back; "" when there is none. */
static int newest_batch(struct pv_stage *s, char out[32], bool *undone, struct pv_err *err)
{
        pv_auto_free struct pv_batch *list = NULL;
        size_t n;
        out[0] = '\0';
        *undone = false;
        if (pv_batches_list(s, &list, &n, err) < 0)
                return -1;
        if (n) {
                memcpy(out, list[n - 1].id, sizeof list[n - 1].id);
                *undone = list[n - 1].undone;
        }
        return 0;
}

/* No batch counts as taken back. */
static int is_undone(struct pv_stage *s, const char *id, bool *undone, struct pv_err *err)
{
        pv_auto_free struct pv_batch *list = NULL;
        size_t n;
        *undone = true;
        if (pv_batches_list(s, &list, &n, err) < 0)
                return -1;
        for (size_t i = 0; i < n; i++)
                if (pv_streq(list[i].id, id))
                        *undone = list[i].undone;
        return 0;
}

/* --- preparing --- */

int pv_commits_add(struct pv_commits *c, const char *path, const struct pv_git_runner *view, const char *view_path,
                   struct pv_err *err)
{
        const char *workspace = pv_stage_root(c->stage, 0)->target;
        pv_auto_free char *worktree = *path ? pv_path_join(workspace, path) : pv_strdup(workspace);
        c->item = pv_realloc(c->item, c->n + 1, sizeof *c->item);
        if (pv_carry_look(&c->item[c->n], path, worktree, view_path, view, err) < 0) {
                pv_carry_fini(&c->item[c->n]);
                return -1;
        }
        c->n++;
        return 0;
}

static int prepare_one(struct pv_commits *c, struct pv_carry *item, const struct pv_git_runner *view,
                       const struct pv_carry_options *o, struct pv_err *err)
{
        const struct pv_git_start *start = item == c->item ? &c->start : NULL;
        bool any = false;
        for (size_t i = 0; i < item->n_refs; i++)
                any |= *item->ref[i].new_id != '\0';
        if (any && pv_carry_import(item, view, err) < 0)
                return -1;
        struct pv_err undecided = PV_ERR_INIT;
        int decided = pv_carry_decide(item, start, o, &undecided);
        if (pv_carry_is_whole(item, err) < 0)
                return -1; /* which may be why */
        if (decided < 0)
                *err = undecided;
        return decided;
}

int pv_commits_prepare(struct pv_commits *c, const struct pv_git_runner *view, const struct pv_carry_options *o,
                       struct pv_err *err)
{
        pv_git_start_read(pv_stage_dirfd(c->stage).fd, &c->start);
        for (size_t i = 0; i < c->n; i++)
                if (pv_carry_compare(&c->item[i], i == 0 ? &c->start : NULL, o, err) < 0)
                        return -1;
        bool ignored;
        if (newest_batch(c->stage, c->before, &ignored, err) < 0 ||
            write_record(c, PHASE_PREPARED, PV_FILE_REPLACE, err) < 0)
                return -1;
        c->recorded = true;
        for (size_t i = 0; i < c->n; i++)
                if (prepare_one(c, &c->item[i], view, o, err) < 0)
                        return -1;
        return 0;
}

void pv_commits_abandon(struct pv_commits *c)
{
        if (!c->recorded)
                return;
        for (size_t i = 0; i < c->n; i++) {
                if (c->item[i].locked)
                        pv_carry_unlock(&c->item[i], c->job);
                pv_carry_unpin(&c->item[i]);
        }
        remove_record(c);
}

/* --- checking --- */

static void refuse(void *ctx, const struct pv_carry *c, const char *path, const char *why)
{
        pv_auto_free char *whole = *c->path ? pv_path_join(c->path, path) : pv_strdup(path);
        pv_apply_result_add(ctx, 0, whole, why);
}

static int check_one(struct pv_carry *item, const char *job, bool as_it_was, struct pv_apply_result *result,
                     struct pv_err *err)
{
        const char *why;
        if (!pv_carry_here(item))
                return 0;
        if (pv_carry_lock(item, job, err) < 0)
                return -1;
        if (!pv_carry_still_here(item, &why))
                refuse(result, item, pv_carry_here(item)->dest, why);
        return pv_carry_check_index(item, as_it_was, refuse, result, err);
}

int pv_commits_check(struct pv_commits *c, const bool *as_it_was, struct pv_apply_result *result, struct pv_err *err)
{
        for (size_t i = 0; i < c->n; i++) {
                c->item[i].locked = pv_carry_here(&c->item[i]) != NULL; /* recorded before it is so */
                if (c->item[i].locked && write_record(c, PHASE_PREPARED, PV_FILE_DURABLE, err) < 0)
                        return -1;
                c->item[i].locked = false;
                if (check_one(&c->item[i], c->job, as_it_was[i], result, err) < 0)
                        return -1;
        }
        if (result->n_conflicts == 0)
                return 0;
        (void)pv_err_set(err, PV_ERR_CONFLICT, 0,
                         "apply: %zu of the host's references or index entries stood in the way; "
                         "nothing was changed",
                         result->n_conflicts);
        return pv_err_hint(err, "commit or unstage (git restore --staged) what you staged; or --branch NAME takes the "
                                "commits alone");
}

/* --- landing --- */

struct held {
        sigset_t mask;
};

/* A key pressed at the wrong moment should not make work for the recovery. */
static void hold_signals(struct held *h)
{
        static const int held[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP };
        sigset_t set;
        (void)sigemptyset(&set);
        for (size_t i = 0; i < sizeof held / sizeof *held; i++)
                (void)sigaddset(&set, held[i]);
        (void)sigprocmask(SIG_BLOCK, &set, &h->mask);
}

static void release_signals(const struct held *h)
{
        (void)sigprocmask(SIG_SETMASK, &h->mask, NULL);
}

/* What the job counts as having seen of the first repository. */
static int renew_start(const struct pv_commits *c, bool back, struct pv_err *err)
{
        if (c->n == 0)
                return 0;
        const struct pv_carry *item = &c->item[0];
        pv_auto_free struct pv_git_seen *seen = pv_calloc(item->n_refs + 1, sizeof *seen);
        size_t n = 0;
        for (size_t i = 0; i < item->n_refs; i++)
                if (item->ref[i].dest && pv_streq(item->ref[i].dest, item->ref[i].name))
                        seen[n++] = (struct pv_git_seen){ item->ref[i].name,
                                                          back ? item->ref[i].old_id : item->ref[i].new_id };
        return n ? pv_git_start_renew(pv_stage_dirfd(c->stage).fd, seen, n, err) : 0;
}

/* References that will not move: the files stay, as changes that nobody committed. */
static void give_up(struct pv_carry *item)
{
        for (size_t i = 0; i < item->n_refs; i++) {
                if (!item->ref[i].dest || item->ref[i].landed)
                        continue;
                pv_freep(&item->ref[i].dest);
                item->ref[i].here = false;
                item->ref[i].why = "could not be moved";
        }
}

/* recovering: it was tried before; a reference that still does not move must not hold up everything else for ever. */
static int move_one(struct pv_commits *c, struct pv_carry *item, bool recovering, struct pv_err *err)
{
        if (pv_carry_any(item) && pv_carry_move_refs(item, c->job, err) < 0) {
                if (!recovering)
                        return -1;
                pv_err_clear(err);
                give_up(item);
                c->gave_up = true;
        }
        if (pv_carry_here(item) && (pv_carry_lock(item, c->job, err) < 0 || pv_carry_set_index(item, false, err) < 0))
                return -1;
        pv_carry_unlock(item, c->job);
        pv_carry_unpin(item);
        return 0;
}

/* Its own id where there are no files; else the batch's. */
static int name_it(struct pv_commits *c, struct pv_err *err)
{
        int dir = pv_stage_dirfd(c->stage).fd;
        if (*c->batch) {
                (void)snprintf(c->id, sizeof c->id, "%s", c->batch);
                return 0;
        }
        for (unsigned k = 1; k < 100000; k++) {
                (void)snprintf(c->id, sizeof c->id, "%.6s.%u", *c->before ? c->before : "000000", k);
                pv_auto_free char *name = pv_strf(DONE_PREFIX "%s", c->id);
                pv_auto_free char *undone = pv_strf("undone-%s", c->id);
                if (faccessat(dir, name, F_OK, 0) < 0 && faccessat(dir, undone, F_OK, 0) < 0)
                        return 0;
        }
        return pv_err_set(err, PV_ERR_STATE, 0, "commits: too many batches");
}

static int finish(struct pv_commits *c, bool recovering, struct pv_err *err)
{
        int dir = pv_stage_dirfd(c->stage).fd;
        for (size_t i = 0; i < c->n; i++)
                if (move_one(c, &c->item[i], recovering, err) < 0)
                        return -1;
        if (renew_start(c, false, err) < 0 || (!*c->id && name_it(c, err) < 0) ||
            write_record(c, PHASE_MOVING, PV_FILE_REPLACE, err) < 0)
                return -1;
        pv_auto_free char *name = pv_strf(DONE_PREFIX "%s", c->id);
        if (renameat(dir, RECORD, dir, name) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s/%s", pv_stage_dir(c->stage), name);
        c->recorded = false;
        return 0;
}

/* The record says what is admitted before it is. */
static int admit_all(void *ctx, struct pv_err *err)
{
        struct pv_commits *c = ctx;
        if (c->admitted)
                return 0;
        if (write_record(c, PHASE_PREPARED, PV_FILE_REPLACE, err) < 0)
                return -1;
        for (size_t i = 0; i < c->n; i++)
                if (pv_carry_any(&c->item[i]) && pv_carry_admit(&c->item[i], err) < 0)
                        return -1;
        c->admitted = true;
        return 0;
}

/*
 * Objects come in when nothing stands in the way of the files, and before them. While a job is held still for its
 * files is no time for that: there it is looked first.
 */
static int land_with_files(struct pv_commits *c, struct pv_changes *changes, const bool *selected,
                           const struct pv_apply_options *options, struct pv_apply_result *result, struct pv_err *err)
{
        struct pv_apply_options how = *options, look = *options;
        how.checked = admit_all;
        how.ctx = c;
        look.dry_run = true;
        look.freezer = NULL;
        if (options->freezer) {
                if (pv_apply(c->stage, changes, selected, &look, result, err) < 0 || admit_all(c, err) < 0)
                        return -1;
                pv_apply_result_fini(result);
        }
        if (pv_apply(c->stage, changes, selected, &how, result, err) < 0)
                return -1;
        (void)snprintf(c->batch, sizeof c->batch, "%s", result->batch);
        return 0;
}

/* Up to and with the files: all can be taken back. */
static int land_files(struct pv_commits *c, struct pv_changes *changes, const bool *selected,
                      const struct pv_apply_options *options, struct pv_apply_result *result, struct pv_err *err)
{
        return c->n_files ? land_with_files(c, changes, selected, options, result, err) : admit_all(c, err);
}

int pv_commits_land(struct pv_commits *c, struct pv_changes *changes, const bool *selected,
                    const struct pv_apply_options *options, struct pv_apply_result *result, struct pv_err *err)
{
        struct held held;
        hold_signals(&held);
        int r = land_files(c, changes, selected, options, result, err);
        if (r < 0 && !pv_apply_is_unfinished(c->stage))
                pv_commits_abandon(c);
        c->recorded = false;
        if (r == 0 && (write_record(c, PHASE_MOVING, c->n_files ? PV_FILE_REPLACE : PV_FILE_DURABLE, err) < 0 ||
                       finish(c, false, err) < 0)) {
                r = pv_err_wrap(err, "the files are published, but the commits are not all in place");
                (void)pv_err_hint(err, "nothing is lost: the next command on this job finishes it");
        }
        release_signals(&held);
        return r;
}

/* --- after a crash --- */

static int put_back(struct pv_commits *c, struct pv_err *err)
{
        for (size_t i = 0; i < c->n; i++) {
                struct pv_carry *item = &c->item[i];
                if (pv_carry_move_back(item, c->job, err) < 0 ||
                    (pv_carry_here(item) &&
                     (pv_carry_lock(item, c->job, err) < 0 || pv_carry_set_index(item, true, err) < 0)))
                        return -1;
                pv_carry_unlock(item, c->job);
        }
        if (renew_start(c, true, err) < 0)
                return -1;
        int dir = pv_stage_dirfd(c->stage).fd;
        pv_auto_free char *name = pv_strf(DONE_PREFIX "%s", c->id);
        pv_auto_free char *undone = pv_strf("undone-%s", c->id);
        if (renameat(dir, name, dir, undone) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s/%s", pv_stage_dir(c->stage), name);
        remove_record(c);
        return 0;
}

static int recover_landing(struct pv_commits *c, enum phase phase, const char **did, struct pv_err *err)
{
        char newest[32];
        bool undone;
        if (newest_batch(c->stage, newest, &undone, err) < 0)
                return -1;
        bool published = c->n_files && !pv_streq(newest, c->before) && !undone;
        if (phase == PHASE_PREPARED && !published) {
                for (size_t i = 0; i < c->n; i++)
                        pv_carry_unlock(&c->item[i], c->job);
                pv_commits_abandon(c);
                *did = "commits whose import was cut short were taken back";
                return 0;
        }
        if (published && !*c->batch)
                (void)snprintf(c->batch, sizeof c->batch, "%s", newest);
        if (finish(c, true, err) < 0)
                return -1;
        *did = c->gave_up
                       ? "commits whose import was cut short could not all be brought over: some references do not move"
                       : "an import of commits that was cut short was finished";
        return 0;
}

static int recover_undo(struct pv_commits *c, const char **did, struct pv_err *err)
{
        bool undone, moved;
        if (is_undone(c->stage, c->batch, &undone, err) < 0)
                return -1;
        struct pv_apply_result ignored = { 0 };
        for (size_t i = 0; i < c->n; i++)
                if (pv_carry_check_back(&c->item[i], refuse, &ignored, err) < 0)
                        return -1;
        moved = ignored.n_conflicts > 0;
        pv_apply_result_fini(&ignored);
        if (undone && !moved) {
                *did = "an undo of commits that was cut short was finished";
                return put_back(c, err);
        }
        for (size_t i = 0; i < c->n; i++)
                pv_carry_unlock(&c->item[i], c->job);
        remove_record(c);
        *did = undone ? "an undo that was cut short took back the files; the references have moved on"
                      : "an undo of commits that was cut short before it began was cleared away";
        return 0;
}

bool pv_commits_are_unfinished(const struct pv_stage *s)
{
        return faccessat(pv_stage_dirfd(s).fd, RECORD, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int pv_commits_recover(struct pv_stage *s, const char **did, struct pv_err *err)
{
        pv_auto_commits c = { .recorded = true };
        enum phase phase = PHASE_PREPARED;
        struct held held;
        *did = NULL;
        if (!pv_commits_are_unfinished(s))
                return 0;
        if (read_record(s, RECORD, &c, &phase, err) < 0)
                return -1;
        hold_signals(&held);
        int r = phase == PHASE_UNDOING ? recover_undo(&c, did, err) : recover_landing(&c, phase, did, err);
        release_signals(&held);
        return r;
}

/* --- undo --- */

static int by_text(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

int pv_commits_list(struct pv_stage *s, struct pv_strv *ids, struct pv_err *err)
{
        int fd = openat(pv_stage_dirfd(s).fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_dir d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", pv_stage_dir(s));
        for (struct dirent *e; (e = readdir(d));)
                if (pv_str_has_prefix(e->d_name, DONE_PREFIX) && strlen(e->d_name) < PV_COMMITS_ID)
                        pv_strv_add(ids, e->d_name + strlen(DONE_PREFIX));
        if (ids->n > 1)
                qsort(ids->v, ids->n, sizeof *ids->v, by_text);
        return 0;
}

static int check_undo(struct pv_commits *c, struct pv_apply_result *result, struct pv_err *err)
{
        for (size_t i = 0; i < c->n; i++) {
                struct pv_carry *item = &c->item[i];
                if (pv_carry_check_back(item, refuse, result, err) < 0)
                        return -1;
                if (!pv_carry_here(item))
                        continue;
                const char *why;
                if (pv_carry_lock(item, c->job, err) < 0)
                        return -1;
                if (!pv_carry_still_here(item, &why))
                        refuse(result, item, pv_carry_here(item)->dest, why);
                if (pv_carry_check_index_back(item, refuse, result, err) < 0)
                        return -1;
        }
        if (result->n_conflicts == 0)
                return 0;
        return pv_err_set(err, PV_ERR_CONFLICT, 0, "undo: the host changed %zu of them since; nothing was changed",
                          result->n_conflicts);
}

static int undo_files(struct pv_commits *c, struct pv_apply_result *result, struct pv_err *err)
{
        bool undone;
        if (is_undone(c->stage, c->batch, &undone, err) < 0)
                return -1;
        return undone ? 0 : pv_undo(c->stage, c->batch, result, err);
}

/* recorded stays set as long as nothing has been taken back. */
static int undo_held(struct pv_commits *c, struct pv_apply_result *result, struct pv_err *err)
{
        if (write_record(c, PHASE_UNDOING, PV_FILE_DURABLE, err) < 0)
                return -1;
        c->recorded = true;
        if (check_undo(c, result, err) < 0)
                return -1;
        if (undo_files(c, result, err) < 0) {
                c->recorded = !pv_apply_is_unfinished(c->stage);
                return -1;
        }
        c->recorded = false;
        if (put_back(c, err) == 0)
                return 0;
        (void)pv_err_wrap(err, "the files are back, but the commits are not all");
        return pv_err_hint(err, "nothing is lost: the next command on this job finishes it");
}

static void unlock_all(struct pv_commits *c)
{
        for (size_t i = 0; i < c->n; i++)
                pv_carry_unlock(&c->item[i], c->job);
}

int pv_commits_undo(struct pv_stage *s, const char *id, struct pv_apply_result *result, size_t *n_refs,
                    struct pv_err *err)
{
        pv_auto_commits c = { 0 };
        pv_auto_free char *name = pv_strf(DONE_PREFIX "%s", id);
        enum phase phase = PHASE_PREPARED;
        struct held held;
        *result = (struct pv_apply_result){ 0 };
        if (read_record(s, name, &c, &phase, err) < 0)
                return -1;
        hold_signals(&held);
        int r = undo_held(&c, result, err);
        if (c.recorded) {
                unlock_all(&c);
                remove_record(&c);
        }
        release_signals(&held);
        *n_refs = 0;
        for (size_t i = 0; i < c.n; i++)
                for (size_t k = 0; k < c.item[i].n_refs; k++)
                        *n_refs += c.item[i].ref[k].dest != NULL;
        if (r == 0)
                (void)snprintf(result->batch, sizeof result->batch, "%.31s", id);
        return r;
}
