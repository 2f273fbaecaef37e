/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stage is in memory, for the files of src/stage alone, and stage.json, where it is kept:
 *
 *   version, id
 *   runs                     how many have begun
 *   roots[]                  kind, target, view; device and inode of the target when the last run began
 *   layers[]                 oldest first: owner (another stage's directory, or null), number there, name of the
 *                            checkpoint that froze it, and the start clock of the last run in it
 *
 * That the last run was sealed is not written here: the preimages of each root then bear its number.
 */
#ifndef PV_STAGE_STATE_H
#define PV_STAGE_STATE_H

#include "stage/stage.h"
#include "stage/startclock.h"

#define PV_STAGE_MAX_ROOTS 64
/* overlayfs takes 500 lower layers; each also costs every look-up in the view. */
#define PV_STAGE_MAX_LAYERS 200

/* In place of stage.json while a stage is made or removed: without either of them a directory is no stage. */
#define PV_STAGE_UNFINISHED "stage.unfinished"

enum pv_stage_state {
        PV_STATE_NEW,     /* nothing was run yet */
        PV_STATE_RUNNING, /* the last run was not sealed; it is over when the lock can be taken */
        PV_STATE_SEALED,
        PV_STATE_REMOVING, /* or never finished being made */
};

struct pv_stage_root {
        struct pv_root root; /* owned */
        struct pv_pathfd target;
        uint64_t dev, ino; /* of the target when the last run began; 0: there was none */
};

struct pv_stage_layer {
        char *from;      /* directory of the stage that owns it; NULL: this one */
        unsigned number; /* in its owner */
        char *name;      /* of the checkpoint that froze it; NULL: none did */
        bool ran;
        struct pv_startclock clock;
        struct timespec *t0; /* one a root */
        int *fd;             /* O_PATH of the directory of each root; -1 until asked for */
};

struct pv_stage {
        char *dir; /* absolute, real */
        struct pv_pathfd fd;
        int lock_fd;
        bool taken;
        bool borrowed;                  /* taken by pv_stage_borrow(), for the while */
        int decide_fd;                  /* locked while it is not -1 */
        bool beside;                    /* opened to decide on it while a command runs in it */
        struct pv_pathfd *beside_views; /* one a root, owned; NULL: there are none */
        char id[33];
        enum pv_stage_state state;
        unsigned runs;
        bool unwritten; /* stage.json is yet to be made */
        enum pv_stage_backend backend;
        struct pv_stage_root *roots;
        size_t n_roots;
        struct pv_stage_layer *layers; /* oldest first; the last one is the upper */
        size_t n_layers;
        unsigned stood_on; /* another stage stands on our own layers below this number */
        struct pv_clockwatch watch;
        struct pv_overlay *overlays; /* handed out, n_roots each; NULL until asked for */
        struct pv_overlay *views;
        char *view_copies; /* where copies of the uppers are that views stand on; NULL: on the uppers */
};

/* A stage with nothing in it; then its roots, then its layers. */
struct pv_stage *pv_stage_new(void);
void pv_stage_add_root(struct pv_stage *s, const struct pv_root *root);
struct pv_stage_layer *pv_stage_add_layer(struct pv_stage *s, const char *from, unsigned number);
static inline struct pv_stage_layer *pv_stage_top(const struct pv_stage *s)
{
        return &s->layers[s->n_layers - 1];
}

/*
 * Whether modes in the layers may be changed for the while: the lock is held, or can be had at once and the stage is
 * sealed; then it is borrowed until pv_stage_give_back().
 */
bool pv_stage_borrow(struct pv_stage *s);
void pv_stage_give_back(struct pv_stage *s);

/*
 * Keeps others from deciding on this stage until it is closed; waits some seconds for one who is about it, then
 * PV_ERR_BUSY. Held already: nothing to do.
 */
int pv_stage_take_decide(struct pv_stage *s, struct pv_err *err);

/* Gives a new stage with roots the oldest n layers of another one to stand on, and a layer of its own on top. */
void pv_stage_stand_on(const struct pv_stage *parent, size_t n, struct pv_stage *child);
/* The same file under another name, instead of what is there; a missing one is none. */
int pv_stage_share_file(int from_dir, const char *from, int to_dir, const char *to, struct pv_err *err);

/* Makes the directories of a new stage with roots and layers in dir and takes its lock; all but stage.json. */
int pv_stage_lay_out(struct pv_stage *s, const char *dir, struct pv_err *err);

/* Notes that owners matter here that are not the person's own ids: pv_stage_own_files(). */
void pv_stage_note_other_ids(struct pv_stage *s);

void pv_overlays_free(struct pv_overlay *o, size_t n);

/* Whether the directory has an entry that no stage has; the first one is named in err (PV_ERR_STATE). */
int pv_stage_check_names(const struct pv_stage *s, struct pv_err *err);
/* Whether what has no stage.json is a stage all the same, half made or half removed; else PV_ERR_INPUT. */
int pv_stage_check_unfinished(const struct pv_stage *s, struct pv_err *err);

/* stage.json of the directory, to and from memory. Writing needs the lock. */
int pv_stage_write_state(struct pv_stage *s, struct pv_err *err);
int pv_stage_read_state(struct pv_stage *s, struct pv_err *err);

#endif
