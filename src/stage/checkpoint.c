/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints and forks. Freezing is starting a new upper on top; what is frozen is never written again but by taking
 * applied changes out of it, and not even that once another stage stands on it. A fork's stage.json names the layers
 * of its parent (or of the parent's parents) by the directory of their owner, and its own id stands in the
 * dependents/ of each owner, put there before the fork is one. Preimages are never edited in place, so a fork and a
 * checkpoint share the file of the moment by a hard link.
 */
#include <fcntl.h>
#include <string.h>
#include "base/fd.h"
#include "base/file.h"
#include "stage/baseline.h"
#include "stage/layers.h"
#include "stage/snapshot.h"

#define PREIMAGES_MAX ((size_t)1 << 30)

static int require_idle(const struct pv_stage *s, struct pv_err *err)
{
        if (s->taken && s->state != PV_STATE_RUNNING && s->state != PV_STATE_REMOVING)
                return 0;
        return pv_err_set(err, PV_ERR_BUSY, 0, "stage %s is in use", s->dir);
}

static int copy_file(int from_dir, const char *from, int to_dir, const char *to, struct pv_err *err)
{
        pv_auto_free char *text = NULL;
        size_t len = 0;
        if (pv_file_read_at(from_dir, from, PREIMAGES_MAX, &text, &len, err) < 0)
                return -1;
        return pv_file_write_at(to_dir, to, text, len, 0600, PV_FILE_REPLACE, err);
}

int pv_stage_share_file(int from_dir, const char *from, int to_dir, const char *to, struct pv_err *err)
{
        if (unlinkat(to_dir, to, 0) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove %s", to);
        if (linkat(from_dir, from, to_dir, to, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EXDEV && errno != EPERM && errno != EMLINK)
                return pv_err_set(err, PV_ERR_SYS, errno, "link %s", to);
        return copy_file(from_dir, from, to_dir, to, err);
}

/* One more than the highest number that a layer of this stage's own has. */
static unsigned next_number(const struct pv_stage *s)
{
        unsigned n = 0;
        for (size_t k = 0; k < s->n_layers; k++)
                if (!s->layers[k].from && s->layers[k].number >= n)
                        n = s->layers[k].number + 1;
        return n;
}

static int freeze(struct pv_stage *s, const char *name, struct pv_err *err)
{
        if (s->n_layers >= PV_STAGE_MAX_LAYERS)
                return pv_err_set(err, PV_ERR_USAGE, 0, "stage %s has %d layers already; no more can be stacked",
                                  s->dir, PV_STAGE_MAX_LAYERS);
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_auto_free char *now = pv_baseline_file(i);
                pv_auto_free char *kept = pv_baseline_snapshot(i, pv_stage_top(s)->number);
                if (pv_stage_share_file(s->fd.fd, now, s->fd.fd, kept, err) < 0)
                        return -1;
        }
        pv_stage_top(s)->name = name ? pv_strdup(name) : NULL;
        (void)pv_stage_add_layer(s, NULL, next_number(s));
        if (pv_layers_make_top(s, err) < 0)
                return -1;
        return pv_stage_write_state(s, err);
}

static size_t find_checkpoint(const struct pv_stage *s, const char *name)
{
        size_t k = 0;
        while (k < s->n_layers && !(s->layers[k].name && pv_streq(s->layers[k].name, name)))
                k++;
        return k;
}

int pv_stage_checkpoint(struct pv_stage *s, const char *name, struct pv_err *err)
{
        if (require_idle(s, err) < 0 || pv_stage_require_targets(s, err) < 0)
                return -1;
        if (!*name || strlen(name) > 255)
                return pv_err_set(err, PV_ERR_USAGE, 0, "a checkpoint's name has 1 to 255 bytes");
        if (find_checkpoint(s, name) < s->n_layers)
                return pv_err_set(err, PV_ERR_USAGE, 0, "there is a checkpoint '%s' already", name);
        return freeze(s, name, err);
}

int pv_stage_checkpoints(const struct pv_stage *s, struct pv_strv *names, struct pv_err *err)
{
        for (size_t k = 0; k < s->n_layers; k++)
                if (s->layers[k].name)
                        pv_strv_add(names, s->layers[k].name);
        return pv_snapshots_list(s, names, err);
}

/* How many of the parent's layers, from the oldest, the fork stands on; freezes the top when it is to be one. */
static int count_layers(struct pv_stage *parent, const char *checkpoint, size_t *n, struct pv_err *err)
{
        if (!checkpoint) {
                *n = parent->n_layers;
                return freeze(parent, NULL, err);
        }
        size_t k = find_checkpoint(parent, checkpoint);
        if (k == parent->n_layers) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "there is no checkpoint '%s'", checkpoint);
                return pv_err_hint(err, "`pvisor checkpoint --list JOB` names those that there are");
        }
        *n = k + 1;
        return 0;
}

