/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closing a selection. What belongs together: a path in a new directory needs that directory; what a directory hides
 * or takes with it stands and falls with it; the names of one inode. That much a batch needs. Both halves of a rename
 * are a person's: each is a whole change, and taken for itself where the other is not wanted.
 */
#include "stage/close.h"

#include <search.h>
#include <string.h>
#include "base/fd.h"
#include "base/str.h"

#define NO_CHANGE SIZE_MAX

struct closure {
        const struct pv_changes *changes;
        bool *selected;
        const struct pv_halves *halves; /* NULL: nothing is barred */
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

static bool may_join(const struct closure *c, size_t i)
{
        return !c->halves || (!c->halves->barred[i] && !c->halves->held[i]);
}

/* The deletion that change i continues in a new place; NO_CHANGE: it is no rename. */
static size_t old_half(const struct pv_changes *changes, size_t i)
{
        const struct pv_change *it = &changes->item[i];
        const struct pv_change *from =
                it->renamed_from ? pv_changes_find((struct pv_changes *)changes, it->root, it->renamed_from) : NULL;
        return from ? (size_t)(from - changes->item) : NO_CHANGE;
}

static void close_over_renames(struct closure *c)
{
        for (size_t i = 0; i < c->changes->n; i++) {
                size_t k = old_half(c->changes, i);
                if (k == NO_CHANGE)
                        continue;
                if (c->selected[i] && may_join(c, k))
                        take(c, k);
                if (c->selected[k] && may_join(c, i))
                        take(c, i);
        }
}

/* Of a rename, what would lose the file without the half that stays. */
static bool hold_halves(const struct pv_changes *changes, const struct pv_halves *h)
{
        bool grew = false;
        for (size_t i = 0; i < changes->n; i++) {
                size_t k = old_half(changes, i);
                if (k == NO_CHANGE)
                        continue;
                size_t half = h->lone == PV_CHANGE_DELETED ? k : i, other = half == k ? i : k;
                if (!h->held[half] && (h->barred[other] || h->held[other]))
                        grew = h->held[half] = true;
        }
        return grew;
}

/* A directory goes with all that was in it or stays with it: what stays of it holds back the whole. */
static bool hold_directories(const struct pv_changes *changes, const struct pv_halves *h)
{
        bool grew = false;
        pv_auto_free bool *stays = pv_calloc(changes->n + 1, sizeof *stays);
        struct closure c = { .changes = changes, .selected = stays };
        for (size_t i = 0; i < changes->n; i++)
                stays[i] = changes->item[i].kind == PV_CHANGE_DELETED && (h->barred[i] || h->held[i]);
        do {
                c.grew = false;
                close_over_directories(&c);
        } while (c.grew);
        for (size_t i = 0; i < changes->n; i++) {
                grew |= stays[i] && !h->held[i];
                h->held[i] |= stays[i];
        }
        return grew;
}

static void hold_back(const struct pv_changes *changes, bool *selected, const struct pv_halves *h)
{
        memset(h->held, 0, changes->n * sizeof *h->held);
        for (bool grew = true; grew;) {
                grew = hold_halves(changes, h);
                grew |= hold_directories(changes, h);
        }
        for (size_t i = 0; i < changes->n; i++)
                selected[i] &= !h->held[i];
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
void pv_close_over_needs(const struct pv_changes *changes, bool *selected)
{
        struct closure c = { .changes = changes, .selected = selected };
        do {
                c.grew = false;
                close_over_directories(&c);
                close_over_links(&c);
        } while (c.grew);
}

int pv_apply_close_selection(const struct pv_changes *changes, bool *selected, const struct pv_halves *halves,
                             struct pv_err *err)
{
        struct closure c = { .changes = changes, .selected = selected, .halves = halves };
        for (size_t i = 0; i < changes->n; i++)
                if (selected[i] && changes->item[i].path == NULL)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "a selected change has no path");
        if (halves)
                hold_back(changes, selected, halves);
        do {
                c.grew = false;
                pv_close_over_needs(changes, selected);
                close_over_renames(&c);
        } while (c.grew);
        return 0;
}
