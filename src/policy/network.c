/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/network.h"

#include <string.h>
#include <unistd.h>
#include "policy/env.h"

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
        if (off && r->host_port.n > 0)
                return contradiction(err, "--overlaynet off", "--host-port");
        if (r->overlaynet == PV_REQUEST_NET_PROXY && r->publish.n > 0)
                return contradiction(err, "--overlaynet proxy", "--publish");
        if (r->overlaynet == PV_REQUEST_NET_PROXY && r->host_port.n > 0)
                return contradiction(err, "--overlaynet proxy", "--host-port");
        if (r->overlaynet_deny_all && r->overlaynet_allow.n > 0)
                return contradiction(err, "--overlaynet-deny-all", "--overlaynet-allow");
        return 0;
}

/*
 * Ports from outside and to outside need the data plane, though nothing else be allowed. --safe has it without a
 * rule, too: what was refused can then be named, and granted while it runs.
 */
static enum pv_net_mode mode_of(const struct pv_request *r)
{
        bool ports = r->publish.n + r->host_port.n > 0;
        if (r->overlaynet == PV_REQUEST_NET_OFF)
                return PV_NET_AMBIENT;
        if (r->overlaynet_deny_all)
                return ports ? PV_NET_RULES : PV_NET_DENY_ALL;
        if (r->overlaynet == PV_REQUEST_NET_PROXY)
                return PV_NET_PROXY;
        return r->overlaynet == PV_REQUEST_NET_AUTO || has_rules(r) || ports || r->safe ? PV_NET_RULES : PV_NET_AMBIENT;
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

/* "A" or "A:B", both ports; B is A when it is not there. */
static bool parse_port_pair(const char *text, uint16_t *a, uint16_t *b)
{
        const char *colon = strchr(text, ':');
        size_t n = colon ? (size_t)(colon - text) : strlen(text);
        if (!parse_port(text, n, a))
                return false;
        *b = *a;
        return !colon || parse_port(colon + 1, strlen(colon + 1), b);
}

/* The address before the ports: its end, or NULL when there is none ("3000", "8080:3000"). */
static const char *address_end(const char *text)
{
        if (text[0] == '[') {
                const char *end = strstr(text, "]:");
                return end ? end + 1 : NULL;
        }
        const char *colon = strchr(text, ':');
        return colon && text[strspn(text, "0123456789")] != ':' ? colon : NULL;
}

int pv_publication_parse(const char *text, struct pv_publication *out, struct pv_err *err)
{
        struct pv_publication p = { 0 };
        const char *end = address_end(text), *ports = end ? end + 1 : text;
        pv_auto_free char *addr = end ? pv_strndup(text, (size_t)(end - text)) : pv_strdup("127.0.0.1");
        char *bare = addr;
        size_t n = strlen(addr);
        if (n > 1 && addr[0] == '[' && addr[n - 1] == ']') {
                addr[n - 1] = '\0';
                bare = addr + 1;
        }
        if (!parse_port_pair(ports, &p.host_port, &p.port) || !pv_netaddr_parse(bare, &p.addr))
                return pv_err_set(err, PV_ERR_USAGE, 0, "'%.80s' is not [ADDR:]HOSTPORT[:PORT]", text);
        *out = p;
        return 0;
}

int pv_host_port_parse(const char *text, struct pv_host_port *out, struct pv_err *err)
{
        struct pv_host_port p;
        if (!parse_port_pair(text, &p.host_port, &p.port))
                return pv_err_set(err, PV_ERR_USAGE, 0, "'%.80s' is not HOSTPORT[:PORT]", text);
        *out = p;
        return 0;
}

static int add_publications(const struct pv_strv *texts, struct pv_plan *p, struct pv_err *err)
{
        if (texts->n > PUBLICATIONS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "--publish: more than %d ports", PUBLICATIONS_MAX);
        p->publications = pv_calloc(texts->n, sizeof *p->publications);
        for (; p->n_publications < texts->n; p->n_publications++)
                if (pv_publication_parse(texts->v[p->n_publications], &p->publications[p->n_publications], err) < 0)
                        return pv_err_wrap(err, "--publish");
        return 0;
}

static int add_host_ports(const struct pv_strv *texts, struct pv_plan *p, struct pv_err *err)
{
        if (texts->n > PV_HOST_PORTS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "--host-port: more than %d ports", PV_HOST_PORTS_MAX);
        p->host_ports = pv_calloc(texts->n, sizeof *p->host_ports);
        for (; p->n_host_ports < texts->n; p->n_host_ports++) {
                struct pv_host_port *new = &p->host_ports[p->n_host_ports];
                if (pv_host_port_parse(texts->v[p->n_host_ports], new, err) < 0)
                        return pv_err_wrap(err, "--host-port");
                for (size_t i = 0; i < p->n_host_ports; i++)
                        if (p->host_ports[i].port == new->port)
                                return pv_err_set(err, PV_ERR_USAGE, 0, "--host-port: %u is given twice", new->port);
        }
        return 0;
}

int pv_groups_load_for(const struct pv_strv *const *texts, size_t n, char *const *environment, struct pv_groups *out,
                       struct pv_err *err)
{
        for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < texts[i]->n; k++)
                        if (pv_netrules_names_group(texts[i]->v[k]))
                                return pv_groups_load(pv_env_get(environment, "XDG_CONFIG_HOME"),
                                                      pv_env_get(environment, "HOME"), out, err);
        return 0;
}

