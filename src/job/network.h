/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a run: joins the boundary's namespace, the rules and the data plane's process. The theory of operation
 * of the data plane heads net/plane.c; this is its supervisor's side.
 */
#ifndef PV_JOB_NETWORK_H
#define PV_JOB_NETWORK_H

#include "base/json.h"
#include "boundary/boundary.h"
#include "net/plane.h"

struct pv_run_grants;

struct pv_run_network {
        const struct pv_plan *plan;
        struct pv_boundary_network hooks; /* for the boundary's spec, when inside is set */
        bool inside;                      /* PV_NET_RULES: the namespace is furnished */
        struct pv_netns_sockets sockets;
        struct pv_publish *publish;
        int *host_ports;   /* listening inside, two a port of the plan: IPv4, IPv6 */
        int namespaces[2]; /* the user namespace and the network namespace, for whoever makes sockets inside */
        int maker[2];      /* [0] the plane's, [1] of whoever makes sockets inside */
        pid_t making;      /* that process; 0: none yet */
        pid_t plane;       /* 0: none */
        int control;       /* to the plane; -1 */
        int orders;        /* to the plane while it runs (net/orders.h); -1 */
        int resolver;      /* the program that the plane asks for addresses, O_PATH; -1 */
        struct pv_run_grants *grants; /* grants.c; NULL: nothing was asked for yet */
        json_t *granted;              /* what the person granted, for the record: an array; NULL: nothing */
        json_t *result;               /* what the plane summed up; NULL: not known, or there was none */
};
#define PV_RUN_NETWORK_INIT                                                                                \
        {                                                                                                  \
                .namespaces = { -1, -1 }, .maker = { -1, -1 }, .control = -1, .orders = -1, .resolver = -1 \
        }

/*
 * Before the boundary starts: listens on the published ports (PV_ERR_USAGE names one that is taken) and, for
 * PV_NET_PROXY, at the proxy's, whose variables are added to plan->env. Nothing to do for other modes.
 */
int pv_run_network_prepare(struct pv_run_network *n, struct pv_plan *plan, struct pv_err *err);

/* After the boundary has started: the data plane's process. events: of the job, O_APPEND, borrowed. */
int pv_run_network_start(struct pv_run_network *n, struct pv_boundary *b, int events, struct pv_err *err);

/*
 * When everything inside is dead: the plane delivers the rest and sums up, while the caller has other things to do.
 * Must: before the boundary is freed.
 */
void pv_run_network_stop(struct pv_run_network *n);
/* After that: takes its sums into result, reaps it. */
void pv_run_network_end(struct pv_run_network *n);

void pv_run_network_fini(struct pv_run_network *n);

/* For doctor: tries the rules of a run in a child; a line for each thing that is missing, with what brings it. */
int pv_run_network_examine(struct pv_strv *fix, struct pv_err *err);

#endif
