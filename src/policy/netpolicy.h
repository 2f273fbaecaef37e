/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network policy of a run: layers (base, user, workspace, session) that intersect. A layer denies what a deny
 * rule of it holds; it allows what an allow rule of it holds, or all else when it has no allow rule and is not
 * closed. A target may be reached when no layer denies it and each layer allows it, or the person granted it while
 * the command runs.
 */
#ifndef PV_POLICY_NETPOLICY_H
#define PV_POLICY_NETPOLICY_H

#include <stdbool.h>
#include <stddef.h>
#include "policy/netrules.h"

#define PV_NETPOLICY_LAYERS 4
#define PV_NETPOLICY_RULES  1024 /* of one kind in one layer */

/* Where a rule stands: the names of layers. */
#define PV_LAYER_USER     "configuration"
#define PV_LAYER_SESSION  "command line"
#define PV_LAYER_SAFE     "--safe"
#define PV_LAYER_PROFILE  "profile" /* what --safe alone is when the agent's profile names hosts */
#define PV_LAYER_DENY_ALL "--overlaynet-deny-all"

struct pv_netlayer {
        const char *name; /* of the above, or static: where a refusal says it comes from */
        struct pv_netrule *allow, *deny;
        size_t n_allow, n_deny;
        bool closed; /* allows what is listed, though nothing be listed */
};

/* Whether the layer allows only what it lists. */
static inline bool pv_netlayer_is_list(const struct pv_netlayer *l)
{
        return l->n_allow > 0 || l->closed;
}

struct pv_netlimit {
        char *target; /* as it was written: "*", "@npm" */
        struct pv_netrules rules;
        uint64_t bytes_per_second; /* for all connections that the rules hold, together, each direction */
};

struct pv_netpolicy {
        struct pv_netlayer layer[PV_NETPOLICY_LAYERS];
        size_t n_layers;
        struct pv_netlimit *limits;
        size_t n_limits;
        struct pv_netrules granted; /* by the person, while it runs */
        bool allow_private_ips;     /* names may resolve to private addresses (never to the host's loopback) */
};

/*
 * A layer from the texts that a person wrote (netrules.h). One without rules is not added, unless it is closed. Rates
 * become limits. PV_ERR_USAGE names the text and the option.
 */
struct pv_netlayer_texts {
        const char *name;                   /* static */
        const struct pv_strv *allow, *deny; /* or NULL */
        bool closed;
};
int pv_netpolicy_add_layer(struct pv_netpolicy *p, const struct pv_netlayer_texts *texts,
                           const struct pv_groups *groups, struct pv_err *err);
/* More that a layer of it allows. */
int pv_netpolicy_allow_more(struct pv_netpolicy *p, struct pv_netlayer *l, const struct pv_strv *texts,
                            const struct pv_groups *groups, struct pv_err *err);
/* "[TARGET=]RATE". */
int pv_netpolicy_add_limit(struct pv_netpolicy *p, const char *text, const struct pv_groups *groups,
                           struct pv_err *err);
/* Rules are taken. */
void pv_netpolicy_take_limit(struct pv_netpolicy *p, const char *target, struct pv_netrules *rules,
                             uint64_t bytes_per_second);
void pv_netpolicy_fini(struct pv_netpolicy *p);

#endif
