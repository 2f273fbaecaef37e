/* SPDX-License-Identifier: Apache-2.0 */
#include "job/network_json.h"
#include "job/bundle_sections.h"

#include <string.h>
#include "base/clock.h"
#include "base/json.h"
#include "boundary/limits.h"
#include "job/bundle.h"
#include "job/store_internal.h"

static bool any_limit(const struct pv_limits *l)
{
        return l->timeout_ms || l->memory_bytes || l->max_processes || l->max_cpu_ms || l->max_open_files ||
               l->max_file_bytes;
}

/* Whether the plan asks for a control of this dimension at all. */
static bool is_wanted(const struct pv_plan *p, enum pv_dimension d)
{
        bool sandboxed = p->filesystem == PV_FS_SANDBOX;
        bool wanted[PV_DIMENSIONS] = {
                [PV_DIM_WORKSPACE_WRITES] = p->staged,
                [PV_DIM_HOST_WRITES] = sandboxed,
                [PV_DIM_READS] = sandboxed,
                [PV_DIM_SENSITIVE_PATHS] = sandboxed && p->home_mode != PV_HOME_HOST,
                [PV_DIM_NETWORK] = p->net != PV_NET_AMBIENT,
                [PV_DIM_CREDENTIALS] = sandboxed,
                [PV_DIM_SUBPROCESSES] = sandboxed || p->staged,
                [PV_DIM_RESOURCES] = any_limit(&p->limits),
        };
        return wanted[d] || p->required[d];
}

static json_t *dimensions_json(const struct pv_plan *p)
{
        json_t *dimensions = json_object();
        for (int i = 0; i < PV_DIMENSIONS; i++) {
                enum pv_dimension d = (enum pv_dimension)i;
                (void)json_object_set_new(dimensions, pv_dimension_name(d),
                                          json_pack("{s:s, s:b}", "wanted", is_wanted(p, d) ? "enforced" : "unenforced",
                                                    "required", p->required[d]));
        }
        return dimensions;
}

json_t *pv_bundle_plan(const struct pv_plan *p, json_t *request)
{
        /* The same words as in request.json; what that holds of masks is not worth making twice. */
        json_t *asked = json_object_get(request, "plan");
        pv_auto_json whole = asked ? json_incref(asked) : pv_job_plan_json(p);
        json_t *controls = json_object();
        static const char *const keys[] = { "safe",    "strict",    "staged",  "allow_userns", "filesystem",
                                            "network", "home_mode", "stdio",   "mounts",       "devices",
                                            "profile", "kept",      "services" };
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
                (void)json_object_set(controls, keys[i], json_object_get(whole, keys[i]));
        return json_pack("{s:o, s:o}", "dimensions", dimensions_json(p), "controls", controls);
}

/* filesystem */

static const char *const kinds[] = {
        [PV_CHANGE_ADDED] = "added", [PV_CHANGE_MODIFIED] = "modified", [PV_CHANGE_DELETED] = "deleted",
        [PV_CHANGE_TYPE] = "type",   [PV_CHANGE_METADATA] = "metadata",
};
#define KINDS (sizeof kinds / sizeof *kinds)

static json_t *change_json(const struct pv_change *c)
{
        json_t *j = json_pack("{s:i, s:o, s:s}", "root", (int)c->root, "path", pv_json_bytes(c->path), "kind",
                              kinds[c->kind]);
        if (c->renamed_from)
                (void)json_object_set_new(j, "renamed_from", pv_json_bytes(c->renamed_from));
        if (c->flags & PV_CHANGE_SUSPECT)
                (void)json_object_set_new(j, "suspect", c->why ? json_string(c->why) : json_true());
        return j;
}

static json_t *counts_json(const struct pv_changes *changes)
{
        size_t count[KINDS] = { 0 }, suspect = 0;
        json_t *j = json_object();
        for (size_t i = 0; i < changes->n; i++) {
                count[changes->item[i].kind]++;
                suspect += (changes->item[i].flags & PV_CHANGE_SUSPECT) != 0;
        }
        for (size_t k = 0; k < KINDS; k++)
                (void)json_object_set_new(j, kinds[k], json_integer((json_int_t)count[k]));
        (void)json_object_set_new(j, "suspect", json_integer((json_int_t)suspect));
        (void)json_object_set_new(j, "total", json_integer((json_int_t)changes->n));
        return j;
}

