/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/unfetched.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/str.h"

#define REF_MAX    4096
#define PACKED_MAX (16U << 20)

/* What is behind the last ".git/" of the path, or, in a root that is a git directory, the path. NULL: not in one. */
static const char *inside_git(const struct pv_stage *s, const struct pv_change *c)
{
        const char *at = NULL;
        if (pv_stage_root(s, c->root)->kind == PV_ROOT_GIT_DIR)
                at = c->path;
        for (const char *p = c->path; (p = strstr(p, ".git/")); p += 5)
                if (p == c->path || p[-1] == '/')
                        at = p + 5;
        return at;
}

static bool names_commits(const char *inside)
{
        static const char *const below[] = { "refs/heads/", "refs/tags/", "refs/stash" };
        const char *name = strrchr(inside, '/');
        for (size_t i = 0; i < sizeof below / sizeof *below; i++)
                if (strstr(inside, below[i]) == inside ||
                    (strstr(inside, "modules/") == inside && strstr(inside, below[i])))
                        return true;
        name = name ? name + 1 : inside;
        return pv_streq(name, "packed-refs") || (pv_streq(name, "HEAD") && !strstr(inside, "logs/"));
}

static bool is_branch_name(const char *text)
{
        return pv_str_has_prefix(text, "ref: ");
}

static bool differs(struct pv_stage *s, const struct pv_change *c)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *staged = NULL, *host = NULL;
        size_t n = 0, m = 0;
        pv_auto_fd a = pv_change_open_staged(s, c, O_RDONLY | O_NONBLOCK | O_NOCTTY);
        pv_auto_fd b = pv_path_openat(pv_stage_target(s, c->root), c->path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
        size_t most = c->now.size > REF_MAX ? PACKED_MAX : REF_MAX;
        if (a < 0 || pv_fd_read_all(a, most, "a reference", &staged, &n, &ignored) < 0)
                return true;
        if (is_branch_name(staged)) /* another branch is checked out: its own reference tells */
                return false;
        return b < 0 || pv_fd_read_all(b, most, "a reference", &host, &m, &ignored) < 0 || n != m ||
               memcmp(staged, host, n) != 0;
}

bool pv_has_unfetched_commits(struct pv_stage *s, const struct pv_changes *changes)
{
        for (size_t i = 0; i < changes->n; i++) {
                const struct pv_change *c = &changes->item[i];
                const char *inside = S_ISREG(c->now.mode) ? inside_git(s, c) : NULL;
                if (inside && names_commits(inside) && differs(s, c))
                        return true;
        }
        return false;
}
