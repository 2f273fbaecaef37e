/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor apply */
#include "base/json.h"
#include "base/log.h"
#include "cmd/apply_report.h"
#include "cmd/commits.h"
#include "cmd/resolve.h"

struct apply_options {
        struct pv_strv path, include, exclude;
        struct pv_ways_out ways;
        char *branch;
        bool all, ignored, git_raw, commits, rewritten, keep_times, dry_run, json;
};

static const struct pv_opt options[] = {
        { .name = "all",
          .letter = 'a',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, all),
          .help = "Everything, but for ignored files, git directories and files that run on the host by themselves.",
          .group = "What to take" },
        { .name = "path",
          .type = PV_OPT_LIST,
          .arg = "PATH",
          .field = offsetof(struct apply_options, path),
          .complete = PV_COMPLETE_FILE,
          .help = "What is at or below PATH. Repeatable." },
        { .name = "include",
          .type = PV_OPT_LIST,
          .arg = "GLOB",
          .field = offsetof(struct apply_options, include),
          .help = "What matches: '*.c' at any depth, 'src/**' by its whole path. Repeatable." },
        { .name = "exclude",
          .type = PV_OPT_LIST,
          .arg = "GLOB",
          .field = offsetof(struct apply_options, exclude),
          .help = "Not what matches. Repeatable." },
        { .name = "ignored",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, ignored),
          .help = "Files that git ignores, too." },
        { .name = "git-raw",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, git_raw),
          .help = "Git directories too, literally, file by file." },
        { .name = "commits",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, commits),
          .help = "Commits on branches and tags, as git brings them over; the files of the checked-out branch with "
                  "them.",
          .group = "Commits" },
        { .name = "branch",
          .type = PV_OPT_TEXT,
          .arg = "NAME",
          .field = offsetof(struct apply_options, branch),
          .help = "With --commits: what the job has checked out, to this branch alone; no file is touched." },
        { .name = "rewritten",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, rewritten),
          .help = "With --commits: branches whose history the job rewrote (amend, rebase, reset), too." },
        { .name = "merge",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, ways.merge),
          .help = "Put your version and the job's together where both changed a file: text three ways, mode and owner "
                  "from the side that changed them. What does not fit together is still a conflict, and then nothing "
                  "is applied.",
          .group = "Where you changed it too" },
        { .name = "markers",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, ways.markers),
          .help = "The same, and where the two do not fit together both are written into the file, between conflict "
                  "markers." },
        { .name = "overwrite",
          .type = PV_OPT_LIST,
          .arg = "PATH",
          .field = offsetof(struct apply_options, ways.overwrite),
          .complete = PV_COMPLETE_FILE,
          .help = "Take the job's version of what is at or below PATH, whatever you made of it since. Yours is kept "
                  "for undo. Repeatable." },
        { .name = "dry-run",
          .letter = 'n',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, dry_run),
          .help = "Make all checks and say what would be done; change nothing.",
          .group = "How" },
        { .name = "keep-times",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct apply_options, keep_times),
          .help = "Files keep the times that the command gave them. Else they get the time of the apply, so that "
                  "builds "
                  "see them." },
        PV_OPT_JSON(struct apply_options, json),
        PV_OPT_OUTPUT_DIR,
        PV_OPT_ELSEWHERE(0, "target",
                         "changes go to the workspace that they were made in; `pvisor diff | git apply` takes "
                         "them elsewhere"),
        { .name = NULL },
};

static void note_refusal(const struct pv_decision *d, const struct pv_apply_result *r)
{
        pv_job_event(d->job, "apply-refused",
                     json_pack("{s:I, s:b}", "conflicts", (json_int_t)r->n_conflicts, "partly", r->partly));
}

static void note_batch(struct pv_decision *d, const struct pv_apply_result *r, const struct pv_resolution *resolved)
{
        d->job->applied += (long long)r->applied;
        pv_decision_note_left(d);
        pv_job_event(d->job, "applied",
                     json_pack("{s:s, s:I, s:b, s:o}", "batch", r->batch, "paths", (json_int_t)r->applied, "weaker",
                               r->weaker, "resolved", pv_resolution_json(resolved)));
}

