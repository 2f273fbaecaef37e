/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `pvisor review`: what a person wants to see who comes back to a finished run. In this order: how it ended; what
 * stands in the way of applying; what would run on the host by itself; which files changed, what git says; which
 * limits held; what to type next. Every byte that comes from the command goes through pv_str_put_safe().
 */
#include "cmd/review.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/log.h"
#include "base/path.h"
#include "base/place.h"
#include "cmd/command.h"
#include "cmd/jobs.h"
#include "job/bundle.h"
#include "job/bundle_sections.h"

struct options {
        bool json, paths, diff, no_pager;
        int colour;
};

static const struct pv_opt table[] = {
        { .name = "paths",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct options, paths),
          .help = "List every path, however many there are." },
        { .name = "diff",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct options, diff),
          .help = "Show the changes as a patch below it, as `pvisor diff` does." },
        PV_OPT_JSON(struct options, json),
        PV_OPT_COLOUR(struct options, colour),
        PV_OPT_NO_PAGER(struct options, no_pager),
        PV_OPT_ELSEWHERE(0, "checkpoint", "`pvisor fork JOB@NAME -- COMMAND` stands on one"),
        PV_OPT_ELSEWHERE(0, "max-diff-bytes", "`pvisor diff JOB PATH...` shows a part"),
        PV_OPT_ELSEWHERE(0, "max-diff-file-bytes", "`pvisor diff JOB PATH...` shows a part"),
        PV_OPT_OUTPUT_DIR,
        { 0 },
};

static const char *const examples[] = {
        "pvisor review",
        "The newest job of this workspace",
        "pvisor review fix --paths",
        "Every path that the job named fix changed",
        NULL,
};

void pv_review_put_heading(const struct pv_review *r, struct pv_str *out, enum pv_style style, const char *title,
                           const char *note)
{
        const struct pv_screen *s = &r->screen;
        pv_str_putf(out, "\n%s%s%s", pv_style_on(s, style), title, pv_style_off(s));
        if (note)
                pv_str_putf(out, "  %s%s%s", pv_style_on(s, PV_STYLE_DIM), note, pv_style_off(s));
        pv_str_putc(out, '\n');
}

char *pv_review_path(const struct pv_review *r, size_t i)
{
        const struct pv_path_change *c = &r->look.verdicts.change[i];
        if (c->root != 0)
                return pv_path_join(r->look.verdicts.root[c->root]->target, c->path);
        return pv_strdup(*c->path ? c->path : ".");
}

static void review_finip(struct pv_review *r)
{
        free(r->conflict);
        pv_renames_fini(&r->renames);
        pv_str_fini(&r->screen.held);
        json_decref(r->bundle);
        pv_look_close(&r->look);
}

/* --- text --- */

/* How it ended, where that was not its own doing. */
static const char *end_in_words(const char *end)
{
        static const struct {
                const char *end, *words;
        } ends[] = {
                { "timeout", "ended by its time limit" },
                { "stage-size", "ended because its stage grew too large" },
                { "signaled", "ended by a signal" },
        };
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
                if (pv_streq(ends[i].end, end))
                        return ends[i].words;
        return end;
}

static void put_end(const struct pv_review *r, struct pv_str *out)
{
        const struct pv_job *j = r->look.job;
        const struct pv_screen *s = &r->screen;
        enum pv_style style = j->state == PV_JOB_ENDED && j->exit_code == 0 ? PV_STYLE_GREEN : PV_STYLE_YELLOW;
        pv_str_put(out, pv_style_on(s, style));
        if (j->state == PV_JOB_ENDED && j->end && pv_streq(j->end, "exited"))
                pv_str_putf(out, "exited with %d", j->exit_code);
        else if (j->state == PV_JOB_ENDED && j->end)
                pv_str_putf(out, "%s (%d)", end_in_words(j->end), j->exit_code);
        else if (j->state == PV_JOB_RUNNING)
                pv_str_put(out, "still running: this is how it stands now");
        else if (j->state == PV_JOB_LOST)
                pv_str_put(out, "lost: its supervisor was killed");
        else
                pv_str_put(out, pv_job_state_name(j->state));
        pv_str_put(out, pv_style_off(s));
        if (j->ended.tv_sec && j->started.tv_sec) {
                long long seconds = (long long)(j->ended.tv_sec - j->started.tv_sec);
                if (seconds >= 60)
                        pv_str_putf(out, " after %lldm%llds", seconds / 60, seconds % 60);
                else
                        pv_str_putf(out, " after %llds", seconds);
                pv_str_put(out, ", ");
                pv_cmd_put_age(out, &j->ended);
                pv_str_put(out, " ago");
        }
        pv_str_putc(out, '\n');
}

