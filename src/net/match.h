/* SPDX-License-Identifier: Apache-2.0 */
/* The decision: may this target be reached, and by which rule. Pure; the theory of the data plane heads plane.c. */
#ifndef PV_NET_MATCH_H
#define PV_NET_MATCH_H

#include "policy/netpolicy.h"

enum pv_verdict_kind {
        PV_VERDICT_ALLOWED,
        PV_VERDICT_DENIED,      /* a deny rule holds it: rule */
        PV_VERDICT_NOT_ALLOWED, /* an allow list does not name it: layer */
        PV_VERDICT_SPECIAL,     /* the name resolved to an address that is not the public Internet's: what */
};

/* The layer of what the person granted while it runs. */
#define PV_LAYER_GRANTED "granted while it ran"

struct pv_verdict {
        enum pv_verdict_kind kind;
        const struct pv_netrule *rule; /* borrowed from the policy; NULL when none decided */
        const char *layer;             /* the layer that refused, or the last that allowed by a rule; else NULL */
        const char *what;              /* SPECIAL: "a loopback address" */
};

/* May the sandbox ask for this name at all: does any port of it lead anywhere. */
struct pv_verdict pv_match_name(const struct pv_netpolicy *p, const char *name);

/* A connection to a name, before it is resolved. Names in the compared form of pv_netrule_fold_name(). */
struct pv_verdict pv_match_name_port(const struct pv_netpolicy *p, const char *name, uint16_t port);

enum pv_match_whose {
        PV_MATCH_ANYBODYS,
        PV_MATCH_OWN, /* the machine's own (own.h): special, and not along with allow_private_ips */
};

/*
 * The address that a name resolved to (name not NULL, already allowed): deny rules by address hold, and special
 * addresses need a rule by address or allow_private_ips. Or an address that the sandbox connected to itself (name
 * NULL). A rule wider than the widest special block (0.0.0.0/0, 2000::/3) says "the Internet" and names no special
 * address.
 */
struct pv_verdict pv_match_address(const struct pv_netpolicy *p, const char *name, const struct pv_netaddr *addr,
                                   uint16_t port, enum pv_match_whose whose);

/* True when an allow rule names exactly this host with this port (0: with any), whichever else there are. */
bool pv_match_names_host(const struct pv_netpolicy *p, const char *name, uint16_t port);

/*
 * The deny rule that makes a grant of this rule void, since it holds all of it; *layer is where it stands. NULL:
 * there is none (deny rules still win over a part of what the grant holds).
 */
const struct pv_netrule *pv_match_denial(const struct pv_netpolicy *p, const struct pv_netrule *rule,
                                         const char **layer);

/* True when the limit holds this flow; addr may be NULL. */
bool pv_match_limit(const struct pv_netlimit *l, const char *name, const struct pv_netaddr *addr, uint16_t port);

#endif
