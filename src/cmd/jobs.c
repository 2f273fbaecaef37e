/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/jobs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "job/commits.h"
#include "job/run_report.h"
#include "policy/workspace.h"
#include "stage/change.h"

/* Conflicts said one by one; the JSON has them all. */
#define CONFLICTS_SAID 50
#define CLOSING_MAX    (256U << 10)

int pv_cmd_workspace(char **out, struct pv_err *err)
{
        pv_auto_workspace w = { 0 };
        const char *home = getenv("HOME");
        pv_auto_free char *real_home = home ? realpath(home, NULL) : NULL;
        if (pv_workspace_find(NULL, getenv("PWD"), real_home, &w, err) < 0)
                return -1;
        *out = pv_strdup(w.path);
        return 0;
}

int pv_cmd_job_named(const char *selector, struct pv_job **out, struct pv_err *err)
{
        pv_auto_free char *workspace = NULL;
        return pv_cmd_workspace(&workspace, err) < 0 ? -1 : pv_job_select(selector, workspace, out, err);
}

int pv_cmd_job(const struct pv_args *args, struct pv_job **out, struct pv_err *err)
{
        return pv_cmd_job_named(args->n > 0 ? args->words[0] : NULL, out, err);
}

int pv_cmd_job_or_last(const struct pv_args *args, struct pv_job **out, size_t *n_used, struct pv_err *err)
{
        const char *word = args->n ? args->words[0] : NULL;
        *n_used = word ? 1 : 0;
        if (pv_cmd_job_named(word, out, err) == 0)
                return 0;
        if (!word || err->kind != PV_ERR_NO_JOB || pv_str_has_prefix(word, "run-"))
                return -1;
        struct pv_err first = *err;
        pv_err_clear(err);
        *n_used = 0;
        if (pv_cmd_job_named(NULL, out, err) == 0)
                return 0;
        *err = first;
        return -1;
}

int pv_cmd_need_running(const struct pv_job *job, const char *verb, struct pv_err *err)
{
        static const char *const how[] = {
                [PV_JOB_ENDED] = "it has ended",
                [PV_JOB_LOST] = "it is lost, its supervisor was killed",
                [PV_JOB_FAILED] = "it never started",
        };
        if (job->state == PV_JOB_RUNNING)
                return 0;
        (void)pv_err_set(err, PV_ERR_STATE, 0, "%s: job %s does not run: %s", verb, job->id, how[job->state]);
        return pv_err_hint(err, "pvisor list shows which jobs run");
}

static int check_staged(const struct pv_job *job, const char *verb, struct pv_err *err)
{
        if (!job->stage_dir) {
                pv_err_set(err, PV_ERR_STATE, 0, "%s: job %s was not staged: its changes are in %s already", verb,
                           job->id, job->workspace);
                return pv_err_hint(err, "pvisor run --stage keeps changes until you accept them");
        }
        return 0;
}

/* Finishes what a crash left, and says so in a line each. */
static int finish_cut_short(const struct pv_job *job, struct pv_stage *s, bool *any, struct pv_err *err)
{
        const char *did[2] = { 0 };
        if (pv_apply_recover(s, &did[0], err) < 0) {
                (void)pv_err_wrap(err, "finish a batch that was cut short");
                return err->kind == PV_ERR_BUSY
                               ? -1
                               : pv_err_hint(err,
                                             "pvisor undo --abandon %s gives it up and says where each version lies",
                                             job->id);
        }
        if (pv_commits_recover(s, &did[1], err) < 0)
                return pv_err_wrap(err, "finish an import of commits that was cut short");
        for (size_t i = 0; i < sizeof did / sizeof *did; i++) {
                if (!did[i])
                        continue;
                pv_log_note("%s", did[i]);
                pv_job_event(job, "recovered", json_pack("{s:s}", "what", did[i]));
        }
        *any = did[0] || did[1];
        return 0;
}

static int recover(struct pv_job *job, struct pv_stage *s, struct pv_err *err)
{
        bool any = false;
        if (finish_cut_short(job, s, &any, err) < 0)
                return -1;
        return any ? pv_cmd_recount(job, s, err) : 0;
}

bool pv_cmd_stage_is_gone(const struct pv_job *job)
{
        return job->stage_dir && access(job->stage_dir, F_OK) < 0 && errno == ENOENT;
}

/* Removed by hand, moved, or on a disk that is not there now. */
static int stage_is_gone(const struct pv_job *job, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_STATE, ENOENT, "%s: what job %s had staged is not there", job->stage_dir, job->id);
        return pv_err_hint(err, "put it back there (a link will do), or give it up: pvisor drop %s", job->id);
}

