/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing a selection. What belongs together: a path in a new directory needs that directory; what a directory hides
 * or takes with it stands and falls with it; the names of one inode; both halves of a rename.
 */
#include "stage/apply.h"

#include <search.h>
#include <string.h>
#include "base/fd.h"
#include "base/str.h"

struct closure {
        const struct pv_changes *changes;
        bool *selected;
        bool grew;
};

static void take(struct closure *c, size_t i)
{
        c->grew |= !c->selected[i];
        c->selected[i] = true;
}

static bool is_below(const struct pv_change *c, const struct pv_change *dir)
{
        size_t n = strlen(dir->path);
        if (c->root != dir->root || c == dir)
                return false;
        return n == 0 || (strncmp(c->path, dir->path, n) == 0 && c->path[n] == '/');
}

static bool is_new_directory(const struct pv_change *c)
{
        return S_ISDIR(c->now.mode) && !S_ISDIR(c->pre.mode);
}

/* A directory that is deleted or becomes something else: its old entries go with it, and it with them. */
static bool takes_entries_along(const struct pv_change *c)
{
        return S_ISDIR(c->pre.mode) && !S_ISDIR(c->now.mode);
}

/* One pass over all paths with the directories above each at hand. */
static void close_over_directories(struct closure *c)
{
        size_t n = c->changes->n, depth = 0;
        pv_auto_free size_t *above = pv_calloc(n + 1, sizeof *above);
        for (size_t i = 0; i < n; i++) {
                const struct pv_change *it = &c->changes->item[i];
                while (depth > 0 && !is_below(it, &c->changes->item[above[depth - 1]]))
                        depth--;
                for (size_t d = 0; d < depth; d++) {
                        const struct pv_change *dir = &c->changes->item[above[d]];
                        bool together = takes_entries_along(dir);
                        if (c->selected[i] && (together || (is_new_directory(dir) && it->now.mode != 0)))
                                take(c, above[d]);
                        if (c->selected[above[d]] && together)
                                take(c, i);
                }
                if (S_ISDIR(it->pre.mode) || S_ISDIR(it->now.mode))
                        above[depth++] = i;
        }
}

static void close_over_renames(struct closure *c)
{
        for (size_t i = 0; i < c->changes->n; i++) {
                const struct pv_change *it = &c->changes->item[i];
                if (!it->renamed_from)
                        continue;
                struct pv_change *from = pv_changes_find((struct pv_changes *)c->changes, it->root, it->renamed_from);
                if (!from)
                        continue;
                size_t k = (size_t)(from - c->changes->item);
                if (c->selected[i])
                        take(c, k);
                if (c->selected[k])
                        take(c, i);
        }
}

static int compare_groups(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x == y ? 0 : x < y ? -1 : 1;
}

static void close_over_links(struct closure *c)
{
        void *groups = NULL; /* of selected paths; keys lie in the changes */
        for (size_t i = 0; i < c->changes->n; i++)
                if (c->selected[i] && c->changes->item[i].link_group != 0)
                        (void)tsearch(&c->changes->item[i].link_group, &groups, compare_groups);
        for (size_t i = 0; groups && i < c->changes->n; i++)
                if (!c->selected[i] && c->changes->item[i].link_group != 0 &&
                    tfind(&c->changes->item[i].link_group, &groups, compare_groups))
                        take(c, i);
        while (groups)
                (void)tdelete(*(void **)groups, &groups, compare_groups);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): it is written, through the closure */
int pv_apply_close_selection(const struct pv_changes *changes, bool *selected, struct pv_err *err)
{
        struct closure c = { .changes = changes, .selected = selected };
        for (size_t i = 0; i < changes->n; i++)
                if (selected[i] && changes->item[i].path == NULL)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "a selected change has no path");
        do {
                c.grew = false;
                close_over_directories(&c);
                close_over_renames(&c);
                close_over_links(&c);
        } while (c.grew);
        return 0;
}
