/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing: at the end of a run, the preimages of all that its layers touch are taken and kept. What a seal costs is
 * one look at each changed path in the layer and on the host, and reading what the host had there: at most 64 MiB, in
 * files of at most 1 MiB (docs/decisions/0041). Nothing is synced: see startclock.c.
 */
#include "stage/baseline.h"
#include "stage/scan.h"
#include "stage/state.h"

struct sealing {
        struct pv_baseline *base;
        struct pv_preimage_writer *out;
};

static int seal_entry(void *ctx, const struct pv_scan_entry *e, struct pv_err *err)
{
        struct sealing *s = ctx;
        struct pv_preimage p;
        if (e->flags & PV_SCAN_TOO_LONG)
                return 0; /* cannot be applied */
        if (pv_baseline_resolve(s->base, e, &p, err) < 0)
                return -1;
        return pv_preimages_put(s->out, e->path, &p, err);
}

static int seal_root(struct pv_stage *s, size_t root, struct pv_pathfd view, struct pv_err *err)
{
        pv_auto_free char *file = pv_baseline_file(root);
        pv_auto_arena text = { 0 };
        struct sealing seal = { 0 };
        struct pv_scan_visitor v = { .visit = seal_entry, .ctx = &seal, .text = &text };
        if (pv_baseline_open(s, root, view, PV_BASELINE_HASH, &seal.base, err) < 0)
                return -1;
        int r = pv_preimages_create(s->fd.fd, file, s->runs, &seal.out, err);
        if (r == 0)
                r = pv_scan_root(s, root, &v, err);
        if (r == 0)
                r = pv_preimages_finish(pv_steal(&seal.out), PV_PREIMAGE_CACHED, err);
        pv_preimages_abandon(seal.out);
        pv_baseline_close(seal.base);
        return r;
}

int pv_stage_seal(struct pv_stage *s, const struct pv_pathfd *views, struct pv_err *err)
{
        if (s->state != PV_STATE_RUNNING)
                return 0;
        if (pv_stage_require_targets(s, err) < 0)
                return -1;
        for (size_t i = 0; i < s->n_roots; i++)
                if (seal_root(s, i, views ? views[i] : (struct pv_pathfd)PV_PATHFD_INIT, err) < 0)
                        return pv_err_wrap(err, "stage %s", s->dir);
        s->state = PV_STATE_SEALED;
        pv_fd_closep(&s->watch.fd);
        return 0;
}
