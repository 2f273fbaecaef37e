/* SPDX-License-Identifier: Apache-2.0 */
#include "git/words.h"

#include <string.h>
#include <sys/stat.h>

struct operation {
        const char *file, *name;
};

static const struct operation operations[] = {
        { "MERGE_HEAD", "merge" },    { "rebase-merge", "rebase" },
        { "rebase-apply", "rebase" }, { "CHERRY_PICK_HEAD", "cherry-pick" },
        { "REVERT_HEAD", "revert" },  { "BISECT_LOG", "bisect" },
};

static const char *operation_of(const struct pv_path_change *c)
{
        const char *slash = strrchr(c->path, '/');
        if (c->kind != PV_PATH_ADDED)
                return NULL;
        for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
                if (pv_streq(slash ? slash + 1 : c->path, operations[i].file))
                        return operations[i].name;
        return NULL;
}

/* The workspace's own git directory, wherever it is: `.git`, or a root of its own. */
static size_t worktree_len(const struct pv_verdict *v)
{
        size_t dot_git = strlen("/.git");
        return v->gitdir_len > dot_git ? v->gitdir_len - dot_git : 0;
}

static struct pv_git_repo *find(struct pv_git_repo *repo, size_t n, const struct pv_path_change *change, size_t index,
                                size_t len)
{
        for (size_t i = n; i-- > 0;) {
                const struct pv_path_change *first = &change[repo[i].first];
                if (repo[i].path_len != len)
                        continue;
                if (len == 0 && first->root_kind != PV_ROOT_MOUNT && change[index].root_kind != PV_ROOT_MOUNT)
                        return &repo[i];
                if (repo[i].root == change[index].root && strncmp(first->path, change[index].path, len) == 0)
                        return &repo[i];
        }
        return NULL;
}

static void note(struct pv_git_repo *r, const struct pv_path_change *c, const struct pv_verdict *v)
{
        const char *operation = operation_of(c);
        r->n_files += !S_ISDIR(c->new_mode ? c->new_mode : c->old_mode);
        r->size += S_ISREG(c->new_mode) ? c->size : 0;
        r->refs |= v->part == PV_GIT_REFS || v->part == PV_GIT_PACKED_REFS;
        r->head |= v->part == PV_GIT_HEAD;
        r->index |= v->part == PV_GIT_INDEX;
        r->config |= v->part == PV_GIT_CONFIG;
        if (operation)
                r->operation = operation;
        if (v->part != PV_GIT_DIR || !*c->path)
                return;
        r->added |= c->kind == PV_PATH_ADDED;
        r->gone |= c->kind == PV_PATH_DELETED || c->kind == PV_PATH_TYPE;
}

void pv_git_repos_find(const struct pv_path_change *change, const struct pv_verdict *verdict, size_t n, size_t max,
                       struct pv_git_repo **out, size_t *n_out, size_t *more)
{
        struct pv_git_repo *repo = pv_calloc(max, sizeof *repo);
        size_t n_repos = 0;
        *more = 0;
        for (size_t i = 0; i < n; i++) {
                if (verdict[i].place != PV_PLACE_GIT)
                        continue;
                size_t len = worktree_len(&verdict[i]);
                struct pv_git_repo *r = find(repo, n_repos, change, i, len);
                if (!r && n_repos == max) {
                        *more += verdict[i].part == PV_GIT_DIR;
                        continue;
                }
                if (!r) {
                        r = &repo[n_repos++];
                        *r = (struct pv_git_repo){ .root = change[i].root, .first = i, .path_len = len };
                }
                note(r, &change[i], &verdict[i]);
        }
        *out = repo;
        *n_out = n_repos;
}
