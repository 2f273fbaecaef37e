/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/network.h"

#include <string.h>

#define PUBLICATIONS_MAX 256

static bool has_rules(const struct pv_request *r)
{
        return r->overlaynet_allow.n + r->overlaynet_deny.n + r->overlaynet_limit.n + r->user_allow.n + r->user_deny.n >
               0;
}

static int contradiction(struct pv_err *err, const char *one, const char *other)
{
        return pv_err_set(err, PV_ERR_USAGE, 0, "%s and %s contradict each other", one, other);
}

static int check(const struct pv_request *r, struct pv_err *err)
{
        bool off = r->overlaynet == PV_REQUEST_NET_OFF;
        if (off && r->overlaynet_deny_all)
                return contradiction(err, "--overlaynet off", "--overlaynet-deny-all");
        if (off && r->overlaynet_allow.n + r->overlaynet_deny.n + r->overlaynet_limit.n > 0)
                return contradiction(err, "--overlaynet off", "network rules");
        if (off && r->publish.n > 0)
                return contradiction(err, "--overlaynet off", "--publish");
        if (r->overlaynet == PV_REQUEST_NET_PROXY && r->publish.n > 0)
                return contradiction(err, "--overlaynet proxy", "--publish");
        if (r->overlaynet_deny_all && r->overlaynet_allow.n > 0)
                return contradiction(err, "--overlaynet-deny-all", "--overlaynet-allow");
        return 0;
}

/* Published ports need the data plane, if only for the way in: nothing is then allowed out. */
static enum pv_net_mode mode_of(const struct pv_request *r, bool profile)
{
        if (r->overlaynet == PV_REQUEST_NET_OFF)
                return PV_NET_AMBIENT;
        if (r->overlaynet_deny_all)
                return r->publish.n > 0 ? PV_NET_RULES : PV_NET_DENY_ALL;
        if (r->overlaynet == PV_REQUEST_NET_PROXY)
                return PV_NET_PROXY;
        if (r->overlaynet == PV_REQUEST_NET_AUTO || has_rules(r))
                return PV_NET_RULES;
        if (r->publish.n > 0)
                return PV_NET_RULES;
        return !r->safe ? PV_NET_AMBIENT : profile ? PV_NET_RULES : PV_NET_DENY_ALL;
}

static void add_all(struct pv_strv *to, const struct pv_strv *from)
{
        for (size_t i = 0; i < from->n; i++)
                if (!pv_strv_has(to, from->v[i]))
                        pv_strv_add(to, from->v[i]);
}

/*
 * The hosts of the agent's profile. Where nothing could be reached they are all that can; where the person says what
 * may be reached they are added, since each list of what is allowed must hold a target. Where all is allowed but what
 * is denied they change nothing.
 */
static int add_layer(struct pv_plan *p, const char *name, const struct pv_strv *allow, const struct pv_strv *deny,
                     struct pv_err *err)
{
        pv_auto_strv all = { 0 };
        add_all(&all, allow);
        if (allow->n)
                add_all(&all, &p->profile.hosts);
        return pv_netpolicy_add_layer(&p->netpolicy, name, &all, deny, err);
}

static bool parse_port(const char *text, size_t n, uint16_t *out)
{
        unsigned v = 0;
        if (n == 0 || n > 5)
                return false;
        for (size_t i = 0; i < n; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return false;
                v = v * 10 + (unsigned)(text[i] - '0');
        }
        *out = (uint16_t)v;
        return v >= 1 && v <= 65535;
}

/* "[ADDR:]HOSTPORT:PORT"; an IPv6 address in brackets. Without one: the host's loopback. */
static int add_publication(struct pv_plan *p, const char *text, struct pv_err *err)
{
        struct pv_publication pub = { 0 };
        const char *last = strrchr(text, ':');
        const char *middle = last ? memrchr(text, ':', (size_t)(last - text)) : NULL;
        const char *host_port = middle ? middle + 1 : text;
        pv_auto_free char *addr = middle ? pv_strndup(text, (size_t)(middle - text)) : pv_strdup("127.0.0.1");
        char *bare = addr;
        size_t n = strlen(addr);
        if (n > 1 && addr[0] == '[' && addr[n - 1] == ']') {
                addr[n - 1] = '\0';
                bare = addr + 1;
        }
        if (!last || !parse_port(host_port, (size_t)(last - host_port), &pub.host_port) ||
            !parse_port(last + 1, strlen(last + 1), &pub.port) || !pv_netaddr_parse(bare, &pub.addr))
                return pv_err_set(err, PV_ERR_USAGE, 0, "--publish '%s' is not [ADDR:]HOSTPORT:PORT", text);
        if (p->n_publications == PUBLICATIONS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "--publish: more than %d ports", PUBLICATIONS_MAX);
        p->publications = pv_realloc(p->publications, p->n_publications + 1, sizeof *p->publications);
        p->publications[p->n_publications++] = pub;
        return 0;
}

/* All but what the profile names; or, by a rule that holds every target, all: for a run that may only be reached. */
static int close_all(struct pv_plan *p, bool deny_all, struct pv_err *err)
{
        pv_auto_strv none = { 0 }, all = { 0 };
        if (!deny_all && p->profile.hosts.n)
                return pv_netpolicy_add_layer(&p->netpolicy, "profile", &p->profile.hosts, &none, err);
        pv_strv_add(&all, "*");
        return pv_netpolicy_add_layer(&p->netpolicy, "deny-all", &none, &all, err);
}

int pv_admit_network(const struct pv_request *r, struct pv_plan *plan, struct pv_err *err)
{
        struct pv_netpolicy *p = &plan->netpolicy;
        if (check(r, err) < 0)
                return -1;
        plan->net = mode_of(r, plan->profile.hosts.n > 0);
        if (plan->net != PV_NET_RULES && plan->net != PV_NET_PROXY)
                return 0;
        p->allow_private_ips = r->overlaynet_allow_private_ips;
        bool closed = r->overlaynet_deny_all || (r->safe && !has_rules(r) && r->overlaynet != PV_REQUEST_NET_AUTO);
        if (closed && close_all(plan, r->overlaynet_deny_all, err) < 0)
                return -1;
        if (add_layer(plan, "configuration", &r->user_allow, &r->user_deny, err) < 0 ||
            add_layer(plan, "command line", &r->overlaynet_allow, &r->overlaynet_deny, err) < 0)
                return -1;
        for (size_t i = 0; i < r->overlaynet_limit.n; i++)
                if (pv_netpolicy_add_limit(p, r->overlaynet_limit.v[i], err) < 0)
                        return -1;
        for (size_t i = 0; i < r->publish.n; i++)
                if (add_publication(plan, r->publish.v[i], err) < 0)
                        return -1;
        return 0;
}
