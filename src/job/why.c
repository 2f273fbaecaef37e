/* SPDX-License-Identifier: Apache-2.0 */
#include "job/why.h"

#include <string.h>
#include "base/file.h"
#include "net/match.h"
#include "net/own.h"
#include "net/plane.h"
#include "net/tally.h"

#define EVENTS_MAX   (64U << 20)
#define REFUSALS_MAX 65536

void pv_why_fini(struct pv_why *w)
{
        free(w->what);
        free(w->layer);
        free(w->rule);
        free(w->allow_with);
        free(w->grant);
        *w = (struct pv_why){ 0 };
}

bool pv_why_is_path(const char *text)
{
        return text[0] == '/' || text[0] == '.' || text[0] == '~';
}

/* ---- the record ---- */

static void take_event(const json_t *e, json_t *granted, json_t *refusals)
{
        const char *event = json_string_value(json_object_get(e, "event"));
        const char *end = json_string_value(json_object_get(e, "end"));
        if (event && pv_streq(event, "network.granted"))
                (void)json_array_extend(granted, json_object_get(e, "rules"));
        else if (event && pv_str_has_prefix(event, "network.") && end && pv_streq(end, "refused") &&
                 json_array_size(refusals) < REFUSALS_MAX)
                (void)json_array_append(refusals, (json_t *)e);
}

int pv_why_events(const struct pv_job *job, json_t **granted, json_t **refusals, struct pv_err *err)
{
        pv_auto_free char *text = NULL;
        size_t len = 0;
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0 || pv_file_read_at(dir, PV_JOB_EVENTS, EVENTS_MAX, &text, &len, err) < 0)
                return -1;
        *granted = json_array();
        *refusals = json_array();
        for (char *line = text, *next; line < text + len; line = next) {
                char *end = memchr(line, '\n', (size_t)(text + len - line));
                next = end ? end + 1 : text + len;
                pv_auto_json e = json_loadb(line, (size_t)(next - line), 0, NULL);
                if (e)
                        take_event(e, *granted, *refusals);
        }
        return 0;
}

/* ---- network targets ---- */

static char *rule_text(const struct pv_netrule *r)
{
        pv_auto_str text = { 0 };
        if (!r)
                return NULL;
        pv_netrule_put(&text, r);
        if (r->group[0])
                pv_str_putf(&text, " of %s", r->group);
        return pv_str_steal(&text);
}

/* The plan's policy with the grants; the layers stay the plan's. */
static int add_granted(const struct pv_plan *plan, const json_t *granted, struct pv_netpolicy *out, struct pv_err *err)
{
        size_t i;
        json_t *one;
        *out = plan->netpolicy;
        out->granted = (struct pv_netrules){ 0 };
        json_array_foreach((json_t *)granted, i, one)
        {
                uint64_t rate = 0;
                const char *text = json_string_value(one);
                if (text && pv_netrules_add(&out->granted, text, NULL, &rate, err) < 0)
                        return -1;
        }
        return 0;
}

static struct pv_verdict ask(const struct pv_netpolicy *p, const struct pv_netrule *target)
{
        uint16_t port = target->port_first == target->port_last ? target->port_first : 0;
        pv_auto_own own = { 0 };
        if (target->kind == PV_NETRULE_PREFIX)
                return pv_match_address(p, NULL, &target->addr, port,
                                        pv_own_has(&own, &target->addr, 0) ? PV_MATCH_OWN : PV_MATCH_ANYBODYS);
        struct pv_verdict v = pv_match_name(p, target->name);
        if (v.kind != PV_VERDICT_ALLOWED || !port)
                return v;
        v = pv_match_name_port(p, target->name, port);
        if (v.kind == PV_VERDICT_ALLOWED && pv_streq(target->name, PV_PLANE_HOST_NAME) &&
            !pv_match_names_host(p, target->name, port))
                v = (struct pv_verdict){ .kind = PV_VERDICT_NOT_ALLOWED, .layer = "base" };
        return v;
}