static int load_groups_of(const char *text, struct pv_groups *out, struct pv_err *err)
{
        struct pv_strv one = { .v = (char *[]){ (char *)text }, .n = 1 };
        const struct pv_strv *const texts[] = { &one };
        return pv_groups_load_for(texts, 1, environ, out, err);
}

int pv_check_net_target(const char *text, struct pv_err *err)
{
        pv_auto_netrules rules = { 0 };
        pv_auto_groups groups = { 0 };
        uint64_t rate = 0;
        return load_groups_of(text, &groups, err) < 0 ? -1 : pv_netrules_add(&rules, text, &groups, &rate, err);
}

int pv_check_net_limit(const char *text, struct pv_err *err)
{
        struct pv_netpolicy p = { 0 };
        pv_auto_groups groups = { 0 };
        int r = load_groups_of(text, &groups, err) < 0 ? -1 : pv_netpolicy_add_limit(&p, text, &groups, err);
        pv_netpolicy_fini(&p);
        return r;
}

int pv_check_publication(const char *text, struct pv_err *err)
{
        struct pv_publication unused;
        return pv_publication_parse(text, &unused, err);
}

int pv_check_host_port(const char *text, struct pv_err *err)
{
        struct pv_host_port unused;
        return pv_host_port_parse(text, &unused, err);
}

static void add_all(struct pv_strv *to, const struct pv_strv *from)
{
        for (size_t i = 0; i < from->n; i++)
                if (!pv_strv_has(to, from->v[i]))
                        pv_strv_add(to, from->v[i]);
}

/*
 * A layer with the hosts of the agent's profile. Where nothing could be reached (closed) they are all that can; where
 * the person says what may be reached they are added, since each list of what is allowed must hold a target. Where
 * all is allowed but what is denied they change nothing.
 */
static int add_layer(struct pv_plan *p, const struct pv_netlayer_texts *texts, const struct pv_groups *groups,
                     struct pv_err *err)
{
        pv_auto_strv all = { 0 };
        struct pv_netlayer_texts with = *texts;
        add_all(&all, texts->allow);
        if (texts->allow->n || texts->closed)
                add_all(&all, &p->profile.hosts);
        with.allow = &all;
        return pv_netpolicy_add_layer(&p->netpolicy, &with, groups, err);
}

