/* SPDX-License-Identifier: Apache-2.0 */
/* The network's part of admission: mode, rules, limits and published ports of a request into the plan. */
#ifndef PV_POLICY_NETWORK_H
#define PV_POLICY_NETWORK_H

#include "policy/plan.h"
#include "policy/request.h"

/*
 * plan->safe and plan->profile are set already; environment is the person's, for the groups that rules name.
 * PV_ERR_USAGE: a rule that is none, or options that contradict each other.
 */
int pv_admit_network(const struct pv_request *r, char *const *environment, struct pv_plan *plan, struct pv_err *err);

/* Hosts of a profile that comes to a policy later, in the places where pv_admit_network() puts them. */
int pv_admit_hosts(struct pv_netpolicy *p, const struct pv_strv *hosts, char *const *environment, struct pv_err *err);

/* "[ADDR:]HOSTPORT[:PORT]": the sandbox's port is the host's unless it is given. PV_ERR_USAGE. */
int pv_publication_parse(const char *text, struct pv_publication *out, struct pv_err *err);

/* "HOSTPORT[:PORT]". PV_ERR_USAGE. */
int pv_host_port_parse(const char *text, struct pv_host_port *out, struct pv_err *err);

/* Whether a text is what the option of that name takes; groups are looked up. PV_ERR_USAGE. */
int pv_check_net_target(const char *text, struct pv_err *err);
int pv_check_net_limit(const char *text, struct pv_err *err);
int pv_check_publication(const char *text, struct pv_err *err);
int pv_check_host_port(const char *text, struct pv_err *err);

/* Loads the groups when one of the texts names one. */
int pv_groups_load_for(const struct pv_strv *const *texts, size_t n, char *const *environment, struct pv_groups *out,
                       struct pv_err *err);

#endif
