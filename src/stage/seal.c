/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing: at the end of a run the preimages of all that its layers touch are taken and kept. Whoever decided on it
 * while it went on is done by then, or dead and what they left is finished. What a seal costs is one look at each
 * changed path in the layer and on the host, and reading what the host had there: at most 64 MiB, in files of at most
 * 1 MiB (docs/decisions/0041). Nothing is synced: see startclock.c.
 */
#include "stage/apply.h"
#include "base/path.h"
#include "stage/baseline.h"
#include "stage/layers.h"
#include "stage/scan.h"
#include "stage/state.h"

struct sealing {
        struct pv_baseline *base;
        struct pv_preimage_writer *out;
        bool last_try;  /* go on where a directory cannot be read */
        bool closed;    /* one could not, and the walk was ended */
        bool other_ids; /* something belongs to another group or owner */
};

static bool is_others(const struct pv_facts *f)
{
        return pv_facts_exist(f) && (f->uid != geteuid() || f->gid != getegid());
}

static int seal_entry(void *ctx, const struct pv_scan_entry *e, struct pv_err *err)
{
        struct sealing *s = ctx;
        struct pv_preimage p;
        if (e->flags & PV_SCAN_TOO_LONG)
                return 0; /* cannot be applied */
        if (e->flags & PV_SCAN_UNREADABLE && !s->last_try) {
                s->closed = true;
                return -1;
        }
        if (pv_baseline_resolve(s->base, e, &p, err) < 0)
                return -1;
        s->other_ids = s->other_ids || is_others(&e->host) || is_others(&e->now);
        return pv_preimages_put(s->out, e->path, &p, err);
}

/* What was decided on while the command ran stays so, also where the layers say nothing of it any more. */
static int seal_passed(void *ctx, const char *path, const struct pv_preimage *p, struct pv_err *err)
{
        struct sealing *s = ctx;
        return pv_preimages_put(s->out, path, p, err);
}

/* What cannot be removed now is not shown either. */
static void remove_unfinished(struct pv_stage *s, size_t root, const struct pv_strv *paths)
{
        for (size_t i = 0; i < paths->n; i++) {
                struct pv_err ignored = PV_ERR_INIT;
                const char *name = NULL;
                pv_auto_pathfd parent = PV_PATHFD_INIT;
                if (pv_path_open_parent(pv_layer_fd(s, root, s->n_layers - 1), paths->v[i], &parent, &name) == 0)
                        (void)pv_path_remove_tree(parent.fd, name, &ignored);
        }
}

static int try_root(struct sealing *seal, struct pv_stage *s, size_t root, struct pv_pathfd view, struct pv_err *err)
{
        pv_auto_free char *file = pv_baseline_file(root);
        pv_auto_arena text = { 0 };
        pv_auto_strv unfinished = { 0 };
        struct pv_scan_visitor v = { .visit = seal_entry, .ctx = seal, .text = &text, .unfinished = &unfinished };
        if (pv_baseline_open(s, root, view, PV_BASELINE_HASH | PV_BASELINE_KEEP, &seal->base, err) < 0)
                return -1;
        int r = pv_preimages_create(s->fd.fd, file, s->runs, &seal->out, err);
        pv_baseline_on_passed(seal->base, seal_passed, seal);
        if (r == 0)
                r = pv_scan_root(s, root, &v, err);
        if (r == 0)
                r = pv_baseline_pass_rest(seal->base, err);
        if (r == 0)
                r = pv_preimages_finish(pv_steal(&seal->out), PV_PREIMAGE_CACHED, err);
        pv_preimages_abandon(pv_steal(&seal->out));
        pv_baseline_close(pv_steal(&seal->base));
        if (r == 0)
                remove_unfinished(s, root, &unfinished);
        return r;
}

/* The host's own directories may be closed to their owner, too: then with rights over them, which is not undone. */
static int seal_root(struct pv_stage *s, size_t root, struct pv_pathfd view, struct pv_err *err)
{
        struct sealing seal = { 0 };
        int r = try_root(&seal, s, root, view, err);
        if (seal.other_ids)
                pv_stage_note_other_ids(s);
        if (r == 0 || !seal.closed)
                return r;
        pv_stage_own_files(s->dir);
        seal = (struct sealing){ .last_try = true };
        return try_root(&seal, s, root, view, err);
}

int pv_stage_seal(struct pv_stage *s, const struct pv_pathfd *views, struct pv_err *err)
{
        if (s->state != PV_STATE_RUNNING)
                return 0;
        const char *did;
        if (pv_stage_require_targets(s, err) < 0)
                return -1;
        if (pv_stage_take_decide(s, err) < 0 && err->kind == PV_ERR_BUSY)
                return -1;
        pv_err_clear(err); /* where no file can be made nobody could decide */
        if (pv_apply_recover(s, &did, err) < 0)
                return -1;
        for (size_t i = 0; i < s->n_roots; i++)
                if (seal_root(s, i, views ? views[i] : (struct pv_pathfd)PV_PATHFD_INIT, err) < 0)
                        return pv_err_wrap(err, "stage %s", s->dir);
        s->state = PV_STATE_SEALED;
        pv_fd_closep(&s->watch.fd);
        return 0;
}
