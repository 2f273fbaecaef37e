/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Services of the host that act for whoever reaches their socket: container engines (root's rights), agents (the
 * person's keys), buses (everything of the session), displays (what is typed and shown), terminal multiplexers. People
 * mount them by habit; a sandbox that has one is none. Under --safe that is refused, unless the person says that they
 * know, and then the dimensions that it opens count as unenforced.
 */
#ifndef PV_POLICY_SERVICES_H
#define PV_POLICY_SERVICES_H

#include "base/err.h"
#include "policy/plan.h"

/* What something of the host's opens: enum pv_dimension as bits. */
#define PV_OPENS(d_) (1U << PV_DIM_##d_)
/* What can do all that the person can; and what can do all that the machine can. */
#define PV_OPENS_SESSION                                                                               \
        (PV_OPENS(HOST_WRITES) | PV_OPENS(READS) | PV_OPENS(SENSITIVE_PATHS) | PV_OPENS(CREDENTIALS) | \
         PV_OPENS(SUBPROCESSES))
#define PV_OPENS_MACHINE (PV_OPENS_SESSION | PV_OPENS(WORKSPACE_WRITES) | PV_OPENS(NETWORK))

/* Adds a copy of s to the plan. */
void pv_services_open(struct pv_plan *plan, const struct pv_service *s);

/*
 * Judges a mount before it is added. environment: the person's, which names sockets, too. What it opens is added to
 * plan->services; under --safe only with i_know, else PV_ERR_POLICY.
 */
int pv_services_check_mount(struct pv_plan *plan, const struct pv_mount *m, char *const *environment, bool i_know,
                            struct pv_err *err);

/* Adds a sentence for each passed variable that names such a socket, which is not there unless it is mounted. */
void pv_services_note_variables(const struct pv_plan *plan, char *const *environment, struct pv_strv *notes);

#endif
