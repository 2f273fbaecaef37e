/* SPDX-License-Identifier: Apache-2.0 */
/* The environment that a command gets. Values never reach a file; names do. */
#ifndef PV_POLICY_ENV_H
#define PV_POLICY_ENV_H

#include "base/err.h"
#include "base/str.h"
#include "policy/plan.h"

/* Letters, digits and '_', not a digit first. */
bool pv_env_is_name(const char *s);

/* PV_ERR_USAGE unless each is the name of a variable. */
int pv_env_check_names(const struct pv_strv *names, struct pv_err *err);

/*
 * Fills plan->env, env_passed and env_injected from the person's environment (NAME=VALUE, NULL-terminated) and the
 * names to pass. Under a sandboxed filesystem only a fixed list and those names are kept; else all are.
 * A profile's variables come with them. plan's filesystem, home, home_mode, cwd, workspace and profile must be set.
 */
void pv_env_fill(struct pv_plan *plan, char *const *person, const struct pv_strv *names);

/* The value of a variable in such a list; NULL when it is not there. */
const char *pv_env_get(char *const *list, const char *name);

#endif