static json_t *list_json(const struct pv_changes *changes)
{
        json_t *list = json_array();
        for (size_t i = 0; i < changes->n && i < PV_BUNDLE_CHANGES_MAX; i++)
                (void)json_array_append_new(list, change_json(&changes->item[i]));
        return list;
}

static json_t *roots_json(const struct pv_plan *p)
{
        json_t *list = json_array();
        for (size_t i = 0; i < p->n_roots; i++)
                (void)json_array_append_new(list, json_pack("{s:o, s:o}", "target", pv_json_bytes(p->roots[i].target),
                                                            "view", pv_json_bytes(p->roots[i].view)));
        return list;
}

json_t *pv_bundle_filesystem(const struct pv_job *job, const struct pv_plan *p, const struct pv_changes *changes)
{
        const char *state = !p->staged                     ? "not-staged"
                            : job->state == PV_JOB_RUNNING ? "running"
                            : !changes                     ? NULL
                            : changes->n                   ? "pending"
                                                           : "unchanged";
        return json_pack("{s:o, s:s?, s:o, s:o, s:o, s:o}", "target", pv_json_bytes(p->workspace), "state", state,
                         "roots", roots_json(p), "counts", changes ? counts_json(changes) : json_null(), "changes",
                         changes ? list_json(changes) : json_null(), "truncated",
                         changes ? json_boolean(changes->n > PV_BUNDLE_CHANGES_MAX) : json_null());
}

static const char *interception(const struct pv_plan *p, enum pv_level level)
{
        if (p->net == PV_NET_PROXY)
                return "offered-proxy";
        if (level != PV_LEVEL_ENFORCED)
                return NULL;
        return p->net == PV_NET_DENY_ALL ? "empty-namespace" : p->net == PV_NET_RULES ? "namespace" : NULL;
}

/* In an empty namespace nothing can flow; otherwise the data plane counts, where there is one. */
json_t *pv_bundle_network(const struct pv_plan *p, enum pv_level level, const json_t *sums, const json_t *granted)
{
        static const char *const policy[] = {
                [PV_NET_AMBIENT] = "ambient",
                [PV_NET_DENY_ALL] = "deny-all",
                [PV_NET_RULES] = "rules",
                [PV_NET_PROXY] = "proxy",
        };
        const char *how = interception(p, level);
        bool closed = how && p->net == PV_NET_DENY_ALL;
        json_t *counters = json_object_get(sums, "counters"), *targets = json_object_get(sums, "targets");
        if (closed)
                counters = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "flows", 0, "refused", 0, "failed", 0,
                                     "names_refused", 0, "bytes_out", 0, "bytes_in", 0, "events_left_out", 0);
        else
                counters = counters ? json_incref(counters) : json_null();
        targets = closed ? json_array() : targets ? json_incref(targets) : json_null();
        return json_pack("{s:s, s:s?, s:o, s:o, s:o, s:o}", "policy", policy[p->net], "interception", how, "rules",
                         p->net == PV_NET_RULES || p->net == PV_NET_PROXY ? pv_job_network_json(p) : json_null(),
                         "granted", granted ? json_deep_copy(granted) : json_array(), "counters", counters, "flows",
                         targets);
}

/* environment: names only */

static bool is_named(const struct pv_strv *names, const char *name, size_t n)
{
        for (size_t i = 0; i < names->n; i++)
                if (strlen(names->v[i]) == n && memcmp(names->v[i], name, n) == 0)
                        return true;
        return false;
}

static json_t *names_json(const struct pv_strv *names)
{
        json_t *list = json_array();
        for (size_t i = 0; i < names->n; i++)
                (void)json_array_append_new(list, pv_json_bytes(names->v[i]));
        return list;
}

