/* SPDX-License-Identifier: Apache-2.0 */
/* What network.c (the supervisor), network_inside.c (the sandbox side) and grants.c share. */
#ifndef PV_JOB_NETWORK_INTERNAL_H
#define PV_JOB_NETWORK_INTERNAL_H

#include "job/network.h"

/* Sets the hooks of the boundary. */
void pv_run_network_hook(struct pv_run_network *n);

/* HTTP_PROXY and the others, upper and lower case. */
void pv_run_network_add_proxy(struct pv_strv *env, uint16_t port);

/* A listening socket of the host; *got is its port. PV_ERR_USAGE. */
int pv_run_network_listen(const struct pv_netaddr *addr, uint16_t port, uint16_t *got, struct pv_err *err);

/* The process that makes sockets inside for published ports. It runs already: nothing. */
int pv_run_network_start_maker(struct pv_run_network *n, struct pv_err *err);

/* Must: before the boundary is freed. */
void pv_run_grants_free(struct pv_run_grants *g);

#endif
