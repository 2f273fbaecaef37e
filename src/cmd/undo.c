/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor undo */
#include <string.h>
#include "base/json.h"
#include "base/log.h"
#include "base/path.h"
#include "cmd/jobs.h"
#include "job/commits.h"

struct undo_options {
        char *batch;
        bool list, abandon, json;
};

static const struct pv_opt options[] = {
        { .name = "batch",
          .type = PV_OPT_TEXT,
          .arg = "BATCH",
          .field = offsetof(struct undo_options, batch),
          .help = "This batch, not the newest that still stands." },
        { .name = "list",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct undo_options, list),
          .help = "List the batches, oldest first; undo nothing." },
        { .name = "abandon",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct undo_options, abandon),
          .help = "Give up a batch that was cut short and that no command can finish: the target stays as it is, and "
                  "it "
                  "is listed where both versions of each path lie." },
        PV_OPT_JSON(struct undo_options, json),
        { .name = NULL },
};

static json_t *batches_json(const struct pv_job *job, const struct pv_batch *batches, size_t n,
                            const struct pv_strv *commits)
{
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
                (void)json_array_append_new(list, json_pack("{s:s, s:o, s:I, s:b, s:b}", "batch", batches[i].id, "at",
                                                            pv_cmd_time(&batches[i].when), "paths",
                                                            (json_int_t)batches[i].n_paths, "undone", batches[i].undone,
                                                            "damaged", batches[i].damaged));
        json_t *alone = json_array();
        for (size_t i = 0; i < commits->n; i++)
                (void)json_array_append_new(alone, json_string(commits->v[i]));
        return json_pack("{s:s, s:o, s:o}", "job", job->id, "batches", list, "commits", alone);
}

/* Imports of commits that published no file are batches, too; the others are their batch. */
static int list_commits_alone(struct pv_stage *s, const struct pv_batch *batches, size_t n, struct pv_strv *out,
                              struct pv_err *err)
{
        pv_auto_strv all = { 0 };
        if (pv_commits_list(s, &all, err) < 0)
                return -1;
        for (size_t i = 0; i < all.n; i++) {
                bool is_batch = false;
                for (size_t k = 0; k < n; k++)
                        is_batch |= pv_streq(all.v[i], batches[k].id);
                if (!is_batch)
                        pv_strv_add(out, all.v[i]);
        }
        return 0;
}

static int show(const struct pv_job *job, struct pv_stage *s, bool json, struct pv_err *err)
{
        pv_auto_free struct pv_batch *batches = NULL;
        pv_auto_str text = { 0 };
        pv_auto_strv alone = { 0 };
        size_t n = 0;
        if (pv_batches_list(s, &batches, &n, err) < 0 || list_commits_alone(s, batches, n, &alone, err) < 0)
                return -1;
        if (json)
                return pv_cmd_print_json(batches_json(job, batches, n, &alone), err);
        for (size_t i = 0; i < n; i++) {
                pv_str_put_safe(&text, batches[i].id);
                pv_str_put(&text, "  ");
                if (batches[i].damaged) {
                        pv_str_putf(&text, "damaged: its record cannot be read%s\n",
                                    batches[i].undone ? ", undone" : "");
                        continue;
                }
                pv_cmd_put_count(&text, batches[i].n_paths, "path", "paths");
                pv_str_put(&text, ", ");
                pv_cmd_put_age(&text, &batches[i].when);
                pv_str_putf(&text, " ago%s\n", batches[i].undone ? ", undone" : "");
        }
        for (size_t i = 0; i < alone.n; i++)
                pv_str_putf(&text, "%s  commits alone\n", alone.v[i]);
        if (!text.len)
                pv_log_note("nothing of %s was applied yet", job->id);
        return pv_cmd_print(&text, err);
}

static json_t *result_json(const struct pv_job *job, const struct pv_stage *s, const struct pv_apply_result *r)
{
        return json_pack("{s:s, s:s, s:I, s:b, s:o}", "job", job->id, "batch", r->batch, "undone",
                         (json_int_t)r->applied, "partly", r->partly, "conflicts", pv_cmd_conflicts_json(s, r));
}

static void say_done(const struct pv_job *job, const struct pv_apply_result *r, size_t n_refs)
{
        pv_auto_str text = { 0 };
        if (n_refs)
                pv_cmd_put_count(&text, n_refs, "reference", "references");
        if (n_refs && r->applied)
                pv_str_put(&text, " and ");
        if (r->applied || !n_refs)
                pv_cmd_put_count(&text, r->applied, "path", "paths");
        pv_log_note("took back batch %s: %s of %s", r->batch, text.s, job->workspace);
        pv_auto_free char *drop = job->state == PV_JOB_RUNNING ? NULL : pv_strf(", pvisor drop %s", job->id);
        pv_log_note("what it had brought is staged again: pvisor review %s%s", job->id, drop ? drop : "");
}

/*
 * The import of commits that is to be taken back: the named one, or the newest when no batch of files is newer. NULL:
 * it is a batch of files alone.
 */
static int find_commits(struct pv_stage *s, const char *named, char **out, struct pv_err *err)
{
        pv_auto_free struct pv_batch *batches = NULL;
        pv_auto_strv all = { 0 };
        const char *newest = "";
        size_t n = 0;
        if (pv_batches_list(s, &batches, &n, err) < 0 || pv_commits_list(s, &all, err) < 0)
                return -1;
        for (size_t i = 0; i < n; i++)
                if (!batches[i].undone)
                        newest = batches[i].id;
        const char *last = all.n ? all.v[all.n - 1] : NULL;
        if (named)
                last = pv_strv_has(&all, named) ? named : NULL;
        else if (last && strcmp(last, newest) < 0)
                last = NULL;
        *out = last ? pv_strdup(last) : NULL;
        return 0;
}

