/* SPDX-License-Identifier: Apache-2.0 */
#include "job/bundle.h"

#include "base/clock.h"
#include "base/json.h"
#include "evidence/record.h"
#include "job/bundle_sections.h"
#include "job/store_internal.h"

#define BUNDLE_MAX (64U << 20)

static json_t *time_or_null(const struct timespec *t)
{
        char text[PV_CLOCK_TEXT];
        if (t->tv_sec == 0)
                return json_null();
        pv_clock_format(t, text);
        return json_string(text);
}

static json_t *argv_json(char *const *argv)
{
        json_t *list = json_array();
        for (; argv && *argv; argv++)
                (void)json_array_append_new(list, pv_json_bytes(*argv));
        return list;
}

static json_t *exit_json(const struct pv_exit *e)
{
        static const char *const name[] = {
                [PV_END_EXITED] = "exited", [PV_END_SIGNALED] = "signaled",     [PV_END_TIMEOUT] = "timeout",
                [PV_END_KILLED] = "killed", [PV_END_STAGE_SIZE] = "stage-size",
        };
        if (!e)
                return json_null();
        bool signaled = e->end == PV_END_SIGNALED;
        return json_pack("{s:s, s:o, s:o, s:I}", "kind", name[e->end], "code",
                         e->end == PV_END_EXITED ? json_integer(e->code) : json_null(), "signal",
                         signaled ? json_integer(e->code) : json_null(), "duration_ms",
                         (json_int_t)(e->ended_ms - e->started_ms));
}

static json_t *run_json(const struct pv_bundle_facts *f)
{
        const struct pv_job *j = f->job;
        return json_pack("{s:s, s:s?, s:o, s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "id", j->id, "name", j->name,
                         "argv", argv_json(f->plan->argv), "cwd", pv_json_bytes(f->plan->cwd), "workspace",
                         pv_json_bytes(f->plan->workspace), "executor", "host", "state", pv_job_state_name(j->state),
                         "started_at", time_or_null(&j->started), "ended_at", time_or_null(&j->ended), "exit",
                         exit_json(f->exit), "exit_code", j->exit_code < 0 ? json_null() : json_integer(j->exit_code),
                         "failure",
                         f->failure   ? pv_json_bytes(f->failure->msg)
                         : j->failure ? pv_json_bytes(j->failure)
                                      : json_null());
}

static json_t *lineage_json(const struct pv_job *j)
{
        static const char *const name[] = {
                [PV_JOB_NEW] = "new", [PV_JOB_CONTINUES] = "continues", [PV_JOB_FORKED] = "forked"
        };
        return json_pack("{s:s, s:s?, s:s?}", "origin", name[j->origin], "parent", j->parent, "checkpoint",
                         j->checkpoint);
}

/* Paths relative to the job's directory; null for what this run does not have. */
static json_t *artifacts_json(const struct pv_bundle_facts *f)
{
        bool captured = f->plan->stdio == PV_STDIO_CAPTURE || f->output_kept;
        return json_pack("{s:o, s:s, s:s, s:s?, s:s?, s:o}", "directory", pv_json_bytes(f->job->dir), "request",
                         PV_JOB_REQUEST, "events", PV_JOB_EVENTS, "stdout", captured ? PV_JOB_STDOUT : NULL, "stderr",
                         captured ? PV_JOB_STDERR : NULL, "stage", pv_json_bytes(f->job->stage_dir));
}

json_t *pv_bundle_make(const struct pv_bundle_facts *f)
{
        char at[PV_CLOCK_TEXT];
        struct timespec now = pv_clock_now();
        enum pv_record_extent extent = f->started ? PV_RECORD_WHOLE : PV_RECORD_PARTIAL;
        pv_clock_format(&now, at);
        return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "schema_version",
                         PV_BUNDLE_SCHEMA_VERSION, "generated_at", at, "run", run_json(f), "plan",
                         pv_bundle_plan(f->plan, f->job->request), "executor_observations",
                         f->observed ? json_incref(f->observed) : pv_record_observations(f->observations), "safety",
                         pv_record_safety(f->observations, extent), "filesystem",
                         pv_bundle_filesystem(f->job, f->plan, f->changes), "network",
                         pv_bundle_network(f->plan, pv_record_level(f->observations, extent, PV_DIM_NETWORK),
                                           f->network, f->granted),
                         "environment", pv_bundle_environment(f->plan), "resources",
                         pv_bundle_resources(&f->plan->limits, f->observations, f->started, f->exit), "lineage",
                         lineage_json(f->job), "artifacts", artifacts_json(f));
}

int pv_bundle_write(const struct pv_bundle_facts *facts, struct pv_err *err)
{
        pv_auto_json bundle = pv_bundle_make(facts);
        if (!bundle)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write %s", PV_JOB_BUNDLE);
        pv_auto_fd dir = pv_job_open_dir(facts->job, err);
        return dir < 0 ? -1 : pv_json_write_at(dir, PV_JOB_BUNDLE, bundle, PV_FILE_REPLACE, err);
}

static int make_from_request(const struct pv_job *job, json_t **out, struct pv_err *err)
{
        pv_auto_plan plan = NULL;
        if (pv_job_plan(job, &plan, err) < 0)
                return -1;
        *out = pv_bundle_make(&(struct pv_bundle_facts){ .job = job, .plan = plan });
        return *out ? 0 : pv_err_set(err, PV_ERR_SYS, ENOMEM, "job %s: bundle", job->id);
}

int pv_bundle_read(const struct pv_job *job, json_t **out, struct pv_err *err)
{
        int64_t version = 0;
        pv_auto_json bundle = NULL;
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0)
                return -1;
        if (pv_json_read_at(dir, PV_JOB_BUNDLE, BUNDLE_MAX, &bundle, err) < 0) {
                if (err->kind != PV_ERR_SYS || err->sys != ENOENT)
                        return pv_err_wrap(err, "job %s is damaged", job->id);
                pv_err_clear(err);
                return make_from_request(job, out, err);
        }
        if (pv_json_get_int(bundle, "schema_version", 1, INT64_MAX, &version, err) < 0)
                return pv_err_wrap(err, "job %s is damaged: %s", job->id, PV_JOB_BUNDLE);
        if (version > PV_BUNDLE_SCHEMA_VERSION)
                return pv_err_set(err, PV_ERR_INPUT, 0,
                                  "job %s: %s was written by a newer pvisor (schema %lld, this one knows %d)", job->id,
                                  PV_JOB_BUNDLE, (long long)version, PV_BUNDLE_SCHEMA_VERSION);
        *out = pv_steal(&bundle);
        return 0;
}
