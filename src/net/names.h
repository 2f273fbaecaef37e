/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synthetic addresses: each name that the sandbox may resolve gets one IPv4 and one IPv6 address, the same for the
 * whole run, so that a connection to the address carries the name. No address is ever given to a second name, so that
 * changing answers of a name server (rebinding) find no handle. Bounded: names are the sandbox's choice.
 */
#ifndef PV_NET_NAMES_H
#define PV_NET_NAMES_H

#include <stdbool.h>
#include "policy/netrule.h"

#define PV_NAMES_MAX 65536 /* of a run; a further name is SERVFAIL */

/* 198.18.0.0/15 (RFC 2544) and a prefix of our own in fd00::/8 (RFC 4193); both lead nowhere. */
#define PV_NAMES_V4      "198.18.0.0"
#define PV_NAMES_V4_BITS 15
#define PV_NAMES_V6      "fd70:7669:736f::"
#define PV_NAMES_V6_BITS 96

struct pv_names; /* opaque */
struct pv_names *pv_names_new(void);
void pv_names_free(struct pv_names *n);

/* The pair of a name in its compared form, given now if it is new. False when PV_NAMES_MAX names are taken. */
bool pv_names_give(struct pv_names *n, const char *name, struct pv_netaddr *v4, struct pv_netaddr *v6);

/* The name that an address was given to (borrowed), or NULL: never given, or not of our prefixes. */
const char *pv_names_find(const struct pv_names *n, const struct pv_netaddr *addr);

/* True for every address of the two prefixes, given or not. */
bool pv_names_is_synthetic(const struct pv_netaddr *addr);

#endif