/* Is one of them a path that was to be overwritten? */
static bool was_overwriting_tried(const struct pv_apply_result *r, const struct pv_resolution *resolved)
{
        for (size_t k = 0; k < resolved->n; k++)
                if (resolved->item[k].how == PV_WAY_OVERWRITTEN &&
                    pv_apply_result_has(r, resolved->item[k].root, resolved->item[k].path))
                        return true;
        return false;
}

/* The ways out of a conflict, as they would be typed; what was tried already is not offered again. */
static int hint_at_ways_out(const struct pv_decision *d, const struct pv_apply_result *r,
                            const struct pv_resolution *resolved, const struct pv_ways_out *w, struct pv_err *err)
{
        const char *id = d->job->id;
        if (r->partly)
                return pv_err_hint(err, "pvisor review %s shows what is left", id);
        if (r->n_blocked)
                return pv_err_hint(err, "--exclude PATTERN leaves out what cannot be applied; it stays staged");
        if (was_overwriting_tried(r, resolved))
                return pv_err_hint(err,
                                   "pvisor apply %s --all --exclude PATTERN takes the rest; pvisor drop %s --path PATH "
                                   "keeps yours",
                                   id, id);
        if (w->markers)
                return pv_err_hint(err, "pvisor apply %s --overwrite PATH takes the job's and keeps yours for undo",
                                   id);
        if (w->merge)
                return pv_err_hint(err,
                                   "--markers writes both versions into the file; --overwrite PATH takes the job's and "
                                   "keeps yours for undo");
        return pv_err_hint(err,
                           "with --merge the two are put together where they fit; --overwrite PATH takes the job's and "
                           "keeps yours for undo; pvisor drop %s --path PATH keeps yours",
                           id);
}

/* One apply on its way. */
struct act {
        struct pv_decision d;
        const struct apply_options *o;
        struct pv_select what;
        struct pv_resolution resolved;
        struct pv_cmd_commits *commits; /* NULL without --commits */
        struct pv_apply_result r;
};

static int select_files(struct act *a, struct pv_err *err)
{
        if (!pv_ways_out_asked(&a->o->ways))
                return pv_decision_select(&a->d, "apply", &a->what, err);
        return pv_resolve(&a->d, &a->what, &a->o->ways, &a->resolved, &a->r, err);
}

static struct pv_apply_options options_of(const struct act *a)
{
        bool held = a->d.beside.job && !a->o->dry_run;
        return (struct pv_apply_options){ .keep_times = a->o->keep_times,
                                          .dry_run = a->o->dry_run,
                                          .freezer = held ? &a->d.beside.freezer : NULL };
}

static int publish(struct act *a, struct pv_err *err)
{
        const struct pv_apply_options how = options_of(a);
        for (size_t i = 0; a->d.n_selected && i < pv_stage_n_roots(a->d.stage); i++)
                if (pv_stage_is_another_target(a->d.stage, i))
                        pv_log_warn("%s is another directory now than the job saw: moved here, or made anew",
                                    pv_stage_root(a->d.stage, i)->target);
        return a->d.n_selected ? pv_apply(a->d.stage, a->d.changes, a->d.selected, &how, &a->r, err) : 0;
}

/* Commits, and the files that go with them. However it ends, the host's repository is as it was, or as it shall be. */
static int land(struct act *a, struct pv_err *err)
{
        const struct pv_apply_options how = options_of(a);
        struct pv_commits *c = &a->commits->commits;
        c->n_files = a->d.n_selected;
        if (!pv_commits_any(c) && a->d.n_selected == 0)
                return pv_cmd_commits_refused(a->commits, err);
        if (pv_commits_check(c, a->commits->as_it_was, &a->r, err) < 0)
                return -1;
        return a->o->dry_run ? publish(a, err) : pv_commits_land(c, a->d.changes, a->d.selected, &how, &a->r, err);
}

