/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of a stage's layers, and who else stands on them. For the files of src/stage. */
#ifndef PV_STAGE_LAYERS_H
#define PV_STAGE_LAYERS_H

#include "stage/state.h"

/* The absolute path of a layer's directory for a root. The caller's. */
char *pv_layer_path(const struct pv_stage *s, size_t root, size_t layer);

/* Its descriptor, borrowed; opened at the first call. {-1} with errno when it cannot be. */
struct pv_pathfd pv_layer_fd(struct pv_stage *s, size_t root, size_t layer);

/* Opens them all: a missing one is PV_ERR_INPUT naming it. */
int pv_layers_open(struct pv_stage *s, struct pv_err *err);

/* Directories in layers whose owner had closed them to themselves, opened up until pv_layers_close_up(). */
struct pv_opened {
        struct pv_opened_dir {
                size_t root, layer;
                char *path;
                mode_t mode;
        } * dir;
        size_t n;
};

/*
 * Opens a directory of a layer for reading. Where modes forbid it or the way to it, they are changed and noted in
 * opened (NULL: they are not). -1 with errno.
 */
int pv_layer_open_dir(struct pv_stage *s, size_t root, size_t layer, const char *path, struct pv_opened *opened);
/* Gives back the modes of those that are still there; frees the list. */
void pv_layers_close_up(struct pv_stage *s, struct pv_opened *opened);

/* What a layer says of a path to the layers below it and to the host. */
enum pv_layer_word {
        PV_LAYER_NOTHING, /* they decide */
        PV_LAYER_ENTRY,   /* an entry of its own; a directory may go on with theirs */
        PV_LAYER_GONE,    /* a whiteout */
        PV_LAYER_HIDDEN,  /* something above the path is opaque or no directory: there is nothing, whatever they have */
};
/* What cannot be looked at is PV_LAYER_HIDDEN: it is left as it is. */
enum pv_layer_word pv_layer_look(struct pv_stage *s, size_t root, size_t layer, const char *path);
/* Whether the layers below this one show an entry at that path. */
bool pv_layers_show_below(struct pv_stage *s, size_t root, size_t layer, const char *path);

/*
 * Makes the directory of the newest layer for each root, empty and looking like the target's own directory: what the
 * command sees of it (mode, owner, attributes) is the upper's.
 */
int pv_layers_make_top(struct pv_stage *s, struct pv_err *err);

#define PV_LAYER_OPAQUE "user.overlay.opaque"
/* Whether a directory in a layer hides all that the layers below it and the host have there. */
bool pv_layer_is_opaque(int dirfd, const char *name);

/*
 * Makes the directory parent/name with mode, owner, times and attributes of the directory `like`. 0, or -1 with
 * errno.
 */
int pv_layer_make_like(int parent, const char *name, int like);

/*
 * Marks a directory of a layer as one that merges with what lies below, as overlayfs marks those that it copies up: its
 * whiteouts are then no names even where the host has nothing there any more. A filesystem that refuses the mark has
 * none of overlayfs's directories either.
 */
void pv_layer_mark_merged(int parent, const char *name);

/*
 * Stages that stand on layers of this one: files in dependents/, named by the id of the stage that stands on them. A
 * stage that is gone, or another one in its place, does not count. Sets *up_to to one more than the highest of our
 * layer numbers that somebody stands on (0: nobody).
 */
int pv_dependents_find(const struct pv_stage *s, unsigned *up_to, struct pv_err *err);
/* Notes in the owner's directory that stage s stands on its layers up to this number. */
int pv_dependents_add(const struct pv_stage *s, const char *owner_dir, unsigned number, struct pv_err *err);
void pv_dependents_remove(const struct pv_stage *s, const char *owner_dir);

/*
 * Looks again who stands on this stage. shared[i]: layer i is not this stage's own, another one stands on it, or it
 * runs. An array of n_layers, the caller's.
 */
int pv_layers_find_shared(struct pv_stage *s, bool **shared, struct pv_err *err);

#endif
