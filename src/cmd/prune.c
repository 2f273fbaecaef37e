/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor prune */
#include <string.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/path.h"
#include "cmd/jobs.h"
#include "cmd/prune_caches.h"
#include "cmd/unfetched.h"
#include "job/remove.h"

struct prune_options {
        uint64_t older;
        char *caches;
        bool applied, unapplied, damaged, dry_run, json;
};

/* A number alone is seconds elsewhere; here it would most often be meant as days. */
static int check_older(const char *value, struct pv_err *err)
{
        if (value[strspn(value, "0123456789")])
                return 0;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "'%.40s' has no unit", value);
        return pv_err_hint(err, "%.40sd for days, %.40sh for hours", value, value);
}

static const struct pv_opt options[] = {
        { .name = "older",
          .type = PV_OPT_DURATION,
          .arg = "TIME",
          .field = offsetof(struct prune_options, older),
          .check = check_older,
          .help = "Only jobs that ended longer ago than this: 14d, 12h." },
        { .name = "applied",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct prune_options, applied),
          .help = "Also jobs that were applied and have nothing left but ignored files. They can then not be undone "
                  "any "
                  "more, which is said. One with commits that the host has not got stays." },
        { .name = "unapplied",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct prune_options, unapplied),
          .help = "Also jobs whose changes were not decided on: their work is lost." },
        { .name = "damaged",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct prune_options, damaged),
          .help = "Also job directories that cannot be read." },
        { .name = "caches",
          .type = PV_OPT_TEXT,
          .arg = "SIZE",
          .flags = PV_OPT_ARG_OPTIONAL | PV_OPT_ATTACHED,
          .field = offsetof(struct prune_options, caches),
          .help = "Workspaces' caches in place of jobs: with --older those that no run used for so long, with =SIZE "
                  "the "
                  "longest unused until the rest is no larger; with neither all. Runs make them again." },
        { .name = "dry-run",
          .letter = 'n',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct prune_options, dry_run),
          .help = "Say what would be removed; remove nothing." },
        PV_OPT_JSON(struct prune_options, json),
        { .name = NULL },
};

/* A newer job works on the same stage, which lies elsewhere: what is staged is that one's to decide on. */
static bool is_superseded(const struct pv_job *job, const struct pv_job_removal *how)
{
        const struct pv_job *other = pv_job_shares_stage(job, how);
        return other && !pv_path_is_within(job->stage_dir, job->dir) &&
               pv_clock_compare(&other->started, &job->started) > 0;
}

static bool has_commits(const struct pv_job *job)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_stage s = NULL;
        pv_auto_changes changes = NULL;
        return pv_stage_open(job->stage_dir, PV_STAGE_LOOK, &s, &ignored) == 0 &&
               pv_changes_compute(s, &changes, &ignored) == 0 && pv_has_unfetched_commits(s, changes);
}

/* Would its removal take the way back from what was applied? */
static bool can_be_undone(const struct pv_job *job)
{
        return job->stage_dir && job->applied > 0 && job->state != PV_JOB_FAILED;
}

/*
 * Has the stage changes that its job does not know of, or that nobody decided on? Others may have run in it whose jobs
 * are in another store, or failed. What cannot be counted is not thrown away.
 */
static bool has_undecided(const struct pv_job *job)
{
        struct pv_err why = PV_ERR_INIT;
        pv_auto_stage s = NULL;
        pv_auto_changes changes = NULL;
        if (pv_stage_open(job->stage_dir, PV_STAGE_LOOK, &s, &why) < 0)
                return false; /* gone or half removed; else its removal fails for the same reason */
        if (pv_changes_compute(s, &changes, &why) < 0)
                return true;
        bool decided = job->applied > 0 && job->pending == 0 && (long long)changes->n <= job->changes;
        return changes->n > 0 && !decided;
}

/* Why a job stays, or NULL when it may go. */
static const char *why_keep(const struct pv_job *job, const struct pv_job_removal *how, const struct prune_options *o)
{
        const struct timespec *when = job->ended.tv_sec ? &job->ended : &job->started;
        uint64_t age_ms = (uint64_t)(pv_clock_now().tv_sec - when->tv_sec) * 1000;
        if (job->state == PV_JOB_RUNNING)
                return "it runs";
        if (o->older && (pv_clock_now().tv_sec < when->tv_sec || age_ms < o->older))
                return "it is not old enough";
        if (o->unapplied || !job->stage_dir || pv_job_only_borrows_stage(job) || is_superseded(job, how))
                return NULL;
        if (has_undecided(job))
                return "it has changes that were not decided on (--unapplied)";
        if (job->state == PV_JOB_FAILED)
                return NULL;
        if (job->dropped || job->changes == 0)
                return job->applied == 0 || o->applied ? NULL : "it can still be undone (--applied)";
        if (job->applied > 0 && job->pending == 0) {
                if (!o->applied)
                        return "it can still be undone (--applied)";
                return has_commits(job) ? "it has commits that were not brought over (apply --commits)" : NULL;
        }
        return "it has changes that were not decided on (--unapplied)";
}

struct pruning {
        const struct prune_options *o;
        struct pv_job **jobs;
        size_t n_jobs, damaged;
        json_t *removed, *kept; /* of {id, size_bytes} and {id, why} */
        struct pv_str text;
        uint64_t bytes;
};

static void pruning_fini(struct pruning *p)
{
        pv_job_list_free(p->jobs, p->n_jobs);
        json_decref(p->removed);
        json_decref(p->kept);
        pv_str_fini(&p->text);
}

static void note_kept(struct pruning *p, const char *id, const char *why)
{
        (void)json_array_append_new(p->kept,
                                    json_pack("{s:o, s:o}", "id", pv_json_bytes(id), "why", pv_json_bytes(why)));
        pv_log_debug("%s stays: %s", id, why);
}

