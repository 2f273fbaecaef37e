/* SPDX-License-Identifier: Apache-2.0 */
#include "net/match.h"

#include <string.h>

#define ANY_PORT 0

struct target {
        const char *name; /* or NULL */
        const struct pv_netaddr *addr;
        uint16_t port;
        enum pv_transport transport;
};

static bool holds_name(const struct pv_netrule *r, const char *name)
{
        if (r->kind == PV_NETRULE_HOST)
                return pv_streq(r->name, name);
        size_t n = strlen(name), m = strlen(r->name);
        return n > m + 1 && name[n - m - 1] == '.' && memcmp(name + n - m, r->name, m) == 0;
}

/* ::/0 is no rule about IPv4, though both families share one form. */
static bool is_v4_rule(const struct pv_netrule *r)
{
        return pv_netaddr_is_v4(&r->addr) && r->prefix >= 96;
}

static bool holds(const struct pv_netrule *r, const struct target *t)
{
        if (!pv_netrule_is_for(r, t->transport))
                return false;
        if (t->port != ANY_PORT && (t->port < r->port_first || t->port > r->port_last))
                return false;
        switch (r->kind) {
        case PV_NETRULE_ANY:
                return true;
        case PV_NETRULE_HOST:
        case PV_NETRULE_SUFFIX:
                return t->name && holds_name(r, t->name);
        case PV_NETRULE_PREFIX:
                return t->addr && pv_netaddr_is_v4(t->addr) == is_v4_rule(r) &&
                       pv_netaddr_in_prefix(t->addr, &r->addr, r->prefix);
        }
        return false;
}

/*
 * A deny rule for one port does not refuse the whole name: such a rule is asked again at connect time. One that is
 * about connections alone neither.
 */
static bool denies(const struct pv_netrule *r, const struct target *t)
{
        bool all_ports = r->port_first == 1 && r->port_last == 65535;
        if (t->port == ANY_PORT && !all_ports && r->transports != PV_TRANSPORT_DNS)
                return false;
        return holds(r, t);
}

static const struct pv_netrule *first(const struct pv_netrule *rules, size_t n, const struct target *t,
                                      bool (*test)(const struct pv_netrule *, const struct target *))
{
        for (size_t i = 0; i < n; i++)
                if (test(&rules[i], t))
                        return &rules[i];
        return NULL;
}

static struct pv_verdict find_deny(const struct pv_netpolicy *p, const struct target *t)
{
        for (size_t i = 0; i < p->n_layers; i++) {
                const struct pv_netlayer *l = &p->layer[i];
                const struct pv_netrule *r = first(l->deny, l->n_deny, t, denies);
                if (r)
                        return (struct pv_verdict){ .kind = PV_VERDICT_DENIED, .rule = r, .layer = l->name };
        }
        return (struct pv_verdict){ .kind = PV_VERDICT_ALLOWED };
}

/* 10.0.0.0/8 and fc00::/7 are the widest blocks that anybody means when naming them. */
static bool is_narrow(const struct pv_netrule *r)
{
        return r->prefix >= (is_v4_rule(r) ? 96 + 8 : 7);
}

/* What the rules that allow a target say of the address that it leads to. */
struct lead {
        bool by_address; /* each list that there is holds the address itself, or the person granted it */
        bool private;    /* a rule says that it may be a private one */
};

/* Adds what these rules say of a target that they hold. */
static bool look_at(const struct pv_netrule *rules, size_t n, const struct target *t, bool *private)
{
        struct target alone = { .addr = t->addr, .port = t->port, .transport = t->transport };
        bool exact = false;
        for (size_t i = 0; i < n; i++) {
                exact |= t->addr && rules[i].kind == PV_NETRULE_PREFIX && is_narrow(&rules[i]) &&
                         holds(&rules[i], &alone);
                *private |= rules[i].allow_private_ips && holds(&rules[i], t);
        }
        return exact;
}

static struct pv_verdict find_allow(const struct pv_netpolicy *p, const struct target *t, struct lead *lead)
{
        struct pv_verdict v = { .kind = PV_VERDICT_ALLOWED };
        bool every = true, some = false;
        bool granted = look_at(p->granted.v, p->granted.n, t, &lead->private);
        lead->by_address = granted;
        v.rule = first(p->granted.v, p->granted.n, t, holds);
        if (v.rule) {
                v.layer = PV_LAYER_GRANTED;
                return v;
        }
        for (size_t i = 0; i < p->n_layers; i++) {
                const struct pv_netlayer *l = &p->layer[i];
                if (!pv_netlayer_is_list(l))
                        continue;
                v.rule = first(l->allow, l->n_allow, t, holds);
                v.layer = l->name;
                if (!v.rule)
                        return (struct pv_verdict){ .kind = PV_VERDICT_NOT_ALLOWED, .layer = l->name };
                every &= look_at(l->allow, l->n_allow, t, &lead->private);
                some = true;
        }
        lead->by_address = granted || (some && every);
        return v;
}

