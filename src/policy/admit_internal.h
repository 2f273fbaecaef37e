/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of admission share: admit.c has the order, admit_agent.c what an agent's profile adds. */
#ifndef PV_POLICY_ADMIT_INTERNAL_H
#define PV_POLICY_ADMIT_INTERNAL_H

#include "policy/admit.h"
#include "policy/mcp.h"
#include "policy/profile.h"
#include "policy/workspace.h"

/* What one admission carries from step to step. */
struct admission {
        const struct pv_request *request;
        const struct pv_surroundings *around;
        struct pv_plan *plan;
        struct pv_workspace place;
        struct pv_profile *profile; /* or NULL */
        struct pv_mcp servers;      /* of the agent, as its argument */
        bool home_exists;
        struct pv_strv *notes;
};

void __attribute__((format(printf, 2, 3))) pv_admission_note(struct admission *a, const char *fmt, ...);

/* The profile that was named, or that of the program, if there is one: its hosts, variables and arguments. */
int pv_admission_choose_profile(struct admission *a, struct pv_err *err);
/* Once mounts and roots are known: its state and settings, caches, the MCP servers of the agent. */
void pv_admission_add_agent(struct admission *a);
int pv_admission_set_environment(struct admission *a, struct pv_err *err);
/* What the profile adds, in one line; and what to do where the agent cannot know who it works for. */
void pv_admission_say_agent(struct admission *a);

#endif
