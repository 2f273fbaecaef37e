/* SPDX-License-Identifier: Apache-2.0 */
/* A view while it is being made, for the files that make it: mounts.c and mounts_overlays.c. */
#ifndef PV_BOUNDARY_MOUNTS_BUILD_H
#define PV_BOUNDARY_MOUNTS_BUILD_H

#include <stdbool.h>
#include "base/err.h"
#include "base/path.h"
#include "boundary/mounts.h"
#include "boundary/scratch.h"

struct pv_mounts_build {
        const struct pv_mounts_in *in;
        const struct pv_mounts_job *job; /* NULL until pv_mounts_await_job() */
        struct pv_scratch scratch;
        struct pv_pathfd root;   /* the new root, or the host's */
        struct pv_pathfd parent; /* of the last place that was opened, with its path: the next one is often beside it */
        char *parent_path;
        size_t n_overlays;      /* made, but for staged ones */
        unsigned n_uppers;      /* throw-away uppers made in in->scratch */
        struct pv_pathfd share; /* one overlay of share_base, for all that is shown of it; -1: it cannot be made */
        char *share_base;
        struct pv_pathfd caches; /* the overlay of in->caches; -1 until the first step needs it */
        struct pv_mounts_out *out;
};

/* Before b->job is used. */
int pv_mounts_await_job(struct pv_mounts_build *b, struct pv_err *err);

/* Moves a detached mount to its place in the view, made when it is missing. */
int pv_mounts_attach(struct pv_mounts_build *b, int mount, const char *dst, bool dir, struct pv_err *err);

/* Steps of the view (view.h). */
int pv_mounts_read(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err);
int pv_mounts_stage(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err);
int pv_mounts_cow(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err);
int pv_mounts_cache(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err);

/* A read-only overlay of src, attached to the scratch file system and going with it; *out is its descriptor. */
int pv_mounts_make_share(struct pv_mounts_build *b, const char *src, int *out, struct pv_err *err);

#endif
