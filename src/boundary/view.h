/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view: what the command sees of the file system, as an ordered list of typed steps. root.c makes the list from
 * the plan, mounts.c carries it out, landlock.c derives its allow-list from it, --dry-run prints it. A later step
 * covers an earlier one where their paths overlap.
 */
#ifndef PV_BOUNDARY_VIEW_H
#define PV_BOUNDARY_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "base/str.h"

enum pv_view_op {
        PV_VIEW_DIR,     /* an empty directory of the new root, read-only */
        PV_VIEW_LINK,    /* a symbolic link of the new root; src is its text */
        PV_VIEW_PRIVATE, /* an empty writable directory, gone at the end */
        PV_VIEW_SEAL,    /* makes the private directory at dst read-only, now that its entries are there */
        PV_VIEW_SYSTEM,  /* src and what is mounted below it, read-only, by bind: holds no sockets or FIFOs of others */
        PV_VIEW_FILE,    /* one regular file, read-only, by bind */
        PV_VIEW_TEXT,    /* a file of the run's own, read-only; src is what is in it */
        PV_VIEW_COPY,    /* one small regular file, copied: private and writable */
        PV_VIEW_READ,    /* src read-only through a lower-only overlay, so that sockets and FIFOs in it are inert */
        PV_VIEW_WRITE,   /* src and what is mounted below it, as it is */
        PV_VIEW_STAGE,   /* the staged root `index` of the plan */
        PV_VIEW_COW,     /* a copy-on-write view of src, thrown away at the end */
        PV_VIEW_KEPT,    /* src, a directory of pVisor's own, writable, there in later runs too */
        PV_VIEW_CACHE,   /* the part of HOME's cache layer (pv_cache_layer) at src, writable and kept */
        PV_VIEW_MASK,    /* nothing, read-only, over the file or directory that is there */
        PV_VIEW_DEVICE,  /* one device node */
        PV_VIEW_PTS,     /* an own devpts instance */
        PV_VIEW_PROC,    /* the pid namespace's own proc, its host-wide parts read-only */
        PV_VIEW_OPS
};

struct pv_view_step {
        enum pv_view_op op;
        char *dst;    /* absolute path in the view */
        char *src;    /* absolute host path (a link's text for LINK, a file's for TEXT); NULL where there is none */
        mode_t mode;  /* of PRIVATE and DIR */
        size_t index; /* STAGE: of plan->roots and of the overlays */
        struct pv_strv masks; /* READ, STAGE, COW, CACHE: relative to src, hidden whenever they appear */
};

enum pv_view_base {
        PV_VIEW_HOST,    /* the steps are laid over the host's own root */
        PV_VIEW_NEW_ROOT /* the steps are all there is */
};

struct pv_view {
        enum pv_view_base base;
        struct pv_view_step *v;
        size_t n;
        struct pv_strv absent; /* absolute paths of secrets that exist on the host and must not be found in the view */
};

void pv_view_fini(struct pv_view *view);
#define pv_auto_view __attribute__((cleanup(pv_view_fini))) struct pv_view

/* Appends a step and returns it, valid until the next one is added. src may be NULL. */
struct pv_view_step *pv_view_add(struct pv_view *view, enum pv_view_op op, const char *src, const char *dst);

/* "read", "stage", ... */
const char *pv_view_op_name(enum pv_view_op op);

/* Must the mount of such a step be read-only? Verified after building. */
bool pv_view_op_is_read_only(enum pv_view_op op);

/* The last step whose dst is path or above it: the one that decides what is at path. NULL when there is none. */
const struct pv_view_step *pv_view_at(const struct pv_view *view, const char *path);

#endif
