/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/netpolicy.h"

#include <string.h>

void pv_netpolicy_take_limit(struct pv_netpolicy *p, const char *target, struct pv_netrules *rules,
                             uint64_t bytes_per_second)
{
        p->limits = pv_realloc(p->limits, p->n_limits + 1, sizeof *p->limits);
        p->limits[p->n_limits++] = (struct pv_netlimit){
                .target = pv_strdup(target),
                .rules = *rules,
                .bytes_per_second = bytes_per_second,
        };
        *rules = (struct pv_netrules){ 0 };
}

/* The rate of a rule holds for the connections that it allows. */
static void add_rate(struct pv_netpolicy *p, const char *text, const struct pv_netrule *rules, size_t n, uint64_t rate)
{
        pv_auto_netrules copy = { .v = pv_calloc(n, sizeof *rules), .n = n };
        memcpy(copy.v, rules, n * sizeof *rules);
        pv_netpolicy_take_limit(p, text, &copy, rate);
}

struct reading {
        struct pv_netpolicy *policy;
        const struct pv_groups *groups;
        const char *option;
        bool rates; /* of allow rules: become limits */
};

static int read_rules(const struct reading *how, const struct pv_strv *texts, struct pv_netrule **out, size_t *n,
                      struct pv_err *err)
{
        pv_auto_netrules rules = { 0 };
        for (size_t i = 0; texts && i < texts->n; i++) {
                uint64_t rate = 0;
                size_t before = rules.n;
                if (pv_netrules_add(&rules, texts->v[i], how->groups, &rate, err) < 0)
                        return pv_err_wrap(err, "--%s", how->option);
                if (rules.n > PV_NETPOLICY_RULES || how->policy->n_limits >= PV_NETPOLICY_RULES)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--%s: more than %d rules", how->option,
                                          PV_NETPOLICY_RULES);
                if (rate && !how->rates)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--%s: what is denied has no rate", how->option);
                if (rate)
                        add_rate(how->policy, texts->v[i], rules.v + before, rules.n - before, rate);
        }
        *out = rules.v;
        *n = rules.n;
        rules = (struct pv_netrules){ 0 };
        return 0;
}

int pv_netpolicy_add_layer(struct pv_netpolicy *p, const struct pv_netlayer_texts *t, const struct pv_groups *groups,
                           struct pv_err *err)
{
        const struct reading allow = { p, groups, "overlaynet-allow", true };
        const struct reading deny = { p, groups, "overlaynet-deny", false };
        if ((!t->allow || t->allow->n == 0) && (!t->deny || t->deny->n == 0) && !t->closed)
                return 0;
        if (p->n_layers == PV_NETPOLICY_LAYERS)
                return pv_err_set(err, PV_ERR_USAGE, 0, "network rules: too many layers");
        struct pv_netlayer *l = &p->layer[p->n_layers++];
        l->name = t->name;
        l->closed = t->closed;
        return read_rules(&allow, t->allow, &l->allow, &l->n_allow, err) < 0 ||
                               read_rules(&deny, t->deny, &l->deny, &l->n_deny, err) < 0
                       ? -1
                       : 0;
}

static bool is_same_rule(const struct pv_netrule *a, const struct pv_netrule *b)
{
        pv_auto_str x = { 0 }, y = { 0 };
        pv_netrule_put(&x, a);
        pv_netrule_put(&y, b);
        return pv_streq(x.s, y.s) && a->transports == b->transports && a->allow_private_ips == b->allow_private_ips &&
               pv_streq(a->group, b->group);
}

int pv_netpolicy_allow_more(struct pv_netpolicy *p, struct pv_netlayer *l, const struct pv_strv *texts,
                            const struct pv_groups *groups, struct pv_err *err)
{
        const struct reading how = { p, groups, "overlaynet-allow", true };
        pv_auto_free struct pv_netrule *more = NULL;
        size_t n = 0;
        if (read_rules(&how, texts, &more, &n, err) < 0)
                return -1;
        l->allow = pv_realloc(l->allow, l->n_allow + n + 1, sizeof *l->allow);
        for (size_t i = 0; i < n; i++) {
                bool known = false;
                for (size_t k = 0; k < l->n_allow && !known; k++)
                        known = is_same_rule(&l->allow[k], &more[i]);
                if (known)
                        continue;
                if (l->n_allow == PV_NETPOLICY_RULES)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--%s: more than %d rules", how.option,
                                          PV_NETPOLICY_RULES);
                l->allow[l->n_allow++] = more[i];
        }
        return 0;
}

int pv_netpolicy_add_limit(struct pv_netpolicy *p, const char *text, const struct pv_groups *groups, struct pv_err *err)
{
        pv_auto_netrules rules = { 0 };
        uint64_t rate = 0, unused = 0;
        const char *equals = strrchr(text, '=');
        pv_auto_free char *target = equals ? pv_strndup(text, (size_t)(equals - text)) : pv_strdup("*");
        if (p->n_limits >= PV_NETPOLICY_RULES)
                return pv_err_set(err, PV_ERR_USAGE, 0, "more than %d limits", PV_NETPOLICY_RULES);
        if (pv_netrules_add(&rules, target, groups, &unused, err) < 0 ||
            pv_netrate_parse(equals ? equals + 1 : text, &rate, err) < 0)
                return -1;
        pv_netpolicy_take_limit(p, target, &rules, rate);
        return 0;
}

void pv_netpolicy_fini(struct pv_netpolicy *p)
{
        for (size_t i = 0; i < p->n_layers; i++) {
                free(p->layer[i].allow);
                free(p->layer[i].deny);
        }
        for (size_t i = 0; i < p->n_limits; i++) {
                free(p->limits[i].target);
                pv_netrules_fini(&p->limits[i].rules);
        }
        free(p->limits);
        pv_netrules_fini(&p->granted);
        *p = (struct pv_netpolicy){ 0 };
}
