/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/rebase.h"

#include <stdlib.h>
#include <string.h>
#include "base/str.h"
#include "stage/baseline.h"
#include "stage/scan.h"

struct rewriting {
        struct pv_preimage_reader *in;
        struct pv_preimage_writer *out;
        const char *path; /* of the next old record; NULL: there is none */
        struct pv_preimage old;
        bool beside; /* it is what landed while the command runs */
        struct pv_err *err;
};

static int next_old(struct rewriting *r)
{
        int k = !r->in ? 0 : pv_preimages_next(r->in, &r->path, &r->old, r->err);
        if (k <= 0)
                r->path = NULL;
        if (k < 0 && r->err->kind == PV_ERR_INPUT) { /* what a damaged file still has is kept */
                pv_err_clear(r->err);
                return 0;
        }
        return k < 0 ? -1 : 0;
}

/* Copies the old records before path, or all. */
static int copy_until(struct rewriting *r, const char *path)
{
        while (r->path && (!path || pv_path_order(r->path, path) < 0))
                if (pv_preimages_put(r->out, r->path, &r->old, r->err) < 0 || next_old(r) < 0)
                        return -1;
        return 0;
}

static int rewrite_path(struct rewriting *r, const struct pv_rebase *p)
{
        if (copy_until(r, p->path) < 0)
                return -1;
        if (r->path && pv_streq(r->path, p->path) && next_old(r) < 0)
                return -1;
        struct pv_preimage new = { .doubt = p->doubt, .landed = p->landed };
        if (!p->facts && !r->beside)
                return 0;
        if (p->facts)
                new.host = *p->facts;
        return pv_preimages_put(r->out, p->path, &new, r->err);
}

static int rewrite_all(struct rewriting *r, unsigned root, const struct pv_rebase *paths, size_t n)
{
        if (next_old(r) < 0)
                return -1;
        for (size_t i = 0; i < n; i++)
                if (paths[i].root == root && rewrite_path(r, &paths[i]) < 0)
                        return -1;
        return copy_until(r, NULL);
}

static int rewrite_file(struct pv_stage *s, const char *file, unsigned root, const struct pv_rebase *paths, size_t n,
                        enum pv_preimage_flags flags, struct pv_err *err)
{
        struct rewriting r = { .err = err };
        int result = -1;
        if (pv_preimages_open(s->fd.fd, file, &r.in, err) < 0) {
                if (err->kind != PV_ERR_INPUT)
                        return -1;
                pv_err_clear(err); /* damaged from the start: it stays so, and doubts all */
                return 0;
        }
        if (pv_preimages_run(r.in) == 0) { /* nothing was recorded yet */
                pv_preimages_close(r.in);
                return 0;
        }
        if (pv_preimages_create(s->fd.fd, file, pv_preimages_run(r.in), &r.out, err) == 0)
                result = rewrite_all(&r, root, paths, n);
        if (result == 0)
                result = pv_preimages_finish(pv_steal(&r.out), flags, err);
        pv_preimages_abandon(r.out);
        pv_preimages_close(r.in);
        return result;
}

int pv_rebase_root(struct pv_stage *s, unsigned root, const struct pv_rebase *paths, size_t n,
                   enum pv_preimage_flags flags, struct pv_err *err)
{
        pv_auto_free char *now = pv_baseline_file(root);
        if (rewrite_file(s, now, root, paths, n, flags, err) < 0)
                return -1;
        for (size_t k = 0; k + 1 < s->n_layers; k++) {
                pv_auto_free char *kept = pv_baseline_snapshot(root, s->layers[k].number);
                if (!s->layers[k].from && rewrite_file(s, kept, root, paths, n, flags, err) < 0)
                        return -1;
        }
        return 0;
}

/*
 * What landed while the command runs. A damaged file is none: it doubts all, and what is written now replaces it. So is
 * one of an earlier run.
 */
static int rewrite_landed(struct pv_stage *s, unsigned root, const struct pv_rebase *paths, size_t n,
                          struct pv_err *err)
{
        struct rewriting r = { .err = err, .beside = true };
        struct pv_err damaged = PV_ERR_INIT;
        pv_auto_free char *file = pv_landed_file(root);
        int result = -1;
        if (pv_preimages_open(s->fd.fd, file, &r.in, &damaged) < 0 && damaged.kind != PV_ERR_INPUT) {
                *err = damaged;
                return -1;
        }
        if (r.in && pv_preimages_run(r.in) != s->runs) {
                pv_preimages_close(r.in);
                r.in = NULL;
        }
        if (pv_preimages_create(s->fd.fd, file, s->runs, &r.out, err) == 0)
                result = rewrite_all(&r, root, paths, n);
        if (result == 0)
                result = pv_preimages_finish(pv_steal(&r.out), PV_PREIMAGE_DURABLE, err);
        pv_preimages_abandon(r.out);
        pv_preimages_close(r.in);
        return result;
}

static int by_path(const void *a, const void *b)
{
        const struct pv_rebase *x = a, *y = b;
        if (x->root != y->root)
                return x->root < y->root ? -1 : 1;
        return pv_path_order(x->path, y->path);
}

void pv_rebase_sort(struct pv_rebase *paths, size_t n)
{
        qsort(paths, n, sizeof *paths, by_path);
}

int pv_stage_rebase(struct pv_stage *s, const struct pv_rebase *paths, size_t n, struct pv_err *err)
{
        pv_auto_free struct pv_rebase *sorted = pv_calloc(n, sizeof *sorted);
        if (n)
                memcpy(sorted, paths, n * sizeof *sorted);
        pv_rebase_sort(sorted, n);
        for (unsigned root = 0; root < s->n_roots; root++) {
                int r = s->state == PV_STATE_RUNNING ? rewrite_landed(s, root, sorted, n, err)
                                                     : pv_rebase_root(s, root, sorted, n, PV_PREIMAGE_DURABLE, err);
                if (r < 0)
                        return pv_err_wrap(err, "stage %s", s->dir);
        }
        return 0;
}
