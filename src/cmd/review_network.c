/* SPDX-License-Identifier: Apache-2.0 */
/* What the command reached and what was refused to it, from the bundle's network section. */
#include <string.h>
#include "base/json.h"
#include "cmd/review.h"
#include "policy/groups.h"

enum { TARGETS_SHOWN = 12 };

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

void pv_review_put_network(const struct pv_review *r, struct pv_str *out)
{
        static const char *const states[] = { "refused", "failed", "reached" };
        const json_t *network = json_object_get(r->bundle, "network");
        const json_t *targets = json_object_get(network, "flows"), *granted = json_object_get(network, "granted");
        size_t k;
        json_t *grant;
        pv_auto_groups groups = { 0 };
        struct pv_err ignored = PV_ERR_INIT; /* a group that cannot be read is one that is not offered */
        if (json_array_size(targets) + json_array_size(granted) == 0)
                return;
        (void)pv_groups_load(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &groups, &ignored);
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
