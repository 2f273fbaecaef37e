/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/netpolicy.h"

#include <string.h>

static int parse_rules(const struct pv_strv *texts, const char *option, struct pv_netrule **out, size_t *n,
                       struct pv_err *err)
{
        if (texts->n > PV_NETPOLICY_RULES)
                return pv_err_set(err, PV_ERR_USAGE, 0, "--%s: more than %d rules", option, PV_NETPOLICY_RULES);
        pv_auto_free struct pv_netrule *rules = pv_calloc(texts->n, sizeof *rules);
        for (size_t i = 0; i < texts->n; i++)
                if (pv_netrule_parse(texts->v[i], &rules[i], err) < 0)
                        return pv_err_wrap(err, "--%s", option);
        *out = pv_steal(&rules);
        *n = texts->n;
        return 0;
}

int pv_netpolicy_add_layer(struct pv_netpolicy *p, const char *name, const struct pv_strv *allow,
                           const struct pv_strv *deny, struct pv_err *err)
{
        if (allow->n + deny->n == 0)
                return 0;
        if (p->n_layers == PV_NETPOLICY_LAYERS)
                return pv_err_set(err, PV_ERR_USAGE, 0, "network rules: too many layers");
        struct pv_netlayer *l = &p->layer[p->n_layers++];
        l->name = name;
        return parse_rules(allow, "overlaynet-allow", &l->allow, &l->n_allow, err) < 0 ||
                               parse_rules(deny, "overlaynet-deny", &l->deny, &l->n_deny, err) < 0
                       ? -1
                       : 0;
}

int pv_netpolicy_add_limit(struct pv_netpolicy *p, const char *text, struct pv_err *err)
{
        struct pv_netlimit l = { 0 };
        const char *equals = strrchr(text, '=');
        pv_auto_free char *target = equals ? pv_strndup(text, (size_t)(equals - text)) : pv_strdup("*");
        if (p->n_limits == PV_NETPOLICY_RULES)
                return pv_err_set(err, PV_ERR_USAGE, 0, "--overlaynet-limit: more than %d limits", PV_NETPOLICY_RULES);
        if (pv_netrule_parse(target, &l.rule, err) < 0 ||
            pv_netrate_parse(equals ? equals + 1 : text, &l.bytes_per_second, err) < 0)
                return pv_err_wrap(err, "--overlaynet-limit");
        p->limits = pv_realloc(p->limits, p->n_limits + 1, sizeof *p->limits);
        p->limits[p->n_limits++] = l;
        return 0;
}

void pv_netpolicy_fini(struct pv_netpolicy *p)
{
        for (size_t i = 0; i < p->n_layers; i++) {
                free(p->layer[i].allow);
                free(p->layer[i].deny);
        }
        free(p->limits);
        *p = (struct pv_netpolicy){ 0 };
}