static const char *session_name(const struct pv_plan *p, bool closed)
{
        return !closed ? PV_LAYER_SESSION : p->profile.hosts.n ? PV_LAYER_PROFILE : PV_LAYER_SAFE;
}

/* A rule that holds every target, for a run that may be reached and may reach nothing. */
static int deny_everything(struct pv_netpolicy *p, struct pv_err *err)
{
        pv_auto_strv all = { 0 };
        pv_strv_add(&all, "*");
        return pv_netpolicy_add_layer(p, &(struct pv_netlayer_texts){ .name = PV_LAYER_DENY_ALL, .deny = &all }, NULL,
                                      err);
}

/*
 * --safe allows nothing by itself, by whatever name (auto is its default). What opens it is said: rules of the command
 * line, or a list of what is allowed; a limit, or a denial in the configuration file, opens nothing.
 */
static bool is_closed(const struct pv_request *r)
{
        bool said = r->overlaynet_allow.n + r->overlaynet_deny.n + r->user_allow.n > 0;
        return r->safe && !said && !r->overlaynet_deny_all;
}

static int add_rules(const struct pv_request *r, struct pv_plan *plan, const struct pv_groups *groups,
                     struct pv_err *err)
{
        bool closed = is_closed(r);
        const struct pv_netlayer_texts user = {
                .name = PV_LAYER_USER,
                .allow = &r->user_allow,
                .deny = &r->user_deny,
        };
        const struct pv_netlayer_texts session = {
                .name = session_name(plan, closed),
                .allow = &r->overlaynet_allow,
                .deny = &r->overlaynet_deny,
                .closed = closed,
        };
        if ((r->overlaynet_deny_all && deny_everything(&plan->netpolicy, err) < 0) ||
            add_layer(plan, &user, groups, err) < 0 || add_layer(plan, &session, groups, err) < 0)
                return -1;
        for (size_t i = 0; i < r->overlaynet_limit.n; i++)
                if (pv_netpolicy_add_limit(&plan->netpolicy, r->overlaynet_limit.v[i], groups, err) < 0)
                        return pv_err_wrap(err, "--overlaynet-limit");
        return 0;
}

int pv_admit_hosts(struct pv_netpolicy *p, const struct pv_strv *hosts, char *const *environment, struct pv_err *err)
{
        pv_auto_groups groups = { 0 };
        const struct pv_strv *const texts[] = { hosts };
        if (pv_groups_load_for(texts, 1, environment, &groups, err) < 0)
                return -1;
        for (size_t i = 0; hosts->n && i < p->n_layers; i++) {
                struct pv_netlayer *l = &p->layer[i];
                if (!pv_netlayer_is_list(l))
                        continue;
                if (pv_netpolicy_allow_more(p, l, hosts, &groups, err) < 0)
                        return -1;
                if (pv_streq(l->name, PV_LAYER_SAFE))
                        l->name = PV_LAYER_PROFILE;
        }
        return 0;
}

int pv_admit_network(const struct pv_request *r, char *const *environment, struct pv_plan *plan, struct pv_err *err)
{
        const struct pv_strv *const texts[] = { &r->overlaynet_allow, &r->overlaynet_deny, &r->overlaynet_limit,
                                                &r->user_allow,       &r->user_deny,       &plan->profile.hosts };
        pv_auto_groups groups = { 0 };
        if (check(r, err) < 0)
                return -1;
        plan->net = mode_of(r);
        if (plan->net != PV_NET_RULES && plan->net != PV_NET_PROXY)
                return 0;
        plan->netpolicy.allow_private_ips = r->overlaynet_allow_private_ips;
        if (pv_groups_load_for(texts, sizeof texts / sizeof *texts, environment, &groups, err) < 0 ||
            add_rules(r, plan, &groups, err) < 0)
                return -1;
        return add_publications(&r->publish, plan, err) < 0 || add_host_ports(&r->host_port, plan, err) < 0 ? -1 : 0;
}
