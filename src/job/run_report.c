/* SPDX-License-Identifier: Apache-2.0 */
#include "job/run_report.h"

#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/log.h"
#include "job/tally.h"
#include "policy/groups.h"

const char *pv_run_end_name(enum pv_end end)
{
        static const char *const names[] = {
                [PV_END_EXITED] = "exited", [PV_END_SIGNALED] = "signaled",     [PV_END_TIMEOUT] = "timeout",
                [PV_END_KILLED] = "killed", [PV_END_STAGE_SIZE] = "stage-size",
        };
        return names[end];
}

static void say_changes(const struct pv_run_outcome *o)
{
        struct pv_tally n;
        pv_tally_changes(o->plan->roots, o->plan->n_roots, o->changes, &n);
        if (o->job->applied > 0)
                pv_log_note("%s: %lld path%s applied already; pvisor undo takes the last batch back", o->job->id,
                            o->job->applied, o->job->applied == 1 ? " was" : "s were");
        if (n.paths == 0 && !n.git) {
                pv_log_note("%s: no changes%s", o->job->id, o->job->applied > 0 ? " but these" : "");
                return;
        }
        pv_auto_str what = { 0 };
        if (n.paths)
                pv_str_putf(&what, "%zu %s", n.paths, n.paths == 1 ? "path" : "paths");
        if (n.git)
                pv_str_put(&what, n.paths ? " and git's state" : "git's state");
        pv_log_note("%s: %s staged; next: pvisor review", o->job->id, what.s);
}

enum { REFUSALS_SAID = 5 };

static void say_one_refused(const json_t *t, const struct pv_groups *groups)
{
        const char *allow = json_string_value(json_object_get(t, "allow_with"));
        const char *why = json_string_value(json_object_get(t, "why"));
        json_int_t port = json_integer_value(json_object_get(t, "port"));
        const char *name = json_string_value(json_object_get(t, "target"));
        bool v6 = port && name && strchr(name, ':');
        pv_auto_free char *suffix = port ? pv_strf("%s:%lld", v6 ? "]" : "", (long long)port) : pv_strdup("");
        pv_auto_free char *shown = pv_strf("%s%s%s", v6 ? "[" : "", name ? name : "", suffix);
        pv_auto_free char *group = allow ? pv_groups_with(groups, shown) : NULL;
        pv_log_note("network: refused %s, %lldx (%s%s%s)", shown,
                    (long long)json_integer_value(json_object_get(t, "count")),
                    allow ? allow
                    : why ? why
                          : "by rule",
                    group ? ", or " : "", group ? group : "");
}

/* A group that cannot be read is one that is not offered. */
static void load_groups(struct pv_groups *groups)
{
        struct pv_err ignored = PV_ERR_INIT;
        (void)pv_groups_load(getenv("XDG_CONFIG_HOME"), getenv("HOME"), groups, &ignored);
}

/* The targets that were refused, how often, and the option that would allow each. */
static void say_refused(const struct pv_run_outcome *o)
{
        size_t i, said = 0, more = 0;
        json_t *t;
        pv_auto_groups groups = { 0 };
        json_array_foreach(json_object_get(o->network, "targets"), i, t)
        {
                const char *state = json_string_value(json_object_get(t, "state"));
                if (!state || !pv_streq(state, "refused"))
                        continue;
                if (said == REFUSALS_SAID) {
                        more++;
                        continue;
                }
                if (said++ == 0)
                        load_groups(&groups);
                say_one_refused(t, &groups);
        }
        if (more)
                pv_log_note("network: refused %zu more targets; pvisor review lists them", more);
}

static void say(const struct pv_run_outcome *o)
{
        if (!o->exit)
                return; /* the error says it */
        if (o->exit->end == PV_END_TIMEOUT)
                pv_log_note("%s: ended by the time limit of %.6g s", o->job->id,
                            (double)o->plan->limits.timeout_ms / 1000);
        if (o->exit->end == PV_END_STAGE_SIZE)
                pv_log_note("%s: ended because its stage grew too large (--stage-max-size); what it has is kept",
                            o->job->id);
        if (o->network)
                say_refused(o);
        if (o->changes)
                say_changes(o);
        if (o->plan->stdio == PV_STDIO_CAPTURE)
                pv_log_note("%s: output captured; pvisor logs %s", o->job->id, o->job->id);
}

bool pv_run_report_repeats_record(const char *line, const char *id)
{
        pv_auto_free char *of_job = pv_strf("pvisor: %s: ", id);
        if (pv_str_has_prefix(line, "pvisor: network: refused "))
                return true;
        return pv_str_has_prefix(line, of_job) && !pv_str_has_prefix(line + strlen(of_job), "ended ");
}

static json_t *levels(const struct pv_observations *observations)
{
        json_t *all = json_object();
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                const char *level = pv_level_name(pv_observations_level(observations, (enum pv_dimension)d));
                (void)json_object_set_new(all, pv_dimension_name((enum pv_dimension)d),
                                          level ? json_string(level) : json_null());
        }
        return all;
}

static json_t *ending(const struct pv_exit *e)
{
        json_t *j = json_pack("{s:s, s:I}", "end", pv_run_end_name(e->end), "duration_ms",
                              (json_int_t)(e->ended_ms - e->started_ms));
        (void)json_object_set_new(j, "signal", e->end == PV_END_SIGNALED ? json_integer(e->code) : json_null());
        return j;
}

static json_t *summarise(const struct pv_run_outcome *o)
{
        json_t *j = json_object();
        json_t *changes = json_null();
        if (o->changes) {
                struct pv_tally n;
                pv_tally_changes(o->plan->roots, o->plan->n_roots, o->changes, &n);
                changes = json_pack("{s:I, s:b}", "paths", (json_int_t)n.paths, "git", n.git);
        }
        (void)json_object_set_new(j, "id", pv_json_bytes(o->job ? o->job->id : NULL));
        (void)json_object_set_new(j, "name", pv_json_bytes(o->job ? o->job->name : NULL));
        (void)json_object_set_new(j, "exit_code", json_integer(o->code));
        (void)json_object_set_new(j, "workspace", pv_json_bytes(o->plan ? o->plan->workspace : NULL));
        (void)json_object_set_new(j, "job_dir", pv_json_bytes(o->job ? o->job->dir : NULL));
        (void)json_object_set_new(j, "stage_dir", pv_json_bytes(o->job ? o->job->stage_dir : NULL));
        (void)json_object_set_new(j, "changes", changes);
        (void)json_object_set_new(j, "levels", o->observations ? levels(o->observations) : json_null());
        (void)json_object_set_new(j, "failure", pv_json_bytes(o->failure ? o->failure->msg : NULL));
        pv_auto_json end = o->exit ? ending(o->exit) : json_pack("{s:n, s:n, s:n}", "end", "duration_ms", "signal");
        (void)json_object_update(j, end);
        return j;
}

void pv_run_report(const struct pv_run_outcome *o, int summary)
{
        struct pv_err err = PV_ERR_INIT;
        say(o);
        if (summary < 0)
                return;
        pv_auto_json j = summarise(o);
        pv_auto_free char *text = json_dumps(j, JSON_COMPACT);
        pv_auto_free char *line = text ? pv_strf("%s\n", text) : NULL;
        if (!line || pv_fd_write_all(summary, line, strlen(line), "--json", &err) < 0)
                pv_log_err(&err);
}
