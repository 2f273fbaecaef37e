/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/dirs.h"

#include <errno.h>
#include <stdlib.h>

void pv_dirs_init(struct pv_dirs *d, struct pv_stage *s)
{
        *d = (struct pv_dirs){ .s = s,
                               .target = pv_calloc(s->n_roots, sizeof *d->target),
                               .layer = pv_calloc(s->n_roots, sizeof *d->layer) };
        for (size_t r = 0; r < s->n_roots; r++) {
                pv_walk_init(&d->target[r], s->roots[r].target);
                d->layer[r] = pv_calloc(s->n_layers, sizeof *d->layer[r]);
                for (size_t k = 0; k < s->n_layers; k++)
                        pv_walk_init(&d->layer[r][k], pv_layer_fd(s, r, k));
        }
}

void pv_dirs_fini(struct pv_dirs *d)
{
        for (size_t r = 0; d->s && r < d->s->n_roots; r++) {
                pv_walk_fini(&d->target[r]);
                for (size_t k = 0; k < d->s->n_layers; k++)
                        pv_walk_fini(&d->layer[r][k]);
                free(d->layer[r]);
        }
        free(d->target);
        free(d->layer);
        *d = (struct pv_dirs){ 0 };
}

void pv_dirs_reset(struct pv_dirs *d)
{
        for (size_t r = 0; r < d->s->n_roots; r++) {
                pv_walk_reset(&d->target[r]);
                for (size_t k = 0; k < d->s->n_layers; k++)
                        pv_walk_reset(&d->layer[r][k]);
        }
}

int pv_dirs_target(struct pv_dirs *d, size_t root, const char *path, const char **name)
{
        return pv_walk_parent(&d->target[root], path, name);
}

int pv_dirs_layer(struct pv_dirs *d, size_t root, size_t layer, const char *path, const char **name)
{
        if (layer >= d->s->n_layers) {
                errno = ENOENT;
                return -1;
        }
        return pv_walk_parent(&d->layer[root][layer], path, name);
}
