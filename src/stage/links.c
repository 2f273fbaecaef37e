/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/links.h"

#include <stdlib.h>
#include <sys/stat.h>
#include "base/str.h"

/* One change whose staged inode has several links. */
struct link {
        unsigned root, layer;
        uint64_t ino;
        size_t item;
};

static int by_inode(const void *a, const void *b)
{
        const struct link *x = a, *y = b;
        if (x->root != y->root)
                return x->root < y->root ? -1 : 1;
        if (x->layer != y->layer)
                return x->layer < y->layer ? -1 : 1;
        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->item < y->item ? -1 : x->item > y->item;
}

static bool is_same_inode(const struct link *a, const struct link *b)
{
        return a->root == b->root && a->layer == b->layer && a->ino == b->ino;
}

/* Links to links, fifos and sockets there are as well. */
static bool has_links(const struct pv_facts *f)
{
        return pv_facts_exist(f) && !S_ISDIR(f->mode) && f->nlink > 1;
}

static struct link *collect(const struct pv_changes *c, size_t *n)
{
        struct link *out = NULL;
        size_t count = 0;
        for (size_t i = 0; i < c->n; i++)
                count += has_links(&c->item[i].now);
        if (count)
                out = pv_calloc(count, sizeof *out);
        *n = 0;
        for (size_t i = 0; i < c->n; i++) {
                const struct pv_change *x = &c->item[i];
                if (has_links(&x->now))
                        out[(*n)++] = (struct link){ x->root, x->layer, x->now.ino, i };
        }
        if (out)
                qsort(out, *n, sizeof *out, by_inode);
        return out;
}

/* Numbers the groups by their first paths. */
static void number_groups(struct pv_changes *c, size_t n_groups)
{
        uint64_t next = 1;
        pv_auto_free uint64_t *number = pv_calloc(n_groups + 1, sizeof *number);
        for (size_t i = 0; i < c->n; i++) {
                uint64_t *group = &c->item[i].link_group;
                if (*group && number[*group] == 0)
                        number[*group] = next++;
                *group = number[*group];
        }
}

void pv_changes_find_links(struct pv_changes *c)
{
        size_t n = 0, kept = 0, group = 0;
        pv_auto_free struct link *link = collect(c, &n);
        for (size_t i = 0, end; i < n; i = end) {
                bool effect = false;
                for (end = i; end < n && is_same_inode(&link[i], &link[end]); end++)
                        effect = effect || !(c->item[link[end].item].flags & PV_CHANGE_LINKED);
                if (end - i < 2 || !effect)
                        continue;
                group++;
                for (size_t k = i; k < end; k++)
                        c->item[link[k].item].link_group = group;
        }
        for (size_t i = 0; i < c->n; i++) {
                bool alone = c->item[i].flags & PV_CHANGE_LINKED && c->item[i].link_group == 0;
                if (!alone)
                        c->item[kept++] = c->item[i];
        }
        c->n = kept;
        number_groups(c, group);
}
