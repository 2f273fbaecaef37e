/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor drop */
#include <errno.h>
#include "base/json.h"
#include "base/log.h"
#include "cmd/decide.h"
#include "job/remove.h"

struct drop_options {
        struct pv_strv path, include, exclude;
        bool dry_run, json;
};

static const struct pv_opt options[] = {
        { .name = "path",
          .type = PV_OPT_LIST,
          .arg = "PATH",
          .field = offsetof(struct drop_options, path),
          .complete = PV_COMPLETE_FILE,
          .help = "Only what is at or below PATH. Repeatable." },
        { .name = "include",
          .type = PV_OPT_LIST,
          .arg = "GLOB",
          .field = offsetof(struct drop_options, include),
          .help = "Only what matches. Repeatable." },
        { .name = "exclude",
          .type = PV_OPT_LIST,
          .arg = "GLOB",
          .field = offsetof(struct drop_options, exclude),
          .help = "Not what matches. Repeatable." },
        { .name = "dry-run",
          .letter = 'n',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct drop_options, dry_run),
          .help = "Say what would be dropped; drop nothing." },
        PV_OPT_JSON(struct drop_options, json),
        PV_OPT_OUTPUT_DIR,
        { .name = NULL },
};

static bool is_whole(const struct drop_options *o)
{
        return o->path.n == 0 && o->include.n == 0 && o->exclude.n == 0;
}

/* What was dropped, as a program and as a person counts it. */
struct dropped {
        size_t all;
        struct pv_tally tally;
        long long left;
        size_t held;  /* of what is left: asked for, but then the file would be lost */
        bool nothing; /* it was looked, and there was nothing */
};

static int report(const struct pv_job *job, const struct drop_options *o, const struct dropped *d, struct pv_err *err)
{
        if (o->json)
                return pv_cmd_print_json(json_pack("{s:s, s:b, s:I, s:I}", "job", job->id, "dry_run", o->dry_run,
                                                   "dropped", (json_int_t)d->all, "left", (json_int_t)d->left),
                                         err);
        pv_auto_str text = { 0 };
        if (d->nothing) {
                if (job->applied > 0)
                        pv_log_note(
                                "nothing was left staged in %s; what was applied stays: pvisor undo %s takes it back",
                                job->id, job->id);
                else
                        pv_log_note("nothing was staged in %s", job->id);
                return 0;
        }
        if (d->tally.paths || !d->tally.git)
                pv_cmd_put_count(&text, d->tally.paths, "change", "changes");
        if (d->tally.git)
                pv_str_put(&text, text.len ? " and git's state" : "git's state");
        pv_log_note("%s %s of %s%s", o->dry_run ? "would drop" : "dropped", text.s, job->id,
                    d->left ? "" : ": nothing is left staged");
        if (d->held)
                pv_log_note("%zu %s", d->held, pv_left_text(PV_LEFT_TOGETHER));
        return 0;
}

static bool has_standing_batch(struct pv_stage *s)
{
        pv_auto_free struct pv_batch *batches = NULL;
        struct pv_err ignored = PV_ERR_INIT;
        size_t n = 0;
        if (pv_batches_list(s, &batches, &n, &ignored) < 0)
                return true;
        for (size_t i = 0; i < n; i++)
                if (!batches[i].undone)
                        return true;
        return false;
}

/*
 * Empties the stage of what is staged. What was applied from it can still be undone, so its directory goes only when
 * there is no such batch; and not while another job stands on its layers.
 */
static int empty(struct pv_stage *s, struct pv_changes *changes, struct pv_err *err)
{
        if (!has_standing_batch(s)) {
                if (pv_stage_remove(s, err) == 0 || err->kind != PV_ERR_BUSY)
                        return err->kind == PV_ERR_NONE ? 0 : -1;
                pv_err_clear(err);
        }
        pv_auto_free bool *all = pv_calloc(changes->n + 1, sizeof *all);
        for (size_t i = 0; i < changes->n; i++)
                all[i] = true;
        return pv_drop_changes(s, changes, all, err);
}

