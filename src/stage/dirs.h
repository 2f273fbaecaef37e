/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parents of many paths of a stage, on the host and in each layer, each looked up once (walk.h): one set for each
 * thread that works on them. Inside src/stage only.
 */
#ifndef PV_STAGE_DIRS_H
#define PV_STAGE_DIRS_H

#include "stage/layers.h"
#include "stage/walk.h"

struct pv_dirs {
        struct pv_stage *s;     /* borrowed; NULL: there are none */
        struct pv_walk *target; /* one a root */
        struct pv_walk **layer; /* [root][layer] */
};

/* Opens the layers' directories where they are not; after that, sets may be made on any thread. */
void pv_dirs_init(struct pv_dirs *d, struct pv_stage *s);
void pv_dirs_fini(struct pv_dirs *d);
#define pv_auto_dirs __attribute__((cleanup(pv_dirs_fini))) struct pv_dirs
/* Forgets open directories: some were moved. */
void pv_dirs_reset(struct pv_dirs *d);

/* As pv_walk_parent(). -1 with errno. */
int pv_dirs_target(struct pv_dirs *d, size_t root, const char *path, const char **name);
int pv_dirs_layer(struct pv_dirs *d, size_t root, size_t layer, const char *path, const char **name);

#endif
