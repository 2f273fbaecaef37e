/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor checkpoint */
#include <stdio.h>
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

static int make(struct pv_job *job, const struct checkpoint_options *o, struct pv_err *err)
{
        pv_auto_stage s = NULL;
        pv_auto_strv taken = { 0 };
        if (o->name && pv_job_check_name(o->name, err) < 0)
                return -1;
        if (pv_cmd_stage_take(job, "checkpoint", &s, err) < 0 || pv_stage_checkpoints(s, &taken, err) < 0)
                return -1;
        pv_auto_free char *name = o->name ? pv_strdup(o->name) : next_name(&taken);
        if (pv_strv_has(&taken, name))
                return pv_err_set(err, PV_ERR_USAGE, 0, "checkpoint: job %s has one named %s", job->id, name);
        if (pv_stage_checkpoint(s, name, err) < 0)
                return -1;
        pv_job_event(job, "checkpoint", json_pack("{s:s}", "name", name));
        if (o->json)
                return pv_cmd_print_json(json_pack("{s:s, s:s}", "job", job->id, "checkpoint", name), err);
        pv_log_note("checkpoint %s of %s", name, job->id);
        pv_log_note("next: pvisor fork %s@%s -- COMMAND", job->id, name);
        return 0;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct checkpoint_options *o = opts;
        pv_auto_job job = NULL;
        if (pv_cmd_job(args, &job, err) < 0)
                return -1;
        return o->list ? show(job, o->json, err) : make(job, o, err);
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
        .about = "Freezes what a job has staged and gives it a name; nothing is copied. `pvisor fork JOB@NAME` starts "
                 "another job from there.",
        .options = options,
        .options_size = sizeof(struct checkpoint_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
