/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over a root's layers: every path that some layer says something about, merged newest first, beside what the
 * host has there; and what the host has below directories that the layers delete or replace. In the order of a change
 * list: parents before children, a directory's entries by their bytes.
 *
 * What the command left in the layers is hostile: any name, depth, number, mode. The walk uses no recursion, a bounded
 * number of descriptors, and memory for one directory's names a level.
 */
#ifndef PV_STAGE_SCAN_H
#define PV_STAGE_SCAN_H

#include "stage/facts.h"
#include "stage/state.h"

enum pv_scan_flags {
        PV_SCAN_OPAQUE = 1 << 0,     /* a staged directory that hides all that the host's has */
        PV_SCAN_HIDDEN = 1 << 1,     /* only the host has it; a directory above is opaque */
        PV_SCAN_IMPLIED = 1 << 2,    /* only the host has it; a directory above is deleted or replaced */
        PV_SCAN_TOO_LONG = 1 << 3,   /* no path can name it (PATH_MAX); what is in it is left out */
        PV_SCAN_UNREADABLE = 1 << 4, /* a directory that cannot be read: what is in it is left out */
        PV_SCAN_OPENED =
                1 << 5, /* a staged directory above, or itself, has rights that the walk takes back behind it */
};

struct pv_scan_entry {
        const char *path; /* relative to the root; "" is the root itself; valid during the call */
        size_t len;
        const char *name; /* its last component, in the directories below; "" for the root */
        unsigned flags;
        unsigned layer;       /* that decides; of HIDDEN and IMPLIED the one of the directory that does */
        struct pv_facts now;  /* staged; mode 0: a whiteout, HIDDEN or IMPLIED */
        struct pv_facts host; /* what the host has now */
        int staged_dir;       /* where name is in that layer; -1 */
        int host_dir;         /* where name is on the host; -1 */
};

struct pv_scan_visitor {
        /* 0, or -1 with err to end the walk. */
        int (*visit)(void *ctx, const struct pv_scan_entry *e, struct pv_err *err);
        /* Whether what is below a directory is walked, too. NULL: always. */
        bool (*enter)(void *ctx, const char *path, size_t len);
        void *ctx;
        struct pv_arena *text; /* for targets of links; the walk leaves them there */
        /*
         * Directories whose renaming was cut off when the command was killed (PV_NAME_RENAMING) are not told of, nor is
         * what is in them; their paths are added here, unless it is NULL.
         */
        struct pv_strv *unfinished;
};

int pv_scan_root(struct pv_stage *s, size_t root, const struct pv_scan_visitor *v, struct pv_err *err);

/* strcmp() of paths in which '/' comes before every other byte: the order of the walk. */
int pv_path_order(const char *a, const char *b);

/* Whether overlayfs copied dir/name up from a lower layer (it may have been renamed since). */
bool pv_scan_has_origin(int dirfd, const char *name);

#endif