static void put_header(const struct pv_review *r, struct pv_str *out)
{
        const struct pv_job *j = r->look.job;
        pv_auto_str argv = { 0 };
        pv_put_styled(out, &r->screen, PV_STYLE_BOLD, j->id);
        if (j->name) {
                pv_str_putc(out, ' ');
                pv_put_fitted(out, j->name, 24);
        }
        pv_str_put(out, "  ");
        put_end(r, out);
        pv_cmd_put_argv(&argv, json_object_get(json_object_get(j->request, "plan"), "argv"));
        pv_str_put(out, "  $ ");
        pv_put_fitted_safe(out, argv.len ? argv.s : "", r->screen.columns - 4);
        pv_str_put(out, "\n  in ");
        pv_put_fitted(out, j->workspace ? j->workspace : "?", r->screen.columns - 5);
        pv_str_putc(out, '\n');
        if (r->look.stage && pv_stage_n_roots(r->look.stage) > 0 && pv_stage_is_another_target(r->look.stage, 0))
                pv_str_put(out, "  which is another directory now than the job saw: moved here, or made anew\n");
        if (j->failure) {
                pv_str_put(out, "  ");
                pv_str_put_safe(out, j->failure);
                pv_str_putc(out, '\n');
        }
        pv_cmd_put_closing(out, j, "  ", PV_CMD_CLOSING_UNRECORDED);
        if (j->applied > 0)
                pv_str_putf(out, "  %lld path%s applied already\n", j->applied, j->applied == 1 ? "" : "s");
}

static void put_next(const struct pv_review *r, struct pv_str *out)
{
        const char *job = r->look.job->name ? r->look.job->name : r->look.job->id;
        if (!r->look.changes || r->look.changes->n == 0)
                return;
        pv_review_put_heading(r, out, PV_STYLE_BOLD, "Next", NULL);
        pv_str_putf(out,
                    "  pvisor diff %s\n"
                    "  pvisor inspect %s -- COMMAND     try the result, contained\n"
                    "  pvisor apply %s --all            or --path PATH\n",
                    job, job, job);
        if (r->n_commits)
                pv_str_putf(out, "  pvisor apply %s --commits        %zu commit%s with %s files\n", job, r->n_commits,
                            r->n_commits == 1 ? "" : "s", r->n_commits == 1 ? "its" : "their");
        else if (r->has_commits)
                pv_str_putf(out, "  pvisor apply %s --commits        branches and tags\n", job);
        if (r->look.job->state != PV_JOB_RUNNING)
                pv_str_putf(out, "  pvisor drop %s\n", job);
}

static void put_unstaged(const struct pv_review *r, struct pv_str *out)
{
        const struct pv_job *j = r->look.job;
        pv_review_put_heading(r, out, PV_STYLE_BOLD, "Files", NULL);
        pv_str_put(out, j->dropped     ? "  the changes were dropped\n"
                        : j->stage_dir ? "  nothing was staged\n"
                                       : "  not staged: what the command wrote is in place already\n");
}

static void put_all(struct pv_review *r, struct pv_str *out)
{
        put_header(r, out);
        if (r->look.stage) {
                pv_review_put_conflicts(r, out);
                pv_review_put_attention(r, out);
                pv_review_put_changes(r, out);
                pv_review_put_git(r, out);
        } else {
                put_unstaged(r, out);
        }
        pv_review_put_network(r, out);
        pv_review_put_profile(r, out);
        pv_review_put_limits(r, out);
        put_next(r, out);
}

/* --- JSON --- */