int pv_cmd_stage_take(struct pv_job *job, const char *verb, struct pv_stage **out, struct pv_err *err)
{
        pv_auto_stage s = NULL;
        if (check_staged(job, verb, err) < 0)
                return -1;
        if (job->state == PV_JOB_RUNNING) {
                pv_err_set(err, PV_ERR_BUSY, 0, "%s: job %s still runs on what it has staged: wait until it has ended",
                           verb, job->id);
                return pv_err_hint(err, "pvisor kill %s ends it", job->id);
        }
        pv_stage_own_files(job->stage_dir);
        if (pv_stage_open(job->stage_dir, PV_STAGE_TAKE, &s, err) < 0) {
                struct pv_err gone = PV_ERR_INIT;
                if (pv_job_check_stage_left(job, verb, &gone) < 0) {
                        *err = gone;
                        return -1;
                }
                if (pv_cmd_stage_is_gone(job))
                        (void)stage_is_gone(job, err);
                return pv_err_wrap(err, "%s", verb);
        }
        if (recover(job, s, err) < 0)
                return pv_err_wrap(err, "%s", verb);
        *out = pv_steal(&s);
        return 0;
}

/* One try. PV_ERR_STATE: it was running, and is about to end. */
static int try_decide(struct pv_job *job, const char *verb, struct pv_beside *b, struct pv_stage **out,
                      struct pv_err *err)
{
        pv_auto_stage s = NULL;
        bool did;
        if (job->state != PV_JOB_RUNNING)
                return pv_cmd_stage_take(job, verb, out, err);
        if (pv_beside_open(job, b, err) < 0)
                return -1;
        pv_stage_own_files(job->stage_dir); /* after that no connection is taken from us */
        if (pv_beside_open_stage(b, &s, err) < 0)
                return -1;
        if (finish_cut_short(job, s, &did, err) < 0)
                return -1;
        *out = pv_steal(&s);
        return 0;
}

/* Between the command's end and that of the record nobody answers for some milliseconds. */
#define ENDING_MS 10000
#define STEP_MS   10

int pv_cmd_stage_decide(const struct pv_args *args, const char *verb, struct pv_job **job, struct pv_beside *b,
                        struct pv_stage **out, struct pv_err *err)
{
        for (int waited = 0;; waited += STEP_MS) {
                if (pv_cmd_job(args, job, err) < 0)
                        return -1;
                if (check_staged(*job, verb, err) < 0)
                        return -1;
                bool runs = (*job)->state == PV_JOB_RUNNING;
                if (try_decide(*job, verb, b, out, err) == 0)
                        return 0;
                pv_beside_close(b, verb);
                if (!runs)
                        return -1;
                if (err->kind != PV_ERR_STATE || waited >= ENDING_MS)
                        return pv_err_wrap(err, "%s", verb);
                pv_err_clear(err);
                pv_job_freep(job);
                (void)usleep(STEP_MS * 1000);
        }
}

char *pv_cmd_pause_text(const struct pv_beside *b)
{
        if (!b->held_us)
                return pv_strdup("");
        return pv_strf(" (paused for %llu ms)", (unsigned long long)(b->held_us + 999) / 1000);
}

json_t *pv_cmd_pause_json(const struct pv_beside *b)
{
        return b->held_us ? json_real((double)b->held_us / 1000) : json_null();
}

/*
 * What a crash left is finished before anybody looks: else the target holds a mix, and copies of ours lie in it. Where
 * that cannot be done, it is said, and shown as it lies.
 */
static void recover_first(struct pv_job *job, struct pv_stage **s)
{
        struct pv_err why = PV_ERR_INIT;
        if (pv_apply_recover_targets(*s, &why) < 0)
                pv_log_warn("%s%s%s", why.msg, *why.hint ? "; " : "", why.hint);
        if (!pv_apply_is_unfinished(*s) && !pv_commits_are_unfinished(*s))
                return;
        pv_auto_stage taken = NULL;
        if (pv_cmd_stage_take(job, "look", &taken, &why) < 0)
                pv_log_warn("%s%s%s", why.msg, *why.hint ? "; " : "", why.hint);
}