void pv_stage_stand_on(const struct pv_stage *parent, size_t n, struct pv_stage *child)
{
        for (size_t k = 0; k < n; k++) {
                const struct pv_stage_layer *l = &parent->layers[k];
                struct pv_stage_layer *mine = pv_stage_add_layer(child, l->from ? l->from : parent->dir, l->number);
                mine->name = l->name ? pv_strdup(l->name) : NULL;
                mine->ran = l->ran;
                mine->clock = l->clock;
                memcpy(mine->t0, l->t0, parent->n_roots * sizeof *l->t0);
        }
        (void)pv_stage_add_layer(child, NULL, 0);
}

/* The preimages of the moment when the newest of the shared layers was frozen, kept by its owner. */
static int share_preimages(struct pv_stage *child, struct pv_err *err)
{
        const struct pv_stage_layer *newest = &child->layers[child->n_layers - 2];
        pv_auto_fd owner = open(newest->from, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (owner < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", newest->from);
        for (size_t i = 0; i < child->n_roots; i++) {
                pv_auto_free char *kept = pv_baseline_snapshot(i, newest->number), *mine = pv_baseline_file(i);
                if (pv_stage_share_file(owner, kept, child->fd.fd, mine, err) < 0)
                        return -1;
        }
        return 0;
}

/* As many as those preimages are the end of: what the fork stands on is sealed, or was never run. */
static int find_runs(struct pv_stage *child, struct pv_err *err)
{
        for (size_t i = 0; i < child->n_roots; i++) {
                struct pv_preimage_reader *r = NULL;
                pv_auto_free char *file = pv_baseline_file(i);
                if (pv_preimages_open(child->fd.fd, file, &r, err) < 0)
                        return -1;
                child->runs = pv_preimages_run(r);
                pv_preimages_close(r);
        }
        child->state = child->runs ? PV_STATE_SEALED : PV_STATE_NEW;
        return 0;
}

static int register_fork(const struct pv_stage *child, struct pv_err *err)
{
        for (size_t k = 0; k + 1 < child->n_layers; k++) /* the highest number of each owner comes last, and stays */
                if (pv_dependents_add(child, child->layers[k].from, child->layers[k].number, err) < 0)
                        return -1;
        return 0;
}

int pv_stage_fork(struct pv_stage *parent, const char *checkpoint, const char *dir, struct pv_stage **out,
                  struct pv_err *err)
{
        size_t n = 0;
        pv_auto_stage child = pv_stage_new();
        if (require_idle(parent, err) < 0 || pv_stage_require_targets(parent, err) < 0 ||
            count_layers(parent, checkpoint, &n, err) < 0)
                return -1;
        for (size_t i = 0; i < parent->n_roots; i++)
                pv_stage_add_root(child, &parent->roots[i].root);
        pv_stage_stand_on(parent, n, child);
        if (pv_stage_lay_out(child, dir, err) < 0 || share_preimages(child, err) < 0 || find_runs(child, err) < 0 ||
            register_fork(child, err) < 0 || pv_stage_write_state(child, err) < 0)
                return -1;
        *out = pv_steal(&child);
        return 0;
}
