/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/unsettled.h"

#include <stdalign.h>
#include <string.h>
#include "base/str.h"
#include "stage/preimage.h"
#include "stage/scan.h"

static char *file_of(unsigned root)
{
        return pv_strf(PV_PREIMAGES_FILE "-%u", root);
}

static bool is_taken(const struct pv_changes *c, const bool *selected, const struct pv_unsettled *u)
{
        const struct pv_change *x = pv_changes_find((struct pv_changes *)(uintptr_t)c, u->root, u->path);
        return x && x->flags & PV_CHANGE_SETTLED && selected[x - c->item];
}

int pv_unsettled_save(struct pv_engine *e, const struct pv_changes *changes, const bool *selected, struct pv_err *err)
{
        struct pv_preimage_writer *w = NULL;
        unsigned root = 0;
        int r = 0;
        for (size_t i = 0; changes && i < changes->n_unsettled && r == 0; i++) {
                const struct pv_unsettled *u = &changes->unsettled[i];
                if (!is_taken(changes, selected, u))
                        continue;
                if (w && u->root != root)
                        r = pv_preimages_finish(pv_steal(&w), PV_PREIMAGE_CACHED, err);
                if (r == 0 && !w) {
                        pv_auto_free char *file = file_of(u->root);
                        r = pv_preimages_create(e->slots.fd, file, 1, &w, err);
                        root = u->root;
                }
                if (r == 0)
                        r = pv_preimages_put(w, u->path, &u->pre, err);
        }
        if (w && r == 0)
                r = pv_preimages_finish(pv_steal(&w), PV_PREIMAGE_CACHED, err);
        pv_preimages_abandon(w);
        return r < 0 ? pv_err_wrap(err, "keep what the conflicts were about") : 0;
}

static struct pv_facts *keep_facts(const struct pv_facts *f, struct pv_arena *text)
{
        char *room = pv_arena_bytes(text, sizeof *f + alignof(struct pv_facts));
        struct pv_facts *kept =
                (struct pv_facts *)(((uintptr_t)room + alignof(struct pv_facts) - 1) & ~(alignof(struct pv_facts) - 1));
        *kept = *f;
        if (f->link)
                kept->link = pv_arena_text(text, f->link, strlen(f->link));
        return kept;
}

static int load_root(struct pv_preimage_reader *in, struct pv_rebase *list, size_t n, struct pv_arena *text,
                     struct pv_err *err)
{
        const char *path;
        struct pv_preimage p;
        size_t i = 0;
        for (int k; (k = pv_preimages_next(in, &path, &p, err)) != 0;) {
                if (k < 0)
                        return -1;
                while (i < n && pv_path_order(list[i].path, path) < 0)
                        i++;
                if (i == n || !pv_streq(list[i].path, path))
                        continue;
                list[i].facts = keep_facts(&p.host, text);
                list[i].doubt = p.doubt;
        }
        return 0;
}

int pv_unsettled_load(struct pv_engine *e, struct pv_rebase *list, size_t n, struct pv_arena *text, struct pv_err *err)
{
        for (size_t i = 0, end; i < n; i = end) {
                struct pv_preimage_reader *in = NULL;
                pv_auto_free char *file = file_of(list[i].root);
                for (end = i; end < n && list[end].root == list[i].root;)
                        end++;
                int r = pv_preimages_open(e->slots.fd, file, &in, err);
                if (r == 0)
                        r = load_root(in, list + i, end - i, text, err);
                pv_preimages_close(in);
                if (r < 0)
                        return pv_err_wrap(err, "batch %s", e->plan->head.of);
        }
        return 0;
}