static int undo(struct pv_job *job, struct pv_stage *s, const struct undo_options *o, struct pv_apply_result *r,
                struct pv_err *err)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *commits = NULL;
        size_t n_refs = 0;
        if (find_commits(s, o->batch, &commits, err) < 0)
                return -1;
        int done = commits ? pv_commits_undo(s, commits, r, &n_refs, err) : pv_undo(s, o->batch, r, err);
        if (done < 0 && err->kind != PV_ERR_CONFLICT)
                return -1;
        if (done < 0) {
                pv_job_event(job, "undo-refused",
                             json_pack("{s:I, s:b}", "conflicts", (json_int_t)r->n_conflicts, "partly", r->partly));
        } else {
                job->dropped = false;
                pv_job_event(job, "undone",
                             json_pack("{s:s, s:I}", "batch", r->batch, "paths", (json_int_t)r->applied));
        }
        if (job->state != PV_JOB_RUNNING && pv_cmd_recount(job, s, &ignored) < 0)
                pv_log_warn("%s", ignored.msg);
        if (o->json && pv_cmd_print_json(result_json(job, s, r), &ignored) < 0)
                return -1;
        if (done < 0 && !o->json)
                pv_cmd_say_conflicts(s, r);
        if (done == 0 && !o->json)
                say_done(job, r, n_refs);
        return done;
}

static json_t *abandoned_json(const struct pv_job *job, const struct pv_stage *s, const struct pv_abandoned *a)
{
        json_t *paths = json_array();
        for (size_t i = 0; i < a->n; i++) {
                const struct pv_abandoned_path *p = &a->item[i];
                pv_auto_free char *whole = pv_path_join(pv_stage_root(s, p->root)->target, p->path);
                (void)json_array_append_new(paths,
                                            json_pack("{s:o, s:s, s:o}", "path", pv_json_bytes(whole), "holds",
                                                      p->metadata    ? "unknown"
                                                      : p->published ? "new"
                                                                     : "old",
                                                      "other", p->other ? pv_json_bytes(p->other) : json_null()));
        }
        return json_pack("{s:s, s:o, s:b, s:o}", "job", job->id, "journal", pv_json_bytes(a->journal), "readable",
                         a->readable, "paths", paths);
}

static void put_abandoned(struct pv_str *text, const struct pv_stage *s, const struct pv_abandoned_path *p)
{
        pv_cmd_put_path(text, s, p->root, p->path);
        if (p->metadata) {
                pv_str_put(text, ": a directory's mode and attributes may be the old or the new ones\n");
                return;
        }
        pv_str_put(text, p->published ? ": has what the batch brought" : ": has what was there before");
        if (p->other) {
                pv_str_put(text, p->published ? "; what was there before is " : "; what the batch brings is ");
                pv_str_put_path(text, p->other);
        }
        pv_str_putc(text, '\n');
}

static int abandon(struct pv_job *job, bool json, struct pv_err *err)
{
        __attribute__((cleanup(pv_abandoned_fini))) struct pv_abandoned a = { 0 };
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_stage s = NULL;
        pv_auto_str text = { 0 };
        if (!job->stage_dir)
                return pv_err_set(err, PV_ERR_STATE, 0, "undo: job %s was not staged", job->id);
        pv_stage_own_files(job->stage_dir);
        if (pv_stage_open(job->stage_dir, PV_STAGE_TAKE, &s, err) < 0 || pv_apply_abandon(s, &a, err) < 0)
                return pv_err_wrap(err, "undo");
        pv_job_event(job, "abandoned", json_pack("{s:o}", "journal", pv_json_bytes(a.journal)));
        if (pv_cmd_recount(job, s, &ignored) < 0)
                pv_log_warn("%s", ignored.msg);
        if (json)
                return pv_cmd_print_json(abandoned_json(job, s, &a), err);
        if (!a.readable)
                pv_log_warn("the journal cannot be read: look for .pvisor-* in %s and for originals in %s/backup",
                            job->workspace, job->stage_dir);
        pv_log_note("the batch was given up; its journal is %s", a.journal);
        for (size_t i = 0; i < a.n; i++)
                put_abandoned(&text, s, &a.item[i]);
        return pv_cmd_print(&text, err);
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct undo_options *o = opts;
        struct pv_apply_result r = { 0 };
        struct pv_beside b = { .conn = -1 };
        pv_auto_job job = NULL;
        pv_auto_stage s = NULL;
        if (o->abandon)
                return pv_cmd_job(args, &job, err) < 0 ? -1 : abandon(job, o->json, err);
        if (pv_cmd_stage_decide(args, "undo", &job, &b, &s, err) < 0)
                return -1;
        int done = o->list ? show(job, s, o->json, err) : undo(job, s, o, &r, err);
        pv_apply_result_fini(&r);
        pv_stage_closep(&s);
        pv_beside_close(&b, "undo");
        return done;
}

static const char *const examples[] = {
        "pvisor undo",
        "take back the newest batch that the newest job applied",
        "pvisor undo --list",
        "which there are",
        NULL,
};

const struct pv_command pv_cmd_undo = {
        .name = "undo",
        .usage = "[options] [JOB]",
        .about =
                "Takes an applied batch back: every path becomes what it was before, from the originals that were "
                "kept. "
                "Commits that it brought go from their branches, which must stand where it left them. "
                "What you changed since is a conflict: nothing is done, and each is named. The job's version is staged "
                "again.",
        .options = options,
        .options_size = sizeof(struct undo_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
