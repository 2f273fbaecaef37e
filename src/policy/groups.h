/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of network targets: "@npm" in a rule stands for each target of the group. They are data:
 * share/pvisor/groups.yaml of the installation, and the person's own groups.yaml beside config.yaml, whose groups take
 * the place of shipped ones of the same name. Nothing is in force that no rule names.
 */
#ifndef PV_POLICY_GROUPS_H
#define PV_POLICY_GROUPS_H

#include <stdbool.h>
#include "base/err.h"
#include "base/str.h"

#define PV_GROUP_NAME_MAX 31 /* letters, digits and '-' behind the '@' */

struct pv_group {
        char *name;             /* "npm" */
        char *file;             /* where it is written */
        struct pv_strv targets; /* as in a rule: "registry.npmjs.org:443" */
};

struct pv_groups {
        struct pv_group *v;
        size_t n;
};
void pv_groups_fini(struct pv_groups *g);
#define pv_auto_groups __attribute__((cleanup(pv_groups_fini))) struct pv_groups

/*
 * Both files, the person's groups first; every target is checked. The arguments are the variables of these names, or
 * NULL. PV_ERR_USAGE names file and line.
 */
int pv_groups_load(const char *xdg_config_home, const char *home, struct pv_groups *out, struct pv_err *err);

/* "@npm" or "npm"; NULL: there is none. Borrowed. */
const struct pv_group *pv_groups_find(const struct pv_groups *g, const char *name);

/*
 * The groups that hold a target, "pypi.org" or "pypi.org:443", as a person names them: "@pypi", "@a or @b". NULL: none.
 * The caller's.
 */
char *pv_groups_with(const struct pv_groups *g, const char *target);

/* pv_groups_find() with an error that offers the closest name. PV_ERR_USAGE. */
const struct pv_group *pv_groups_need(const struct pv_groups *g, const char *name, struct pv_err *err);

#endif
