/* SPDX-License-Identifier: Apache-2.0 */
/* What the command reached and what was refused to it: from the bundle, or the events of a job that has none yet. */
#include <string.h>
#include "base/json.h"
#include "cmd/review.h"
#include "job/why.h"
#include "policy/groups.h"

enum { TARGETS_SHOWN = 12, SUMMED_MAX = 256 };

static const char *text_of(const json_t *object, const char *key)
{
        const char *s = json_string_value(json_object_get(object, key));
        return s ? s : "";
}

static void put_name(struct pv_str *out, const json_t *target)
{
        const char *name = text_of(target, "target");
        json_int_t port = json_integer_value(json_object_get(target, "port"));
        bool v6 = strchr(name, ':');
        if (!*name) { /* a port of the job's that was published */
                pv_str_putf(out, "its port %lld", (long long)port);
                return;
        }
        pv_str_put(out, v6 && port ? "[" : "");
        pv_str_put_safe(out, name);
        pv_str_put(out, v6 && port ? "]" : "");
        if (port)
                pv_str_putf(out, ":%lld", (long long)port);
}

static void put_target(const json_t *target, const struct pv_groups *groups, struct pv_str *out)
{
        pv_auto_str name = { 0 };
        const char *state = text_of(target, "state");
        put_name(&name, target);
        json_int_t count = json_integer_value(json_object_get(target, "count"));
        bool reached = pv_streq(state, "reached");
        pv_str_putf(out, "  %-8s %-*s", state, count > 1 || reached ? 40 : 0, name.s);
        if (count > 1)
                pv_str_putf(out, " %lldx", (long long)count);
        if (reached) {
                pv_str_put(out, " sent ");
                pv_str_put_size(out, (uint64_t)json_integer_value(json_object_get(target, "bytes_out")));
                pv_str_put(out, ", got ");
                pv_str_put_size(out, (uint64_t)json_integer_value(json_object_get(target, "bytes_in")));
        }
        pv_str_putc(out, '\n');
        if (!reached && *text_of(target, "why")) {
                pv_str_put(out, "           ");
                pv_str_put_safe(out, text_of(target, "why"));
                pv_str_putc(out, '\n');
        }
        if (*text_of(target, "allow_with")) {
                pv_str_put(out, "           allow it with ");
                pv_str_put_safe(out, text_of(target, "allow_with"));
                pv_auto_free char *group = pv_groups_with(groups, name.s);
                pv_str_putf(out, "%s%s\n", group ? ", or " : "", group ? group : "");
        }
}

/* What was refused comes first: it is what somebody may have to act on. */
static size_t put_state(const json_t *targets, const char *state, size_t room, const struct pv_groups *groups,
                        struct pv_str *out)
{
        size_t i, left_out = 0;
        json_t *one;
        json_array_foreach(targets, i, one)
        {
                if (!pv_streq(text_of(one, "state"), state))
                        continue;
                if (room == 0) {
                        left_out++;
                        continue;
                }
                put_target(one, groups, out);
                room--;
        }
        return left_out;
}

/* What the person granted is the person's: it is told apart from what the rules said at the start. */
static void put_grant(const json_t *grant, struct pv_str *out)
{
        size_t i;
        json_t *one;
        pv_str_put(out, "  granted  ");
        if (pv_streq(text_of(grant, "kind"), "publish")) {
                bool v6 = strchr(text_of(grant, "address"), ':');
                pv_str_put(out, v6 ? "[" : "");
                pv_str_put_safe(out, text_of(grant, "address"));
                pv_str_putf(out, "%s:%lld leads to its port %lld", v6 ? "]" : "",
                            (long long)json_integer_value(json_object_get(grant, "host_port")),
                            (long long)json_integer_value(json_object_get(grant, "port")));
        }
        json_array_foreach(json_object_get(grant, "asked"), i, one)
        {
                pv_str_put(out, i ? ", " : "");
                pv_str_put_safe(out, json_string_value(one) ? json_string_value(one) : "");
        }
        pv_str_put(out, " (by you, while it ran)\n");
}

/* --- a job without a record of its end: what its events tell --- */

/* Refusals of one target, as a target of the record. NULL: not among them yet. Borrowed. */
static json_t *find_target(json_t *targets, const json_t *event)
{
        size_t i;
        json_t *one;
        json_array_foreach(targets, i, one)
        {
                if (json_equal(json_object_get(one, "target"), json_object_get(event, "target")) &&
                    json_equal(json_object_get(one, "port"), json_object_get(event, "port")))
                        return one;
        }
        return NULL;
}

