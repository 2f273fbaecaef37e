/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/decide.h"

#include <unistd.h>
#include "base/json.h"
#include "base/log.h"

#define PATHS_IN_JSON 10000

/* What was found out about the changes. */
static void forget(struct pv_decision *d)
{
        pv_freep(&d->left);
        pv_freep(&d->selected);
        pv_verdicts_fini(&d->verdicts);
        d->verdicts = (struct pv_verdicts){ 0 };
        pv_contained_freep(&d->result);
        pv_contained_freep(&d->host);
        pv_changes_freep(&d->changes);
        d->n_selected = d->n_along = 0;
}

void pv_decision_fini(struct pv_decision *d)
{
        forget(d);
        pv_stage_close(d->stage);
        pv_beside_close(&d->beside, d->verb);
        pv_job_free(d->job);
        *d = (struct pv_decision){ 0 };
}

/* A view that cannot be made is no reason not to decide: nothing then counts as ignored, which is said. */
static const struct pv_git_runner *view(struct pv_decision *d, enum pv_contained_view which, struct pv_contained **c,
                                        struct pv_git_runner *runner)
{
        struct pv_err why = PV_ERR_INIT;
        if (pv_contained_open(d->job, d->stage, which, c, &why) < 0) {
                pv_log_warn("git is not asked: %s", why.msg);
                return NULL;
        }
        pv_contained_git(*c, runner);
        return runner;
}

static int take(const struct pv_args *args, const char *verb, enum pv_decision_when when, struct pv_decision *d,
                struct pv_err *err)
{
        if (when == PV_DECISION_ANY_TIME)
                return pv_cmd_stage_decide(args, verb, &d->job, &d->beside, &d->stage, err);
        return pv_cmd_job(args, &d->job, err) < 0 ? -1 : pv_cmd_stage_take(d->job, verb, &d->stage, err);
}

int pv_decision_open(const struct pv_args *args, const char *verb, enum pv_decision_when when, struct pv_decision *d,
                     struct pv_err *err)
{
        d->verb = verb;
        return take(args, verb, when, d, err) < 0 ? -1 : pv_decision_look(d, err);
}

int pv_decision_look(struct pv_decision *d, struct pv_err *err)
{
        forget(d);
        if (pv_changes_compute(d->stage, &d->changes, err) < 0)
                return -1;
        if (d->changes->n == 0)
                return 0;
        const struct pv_git_runner *result = view(d, PV_CONTAINED_RESULT, &d->result, &d->ask_result);
        const struct pv_git_runner *host = view(d, PV_CONTAINED_HOST, &d->host, &d->ask_host);
        if (pv_verdicts_make(d->stage, d->changes, result, host, &d->verdicts, err) < 0)
                return -1;
        if (d->verdicts.git_refused)
                pv_contained_freep(&d->result);
        return 0;
}

/* A new directory that only holds what was asked for runs nothing. */
static bool may_come_along(const struct pv_decision *d, size_t i)
{
        const struct pv_change *c = &d->changes->item[i];
        if (c->kind == PV_CHANGE_ADDED && S_ISDIR(c->now.mode))
                return true;
        return d->left[i] != PV_LEFT_EXCLUDED && d->left[i] != PV_LEFT_HOST_RUNS && d->left[i] != PV_LEFT_TOGETHER;
}

static int check_closed(struct pv_decision *d, const char *verb, struct pv_err *err)
{
        for (size_t i = 0; i < d->changes->n; i++) {
                if (!d->selected[i] || d->left[i] == PV_LEFT_NOT)
                        continue;
                if (!may_come_along(d, i)) {
                        pv_err_set(err, PV_ERR_USAGE, 0, "%s: %s (%s) belongs together with what was selected", verb,
                                   d->changes->item[i].path, pv_left_text(d->left[i]));
                        return pv_err_hint(err,
                                           "name it too with --path, or leave out with --exclude what it belongs to "
                                           "(other hard links of the file, a directory that was replaced)");
                }
                d->left[i] = PV_LEFT_NOT;
                d->n_along++;
        }
        return 0;
}

/* Of two reasons to leave a hook or git's configuration, the one that a person must know. */
static void prefer_host_runs(struct pv_decision *d)
{
        for (size_t i = 0; i < d->changes->n; i++)
                if (d->left[i] == PV_LEFT_GIT && pv_attention_host_runs(d->verdicts.item[i].reasons))
                        d->left[i] = PV_LEFT_HOST_RUNS;
}

/* Closes the selection. Of a rename with one half left out, the other is taken where that loses nothing. */
static int close_selection(struct pv_decision *d, struct pv_err *err)
{
        size_t n = d->changes->n;
        pv_auto_free bool *barred = pv_calloc(n + 1, sizeof *barred), *held = pv_calloc(n + 1, sizeof *held);
        const struct pv_halves halves = { .barred = barred,
                                          .held = held,
                                          .lone = d->drops ? PV_CHANGE_ADDED : PV_CHANGE_DELETED };
        for (size_t i = 0; i < n; i++)
                barred[i] = !may_come_along(d, i);
        if (pv_apply_close_selection(d->changes, d->selected, &halves, err) < 0)
                return -1;
        for (size_t i = 0; i < n; i++)
                if (held[i] && d->left[i] == PV_LEFT_NOT)
                        d->left[i] = PV_LEFT_TOGETHER;
        return 0;
}

