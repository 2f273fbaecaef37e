/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: carries out a plan, takes it back, finds out how far a crash let it come. One for apply and undo, since
 * an undo is a plan whose counterparts are the slots of the batch that it takes back. Inside src/stage only.
 */
#ifndef PV_STAGE_ENGINE_H
#define PV_STAGE_ENGINE_H

#include <limits.h>
#include "stage/batch.h"
#include "stage/dirs.h"
#include "stage/ident.h"

struct pv_engine {
        struct pv_stage *s;
        struct pv_plan_list *plan;
        struct pv_apply_result *result; /* conflicts go here */
        struct pv_pathfd slots;         /* backup/<batch>, owned */
        struct pv_dirs dirs;
        unsigned n_layers;                /* 0 is the oldest, the last one the top */
        bool *shared;                     /* [layer]: must stay as it is: another stage's, or the job runs on it */
        bool by_root;                     /* no permission bits stand in the way */
        bool recovering;                  /* what was moved was moved by a process that is gone */
        const struct pv_freezer *freezer; /* holds the job still until the copies are made; or NULL */
        bool bump_known, bump;            /* does an exchange leave the ctime of what goes in? */
};
int pv_engine_init(struct pv_engine *e, struct pv_stage *s, struct pv_plan_list *plan, struct pv_apply_result *result,
                   struct pv_err *err);
void pv_engine_fini(struct pv_engine *e);
#define pv_auto_engine __attribute__((cleanup(pv_engine_fini))) struct pv_engine

/*
 * A second pair of hands for the same batch, on another thread: its items are e's, which no two hands may work on at
 * a time; open directories, conflicts and what is learned of the roots are its own. Borrows from e. Must not open the
 * slots.
 */
struct pv_hand {
        struct pv_engine engine;
        struct pv_plan_list plan;
        struct pv_apply_result result;
};
void pv_hand_init(struct pv_hand *h, const struct pv_engine *e);
void pv_hand_fini(struct pv_hand *h);
#define pv_auto_hand __attribute__((cleanup(pv_hand_fini))) struct pv_hand
/* Conflicts and what was learned become e's. */
void pv_hand_tell(const struct pv_hand *h, struct pv_engine *e);

/* Opens backup/<batch> (of an undo, that of the batch which is taken back), making it first when asked to. */
int pv_engine_open_slots(struct pv_engine *e, bool make, struct pv_err *err);
/* Forgets open directories: some were moved. */
void pv_engine_reset_walks(struct pv_engine *e);

/* A name in a directory. The descriptor is borrowed from a walk: valid until the next place on the same walk. */
struct pv_place {
        int dirfd;
        const char *name;
        char buf[NAME_MAX + 80];
};
#define PV_BESIDE_PREFIX ".pvisor-"
/* -1 with errno. */
int pv_place_target(struct pv_engine *e, const struct pv_item *it, struct pv_place *out);
int pv_place_layer(struct pv_engine *e, uint32_t root, uint32_t layer, const char *path, struct pv_place *out);
int pv_place_slot(struct pv_engine *e, const struct pv_item *it, struct pv_place *out);
/* Where the staged version of a MERGED item is kept: <slot>.job. */
int pv_place_job(struct pv_engine *e, const struct pv_item *it, struct pv_place *out);
/* The directory of the slots of a GROUPED item. */
int pv_place_group(struct pv_engine *e, const struct pv_item *it, struct pv_place *out);
int pv_place_counterpart(struct pv_engine *e, const struct pv_item *it, struct pv_place *out);

/* Renames, or what stands for them where there is no RENAME_EXCHANGE. -1 with errno. */
int pv_move_swap(struct pv_engine *e, const struct pv_item *it, const struct pv_place *a, const struct pv_place *b);
int pv_move_new(struct pv_engine *e, const struct pv_item *it, const struct pv_place *from, const struct pv_place *to);
/* Ends a swap by hand that a crash cut off. */
int pv_move_mend(struct pv_engine *e, const struct pv_item *it, const struct pv_place *beside,
                 const struct pv_place *target);