static struct pv_verdict decide(const struct pv_netpolicy *p, const struct target *t, struct lead *lead)
{
        struct pv_verdict v = find_deny(p, t);
        return v.kind == PV_VERDICT_ALLOWED ? find_allow(p, t, lead) : v;
}

struct pv_verdict pv_match_name(const struct pv_netpolicy *p, const char *name)
{
        struct lead unused = { 0 };
        return decide(p, &(struct target){ .name = name, .port = ANY_PORT, .transport = PV_TRANSPORT_DNS }, &unused);
}

struct pv_verdict pv_match_name_port(const struct pv_netpolicy *p, const char *name, uint16_t port)
{
        struct lead unused = { 0 };
        return decide(p, &(struct target){ .name = name, .port = port, .transport = PV_TRANSPORT_TCP }, &unused);
}

struct pv_verdict pv_match_address(const struct pv_netpolicy *p, const char *name, const struct pv_netaddr *addr,
                                   uint16_t port, enum pv_match_whose whose)
{
        struct lead lead = { 0 };
        struct target t = { .name = name, .addr = addr, .port = port, .transport = PV_TRANSPORT_TCP };
        struct pv_verdict v = decide(p, &t, &lead);
        const char *special = whose == PV_MATCH_OWN ? "an address of this machine" : pv_netaddr_special(addr);
        if (v.kind != PV_VERDICT_ALLOWED || !special || lead.by_address)
                return v;
        /* The host's own loopback is reached under a name of its own only, which is not resolved at all. */
        static const struct pv_netaddr v4_loopback = { { [10] = 0xff, [11] = 0xff, [12] = 127 } };
        static const struct pv_netaddr v6_loopback = { { [15] = 1 } };
        bool loopback =
                pv_netaddr_in_prefix(addr, &v4_loopback, 96 + 8) || pv_netaddr_in_prefix(addr, &v6_loopback, 128);
        if ((p->allow_private_ips || lead.private) && !loopback && strstr(special, "private"))
                return v;
        return (struct pv_verdict){ .kind = PV_VERDICT_SPECIAL, .rule = v.rule, .layer = "base", .what = special };
}

static bool names_host(const struct pv_netrule *rules, size_t n, const struct target *t)
{
        for (size_t i = 0; i < n; i++)
                if (rules[i].kind == PV_NETRULE_HOST && holds(&rules[i], t))
                        return true;
        return false;
}

bool pv_match_names_host(const struct pv_netpolicy *p, const char *name, uint16_t port)
{
        const struct target t = { .name = name, .port = port, .transport = port ? PV_TRANSPORT_TCP : PV_TRANSPORT_DNS };
        if (names_host(p->granted.v, p->granted.n, &t))
                return true;
        for (size_t i = 0; i < p->n_layers; i++)
                if (names_host(p->layer[i].allow, p->layer[i].n_allow, &t))
                        return true;
        return false;
}

bool pv_match_limit(const struct pv_netlimit *l, const char *name, const struct pv_netaddr *addr, uint16_t port)
{
        const struct target t = { .name = name, .addr = addr, .port = port, .transport = PV_TRANSPORT_TCP };
        return first(l->rules.v, l->rules.n, &t, holds) != NULL;
}

/* Each target of b is one of a, at all of its ports. */
static bool covers(const struct pv_netrule *a, const struct pv_netrule *b)
{
        if (a->port_first > b->port_first || a->port_last < b->port_last || !pv_netrule_is_for(a, PV_TRANSPORT_TCP))
                return false;
        struct target t = { .port = b->port_first, .transport = PV_TRANSPORT_TCP };
        switch (b->kind) {
        case PV_NETRULE_ANY:
                return a->kind == PV_NETRULE_ANY;
        case PV_NETRULE_HOST:
                t.name = b->name;
                return holds(a, &t);
        case PV_NETRULE_SUFFIX:
                if (a->kind == PV_NETRULE_SUFFIX && pv_streq(a->name, b->name))
                        return true;
                t.name = b->name; /* what holds the name itself holds all below it, but for a rule of one name */
                return a->kind != PV_NETRULE_HOST && holds(a, &t);
        case PV_NETRULE_PREFIX:
                t.addr = &b->addr;
                return holds(a, &t) && (a->kind != PV_NETRULE_PREFIX || a->prefix <= b->prefix);
        }
        return false;
}

const struct pv_netrule *pv_match_denial(const struct pv_netpolicy *p, const struct pv_netrule *rule,
                                         const char **layer)
{
        for (size_t i = 0; i < p->n_layers; i++)
                for (size_t k = 0; k < p->layer[i].n_deny; k++)
                        if (covers(&p->layer[i].deny[k], rule)) {
                                *layer = p->layer[i].name;
                                return &p->layer[i].deny[k];
                        }
        return NULL;
}