static bool is_of_file(const struct pv_verdict *v)
{
        return v->layer && pv_streq(v->layer, PV_LAYER_USER);
}

static void explain_refusal(const struct pv_verdict *v, const char *target, bool name, struct pv_why *out)
{
        char buf[512];
        const char *text = pv_verdict_text(v, buf, sizeof buf);
        bool private = v->kind == PV_VERDICT_SPECIAL && strstr(v->what, "private");
        out->refused = true;
        out->what = pv_strf("is refused: %s", text);
        switch (v->kind) {
        case PV_VERDICT_DENIED:
                out->allow_with = pv_strf("a run without that rule (%s)", v->layer);
                break;
        case PV_VERDICT_NOT_ALLOWED:
                out->allow_with = is_of_file(v) ? pv_strf("overlaynet-allow: %s, in the configuration file", target)
                                                : pv_strf("--overlaynet-allow %s", target);
                out->grant = pv_strdup(target);
                break;
        case PV_VERDICT_SPECIAL:
                out->allow_with = name && private ? pv_strdup("--overlaynet-allow-private-ips")
                                                  : pv_strf("--overlaynet-allow %s", target);
                out->grant = pv_strdup(target);
                break;
        case PV_VERDICT_ALLOWED:
                break;
        }
}

static void explain_allowed(const struct pv_verdict *v, bool name, struct pv_why *out)
{
        const char *rest = name ? ", as long as it leads to a public address" : "";
        if (v->rule && v->rule->allow_private_ips)
                rest = ", at private addresses too";
        out->what =
                v->rule ? pv_strf("is allowed by a rule%s", rest) : pv_strf("is allowed: no rule denies it%s", rest);
}

static int judge(const struct pv_plan *plan, const json_t *granted, const struct pv_netrule *target, const char *text,
                 struct pv_why *out, struct pv_err *err)
{
        struct pv_netpolicy policy = { 0 };
        bool name = target->kind == PV_NETRULE_HOST && !pv_streq(target->name, PV_PLANE_HOST_NAME);
        int r = add_granted(plan, granted, &policy, err);
        if (r == 0) {
                struct pv_verdict v = ask(&policy, target);
                if (v.kind == PV_VERDICT_ALLOWED)
                        explain_allowed(&v, name, out);
                else
                        explain_refusal(&v, text, name, out);
                out->rule = rule_text(v.rule);
                out->layer = v.layer ? pv_strdup(v.layer) : NULL;
        }
        pv_netrules_fini(&policy.granted);
        return r;
}

int pv_why_target(const struct pv_plan *plan, const json_t *granted, const char *text, struct pv_why *out,
                  struct pv_err *err)
{
        struct pv_netrule target;
        pv_auto_str canonical = { 0 };
        if (pv_netrule_parse(text, &target, err) < 0)
                return -1;
        bool one_port = target.port_first == target.port_last || (target.port_first == 1 && target.port_last == 65535);
        if ((target.kind != PV_NETRULE_HOST && (target.kind != PV_NETRULE_PREFIX || target.prefix != 128)) || !one_port)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: one host or address is asked about, with one port", text);
        pv_netrule_put(&canonical, &target);
        switch (plan->net) {
        case PV_NET_AMBIENT:
                out->what = pv_strdup("is not restricted: the job has the host's own network");
                return 0;
        case PV_NET_DENY_ALL:
                out->refused = true;
                out->what = pv_strdup("is refused: the job has a network with nothing in it");
                out->layer = pv_strdup(PV_LAYER_DENY_ALL);
                out->allow_with = pv_strf("--overlaynet-allow %s, without --overlaynet-deny-all", canonical.s);
                return 0;
        case PV_NET_RULES:
        case PV_NET_PROXY:
                break;
        }
        return judge(plan, granted, &target, canonical.s, out, err);
}
