/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The changes come sorted, parents before children, so one pass suffices: the place and the part
 * of the git directory follow from the path alone (gitdir.c), the reasons from names (rules.c), modes, link targets
 * and, for package.json, contents (judge.c). What only git knows - which paths its rules ignore, where its hooks are -
 * is asked afterwards or before through the runner (ignore.c). Nothing here opens a file of the stage.
 *
 * Every path and link target is the agent's. None is resolved, only compared; a wrong answer at worst shows too much
 * or, for a path that git itself would treat in another way than its layout says, calls for naming it.
 */
#include "git/classify.h"

#include <string.h>
#include <sys/stat.h>
#include "git/gitdir.h"
#include "git/judge.h"

static void place(const struct pv_path_change *c, struct pv_verdict *v)
{
        size_t len = 0;
        v->place = PV_PLACE_TREE;
        v->part = PV_GIT_NONE;
        v->gitdir_len = 0;
        if (c->root_kind == PV_ROOT_GIT_DIR) {
                v->place = PV_PLACE_GIT;
                v->part = pv_gitdir_part(c->path);
        } else if (pv_gitdir_find(c->path, &len)) {
                v->place = PV_PLACE_GIT;
                v->gitdir_len = len;
                v->part = pv_gitdir_part(c->path[len] ? c->path + len + 1 : "");
        }
}

static bool is_below(const struct pv_path_change *c, const struct pv_path_change *dir)
{
        size_t n = strlen(dir->path);
        return c->root == dir->root && strncmp(c->path, dir->path, n) == 0 && c->path[n] == '/';
}

void pv_classify(const struct pv_path_change *change, size_t n, const struct pv_classify_context *context,
                 struct pv_verdict *verdict)
{
        pv_auto_rules rules = pv_rules_new();
        const struct pv_path_change *new_repo = NULL; /* the configuration in it goes without saying */
        for (size_t i = 0; i < n; i++) {
                struct pv_verdict *v = &verdict[i];
                place(&change[i], v);
                pv_judge(rules, change, i, context, v);
                if (v->part == PV_GIT_DIR && change[i].kind == PV_PATH_ADDED && S_ISDIR(change[i].new_mode)) {
                        new_repo = &change[i];
                } else if (new_repo && v->part == PV_GIT_CONFIG && is_below(&change[i], new_repo)) {
                        v->reasons = PV_ATTENTION_BIT(PV_ATTENTION_NESTED_REPO);
                        v->anchor_len = strlen(new_repo->path);
                }
        }
}