/* What was prepared and did not land is taken back, whatever the reason. */
static int apply_commits(struct act *a, struct pv_err *err)
{
        const struct pv_carry_options how = { .job = a->d.job->id,
                                              .branch = a->o->branch,
                                              .rewritten = a->o->rewritten };
        if (pv_cmd_commits_prepare(&a->d, &how, a->commits, err) < 0)
                return -1;
        a->what.also = a->commits->also;
        int done = select_files(a, err) < 0 ? -1 : land(a, err);
        pv_commits_abandon(&a->commits->commits);
        return done;
}

static int apply_files(struct act *a, struct pv_err *err)
{
        return select_files(a, err) < 0 ? -1 : publish(a, err);
}

static int note(struct act *a, int done, struct pv_err *err)
{
        if (a->o->dry_run)
                return 0;
        if (done < 0) {
                note_refusal(&a->d, &a->r);
                return 0;
        }
        if (a->r.batch[0] || a->resolved.n_moot)
                note_batch(&a->d, &a->r, &a->resolved);
        if (a->commits && *a->commits->commits.id)
                pv_job_event(a->d.job, "commits",
                             json_pack("{s:s, s:o}", "batch", a->commits->commits.id, "references",
                                       pv_cmd_commits_json(a->commits)));
        return pv_resolution_settle_moot(&a->d, &a->resolved, err);
}

/* For people or as JSON. */
static int show(const struct act *a, bool refused, struct pv_err *err)
{
        const struct pv_apply_outcome outcome = { .decision = &a->d,
                                                  .result = &a->r,
                                                  .resolved = &a->resolved,
                                                  .commits = a->commits,
                                                  .dry_run = a->o->dry_run,
                                                  .refused = refused };
        if (a->o->json)
                return pv_cmd_print_json(pv_apply_report_json(&outcome), err);
        if (!refused)
                return pv_apply_report(&outcome, err);
        pv_cmd_say_conflicts(a->d.stage, &a->r);
        return 0;
}

/* For what stands against it this time and may not the next. */
enum {
        ENDED = -2, /* the command ended meanwhile: the job is to be taken as one that has */
        MOVED = -3, /* the job goes on, and what it has staged is not what was looked at */
        TRIES = 20,
};

static int decide(struct act *a, struct pv_err *err)
{
        int done = a->commits ? apply_commits(a, err) : apply_files(a, err);
        if (done < 0 && a->r.moved && !a->commits)
                return MOVED;
        if (done < 0 && err->kind == PV_ERR_STATE && a->d.beside.job)
                return ENDED;
        if (done < 0 && err->kind != PV_ERR_CONFLICT)
                return -1;
        struct pv_err why = PV_ERR_INIT;
        if (note(a, done, &why) < 0 || show(a, done < 0, &why) < 0) {
                *err = why;
                return -1;
        }
        if (done < 0 && a->r.n_conflicts && !*err->hint)
                (void)hint_at_ways_out(&a->d, &a->r, &a->resolved, &a->o->ways, err);
        return done;
}

static int check_options(const struct apply_options *o, struct pv_err *err)
{
        bool files = o->all || o->path.n || o->include.n || o->ways.overwrite.n;
        if (!o->commits && (o->branch || o->rewritten))
                return pv_err_set(err, PV_ERR_USAGE, 0, "apply: --%s goes with --commits",
                                  o->branch ? "branch" : "rewritten");
        if (o->branch && (files || o->rewritten))
                return pv_err_set(err, PV_ERR_USAGE, 0, "apply: --branch takes commits to one branch and nothing else");
        if (o->commits && o->git_raw)
                return pv_err_set(err, PV_ERR_USAGE, 0,
                                  "apply: --commits and --git-raw are two ways for the same thing");
        if (files || o->commits)
                return 0;
        pv_err_set(err, PV_ERR_USAGE, 0, "apply: nothing is chosen");
        return pv_err_hint(err, "pvisor apply --all, or --path PATH, or --include GLOB, or --commits");
}