/*
 * Is the directory that item i moves, at `at` now, exactly its WITHIN items: each what it was, no more and no less?
 * Otherwise the index of the item that is not, or of the directory that holds more, and why (static). Where it came out
 * of the target, no file in it may be open for writing either: what is written would go where nobody looks.
 */
enum pv_look { PV_LOOK_AT_ENTRIES, PV_LOOK_FOR_WRITERS };
bool pv_tree_is_exact(struct pv_engine *e, size_t i, const struct pv_place *at, enum pv_look look, size_t *culprit,
                      const char **why);
/* Entries of dirfd/name but "." and ".."; -1 with errno. */
int pv_tree_count_entries(int dirfd, const char *name, size_t *n);
/* Gives the entries of a moved tree the batch's time and takes the overlay's marks off, or the reverse. */
int pv_tree_prepare(struct pv_engine *e, size_t i, const struct pv_place *at, struct pv_err *err);
int pv_tree_restore(struct pv_engine *e, size_t i, const struct pv_place *at, struct pv_err *err);
/* One entry of them. */
int pv_item_prepare(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, struct pv_err *err);
int pv_item_restore(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, struct pv_err *err);

enum pv_publish_outcome {
        PV_PUBLISHED,
        PV_PUBLISH_CONFLICT, /* the host was faster; result says where */
        PV_PUBLISH_RETRY,    /* renames do not work as planned: head.root_mode was set, plan again */
        PV_PUBLISH_FAILED,   /* err says why */
};
/* Carries out all items. After anything but PV_PUBLISHED the caller rolls back. */
enum pv_publish_outcome pv_publish(struct pv_engine *e, struct pv_err *err);
/* What came out of the target with item i: unchanged, and nobody writing to it? */
bool pv_publish_verify(struct pv_engine *e, size_t i, size_t *culprit, const char **why);
/*
 * Takes back what is DONE. Items whose target the host changed meanwhile become KEPT and are listed as conflicts. -1:
 * something could not be moved back; the journal must stay for the next try.
 */
int pv_rollback(struct pv_engine *e, struct pv_err *err);
/* Sets the state of each item from what lies where. *all_done: everything but metadata is published. */
void pv_find_states(struct pv_engine *e, bool *all_done);

/*
 * Directories without write permission: opened up, and given their mode back: that of before the batch, or the one
 * that a META item gave to them.
 */
enum pv_access_when { PV_ACCESS_BEFORE, PV_ACCESS_AFTER };
int pv_access_open(struct pv_engine *e, enum pv_access_when when, struct pv_err *err);
int pv_access_restore(struct pv_engine *e, enum pv_access_when when, struct pv_err *err);

/* META items. */
int pv_meta_publish(struct pv_engine *e, const struct pv_item *it, const char **conflict, struct pv_err *err);
int pv_meta_rollback(struct pv_engine *e, struct pv_item *it, struct pv_err *err);

/*
 * Before anything is published: the originals that no rename brings into the backup, since it lies on another file
 * system, are copied there. What came out is checked as ever, so a copy of what the host wrote meanwhile is of no harm.
 */
bool pv_keep_has_copies(const struct pv_plan_list *p);
int pv_keep_copies_first(struct pv_engine *e, struct pv_err *err);

/*
 * After a batch is committed: originals go into the backup, the stage keeps what was not applied. Only items that are
 * DONE or KEPT count. changes and selected are those of the plan; NULL: they are made from it (recovery). Doing it
 * twice is harmless.
 */
int pv_settle_apply(struct pv_engine *e, const struct pv_changes *changes, const bool *selected, struct pv_err *err);
/* After an undo: what came out of the target is staged again, the baseline is what the target holds now. */
int pv_settle_undo(struct pv_engine *e, const struct pv_plan_list *record, struct pv_err *err);

#endif