int pv_cmd_stage_look(struct pv_job *job, struct pv_stage **out, struct pv_err *err)
{
        if (check_staged(job, "look", err) < 0)
                return -1;
        pv_stage_own_files(job->stage_dir);
        if (pv_job_check_stage_left(job, "look", err) < 0)
                return -1;
        if (pv_stage_open(job->stage_dir, PV_STAGE_LOOK, out, err) < 0)
                return pv_cmd_stage_is_gone(job) && !job->dropped ? stage_is_gone(job, err) : -1;
        recover_first(job, out);
        return 0;
}

void pv_cmd_tally(const struct pv_stage *stage, const struct pv_changes *changes, struct pv_tally *out)
{
        size_t n_roots = pv_stage_n_roots(stage);
        pv_auto_free struct pv_root *roots = pv_calloc(n_roots + 1, sizeof *roots);
        for (size_t i = 0; i < n_roots; i++)
                roots[i] = *pv_stage_root(stage, i); /* what they point to stays the stage's */
        pv_tally_changes(roots, n_roots, changes, out);
}

void pv_cmd_measure(struct pv_job *job, const struct pv_stage *stage)
{
        struct pv_err ignored = PV_ERR_INIT;
        uint64_t bytes = 0;
        job->stage_bytes = pv_stage_size(stage, &bytes, &ignored) == 0 ? (long long)bytes : -1;
}

int pv_cmd_recount(struct pv_job *job, struct pv_stage *stage, struct pv_err *err)
{
        struct pv_tally tally;
        pv_auto_changes changes = NULL;
        if (pv_changes_compute(stage, &changes, err) < 0)
                return -1;
        pv_cmd_tally(stage, changes, &tally);
        job->changes = (long long)changes->n;
        job->pending = (long long)tally.paths;
        job->applied = (long long)pv_batches_count_standing(stage);
        pv_cmd_measure(job, stage);
        return pv_job_save_decisions(job, err);
}

int pv_cmd_print(struct pv_str *text, struct pv_err *err)
{
        int r = text->len ? pv_fd_write_all(STDOUT_FILENO, text->s, text->len, "stdout", err) : 0;
        pv_str_fini(text);
        *text = (struct pv_str){ 0 };
        return r;
}

int pv_cmd_print_json(json_t *value, struct pv_err *err)
{
        pv_auto_json taken = value;
        pv_auto_free char *dump = taken ? json_dumps(taken, JSON_INDENT(2)) : NULL;
        if (!dump)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write JSON");
        pv_auto_str text = { 0 };
        pv_str_put(&text, dump);
        pv_str_putc(&text, '\n');
        return pv_cmd_print(&text, err);
}

void pv_cmd_put_count(struct pv_str *b, size_t n, const char *one, const char *many)
{
        pv_str_putf(b, "%zu %s", n, n == 1 ? one : many);
}

void pv_cmd_put_age(struct pv_str *b, const struct timespec *then)
{
        static const struct {
                long long seconds;
                char unit;
        } steps[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
        long long age = (long long)pv_clock_now().tv_sec - then->tv_sec;
        if (age < 0 || then->tv_sec == 0)
                age = 0;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                if (age >= steps[i].seconds || steps[i].seconds == 1) {
                        pv_str_putf(b, "%lld%c", age / steps[i].seconds, steps[i].unit);
                        return;
                }
        }
}

static void put_word(struct pv_str *b, const char *word)
{
        bool plain = *word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                           "%+,-./:=@_^") == strlen(word);
        if (plain) {
                pv_str_put(b, word);
                return;
        }
        pv_str_putc(b, '\'');
        for (const char *p = word; *p;) {
                size_t n = strcspn(p, "'");
                pv_str_put_safe_n(b, p, n);
                p += n;
                if (*p == '\'') {
                        pv_str_put(b, "'\\''");
                        p++;
                }
        }
        pv_str_putc(b, '\'');
}

void pv_cmd_put_argv(struct pv_str *b, const json_t *argv)
{
        for (size_t i = 0; i < json_array_size(argv); i++) {
                struct pv_err ignored = PV_ERR_INIT;
                pv_auto_free char *word = NULL;
                if (pv_json_get_bytes(json_array_get(argv, i), &word, &ignored) < 0)
                        continue;
                if (i)
                        pv_str_putc(b, ' ');
                put_word(b, word);
        }
}

/* Our own words, but a file is a file: bounded, and nothing in it is a key that is not ours. */
static char *read_closing(const struct pv_job *job)
{
        struct pv_err ignored = PV_ERR_INIT;
        char *text = NULL;
        size_t n = 0;
        pv_auto_fd dir = pv_job_open_dir(job, &ignored);
        if (dir < 0 || pv_file_read_at(dir, PV_JOB_CLOSING, CLOSING_MAX, &text, &n, &ignored) < 0)
                return NULL;
        return text;
}

