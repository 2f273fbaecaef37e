/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor checkpoint */
#include "base/json.h"
#include "base/log.h"
#include "cmd/jobs.h"

struct checkpoint_options {
        char *name;
        bool list, json;
};

static const struct pv_opt options[] = {
        { .name = "name",
          .type = PV_OPT_TEXT,
          .arg = "NAME",
          .field = offsetof(struct checkpoint_options, name),
          .help = "What `fork JOB@NAME` calls it. Default: c1, c2, ..." },
        { .name = "list",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct checkpoint_options, list),
          .help = "List the checkpoints, oldest first; make none." },
        PV_OPT_JSON(struct checkpoint_options, json),
        { .name = NULL },
};

static json_t *names_json(const struct pv_job *job, const struct pv_strv *names)
{
        json_t *list = json_array();
        for (size_t i = 0; i < names->n; i++)
                (void)json_array_append_new(list, pv_json_bytes(names->v[i]));
        return json_pack("{s:s, s:o}", "job", job->id, "checkpoints", list);
}

static int show(struct pv_job *job, bool json, struct pv_err *err)
{
        pv_auto_stage s = NULL;
        pv_auto_strv names = { 0 };
        pv_auto_str text = { 0 };
        if (pv_cmd_stage_look(job, &s, err) < 0 || pv_stage_checkpoints(s, &names, err) < 0)
                return -1;
        if (json)
                return pv_cmd_print_json(names_json(job, &names), err);
        for (size_t i = 0; i < names.n; i++) {
                pv_str_put_safe(&text, names.v[i]);
                pv_str_putc(&text, '\n');
        }
        if (!names.n)
                pv_log_note("%s has no checkpoint; `pvisor checkpoint %s` makes one", job->id, job->id);
        return pv_cmd_print(&text, err);
}

/* The first of c1, c2, ... that is not taken. The caller's. */
static char *next_name(const struct pv_strv *taken)
{
        for (size_t i = taken->n + 1;; i++) {
                char *name = pv_strf("c%zu", i);
                if (!pv_strv_has(taken, name))
                        return name;
                free(name);
        }
}

static int freeze(struct pv_stage *s, struct pv_beside *b, const char *name, struct pv_err *err)
{
        return b->job ? pv_stage_snapshot(s, name, &b->freezer, err) : pv_stage_checkpoint(s, name, err);
}

static int make(struct pv_job *job, struct pv_stage *s, struct pv_beside *b, const struct checkpoint_options *o,
                struct pv_err *err)
{
        pv_auto_strv taken = { 0 };
        if (pv_stage_checkpoints(s, &taken, err) < 0)
                return -1;
        pv_auto_free char *name = o->name ? pv_strdup(o->name) : next_name(&taken);
        if (pv_strv_has(&taken, name))
                return pv_err_set(err, PV_ERR_USAGE, 0, "checkpoint: job %s has one named %s", job->id, name);
        if (freeze(s, b, name, err) < 0)
                return -1;
        pv_job_event(job, "checkpoint", json_pack("{s:s}", "name", name));
        if (o->json)
                return pv_cmd_print_json(json_pack("{s:s, s:s, s:o}", "job", job->id, "checkpoint", name, "paused_ms",
                                                   pv_cmd_pause_json(b)),
                                         err);
        pv_auto_free char *pause = pv_cmd_pause_text(b);
        pv_log_note("checkpoint %s of %s%s", name, job->id, pause);
        pv_log_note("next: pvisor fork %s@%s -- COMMAND", job->id, name);
        return 0;
}

/* Verbs of the published tool, and what there is in their place. */
static const struct {
        const char *verb, *instead;
} absent[] = {
        { "show", "`pvisor fork JOB@NAME -- COMMAND` looks at one; `pvisor checkpoint --list JOB` names them" },
        { "delete", "checkpoints go with their job: `pvisor drop JOB`, `pvisor prune`" },
        { "gc", "nothing is left to collect: checkpoints go with their job, `pvisor prune`" },
        { "verify", "leave it out: what a checkpoint is made of is looked at when a job is forked from it" },
};

static bool is_verb(const char *word)
{
        return pv_streq(word, "create") || pv_streq(word, "list");
}

static bool is_job(const char *word)
{
        pv_auto_job job = NULL;
        struct pv_err ignored = PV_ERR_INIT;
        return pv_cmd_job_named(word, &job, &ignored) == 0;
}

/* `create JOB` and `list JOB` are other ways to say JOB and --list JOB; alone they are of the newest. */
static int take_verb(const struct pv_args *given, struct pv_args *args, bool *list, struct pv_err *err)
{
        *args = *given;
        if (given->n == 0 || (given->n == 1 && (!is_verb(given->words[0]) || is_job(given->words[0]))))
                return 0;
        const char *verb = given->words[0];
        for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
                if (pv_streq(verb, absent[i].verb)) {
                        (void)pv_err_set(err, PV_ERR_USAGE, 0, "checkpoint %s: not in this version", verb);
                        return pv_err_hint(err, "%s", absent[i].instead);
                }
        if (given->n > 2 || !is_verb(verb)) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "checkpoint: one word too many: %s",
                                 given->words[given->n > 2 ? 2 : 1]);
                if (given->n > 2)
                        return pv_err_hint(err, "usage: pvisor checkpoint %s", pv_cmd_checkpoint.usage);
                return pv_err_hint(err, "did you mean pvisor checkpoint %s --name %s?", verb, given->words[1]);
        }
        *list = *list || pv_streq(verb, "list");
        args->words++;
        args->n--;
        return 0;
}

static int run(const void *opts, const struct pv_args *given, struct pv_err *err)
{
        const struct checkpoint_options *o = opts;
        struct pv_args one, *args = &one;
        bool list = o->list;
        struct pv_beside b = { .conn = -1 };
        pv_auto_job job = NULL;
        pv_auto_stage s = NULL;
        if (take_verb(given, &one, &list, err) < 0)
                return -1;
        if (list)
                return pv_cmd_job(args, &job, err) < 0 ? -1 : show(job, o->json, err);
        if ((o->name && pv_job_check_name(o->name, err) < 0) ||
            pv_cmd_stage_decide(args, "checkpoint", &job, &b, &s, err) < 0)
                return -1;
        int r = make(job, s, &b, o, err);
        pv_stage_closep(&s);
        pv_beside_close(&b, "checkpoint");
        return r;
}

static const char *const examples[] = {
        "pvisor checkpoint --name before-refactor",
        "freeze what is staged, under a name",
        "pvisor fork last@before-refactor -- claude",
        "and try something else from there",
        NULL,
};

const struct pv_command pv_cmd_checkpoint = {
        .name = "checkpoint",
        .usage = "[options] [JOB]",
        .about = "Freezes what a job has staged and gives it a name; nothing is copied. While the job still runs it "
                 "stands still until what it has staged is copied. `pvisor fork JOB@NAME` starts another job from "
                 "there.\n\n"
                 "`pvisor checkpoint list JOB` is `pvisor checkpoint --list JOB`.",
        .options = options,
        .options_size = sizeof(struct checkpoint_options),
        .style = PV_ARGS_MIXED,
        .max_words = 3, /* a verb of the published tool, and its two words */
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
