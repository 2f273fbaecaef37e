/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which directory a run works in, and where its git directory lies. Found by looking at files alone: git is never run,
 * and nothing in the workspace is believed that would widen what the command gets to see.
 */
#ifndef PV_POLICY_WORKSPACE_H
#define PV_POLICY_WORKSPACE_H

#include <stdbool.h>
#include "base/err.h"

struct pv_workspace {
        char *path;      /* real path of the workspace */
        char *cwd;       /* real path of the current directory, or of the workspace when that is elsewhere */
        char *logical;   /* the current directory as $PWD names it, when that is another true name of cwd; else NULL */
        bool is_git;     /* path is the top level of a work tree, or a bare repository */
        char *git_dir;   /* a git directory outside of path that belongs to it (of a worktree: the common one, of a
                          submodule: its own); else NULL */
        char *git_stray; /* one that .git names but that does not name the workspace back: not to be trusted; or NULL */
        bool home_skipped; /* the git top level would have been HOME or above it: the current directory was taken */
};
void pv_workspace_fini(struct pv_workspace *w);
#define pv_auto_workspace __attribute__((cleanup(pv_workspace_fini))) struct pv_workspace

/*
 * dir: the person's --workspace, or NULL to discover it from the current directory; pwd: $PWD or NULL; home: real
 * path of HOME or NULL. PV_ERR_USAGE when dir is no directory, PV_ERR_SYS when there is no current directory.
 */
int pv_workspace_find(const char *dir, const char *pwd, const char *home, struct pv_workspace *out, struct pv_err *err);

#endif