static void note_removed(struct pruning *p, const char *id, uint64_t bytes, bool undo_lost)
{
        (void)json_array_append_new(p->removed, json_pack("{s:o, s:I, s:b}", "id", pv_json_bytes(id), "size_bytes",
                                                          (json_int_t)bytes, "undo_lost", undo_lost));
        p->bytes += bytes;
        pv_str_put(&p->text, p->o->dry_run ? "would remove " : "removed ");
        pv_str_put_safe(&p->text, id);
        pv_str_put(&p->text, "  ");
        pv_str_put_size(&p->text, bytes);
        if (undo_lost)
                pv_str_put(&p->text, p->o->dry_run ? "; what it applied could not be undone any more"
                                                   : "; what it applied cannot be undone any more");
        pv_str_putc(&p->text, '\n');
}

/* Jobs that go on with this one's stage are told from the list, which is newest first. */
static void prune_one(struct pruning *p, size_t i)
{
        struct pv_err why = PV_ERR_INIT;
        const struct pv_job *job = p->jobs[i];
        const struct pv_job_removal how = { .jobs = p->jobs, .n = p->n_jobs, .dry_run = p->o->dry_run };
        const char *keep = why_keep(job, &how, p->o);
        uint64_t bytes = 0;
        if (keep) {
                note_kept(p, job->id, keep);
                return;
        }
        int done = pv_job_remove(job, &how, &bytes, &why);
        if (done < 0 && why.kind == PV_ERR_INPUT && p->o->damaged) /* its stage cannot be read */
                done = p->o->dry_run ? 0 : pv_job_remove_damaged(job->id, &why);
        if (done < 0) {
                note_kept(p, job->id, why.msg);
                if (why.kind != PV_ERR_BUSY)
                        pv_log_warn("%s stays: %s", job->id, why.msg);
                return;
        }
        note_removed(p, job->id, bytes, can_be_undone(job));
        pv_job_freep(&p->jobs[i]);
}

/*
 * Superseded jobs first, as long as the one is there that supersedes them; then the newest before those that it
 * continues.
 */
static void prune_all(struct pruning *p)
{
        const struct pv_job_removal all = { .jobs = p->jobs, .n = p->n_jobs };
        pv_auto_free bool *superseded = pv_calloc(p->n_jobs + 1, sizeof *superseded);
        for (size_t i = 0; i < p->n_jobs; i++)
                superseded[i] = is_superseded(p->jobs[i], &all);
        for (size_t i = 0; i < p->n_jobs; i++)
                if (superseded[i])
                        prune_one(p, i);
        for (size_t i = 0; i < p->n_jobs; i++)
                if (!superseded[i])
                        prune_one(p, i);
}

/* The reason goes out in any case: it is what the person wants to know before the directory is gone. */
static void prune_damaged(void *ctx, const char *id, const struct pv_err *reason)
{
        struct pruning *p = ctx;
        struct pv_err why = PV_ERR_INIT;
        pv_log_note("%s", reason->msg);
        if (!p->o->damaged) {
                note_kept(p, id, "it is damaged (--damaged)");
                return;
        }
        if (!p->o->dry_run && pv_job_remove_damaged(id, &why) < 0) {
                note_kept(p, id, why.msg);
                pv_log_warn("%s stays: %s", id, why.msg);
                return;
        }
        note_removed(p, id, 0, false);
}

static int report(struct pruning *p, struct pv_err *err)
{
        size_t n = json_array_size(p->removed), kept = json_array_size(p->kept);
        if (p->o->json)
                return pv_cmd_print_json(json_pack("{s:b, s:O, s:O, s:I}", "dry_run", p->o->dry_run, "removed",
                                                   p->removed, "kept", p->kept, "size_bytes", (json_int_t)p->bytes),
                                         err);
        if (n > 1) {
                pv_str_put(&p->text, "together ");
                pv_str_put_size(&p->text, p->bytes);
                pv_str_putc(&p->text, '\n');
        }
        if (n == 0)
                pv_log_note("nothing to remove");
        if (kept)
                pv_log_note("%zu stay (-v says why)", kept);
        return pv_cmd_print(&p->text, err);
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        __attribute__((cleanup(pruning_fini))) struct pruning p = { .o = opts };
        if (p.o->caches)
                return pv_prune_caches(&(struct pv_prune_caches){ p.o->caches, p.o->older, p.o->dry_run, p.o->json },
                                       err);
        p.removed = json_array();
        p.kept = json_array();
        if (pv_job_list(&p.jobs, &p.n_jobs, &p.damaged, err) < 0)
                return -1;
        prune_all(&p);
        if (p.damaged && pv_job_each_damaged(prune_damaged, &p, err) < 0)
                return -1;
        if (!p.o->dry_run && pv_store_sweep(err) < 0)
                return -1;
        return report(&p, err);
}

static const char *const examples[] = {
        "pvisor prune --older 7d",
        "remove what has nothing left to decide on or to undo",
        "pvisor prune --applied --older 14d",
        "and what was applied two weeks ago",
        "pvisor prune --caches=10GiB --older 60d",
        "caches of workspaces that were not used for long, and more when they are large",
        NULL,
};

const struct pv_command pv_cmd_prune = {
        .name = "prune",
        .usage = "[options]",
        .about =
                "Removes jobs and their stages, of every workspace: those that have nothing left to decide on or to "
                "undo. "
                "Never one that runs or whose stage another job needs; and none with changes that were not decided on, "
                "unless --unapplied is said.",
        .options = options,
        .options_size = sizeof(struct prune_options),
        .style = PV_ARGS_MIXED,
        .max_words = 0,
        .examples = examples,
        .run = run,
};
