/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network policy of a run: layers (base, user, workspace, session) that intersect. A layer denies what a deny rule
 * of it holds; it allows what an allow rule of it holds, or all else when it has no allow rule. A target may be reached
 * when no layer denies it and each layer allows it.
 */
#ifndef PV_POLICY_NETPOLICY_H
#define PV_POLICY_NETPOLICY_H

#include <stdbool.h>
#include <stddef.h>
#include "policy/netrule.h"

#define PV_NETPOLICY_LAYERS 4
#define PV_NETPOLICY_RULES  1024 /* of one kind in one layer */

struct pv_netlayer {
        const char *name; /* "session": where a refusal says it comes from */
        struct pv_netrule *allow, *deny;
        size_t n_allow, n_deny;
};

struct pv_netlimit {
        struct pv_netrule rule;
        uint64_t bytes_per_second; /* for all connections that the rule holds, together, each direction */
};

struct pv_netpolicy {
        struct pv_netlayer layer[PV_NETPOLICY_LAYERS];
        size_t n_layers;
        struct pv_netlimit *limits;
        size_t n_limits;
        bool allow_private_ips; /* names may resolve to private addresses (never to the host's loopback) */
};

/*
 * A layer from the texts that a person wrote; name is static. An empty one is not added. PV_ERR_USAGE names the text and
 * the option.
 */
int pv_netpolicy_add_layer(struct pv_netpolicy *p, const char *name, const struct pv_strv *allow,
                           const struct pv_strv *deny, struct pv_err *err);
/* "[TARGET=]RATE". */
int pv_netpolicy_add_limit(struct pv_netpolicy *p, const char *text, struct pv_err *err);
void pv_netpolicy_fini(struct pv_netpolicy *p);

#endif
