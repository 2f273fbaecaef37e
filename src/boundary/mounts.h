/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the steps of a view: builds the mounts, enters them, checks that what must be read-only is. */
#ifndef PV_BOUNDARY_MOUNTS_H
#define PV_BOUNDARY_MOUNTS_H

#include "base/err.h"
#include "boundary/userns.h"
#include "boundary/view.h"
#include "policy/plan.h"

/* What of it comes with the job. */
struct pv_mounts_job {
        const struct pv_overlay *overlays; /* STAGE steps index these */
        size_t n_overlays;
        const struct pv_cache_layer *caches; /* CACHE steps are parts of it; NULL: they are as the rest of HOME */
        const char *scratch; /* host directory for throw-away uppers where tmpfs cannot carry them; or NULL */
        const char *canary;  /* host directory to show as a `read` mount to the probes alone; or NULL */
};

struct pv_mounts_in {
        const struct pv_view *view;
        const struct pv_idmap *ids; /* of this user namespace, for the overlays that are served by FUSE */
        /* Asked once, at the first step that cannot do without: may wait. NULL: err is set. */
        const struct pv_mounts_job *(*await_job)(void *ctx, struct pv_err *err);
        void *ctx;
};

/* More are not worth it. */
#define PV_MOUNTS_HELD 4

/* Descriptors, -1 before the call; the caller's to close. */
struct pv_mounts_out {
        int *staged; /* as many as there are overlays: O_PATH of the mounted view of each overlay */
        int sysctl;  /* O_PATH of sys of the namespace's own proc, below what makes it read-only: pid 1's alone */
        int share;   /* O_PATH of the canary's mount, which is at no place of the view */
        int held[PV_MOUNTS_HELD]; /* O_PATH of overlays that the supervisor should dissolve (mounts_overlays.c) */
        bool caches_lost;         /* the layer could not be mounted: they are as the rest of HOME */
};

/*
 * Builds the view and makes it the root of the calling process.
 * Must: be the first process of its pid namespace, in a mount namespace of its own whose user namespace it has all
 * capabilities in. Mustn't: have threads. PV_ERR_UNSUPPORTED where this kernel or container refuses such mounts.
 */
int pv_mounts_enter(const struct pv_mounts_in *in, struct pv_mounts_out *out, struct pv_err *err);

/*
 * Reads the mount table from inside and holds it against the view: each mount below a read-only step must be
 * read-only, whatever brought it there. Only for PV_VIEW_NEW_ROOT. PV_ERR_UNSUPPORTED names the first that is not.
 */
int pv_mounts_verify(const struct pv_view *view, struct pv_err *err);

#endif