static json_t *inherited_json(const struct pv_plan *p)
{
        json_t *list = json_array();
        for (size_t i = 0; i < p->env.n; i++) {
                const char *name = p->env.v[i];
                size_t n = strcspn(name, "=");
                if (is_named(&p->env_passed, name, n) || is_named(&p->env_injected, name, n))
                        continue;
                pv_auto_free char *copy = pv_strndup(name, n);
                (void)json_array_append_new(list, pv_json_bytes(copy));
        }
        return list;
}

json_t *pv_bundle_environment(const struct pv_plan *p)
{
        return json_pack("{s:o, s:o, s:o}", "inherited", inherited_json(p), "passed", names_json(&p->env_passed),
                         "injected", names_json(&p->env_injected));
}

/* resources */

static json_t *limit_json(uint64_t v)
{
        return v ? json_integer((json_int_t)v) : json_null();
}

static json_t *limits_json(const struct pv_limits *l)
{
        return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "timeout_ms", limit_json(l->timeout_ms), "memory_bytes",
                         limit_json(l->memory_bytes), "max_processes", limit_json(l->max_processes), "max_cpu_ms",
                         limit_json(l->max_cpu_ms), "max_open_files", limit_json(l->max_open_files), "max_file_bytes",
                         limit_json(l->max_file_bytes));
}

static json_t *used_json(const struct pv_exit *e)
{
        if (!e)
                return json_null();
        const struct rusage *u = &e->usage;
        return json_pack("{s:I, s:I, s:I}", "user_ms",
                         (json_int_t)u->ru_utime.tv_sec * 1000 + u->ru_utime.tv_usec / 1000, "system_ms",
                         (json_int_t)u->ru_stime.tv_sec * 1000 + u->ru_stime.tv_usec / 1000, "max_rss_bytes",
                         (json_int_t)u->ru_maxrss * 1024);
}

/* What is in force of a limit, by the control of that name; 0: none, or not known. */
static uint64_t in_force(const struct pv_observations *all, const char *limit)
{
        for (unsigned i = 0; i < all->n && i < PV_CONTROLS_MAX; i++) {
                const struct pv_observation *o = &all->item[i];
                if (o->dimension == PV_DIM_RESOURCES && o->installed && pv_streq(o->control, limit))
                        return o->effective;
        }
        return 0;
}

static json_t *effective_json(const struct pv_observations *all, const struct pv_limits *asked, bool started)
{
        if (!all || !started)
                return json_null();
        const struct pv_limits effective = {
                .timeout_ms = asked->timeout_ms, /* this process's own clock */
                .memory_bytes = in_force(all, PV_LIMIT_MEMORY),
                .max_processes = in_force(all, PV_LIMIT_PROCESSES),
                .max_cpu_ms = in_force(all, PV_LIMIT_CPU_TIME),
                .max_open_files = in_force(all, PV_LIMIT_OPEN_FILES),
                .max_file_bytes = in_force(all, PV_LIMIT_FILE_SIZE),
        };
        return limits_json(&effective);
}

json_t *pv_bundle_resources(const struct pv_limits *asked, const struct pv_observations *observations, bool started,
                            const struct pv_exit *exit)
{
        json_t *mechanisms = json_array(), *sentences = json_array();
        for (unsigned i = 0; observations && i < observations->n && i < PV_CONTROLS_MAX; i++) {
                const struct pv_observation *o = &observations->item[i];
                if (o->dimension != PV_DIM_RESOURCES || !o->installed)
                        continue;
                pv_auto_free char *mechanism = pv_strf("%s: %s", o->control, o->mechanism);
                (void)json_array_append_new(mechanisms, pv_json_bytes(mechanism));
                for (unsigned k = 0; k < o->n_limits && k < PV_LIMITS_MAX; k++)
                        (void)json_array_append_new(sentences, pv_json_bytes(o->limits[k]));
        }
        return json_pack("{s:o, s:o, s:o, s:o, s:o}", "requested", limits_json(asked), "effective",
                         effective_json(observations, asked, started), "mechanism", mechanisms, "limits", sentences,
                         "used", used_json(exit));
}