/* Adds what the person could type now, or that it was granted meanwhile. */
static void put_way_out(const struct pv_job *job, const struct pv_plan *plan, const json_t *granted, json_t *target)
{
        pv_auto_why w = { 0 };
        pv_auto_str name = { 0 };
        struct pv_err ignored = PV_ERR_INIT;
        put_name(&name, target);
        if (pv_why_target(plan, granted, name.s, &w, &ignored) < 0)
                return;
        if (!w.refused) {
                (void)json_object_set_new(target, "why", json_string("allowed since: the next try gets through"));
                return;
        }
        bool now = job->state == PV_JOB_RUNNING && w.grant;
        pv_auto_free char *with = now ? pv_strf("pvisor allow %s %s", job->name ? job->name : job->id, w.grant)
                                  : w.allow_with ? pv_strdup(w.allow_with)
                                                 : NULL;
        if (with)
                (void)json_object_set_new(target, "allow_with", pv_json_bytes(with));
}

static json_t *sum_up(const struct pv_job *job, const struct pv_plan *plan, const json_t *granted,
                      const json_t *refusals)
{
        json_t *targets = json_array(), *event;
        size_t i;
        json_array_foreach(refusals, i, event)
        {
                json_t *known = find_target(targets, event);
                if (known) {
                        json_int_t count = json_integer_value(json_object_get(known, "count"));
                        (void)json_object_set_new(known, "count", json_integer(count + 1));
                } else if (json_array_size(targets) < SUMMED_MAX) {
                        json_t *one =
                                json_pack("{s:s, s:O?, s:O?, s:O?, s:i}", "state", "refused", "target",
                                          json_object_get(event, "target"), "port", json_object_get(event, "port"),
                                          "why", json_object_get(event, "why"), "count", 1);
                        if (one)
                                put_way_out(job, plan, granted, one);
                        (void)json_array_append_new(targets, one);
                }
        }
        return targets;
}

static void put_so_far(const struct pv_review *r, const struct pv_groups *groups, struct pv_str *out)
{
        pv_auto_plan plan = NULL;
        pv_auto_json granted = NULL;
        pv_auto_json refusals = NULL;
        struct pv_err ignored = PV_ERR_INIT; /* the record may be cut short */
        size_t i;
        json_t *rule;
        if (pv_job_plan(r->look.job, &plan, &ignored) < 0 ||
            pv_why_events(r->look.job, &granted, &refusals, &ignored) < 0 ||
            json_array_size(granted) + json_array_size(refusals) == 0)
                return;
        pv_auto_json targets = sum_up(r->look.job, plan, granted, refusals);
        pv_review_put_heading(r, out, PV_STYLE_BOLD, "Network", "refused and granted so far");
        json_array_foreach(granted, i, rule)
        {
                pv_str_put(out, "  granted  ");
                pv_str_put_safe(out, json_string_value(rule) ? json_string_value(rule) : "");
                pv_str_put(out, " (by you, while it ran)\n");
        }
        size_t more = put_state(targets, "refused", TARGETS_SHOWN, groups, out);
        if (more)
                pv_str_putf(out, "  refused %zu more; `pvisor why %s` has them all\n", more, r->look.job->id);
}

void pv_review_put_network(const struct pv_review *r, struct pv_str *out)
{
        static const char *const states[] = { "refused", "failed", "reached" };
        const json_t *network = json_object_get(r->bundle, "network");
        const json_t *targets = json_object_get(network, "flows"), *granted = json_object_get(network, "granted");
        size_t k;
        json_t *grant;
        pv_auto_groups groups = { 0 };
        struct pv_err ignored = PV_ERR_INIT; /* a group that cannot be read is one that is not offered */
        (void)pv_groups_load(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &groups, &ignored);
        if (!json_is_array(targets) && r->look.job->state != PV_JOB_FAILED)
                put_so_far(r, &groups, out);
        if (json_array_size(targets) + json_array_size(granted) == 0)
                return;
        pv_review_put_heading(r, out, PV_STYLE_BOLD, "Network", NULL);
        json_array_foreach(granted, k, grant)
        {
                put_grant(grant, out);
        }
        for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
                size_t more = put_state(targets, states[i], TARGETS_SHOWN, &groups, out);
                if (more)
                        pv_str_putf(out, "  %s %zu more; --json has them all\n", states[i], more);
        }
}
