/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/renames.h"

#include <string.h>
#include <sys/stat.h>
#include "base/str.h"

static bool is_below(const struct pv_change *c, const struct pv_change *dir)
{
        size_t n = strlen(dir->path);
        return c->root == dir->root && strncmp(c->path, dir->path, n) == 0 && c->path[n] == '/';
}

/* Where change i was before: by its own record, or by that of the renamed directory it lies in. The caller's. */
static char *old_path(const struct pv_changes *c, size_t i, size_t dir)
{
        const struct pv_change *one = &c->item[i];
        if (one->renamed_from)
                return pv_strdup(one->renamed_from);
        if (dir == PV_NO_CHANGE)
                return NULL;
        return pv_strf("%s%s", c->item[dir].renamed_from, one->path + strlen(c->item[dir].path));
}

static void match(struct pv_changes *c, const bool *selected, size_t i, const char *from, struct pv_renames *out)
{
        const struct pv_change *old = pv_changes_find(c, c->item[i].root, from);
        if (!old || old->kind != PV_CHANGE_DELETED || (old->pre.mode & S_IFMT) != (c->item[i].now.mode & S_IFMT))
                return;
        size_t k = (size_t)(old - c->item);
        if (out->now[k] != PV_NO_CHANGE || (selected && (!selected[i] || !selected[k])))
                return;
        out->old[i] = k;
        out->now[k] = i;
}

void pv_renames_find(const struct pv_changes *c, const bool *selected, struct pv_renames *out)
{
        size_t dir = PV_NO_CHANGE;
        *out = (struct pv_renames){ .n = c->n };
        out->old = pv_calloc(c->n, sizeof *out->old);
        out->now = pv_calloc(c->n, sizeof *out->now);
        memset(out->old, 0xff, c->n * sizeof *out->old);
        memset(out->now, 0xff, c->n * sizeof *out->now);
        for (size_t i = 0; i < c->n; i++) {
                const struct pv_change *one = &c->item[i];
                if (dir != PV_NO_CHANGE && !is_below(one, &c->item[dir]))
                        dir = PV_NO_CHANGE;
                if (one->kind != PV_CHANGE_ADDED)
                        continue;
                pv_auto_free char *from = old_path(c, i, dir);
                if (from)
                        match((struct pv_changes *)c, selected, i, from, out);
                if (S_ISDIR(one->now.mode) && one->renamed_from)
                        dir = i;
        }
}

void pv_renames_fini(struct pv_renames *r)
{
        pv_freep(&r->old);
        pv_freep(&r->now);
}