static bool is_full(const struct pv_err *err)
{
        return err->sys == ENOSPC || err->sys == EDQUOT;
}

/*
 * The decision is recorded before the stage goes: whoever is interrupted in between finds a job whose changes were
 * dropped, and may drop it again. Where there is no room for that, making room comes first. What could not be dropped
 * is not said to be.
 */
static int decide_and_empty(struct pv_job *job, struct pv_stage *s, struct pv_changes *changes, struct pv_err *err)
{
        const struct pv_job before = *job;
        struct pv_err ignored = PV_ERR_INIT;
        job->dropped = true;
        job->changes = job->pending = 0;
        if (pv_job_save_decisions(job, err) < 0 && !is_full(err))
                return -1;
        pv_err_clear(err);
        if (empty(s, changes, err) == 0) {
                pv_cmd_measure(job, s);
                return pv_job_save_decisions(job, err);
        }
        job->dropped = before.dropped;
        job->changes = before.changes;
        job->pending = before.pending;
        (void)pv_job_save_decisions(job, &ignored);
        return -1;
}

/*
 * A drop that was cut short is finished; a stage whose target is gone for good, or whose filesystem has no room left
 * to take stock of it, can be dropped, too, but not counted. err says what stands against counting.
 */
static int drop_uncounted(const struct drop_options *o, struct pv_job *job, struct pv_stage *s, struct pv_err *err)
{
        struct dropped d = { .all = 0 };
        /* The target may come back, and what was applied to it be finished and undone. */
        if (!pv_stage_is_half_removed(s) && (has_standing_batch(s) || pv_apply_is_unfinished(s)))
                return *err->hint
                               ? -1
                               : pv_err_hint(
                                         err,
                                         "once it is back, what was applied can be undone; `pvisor prune` gives it up");
        pv_err_clear(err);
        if (o->dry_run)
                return report(job, o, &d, err);
        job->dropped = true;
        job->changes = job->pending = 0;
        if (pv_job_save_decisions(job, err) < 0 && !is_full(err))
                return -1;
        pv_err_clear(err);
        if (pv_stage_remove(s, err) < 0)
                return -1;
        job->stage_bytes = 0;
        if (pv_job_save_decisions(job, err) < 0)
                return -1;
        pv_job_event(job, "dropped", json_pack("{s:n, s:b}", "paths", "whole", 1));
        return report(job, o, &d, err);
}

/* 1: it can only be dropped as it is, and err says why. */
static int open_to_drop(struct pv_job *job, struct pv_stage **s, struct pv_err *err)
{
        struct pv_err again = PV_ERR_INIT;
        if (pv_cmd_stage_take(job, "drop", s, err) == 0)
                return pv_stage_require_targets(*s, err) < 0;
        if (!is_full(err) || pv_stage_open(job->stage_dir, PV_STAGE_DISCARD, s, &again) < 0)
                return -1;
        return 1;
}

/* It failed before its command could change anything: what is staged there is another job's, and stays. */
static int require_own_stage(const struct pv_job *job, struct pv_err *err)
{
        if (!pv_job_only_borrows_stage(job))
                return 0;
        (void)pv_err_set(err, PV_ERR_STATE, 0, "drop: job %s never started, and the stage is another job's", job->id);
        return pv_err_hint(err, "`pvisor list` shows that one");
}

/* What was staged is gone already: the job alone is left to be decided on. */
static int drop_gone(const struct drop_options *o, struct pv_job *job, struct pv_err *err)
{
        struct dropped d = { .all = 0 };
        pv_log_note("what job %s had staged is not there any more: %s", job->id, job->stage_dir);
        job->dropped = true;
        job->changes = job->pending = job->stage_bytes = 0;
        if (!o->dry_run && pv_job_save_decisions(job, err) < 0)
                return -1;
        if (!o->dry_run)
                pv_job_event(job, "dropped", json_pack("{s:n, s:b}", "paths", "whole", 1));
        return report(job, o, &d, err);
}

