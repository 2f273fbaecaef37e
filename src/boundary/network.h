/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's network namespace: of all its namespaces the dearest to make (twice all others together), and nothing
 * needs it before the launcher. So a process of its own makes and furnishes it while pid 1 builds the view.
 */
#ifndef PV_BOUNDARY_NETWORK_H
#define PV_BOUNDARY_NETWORK_H

#include "boundary/launch.h"

/* Does the plan want one? */
bool pv_network_is_apart(const struct pv_plan *plan);

/* Before pid 1 is forked, which shares l->network with the maker. */
int pv_network_prepare(struct pv_launch *l, struct pv_err *err);

/*
 * The supervisor, once pid 1's user namespace has its maps and pid 1 has heard of the job: has the namespace made,
 * takes what the caller's hook opened in it into b->net, and hands it to pid 1.
 */
int pv_network_make(struct pv_launch *l, struct pv_err *err);

/* pid 1: waits for it and enters it. The host's file system may be out of view by now. */
int pv_network_enter(struct pv_launch *l, struct pv_err *err);

#endif
