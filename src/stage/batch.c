/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/batch.h"

#include <string.h>
#include "stage/scan.h"

void pv_meta_free(struct pv_meta *m)
{
        if (!m)
                return;
        pv_xattrs_fini(&m->xattrs[0]);
        pv_xattrs_fini(&m->xattrs[1]);
        free(m);
}

void pv_landing_free(struct pv_landing *l)
{
        if (l)
                free(l->link);
        free(l);
}

void pv_plan_list_fini(struct pv_plan_list *p)
{
        for (size_t i = 0; i < p->n; i++) {
                pv_meta_free(p->item[i].meta);
                pv_landing_free(p->item[i].landing);
                free(p->item[i].sha256);
                if (p->owns_paths)
                        free((char *)p->item[i].path);
        }
        for (size_t i = 0; i < p->n_access; i++)
                free(p->access[i].path);
        free(p->item);
        free(p->access);
        free(p->head.root_mode);
        *p = (struct pv_plan_list){ 0 };
}

struct pv_item *pv_plan_list_add(struct pv_plan_list *p)
{
        if (p->n == p->cap) {
                p->cap = p->cap ? p->cap + p->cap / 2 : 16;
                p->item = pv_realloc(p->item, p->cap, sizeof *p->item);
        }
        p->item[p->n] = (struct pv_item){ 0 };
        return &p->item[p->n++];
}

size_t pv_plan_list_end(const struct pv_plan_list *p, size_t i)
{
        size_t n = strlen(p->item[i].path), end = i + 1;
        while (end < p->n && p->item[end].root == p->item[i].root &&
               (n == 0 || (strncmp(p->item[end].path, p->item[i].path, n) == 0 && p->item[end].path[n] == '/')))
                end++;
        return end;
}

static int order_items(const void *key, const void *item)
{
        const struct pv_item *a = key, *b = item;
        if (a->root != b->root)
                return a->root < b->root ? -1 : 1;
        return pv_path_order(a->path, b->path);
}

struct pv_item *pv_plan_list_find(const struct pv_plan_list *p, uint32_t root, const char *path)
{
        const struct pv_item key = { .root = root, .path = path };
        return p->n ? bsearch(&key, p->item, p->n, sizeof *p->item, order_items) : NULL;
}
