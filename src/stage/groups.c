/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of a layer in which every entry is exchanged, placed or a whiteout: after the batch they hold originals
 * alone, and go into the backup as they are. Worth it, since a rename is the dearest call of a batch.
 */
#include "stage/build.h"

#include <search.h>
#include <string.h>

#define LEAST 4 /* fewer are moved one by one */

struct group {
        uint32_t root, layer;
        const char *path; /* n bytes of it name the directory */
        size_t n;
        size_t first, exchanged, others;
        bool fits; /* decided once all its items were seen */
};

static int compare_groups(const void *a, const void *b)
{
        const struct group *x = a, *y = b;
        if (x->root != y->root)
                return x->root < y->root ? -1 : 1;
        if (x->layer != y->layer)
                return x->layer < y->layer ? -1 : 1;
        if (x->n != y->n)
                return x->n < y->n ? -1 : 1;
        return memcmp(x->path, y->path, x->n);
}

static bool could_be_grouped(const struct pv_item *it)
{
        return it->op == PV_OP_EXCHANGE && it->at == PV_AT_LAYER;
}

static struct group key_of(const struct pv_item *it)
{
        const char *slash = strrchr(it->path, '/');
        return (struct group){
                .root = it->root, .layer = it->layer, .path = it->path, .n = slash ? (size_t)(slash - it->path) : 0
        };
}

static void count(void **groups, struct group **last, const struct pv_item *it, size_t i)
{
        struct group key = key_of(it);
        if (!*last || compare_groups(*last, &key) != 0) {
                struct group **found = tfind(&key, groups, compare_groups);
                if (!found) {
                        struct group *g = pv_calloc(1, sizeof *g);
                        *g = key;
                        g->first = SIZE_MAX;
                        found = tsearch(g, groups, compare_groups);
                }
                *last = found ? *found : NULL;
        }
        if (!*last)
                return;
        if (could_be_grouped(it)) {
                (*last)->exchanged++;
                (*last)->first = (*last)->first == SIZE_MAX ? i : (*last)->first;
        } else {
                (*last)->others++;
        }
}

static bool fits(struct pv_engine *e, const struct pv_changes *changes, const struct group *g)
{
        size_t have;
        struct pv_place at;
        if (g->n == 0 || g->exchanged < LEAST)
                return false;
        pv_auto_free char *path = pv_strndup(g->path, g->n);
        /* One that is a change itself is needed where it is. */
        if (pv_changes_find((struct pv_changes *)(uintptr_t)changes, g->root, path) ||
            pv_place_layer(e, g->root, g->layer, path, &at) < 0 || pv_tree_count_entries(at.dirfd, at.name, &have) < 0)
                return false;
        return have == g->exchanged + g->others;
}

void pv_build_groups(struct pv_engine *e, const struct pv_changes *changes)
{
        struct pv_plan_list *p = e->plan;
        void *groups = NULL;
        struct group *last = NULL;
        /* What is staged of a merged file is needed for an undo: not counted, it keeps its directory from fitting. */
        for (size_t i = 0; i < p->n; i++)
                if ((p->item[i].op == PV_OP_EXCHANGE || p->item[i].op == PV_OP_PLACE ||
                     p->item[i].op == PV_OP_REMOVE) &&
                    !(p->item[i].flags & PV_ITEM_MERGED))
                        count(&groups, &last, &p->item[i], i);
        for (size_t i = 0; i < p->n; i++) {
                struct pv_item *it = &p->item[i];
                struct group key = key_of(it),
                             **found = could_be_grouped(it) ? tfind(&key, &groups, compare_groups) : NULL;
                if (!found)
                        continue;
                if ((*found)->first == i)
                        (*found)->fits = fits(e, changes, *found);
                if ((*found)->fits) {
                        it->flags |= PV_ITEM_GROUPED;
                        it->slot = (uint32_t)(*found)->first;
                }
        }
        tdestroy(groups, free);
}