/* From reasons to a selection. */
static int take_selection(struct pv_decision *d, const char *verb, struct pv_err *err)
{
        size_t n = d->changes->n;
        d->selected = pv_calloc(n + 1, sizeof *d->selected);
        for (size_t i = 0; i < n; i++)
                d->selected[i] = d->left[i] == PV_LEFT_NOT;
        if (close_selection(d, err) < 0 || check_closed(d, verb, err) < 0)
                return -1;
        d->n_selected = 0;
        for (size_t i = 0; i < n; i++)
                d->n_selected += d->selected[i];
        return 0;
}

int pv_decision_select_again(struct pv_decision *d, const char *verb, const struct pv_changes *before,
                             const enum pv_left *left, struct pv_err *err)
{
        d->left = pv_calloc(d->changes->n + 1, sizeof *d->left);
        for (size_t i = 0; i < d->changes->n; i++) {
                const struct pv_change *c = &d->changes->item[i],
                                       *was = pv_changes_find((struct pv_changes *)(uintptr_t)before, c->root, c->path);
                d->left[i] = was ? left[was - before->item] : PV_LEFT_NOT_ASKED;
        }
        return take_selection(d, verb, err);
}

int pv_decision_select(struct pv_decision *d, const char *verb, const struct pv_select *what, struct pv_err *err)
{
        size_t n = d->changes->n;
        pv_auto_free char *cwd = getcwd(NULL, 0);
        d->left = pv_calloc(n + 1, sizeof *d->left);
        if (n && pv_select_run(what, &d->verdicts, cwd ? cwd : "/", d->left, err) < 0)
                return -1;
        prefer_host_runs(d);
        d->drops = what->everything;
        return take_selection(d, verb, err);
}

/* Ignored files and what git rewrites all the time wait for nobody. */
static bool is_pending(const struct pv_decision *d, size_t i)
{
        const struct pv_verdict *v = &d->verdicts.item[i];
        return !d->selected[i] && !v->ignored && !pv_git_part_is_noise(v->part);
}

void pv_decision_note_left(struct pv_decision *d)
{
        struct pv_err why = PV_ERR_INIT;
        d->job->changes = (long long)(d->changes->n - d->n_selected);
        d->job->pending = 0;
        for (size_t i = 0; i < d->changes->n; i++)
                d->job->pending += is_pending(d, i);
        pv_cmd_measure(d->job, d->stage);
        if (d->job->state == PV_JOB_RUNNING) /* who ends it counts */
                return;
        if (pv_job_save_decisions(d->job, &why) < 0)
                pv_log_warn("%s", why.msg);
}

static json_t *path_json(const struct pv_decision *d, size_t i)
{
        const struct pv_change *c = &d->changes->item[i];
        if (c->root == 0)
                return pv_json_bytes(c->path);
        pv_auto_free char *whole = pv_path_join(pv_stage_root(d->stage, c->root)->target, c->path);
        return pv_json_bytes(whole);
}

static json_t *reason_json(const struct pv_decision *d, enum pv_left why)
{
        json_t *paths = json_array();
        size_t n = 0;
        for (size_t i = 0; i < d->changes->n; i++)
                if (d->left[i] == why && n++ < PATHS_IN_JSON)
                        (void)json_array_append_new(paths, path_json(d, i));
        if (n == 0) {
                json_decref(paths);
                return NULL;
        }
        return json_pack("{s:I, s:s, s:o}", "count", (json_int_t)n, "reason", pv_left_text(why), "paths", paths);
}

json_t *pv_decision_left_json(const struct pv_decision *d)
{
        static const char *const name[PV_LEFTS] = {
                [PV_LEFT_NOT] = "",
                [PV_LEFT_NOT_ASKED] = "not-asked",
                [PV_LEFT_EXCLUDED] = "excluded",
                [PV_LEFT_HOST_RUNS] = "runs-on-host",
                [PV_LEFT_IGNORED] = "ignored",
                [PV_LEFT_GIT] = "git",
                [PV_LEFT_TOGETHER] = "together",
        };
        json_t *left = json_object();
        for (int why = PV_LEFT_NOT + 1; why < PV_LEFTS; why++) {
                json_t *one = reason_json(d, (enum pv_left)why);
                if (one)
                        (void)json_object_set_new(left, name[why], one);
        }
        return left;
}

json_t *pv_decision_selected_json(const struct pv_decision *d)
{
        json_t *paths = json_array();
        size_t n = 0;
        for (size_t i = 0; i < d->changes->n; i++)
                if (d->selected[i] && n++ < PATHS_IN_JSON)
                        (void)json_array_append_new(paths, path_json(d, i));
        return json_pack("{s:I, s:o}", "count", (json_int_t)d->n_selected, "paths", paths);
}