static int drop_whole(const struct drop_options *o, const struct pv_args *args, struct pv_err *err)
{
        pv_auto_job job = NULL;
        pv_auto_stage s = NULL;
        pv_auto_changes changes = NULL;
        if (pv_cmd_job(args, &job, err) < 0 || require_own_stage(job, err) < 0)
                return -1;
        if (job->state != PV_JOB_RUNNING && !job->dropped && pv_cmd_stage_is_gone(job))
                return drop_gone(o, job, err);
        int uncounted = open_to_drop(job, &s, err);
        if (uncounted)
                return uncounted < 0 ? -1 : drop_uncounted(o, job, s, err);
        if (pv_changes_compute(s, &changes, err) < 0)
                return -1;
        struct dropped d = { .all = changes->n, .nothing = changes->n == 0 };
        pv_cmd_tally(s, changes, &d.tally);
        if (o->dry_run)
                return report(job, o, &d, err);
        if (decide_and_empty(job, s, changes, err) < 0)
                return -1;
        pv_job_event(job, "dropped", json_pack("{s:I, s:b}", "paths", (json_int_t)changes->n, "whole", 1));
        return report(job, o, &d, err);
}

/* The selected ones alone, for counting; what they point to stays the decision's. */
static void count_selected(const struct pv_decision *d, struct pv_tally *out)
{
        struct pv_changes some = { .item = pv_calloc(d->n_selected + 1, sizeof *some.item) };
        for (size_t i = 0; i < d->changes->n; i++)
                if (d->selected[i])
                        some.item[some.n++] = d->changes->item[i];
        pv_cmd_tally(d->stage, &some, out);
        free(some.item);
}

static int drop_part(const struct drop_options *o, const struct pv_args *args, struct pv_err *err)
{
        pv_auto_decision d = { 0 };
        /* The lists stay the option table's. */
        struct pv_select what = { .path = o->path, .include = o->include, .exclude = o->exclude, .everything = true };
        what.all = o->path.n == 0 && o->include.n == 0;
        if (pv_decision_open(args, "drop", PV_DECISION_ENDED, &d, err) < 0 || require_own_stage(d.job, err) < 0 ||
            pv_decision_select(&d, "drop", &what, err) < 0)
                return -1;
        struct dropped gone = { .all = d.n_selected, .left = (long long)(d.changes->n - d.n_selected) };
        count_selected(&d, &gone.tally);
        for (size_t i = 0; i < d.changes->n; i++)
                gone.held += d.left[i] == PV_LEFT_TOGETHER;
        if (o->dry_run || d.n_selected == 0)
                return report(d.job, o, &gone, err);
        if (pv_drop_changes(d.stage, d.changes, d.selected, err) < 0)
                return -1;
        d.job->dropped = gone.left == 0;
        pv_decision_note_left(&d);
        pv_job_event(d.job, "dropped", json_pack("{s:I, s:b}", "paths", (json_int_t)d.n_selected, "whole", 0));
        return report(d.job, o, &gone, err);
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct drop_options *o = opts;
        return is_whole(o) ? drop_whole(o, args, err) : drop_part(o, args, err);
}

static const char *const examples[] = {
        "pvisor drop",
        "throw away all that the newest job has staged",
        "pvisor drop fix --path docs",
        "only what is below docs",
        NULL,
};

const struct pv_command pv_cmd_drop = {
        .name = "drop",
        .usage = "[options] [JOB]",
        .about = "Throws staged changes away: all of a job's, or the selected ones. Your files are not touched. What "
                 "was "
                 "applied before can still be undone.",
        .options = options,
        .options_size = sizeof(struct drop_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