static json_t *folds_json(const struct pv_review *r)
{
        const struct pv_verdicts *v = &r->look.verdicts;
        pv_auto_free struct pv_fold *fold = NULL;
        size_t n = 0;
        if (!v->ignore_known)
                return json_null();
        json_t *list = json_array();
        pv_fold_ignored(v->change, v->item, v->n, &fold, &n);
        for (size_t i = 0; i < n; i++) {
                pv_auto_free char *path = pv_strndup(fold[i].path, fold[i].len);
                (void)json_array_append_new(list,
                                            json_pack("{s:o, s:I, s:I, s:I}", "path", pv_json_bytes(path), "files",
                                                      (json_int_t)fold[i].n, "deleted", (json_int_t)fold[i].n_deleted,
                                                      "bytes", (json_int_t)fold[i].size));
        }
        return list;
}

/* The bundle with its filesystem section as it stands now. */
static int print_json(struct pv_review *r, struct pv_err *err)
{
        pv_auto_plan plan = NULL;
        if (r->look.stage) {
                if (pv_job_plan(r->look.job, &plan, err) < 0)
                        return -1;
                json_t *section = pv_bundle_filesystem(r->look.job, plan, r->look.changes);
                (void)json_object_set_new(section, "attention", pv_review_attention_json(r));
                (void)json_object_set_new(section, "conflicts", pv_review_conflicts_json(r));
                (void)json_object_set_new(section, "host_changed", pv_review_host_changed_json(r));
                (void)json_object_set_new(section, "ignored", folds_json(r));
                (void)json_object_set_new(r->bundle, "filesystem", section);
        }
        return pv_cmd_print_json(json_incref(r->bundle), err);
}

static int show(const struct options *o, const struct pv_args *args, struct pv_err *err)
{
        __attribute__((cleanup(review_finip))) struct pv_review r = { .all_paths = o->paths };
        struct pv_job *job = NULL;
        pv_auto_str text = { 0 };
        if (pv_cmd_job(args, &job, err) < 0 || pv_look_open(job, &r.look, err) < 0 ||
            pv_bundle_read(r.look.job, &r.bundle, err) < 0)
                return -1;
        if (r.look.stage) {
                pv_review_find_conflicts(&r);
                pv_renames_find(r.look.changes, NULL, &r.renames);
        }
        if (o->json)
                return print_json(&r, err);
        pv_screen_init(&r.screen, (enum pv_colour_choice)o->colour, o->no_pager);
        r.verbose = pv_log_get_level() == PV_LOG_VERBOSE;
        put_all(&r, &text);
        struct pv_err ignored = PV_ERR_INIT;
        int shown = pv_screen_write(&r.screen, &text, err);
        int closed = pv_screen_close(&r.screen, shown < 0 ? &ignored : err);
        return shown < 0 || closed < 0 ? -1 : 0;
}

/* Takes this process's place. Returns only on failure. */
static int become_diff(const struct options *o, const struct pv_args *args, struct pv_err *err)
{
        char colour[32];
        char *argv[6] = { "pvisor-diff", "diff" };
        size_t n = 2;
        pv_auto_free char *path = NULL;
        if (pv_place_program("pvisor-diff", &path, err) < 0)
                return -1;
        if (o->colour) {
                (void)snprintf(colour, sizeof colour, "--color=%s", pv_colour_choices[o->colour - 1]);
                argv[n++] = colour;
        }
        if (o->no_pager)
                argv[n++] = "--no-pager";
        if (args->n)
                argv[n++] = args->words[0];
        (void)execv(path, argv);
        return pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
}

static int run(const void *options, const struct pv_args *args, struct pv_err *err)
{
        const struct options *o = options;
        if (o->diff && o->json)
                return pv_err_set(err, PV_ERR_USAGE, 0,
                                  "review: --diff is for people; `pvisor diff --json` for programs");
        if (show(o, args, err) < 0)
                return -1;
        return o->diff ? (pv_fd_write_all(STDOUT_FILENO, "\n", 1, "stdout", err) < 0 ? -1 : become_diff(o, args, err))
                       : 0;
}

const struct pv_command pv_cmd_review = {
        .name = "review",
        .usage = "[options] [JOB]",
        .about = "Shows what a job did: what stands in the way of applying its changes, what would run on the host by "
                 "itself or deserves a look, which files changed, what happened to git repositories (in git's words), "
                 "which limits held and what was refused.\n\n"
                 "Files that git ignores are one line a directory. With --json it is the Run Bundle, its filesystem "
                 "section as it stands now.",
        .options = table,
        .options_size = sizeof(struct options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
