/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor status */
#include "base/clock.h"
#include "base/json.h"
#include "cmd/jobs.h"
#include "job/bundle.h"

struct status_options {
        bool review, diff, json;
};

static const struct pv_opt options[] = {
        { .name = "review",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct status_options, review),
          .help = "The same as `pvisor review`; with --json the Run Bundle." },
        PV_OPT_JSON(struct status_options, json),
        { .name = "diff",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct status_options, diff),
          .help = "The same as `pvisor review --diff`." },
        PV_OPT_OUTPUT_DIR,
        { .name = NULL },
};

/* `status [JOB] --review [--diff] [--json]` is `review [JOB] [--diff] [--json]`. */
static int run_review(const struct pv_args *args, bool diff, bool json)
{
        char name[] = "review", as_json[] = "--json", with_diff[] = "--diff";
        char *argv[5] = { name };
        int n = 1;
        if (json)
                argv[n++] = as_json;
        if (diff)
                argv[n++] = with_diff;
        if (args->n)
                argv[n++] = args->words[0];
        return pv_command_main(&pv_cmd_review, n, argv);
}

static void put_field(struct pv_str *b, const char *label, const char *value)
{
        pv_str_putf(b, "%-11s ", label);
        pv_str_put_safe(b, value);
        pv_str_putc(b, '\n');
}

static void put_state(struct pv_str *b, const struct pv_job *job)
{
        pv_auto_str age = { 0 };
        pv_str_putf(b, "%-11s %s", "state", pv_job_state_name(job->state));
        if (job->end && !pv_streq(job->end, "exited"))
                pv_str_putf(b, ", %s", job->end);
        if (job->exit_code >= 0)
                pv_str_putf(b, ", exit code %d", job->exit_code);
        pv_cmd_put_age(&age, job->ended.tv_sec ? &job->ended : &job->started);
        pv_str_putf(b, job->ended.tv_sec ? ", %s ago\n" : ", started %s ago\n", age.s);
}

static void put_changes(struct pv_str *b, const struct pv_job *job)
{
        if (!job->stage_dir) {
                put_field(b, "changes", "not staged: they went to the workspace directly");
                return;
        }
        pv_str_putf(b, "%-11s ", "changes");
        if (job->dropped)
                pv_str_put(b, "dropped");
        else if (job->pending < 0)
                pv_str_put(b, "not counted yet: pvisor review counts them");
        else
                pv_str_putf(b, "%lld staged", job->pending);
        if (job->applied)
                pv_str_putf(b, ", %lld applied", job->applied);
        pv_str_putc(b, '\n');
}

/* "network enforced, reads enforced, ..." of what the bundle says; nothing where there is none. */
static void put_levels(struct pv_str *b, const struct pv_job *job)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_json bundle = NULL;
        if (pv_bundle_read(job, &bundle, &ignored) < 0)
                return;
        const json_t *levels = json_object_get(json_object_get(bundle, "safety"), "levels");
        static const char *const names[] = { "enforced", "cooperative", "unenforced" };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                size_t shown = 0;
                for (int d = 0; d < PV_DIMENSIONS; d++) {
                        const char *key = pv_dimension_name((enum pv_dimension)d);
                        const char *dimension = pv_dimension_title((enum pv_dimension)d);
                        const char *level = json_string_value(json_object_get(levels, key));
                        if (!level || !pv_streq(level, names[i]))
                                continue;
                        if (shown++)
                                pv_str_putf(b, ", %s", dimension);
                        else
                                pv_str_putf(b, "%-11s %s", names[i], dimension);
                }
                if (shown)
                        pv_str_putc(b, '\n');
        }
}

static void put_status(struct pv_str *b, const struct pv_job *job)
{
        char at[PV_CLOCK_TEXT];
        put_field(b, "job", job->id);
        if (job->name)
                put_field(b, "name", job->name);
        pv_str_putf(b, "%-11s ", "command");
        pv_cmd_put_argv(b, json_object_get(json_object_get(job->request, "plan"), "argv"));
        pv_str_putc(b, '\n');
        put_field(b, "workspace", job->workspace);
        pv_clock_format(&job->started, at);
        put_field(b, "started", at);
        put_state(b, job);
        if (job->failure)
                put_field(b, "reason", job->failure);
        put_changes(b, job);
        if (job->parent)
                pv_str_putf(b, "%-11s %s%s%s\n", job->origin == PV_JOB_FORKED ? "forked from" : "continues",
                            job->parent, job->checkpoint ? "@" : "", job->checkpoint ? job->checkpoint : "");
        const char *version = pv_job_version(job);
        if (!version || !pv_streq(version, PV_VERSION)) {
                pv_auto_free char *text = pv_strf("%s (this is %s)", version ? version : "an older one", PV_VERSION);
                put_field(b, "pvisor", text);
        }
        put_levels(b, job);
        put_field(b, "files", job->dir);
        pv_cmd_put_closing(b, job, "", PV_CMD_CLOSING_ALL);
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct status_options *o = opts;
        pv_auto_job job = NULL;
        if (o->review || o->diff)
                return run_review(args, o->diff, o->json);
        if (pv_cmd_job(args, &job, err) < 0)
                return -1;
        if (o->json) {
                json_t *j = pv_cmd_job_json(job);
                (void)json_object_set_new(j, "closing", pv_cmd_closing_json(job));
                return pv_cmd_print_json(j, err);
        }
        pv_auto_str text = { 0 };
        put_status(&text, job);
        return pv_cmd_print(&text, err);
}

static const char *const examples[] = {
        "pvisor status",
        "the newest job of this workspace",
        "pvisor status last --review --json",
        "its Run Bundle",
        NULL,
};

const struct pv_command pv_cmd_status = {
        .name = "status",
        .usage = "[options] [JOB]",
        .about = "Shows one job: its command, how it ended, how many changes are staged and which limits held.",
        .options = options,
        .options_size = sizeof(struct status_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
