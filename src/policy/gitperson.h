/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of the person's own git configuration matters to a sandboxed run: who they are, what they ignore everywhere,
 * and which further files it is spread over. Read as git does (git-config(1), FILES and Includes), without running it.
 */
#ifndef PV_POLICY_GITPERSON_H
#define PV_POLICY_GITPERSON_H

#include "base/str.h"

struct pv_gitperson {
        char *name, *email;
        char *excludes;          /* core.excludesFile, absolute; or NULL */
        struct pv_strv includes; /* absolute paths of files that are included, existing ones */
};
void pv_gitperson_fini(struct pv_gitperson *p);
#define pv_auto_gitperson __attribute__((cleanup(pv_gitperson_fini))) struct pv_gitperson

/*
 * From $XDG_CONFIG_HOME/git/config (or home/.config's) and home/.gitconfig, with what they include; `gitdir` conditions
 * are held against git_dir (NULL: none), others count as false.
 */
void pv_gitperson_read(const char *home, const char *xdg_config_home, const char *git_dir, struct pv_gitperson *out);

#endif
