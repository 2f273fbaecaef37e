/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a workspace leans on that lies outside of it: objects that git borrows from another repository, files that the
 * person's git configuration is spread over, packages that are links to their sources. The view does not show it, since
 * what is written in a workspace opens nothing; but who starts a run is told, with the option that would.
 */
#ifndef PV_POLICY_OUTSIDE_H
#define PV_POLICY_OUTSIDE_H

#include <stdbool.h>
#include "policy/plan.h"

/*
 * Adds sentences to notes; the plan must have its roots, mounts, home_mode and masks. environment: the person's.
 * Looks at the workspace's top, at its node_modules and at git's files, at a bounded number of names.
 */
void pv_outside_note(const struct pv_plan *plan, char *const *environment, struct pv_strv *notes);

/* Whether a real path of the host is in the view. */
bool pv_outside_is_shown(const struct pv_plan *plan, const char *path);

/* The git directory of the workspace, as far as the plan tells; the caller's. */
char *pv_outside_git_dir(const struct pv_plan *plan);

#endif
