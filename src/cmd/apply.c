/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor apply */
#include "base/json.h"
#include "base/log.h"
#include "cmd/apply_report.h"
#include "cmd/resolve.h"

struct apply_options {
        struct pv_strv path, include, exclude;
        struct pv_ways_out ways;
        bool all, ignored, git_raw, keep_times, dry_run, json;
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

/* The ways out of a conflict, as they would be typed; what was tried already is not offered again. */
static int hint_at_ways_out(const struct pv_decision *d, const struct pv_apply_result *r, const struct pv_ways_out *w,
                            struct pv_err *err)
{
        const char *id = d->job->id;
        if (r->partly)
                return pv_err_hint(err, "pvisor review %s shows what is left", id);
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

static int publish(struct pv_decision *d, const struct apply_options *o, const struct pv_select *what,
                   struct pv_resolution *resolved, struct pv_apply_result *r, struct pv_err *err)
{
        const struct pv_apply_options how = { .keep_times = o->keep_times,
                                              .dry_run = o->dry_run,
                                              .freezer = d->beside.job && !o->dry_run ? &d->beside.freezer : NULL };
        if (d->beside.job && pv_ways_out_asked(&o->ways))
                return pv_err_set(
                        err, PV_ERR_BUSY, 0,
                        "apply: job %s still runs: --merge, --markers and --overwrite wait until it has ended",
                        d->job->id);
        if (!pv_ways_out_asked(&o->ways)) {
                if (pv_decision_select(d, "apply", what, err) < 0)
                        return -1;
        } else if (pv_resolve(d, what, &o->ways, resolved, r, err) < 0) {
                return -1;
        }
        if (d->n_selected && pv_apply(d->stage, d->changes, d->selected, &how, r, err) < 0)
                return -1;
        return o->dry_run ? 0 : pv_resolution_settle_moot(d, resolved, err);
}

/* The job goes on, or ends, meanwhile: what it has staged is not what was looked at. */
#define AGAIN 1
#define TRIES 20

static int decide(struct pv_decision *d, const struct apply_options *o, const struct pv_select *what,
                  struct pv_apply_result *r, struct pv_err *err)
{
        pv_auto_resolution resolved = { 0 };
        int done = publish(d, o, what, &resolved, r, err);
        if (done < 0 && (r->moved || (err->kind == PV_ERR_STATE && d->beside.job)))
                return AGAIN;
        if (done < 0 && err->kind != PV_ERR_CONFLICT)
                return -1;
        if (done < 0 && !o->dry_run)
                note_refusal(d, r);
        if (done == 0 && (r->batch[0] || resolved.n_moot) && !o->dry_run)
                note_batch(d, r, &resolved);
        struct pv_err why = PV_ERR_INIT;
        int shown = o->json    ? pv_cmd_print_json(pv_apply_report_json(d, r, &resolved, o->dry_run, done < 0), &why)
                    : done < 0 ? (pv_cmd_say_conflicts(d->stage, r), 0)
                               : pv_apply_report(d, r, &resolved, o->dry_run, &why);
        if (shown < 0)
                *err = why;
        else if (done < 0)
                (void)hint_at_ways_out(d, r, &o->ways, err);
        return shown < 0 ? -1 : done;
}

static int apply(const struct apply_options *o, const struct pv_args *args, struct pv_err *err)
{
        struct pv_apply_result r = { 0 };
        pv_auto_decision d = { 0 };
        /* The lists stay the option table's; what is to be overwritten is asked for. */
        pv_auto_free char **paths = pv_calloc(o->path.n + o->ways.overwrite.n + 1, sizeof *paths);
        for (size_t i = 0; i < o->path.n + o->ways.overwrite.n; i++)
                paths[i] = i < o->path.n ? o->path.v[i] : o->ways.overwrite.v[i - o->path.n];
        const struct pv_select what = { .all = o->all,
                                        .ignored = o->ignored,
                                        .git_raw = o->git_raw,
                                        .path = { .v = paths, .n = o->path.n + o->ways.overwrite.n },
                                        .include = o->include,
                                        .exclude = o->exclude };
        if (pv_decision_open(args, "apply", PV_DECISION_ANY_TIME, &d, err) < 0)
                return -1;
        if (d.changes->n == 0 && d.job->dropped)
                return pv_err_set(err, PV_ERR_STATE, 0, "apply: job %s was dropped: nothing is left of it", d.job->id);
        int done = decide(&d, o, &what, &r, err);
        pv_apply_result_fini(&r);
        return done;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct apply_options *o = opts;
        if (!o->all && o->path.n + o->ways.overwrite.n == 0 && o->include.n == 0) {
                pv_err_set(err, PV_ERR_USAGE, 0, "apply: what? nothing was asked for");
                return pv_err_hint(err, "pvisor apply --all, or --path PATH, or --include GLOB");
        }
        int done = AGAIN;
        for (int i = 0; i < TRIES && done == AGAIN; i++) {
                pv_err_clear(err);
                done = apply(o, args, err);
        }
        return done == AGAIN ? -1 : done;
}

static const char *const examples[] = {
        "pvisor apply --all",
        "take everything of the newest job",
        "pvisor apply last --path src --exclude '*.lock'",
        "take a part",
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
                "left staged unless its path is named.",
        .options = options,
        .options_size = sizeof(struct apply_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
