/* SPDX-License-Identifier: Apache-2.0 */
#include "git/gitdir.h"

#include <assert.h>
#include <string.h>
#include <strings.h>
#include "base/str.h"

bool pv_gitdir_find(const char *path, size_t *len)
{
        for (size_t at = 0; path[at];) {
                size_t n = strcspn(path + at, "/");
                if (n == 4 && strncasecmp(path + at, ".git", 4) == 0) {
                        *len = at + n;
                        return true;
                }
                at += n;
                at += path[at] == '/';
        }
        return false;
}

struct entry {
        const char *name; /* first component, or the whole path where it has a slash; a trailing '*': any ending */
        enum pv_git_part part;
};

static const struct entry entries[] = {
        { "hooks", PV_GIT_HOOKS },
        { "config", PV_GIT_CONFIG },
        { "config.worktree", PV_GIT_CONFIG },
        /* Pointers to the configuration that counts: as good as writing it. */
        { "commondir", PV_GIT_CONFIG },
        { "gitdir", PV_GIT_CONFIG },
        { "objects/info/alternates", PV_GIT_ALTERNATES },
        { "objects/info/http-alternates", PV_GIT_ALTERNATES },
        { "objects", PV_GIT_OBJECTS },
        { "lfs", PV_GIT_OBJECTS },
        { "refs", PV_GIT_REFS },
        { "reftable", PV_GIT_REFS },
        { "packed-refs", PV_GIT_PACKED_REFS },
        { "HEAD", PV_GIT_HEAD },
        { "index", PV_GIT_INDEX },
        { "sharedindex.*", PV_GIT_INDEX },
        { "logs", PV_GIT_LOGS },
        { "info", PV_GIT_INFO },
        { "MERGE_*", PV_GIT_OPERATION },
        { "CHERRY_PICK_HEAD", PV_GIT_OPERATION },
        { "REVERT_HEAD", PV_GIT_OPERATION },
        { "REBASE_HEAD", PV_GIT_OPERATION },
        { "BISECT_*", PV_GIT_OPERATION },
        { "AUTO_MERGE", PV_GIT_OPERATION },
        { "ORIG_HEAD", PV_GIT_OPERATION },
        { "FETCH_HEAD", PV_GIT_OPERATION },
        { "SQUASH_MSG", PV_GIT_OPERATION },
        { "*_EDITMSG", PV_GIT_OPERATION },
        { "rebase-merge", PV_GIT_OPERATION },
        { "rebase-apply", PV_GIT_OPERATION },
        { "sequencer", PV_GIT_OPERATION },
        { "gc.log", PV_GIT_LOGS },
        { "gc.pid", PV_GIT_LOCK },
};

static bool entry_matches(const char *name, const char *inside)
{
        size_t n = strlen(name), first = strcspn(inside, "/");
        if (name[n - 1] == '*')
                return strncmp(inside, name, n - 1) == 0;
        if (name[0] == '*')
                return first >= n - 1 && strncmp(inside + first - (n - 1), name + 1, n - 1) == 0;
        return strncmp(inside, name, n) == 0 && (inside[n] == '\0' || inside[n] == '/');
}

static enum pv_git_part part_of_entry(const char *inside)
{
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
                if (entry_matches(entries[i].name, inside))
                        return entries[i].part;
        return PV_GIT_OTHER;
}

/*
 * modules/<name>/... : a submodule's name may hold slashes, so where its git directory begins is not known. Hooks and
 * configuration are recognised wherever they may be; only then what is harmless.
 */
static enum pv_git_part part_of_module(const char *inside)
{
        static const char *const grave[] = { "hooks", "config", "config.worktree", "commondir", "gitdir" };
        const char *slash = strrchr(inside, '/');
        for (const char *p = inside; (p = strchr(p, '/'));) {
                p++;
                size_t n = strcspn(p, "/");
                for (size_t i = 0; i < sizeof grave / sizeof *grave; i++)
                        if (n == strlen(grave[i]) && memcmp(p, grave[i], n) == 0 && (i == 0 || p == slash + 1))
                                return part_of_entry(p);
        }
        for (const char *p = inside; (p = strchr(p, '/'));) {
                p++;
                enum pv_git_part part = part_of_entry(p);
                if (part != PV_GIT_OTHER)
                        return part;
        }
        return PV_GIT_MODULES;
}

enum pv_git_part pv_gitdir_part(const char *inside)
{
        if (!*inside)
                return PV_GIT_DIR;
        if (entry_matches("hooks", inside))
                return PV_GIT_HOOKS;
        if (pv_str_has_suffix(inside, ".lock"))
                return PV_GIT_LOCK;
        if (entry_matches("modules", inside))
                return part_of_module(inside + strlen("modules"));
        if (!entry_matches("worktrees", inside))
                return part_of_entry(inside);
        const char *name = inside + strlen("worktrees");
        const char *rest = *name ? strchr(name + 1, '/') : NULL;
        /* A work tree has submodules of its own, with git directories of their own. */
        if (rest && entry_matches("modules", rest + 1))
                return part_of_module(rest + 1 + strlen("modules"));
        enum pv_git_part part = rest ? part_of_entry(rest + 1) : PV_GIT_WORKTREES;
        return part == PV_GIT_OTHER ? PV_GIT_WORKTREES : part;
}

static const char *const part_names[PV_GIT_PARTS] = {
        [PV_GIT_NONE] = "",
        [PV_GIT_DIR] = "git directory",
        [PV_GIT_OBJECTS] = "objects",
        [PV_GIT_ALTERNATES] = "alternates",
        [PV_GIT_REFS] = "references",
        [PV_GIT_PACKED_REFS] = "references",
        [PV_GIT_HEAD] = "HEAD",
        [PV_GIT_INDEX] = "index",
        [PV_GIT_LOGS] = "logs",
        [PV_GIT_LOCK] = "locks",
        [PV_GIT_CONFIG] = "configuration",
        [PV_GIT_HOOKS] = "hooks",
        [PV_GIT_INFO] = "info",
        [PV_GIT_WORKTREES] = "worktrees",
        [PV_GIT_MODULES] = "submodules",
        [PV_GIT_OPERATION] = "operation",
        [PV_GIT_OTHER] = "other",
};

const char *pv_git_part_name(enum pv_git_part part)
{
        return part_names[part];
}

bool pv_git_part_is_noise(enum pv_git_part part)
{
        static const bool noise[PV_GIT_PARTS] = {
                [PV_GIT_OBJECTS] = true, [PV_GIT_REFS] = true, [PV_GIT_PACKED_REFS] = true, [PV_GIT_HEAD] = true,
                [PV_GIT_INDEX] = true,   [PV_GIT_LOGS] = true, [PV_GIT_LOCK] = true,        [PV_GIT_OPERATION] = true,
        };
        return noise[part];
}
