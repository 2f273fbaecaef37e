/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parents of many paths below one directory, each looked up once. Paths come sorted, so most share their parent with
 * the one before. Every component is opened by itself without following links: a directory that was swapped for a
 * link fails with ENOTDIR or ELOOP, and ".." is refused, so nothing above the root is ever reached. However deep, some
 * sixty descriptors are held at most.
 */
#ifndef PV_STAGE_WALK_H
#define PV_STAGE_WALK_H

#include "base/path.h"
#include "base/str.h"

struct pv_walk {
        struct pv_pathfd root; /* borrowed */
        struct pv_str path;    /* of the parent that is open now, relative to root */
        struct pv_walk_level {
                size_t end; /* of the component in path */
                int fd;     /* -1: closed for the while; the last one never is */
        } * level;          /* owned */
        unsigned depth, cap;
};

void pv_walk_init(struct pv_walk *w, struct pv_pathfd root);
void pv_walk_fini(struct pv_walk *w);
#define pv_auto_walk __attribute__((cleanup(pv_walk_fini))) struct pv_walk

/*
 * The descriptor (O_PATH) of path's parent, valid until the next call, and the last component in *name. For path ""
 * it is the root itself with *name ".". -1 with errno.
 */
int pv_walk_parent(struct pv_walk *w, const char *path, const char **name);
/* Forgets what is open: directories were moved. */
void pv_walk_reset(struct pv_walk *w);

#endif
