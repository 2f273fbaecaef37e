/* SPDX-License-Identifier: Apache-2.0 */
#include "job/tally.h"

static bool is_git_dir(const struct pv_root *roots, size_t n_roots, const struct pv_change *c)
{
        if (c->root < n_roots && roots[c->root].kind == PV_ROOT_GIT_DIR)
                return true;
        return c->root == 0 && (pv_streq(c->path, ".git") || pv_str_has_prefix(c->path, ".git/"));
}

void pv_tally_changes(const struct pv_root *roots, size_t n_roots, const struct pv_changes *changes,
                      struct pv_tally *out)
{
        struct pv_tally n = { 0 };
        for (size_t i = 0; i < changes->n; i++) {
                if (is_git_dir(roots, n_roots, &changes->item[i]))
                        n.git = true;
                else if (!(changes->item[i].flags & PV_CHANGE_IMPLIED))
                        n.paths++;
        }
        *out = n;
}