static void act_finip(struct act *a)
{
        pv_apply_result_fini(&a->r);
        pv_resolution_fini(&a->resolved);
        pv_decision_fini(&a->d);
}

static int apply(const struct apply_options *o, const struct pv_args *args, struct pv_err *err)
{
        pv_auto_cmd_commits commits = { 0 };
        __attribute__((cleanup(act_finip))) struct act a = { .o = o, .commits = o->commits ? &commits : NULL };
        /* The lists stay the option table's; what is to be overwritten is asked for. */
        pv_auto_free char **paths = pv_calloc(o->path.n + o->ways.overwrite.n + 1, sizeof *paths);
        for (size_t i = 0; i < o->path.n + o->ways.overwrite.n; i++)
                paths[i] = i < o->path.n ? o->path.v[i] : o->ways.overwrite.v[i - o->path.n];
        a.what = (struct pv_select){ .all = o->all,
                                     .ignored = o->ignored,
                                     .git_raw = o->git_raw,
                                     .path = { .v = paths, .n = o->path.n + o->ways.overwrite.n },
                                     .include = o->include,
                                     .exclude = o->exclude };
        if (pv_decision_open(args, "apply", PV_DECISION_ANY_TIME, &a.d, err) < 0)
                return -1;
        if (a.d.changes->n == 0 && a.d.job->dropped)
                return pv_err_set(err, PV_ERR_STATE, 0, "apply: job %s was dropped: nothing is left of it",
                                  a.d.job->id);
        int done = decide(&a, err);
        for (int i = 0; done == MOVED && i < TRIES; i++) {
                pv_err_clear(err);
                pv_apply_result_fini(&a.r);
                pv_resolution_fini(&a.resolved);
                done = pv_decision_look(&a.d, err) < 0 ? -1 : decide(&a, err);
        }
        return done == MOVED ? -1 : done;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct apply_options *o = opts;
        if (check_options(o, err) < 0)
                return -1;
        int done = apply(o, args, err);
        if (done == ENDED) {
                pv_err_clear(err);
                done = apply(o, args, err);
        }
        return done == ENDED ? -1 : done;
}

static const char *const examples[] = {
        "pvisor apply --all",
        "take everything of the newest job",
        "pvisor apply last --path src --exclude '*.lock'",
        "take a part",
        "pvisor apply --commits",
        "take the commits, and the files that they changed",
        "pvisor apply --commits --branch agent/fix",
        "take what the job has checked out to a branch of its own",
        "pvisor apply --all --dry-run",
        "see first what would conflict",
        "pvisor apply --all --merge",
        "put your edits and the job's together where both changed a file",
        "pvisor apply last --overwrite src/main.c",
        "take the job's version; yours is kept for undo",
        NULL,
};

const struct pv_command pv_cmd_apply = {
        .name = "apply",
        .usage = "[options] [JOB]",
        .about =
                "Publishes a job's staged changes into the workspace: all that is selected, or nothing. A path that "
                "you "
                "changed since the job saw it is a conflict: then nothing is changed, each is named, and the exit code "
                "is 3. --merge, --markers and --overwrite are the ways out. `pvisor undo` takes the batch back, and "
                "with "
                "it what was merged or overwritten, to the byte.\n\n"
                "What runs on the host by itself (git hooks and configuration, .envrc, editor tasks, agent settings) "
                "is "
                "left staged unless its path is named.\n\n"
                "--commits brings commits over as a fetch does: packed inside the job, checked by git on the host, "
                "branches moved only forward and only where you have not moved them (else to a branch pvisor/JOB). "
                "Files that the commits of the checked-out branch changed are published with them, under the same rule "
                "of conflicts. Configuration, hooks, stash and notes stay in the job.",
        .options = options,
        .options_size = sizeof(struct apply_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
