/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's own addresses: behind them listens what no firewall holds back from the machine itself, as behind its
 * loopback. Those of its interfaces, loopback's aside (127.0.0.0/8 and ::1 are special already).
 */
#ifndef PV_NET_OWN_H
#define PV_NET_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "policy/netrule.h"

struct pv_own {
        struct pv_netaddr *v;
        size_t n;
        uint64_t until_ms; /* looked at again then: a machine moves */
};

/* Is it one? now_ms: any clock that only goes forward. What cannot be found out is one. */
bool pv_own_has(struct pv_own *o, const struct pv_netaddr *a, uint64_t now_ms);
void pv_own_fini(struct pv_own *o);
#define pv_auto_own __attribute__((cleanup(pv_own_fini))) struct pv_own

#endif
