/* SPDX-License-Identifier: Apache-2.0 */
#include "net/match.h"

#include <string.h>

#define ANY_PORT 0

struct target {
        const char *name; /* or NULL */
        const struct pv_netaddr *addr;
        uint16_t port;
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

/* A deny rule for one port does not refuse the whole name: such a rule is asked again at connect time. */
static bool denies(const struct pv_netrule *r, const struct target *t)
{
        if (t->port == ANY_PORT && (r->port_first != 1 || r->port_last != 65535))
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

/* *by_address: each allow list that there is holds the target by an address rule. */
static struct pv_verdict find_allow(const struct pv_netpolicy *p, const struct target *t, bool *by_address)
{
        struct pv_verdict v = { .kind = PV_VERDICT_ALLOWED };
        bool every = true, some = false;
        for (size_t i = 0; i < p->n_layers; i++) {
                const struct pv_netlayer *l = &p->layer[i];
                if (l->n_allow == 0)
                        continue;
                v.rule = first(l->allow, l->n_allow, t, holds);
                if (!v.rule)
                        return (struct pv_verdict){ .kind = PV_VERDICT_NOT_ALLOWED, .layer = l->name };
                struct target alone = { .addr = t->addr, .port = t->port };
                bool exact = false;
                for (size_t k = 0; t->addr && k < l->n_allow; k++)
                        exact |= l->allow[k].kind == PV_NETRULE_PREFIX && is_narrow(&l->allow[k]) &&
                                 holds(&l->allow[k], &alone);
                every &= exact;
                some = true;
        }
        *by_address = some && every;
        return v;
}

static struct pv_verdict decide(const struct pv_netpolicy *p, const struct target *t, bool *by_address)
{
        struct pv_verdict v = find_deny(p, t);
        return v.kind == PV_VERDICT_ALLOWED ? find_allow(p, t, by_address) : v;
}

struct pv_verdict pv_match_name(const struct pv_netpolicy *p, const char *name)
{
        bool unused = false;
        return decide(p, &(struct target){ .name = name, .port = ANY_PORT }, &unused);
}

struct pv_verdict pv_match_name_port(const struct pv_netpolicy *p, const char *name, uint16_t port)
{
        bool unused = false;
        return decide(p, &(struct target){ .name = name, .port = port }, &unused);
}

struct pv_verdict pv_match_address(const struct pv_netpolicy *p, const char *name, const struct pv_netaddr *addr,
                                   uint16_t port)
{
        bool by_address = false;
        struct target t = { .name = name, .addr = addr, .port = port };
        struct pv_verdict v = decide(p, &t, &by_address);
        const char *special = pv_netaddr_special(addr);
        if (v.kind != PV_VERDICT_ALLOWED || !special || by_address)
                return v;
        /* The host's own loopback is reached under a name of its own only, which is not resolved at all. */
        static const struct pv_netaddr v4_loopback = { { [10] = 0xff, [11] = 0xff, [12] = 127 } };
        static const struct pv_netaddr v6_loopback = { { [15] = 1 } };
        bool loopback =
                pv_netaddr_in_prefix(addr, &v4_loopback, 96 + 8) || pv_netaddr_in_prefix(addr, &v6_loopback, 128);
        if (p->allow_private_ips && !loopback && strstr(special, "private"))
                return v;
        return (struct pv_verdict){ .kind = PV_VERDICT_SPECIAL, .rule = v.rule, .layer = "base", .what = special };
}

bool pv_match_names_host(const struct pv_netpolicy *p, const char *name, uint16_t port)
{
        const struct target t = { .name = name, .port = port };
        for (size_t i = 0; i < p->n_layers; i++)
                for (size_t k = 0; k < p->layer[i].n_allow; k++)
                        if (p->layer[i].allow[k].kind == PV_NETRULE_HOST && holds(&p->layer[i].allow[k], &t))
                                return true;
        return false;
}

bool pv_match_limit(const struct pv_netlimit *l, const char *name, const struct pv_netaddr *addr, uint16_t port)
{
        return holds(&l->rule, &(struct target){ .name = name, .addr = addr, .port = port });
}