void pv_cmd_put_closing(struct pv_str *b, const struct pv_job *job, const char *indent, enum pv_cmd_closing which)
{
        pv_auto_free char *text = read_closing(job);
        for (const char *p = text; p && *p;) {
                size_t n = strcspn(p, "\n");
                pv_auto_free char *line = pv_strndup(p, n);
                p += n + (p[n] == '\n');
                if (which == PV_CMD_CLOSING_UNRECORDED && pv_run_report_repeats_record(line, job->id))
                        continue;
                pv_str_put(b, indent);
                for (size_t i = 0; i < n; i++) /* escaped when it was written */
                        pv_str_putc(b, (unsigned char)line[i] < ' ' ? '?' : line[i]);
                pv_str_putc(b, '\n');
        }
}

json_t *pv_cmd_closing_json(const struct pv_job *job)
{
        pv_auto_free char *text = read_closing(job);
        json_t *lines = text ? json_array() : json_null();
        for (char *p = text; p && *p;) {
                size_t n = strcspn(p, "\n");
                bool more = p[n] == '\n';
                p[n] = '\0';
                (void)json_array_append_new(lines, pv_json_bytes(p));
                p += n + more;
        }
        return lines;
}

json_t *pv_cmd_time(const struct timespec *t)
{
        char text[PV_CLOCK_TEXT];
        if (t->tv_sec == 0)
                return json_null();
        pv_clock_format(t, text);
        return json_string(text);
}

static json_t *count_json(long long n)
{
        return n < 0 ? json_null() : json_integer(n);
}

json_t *pv_cmd_job_json(const struct pv_job *job)
{
        json_t *argv = json_object_get(json_object_get(job->request, "plan"), "argv");
        return json_pack(
                "{s:s, s:s?, s:o, s:o, s:s, s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:s?, s:o}", "id",
                job->id, "name", job->name, "workspace", pv_json_bytes(job->workspace), "argv",
                argv ? json_incref(argv) : json_null(), "state", pv_job_state_name(job->state), "end", job->end,
                "exit_code", count_json(job->exit_code), "failure", pv_json_bytes(job->failure), "started_at",
                pv_cmd_time(&job->started), "ended_at", pv_cmd_time(&job->ended), "changes", count_json(job->changes),
                "pending", count_json(job->pending), "applied", count_json(job->applied), "dropped", job->dropped,
                "stage", pv_json_bytes(job->stage_dir), "stage_bytes",
                count_json(job->stage_dir ? job->stage_bytes : -1), "parent", job->parent, "directory",
                pv_json_bytes(job->dir));
}

json_t *pv_cmd_conflicts_json(const struct pv_stage *s, const struct pv_apply_result *r)
{
        json_t *list = json_array();
        for (size_t i = 0; i < r->n_conflicts; i++) {
                const struct pv_conflict *c = &r->conflicts[i];
                (void)json_array_append_new(list, json_pack("{s:i, s:o, s:o, s:s}", "root", (int)c->root, "target",
                                                            pv_json_bytes(pv_stage_root(s, c->root)->target), "path",
                                                            pv_json_bytes(c->path), "why", c->why));
        }
        return list;
}

void pv_cmd_say_conflicts(const struct pv_stage *s, const struct pv_apply_result *r)
{
        pv_auto_str text = { 0 };
        struct pv_err ignored = PV_ERR_INIT;
        for (size_t i = 0; i < r->n_conflicts && i < CONFLICTS_SAID; i++) {
                const struct pv_conflict *c = &r->conflicts[i];
                pv_str_put(&text, "conflict: ");
                pv_cmd_put_path(&text, s, c->root, c->path);
                pv_str_putf(&text, ": %s\n", c->why);
        }
        if (r->n_conflicts > CONFLICTS_SAID)
                pv_str_putf(&text, "conflict: and %zu more (--json lists all)\n", r->n_conflicts - CONFLICTS_SAID);
        if (text.len)
                (void)pv_fd_write_all(STDERR_FILENO, text.s, text.len, "stderr", &ignored);
}

void pv_cmd_put_path(struct pv_str *b, const struct pv_stage *s, unsigned root, const char *path)
{
        if (root == 0 && *path) {
                pv_str_put_path(b, path);
                return;
        }
        pv_auto_free char *whole = pv_path_join(pv_stage_root(s, root)->target, path);
        pv_str_put_path(b, whole);
}
