/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Apply: one batch of changes, published together, recoverable, undoable. The theory of operation heads apply.c.
 * The stage's lock is held by the caller (PV_STAGE_TAKE); the target's is taken inside.
 */
#ifndef PV_STAGE_APPLY_H
#define PV_STAGE_APPLY_H

#include <stdbool.h>
#include "stage/change.h"

/*
 * How the processes of a running job are held still for the while: nothing of it runs between a freeze() that returned
 * 0 and thaw(). thaw() may be called without.
 */
struct pv_freezer {
        void *ctx;
        int (*freeze)(void *ctx, struct pv_err *err);
        void (*thaw)(void *ctx);
};

struct pv_apply_options {
        bool keep_times; /* published files keep the command's times, else they get the time of the apply */
        bool dry_run;    /* all checks, nothing changed */
        const struct pv_freezer *freezer; /* of a stage opened with PV_STAGE_DECIDE; else NULL */
        /*
         * Or NULL. Called when everything was checked and nothing stands in the way, before anything is made: what has
         * to be there before the files are. -1 ends it there. May be called again; not for a dry run.
         */
        int (*checked)(void *ctx, struct pv_err *err);
        void *ctx; /* of checked */
};

/* One path that stood in the way, or that was left partly applied by a rollback the host interfered with. */
struct pv_conflict {
        unsigned root;
        char *path;
        const char *why; /* static */
};

struct pv_apply_result {
        char batch[32]; /* id of the batch, "" when nothing was published */
        size_t applied; /* paths */
        struct pv_conflict *conflicts;
        size_t n_conflicts, cap;
        void *listed;     /* tsearch(3) tree of their roots and paths */
        size_t n_blocked; /* of them, what nobody could apply: the host changed nothing */
        bool weaker;      /* some path went by copy and link + rename: recorded */
        bool partly;      /* the host wrote during the rollback: its versions stay, conflicts lists them */
        bool moved;       /* PV_ERR_BUSY: what is selected belongs, since it was looked at, together with more */
};
void pv_apply_result_fini(struct pv_apply_result *r);
/* Adds one to conflicts; a path that is there keeps its first reason. r NULL: nobody wants to know. why: static. */
void pv_apply_result_add(struct pv_apply_result *r, unsigned root, const char *path, const char *why);
/* Is the path one of its conflicts? */
bool pv_apply_result_has(const struct pv_apply_result *r, unsigned root, const char *path);

/*
 * What a person keeps out. A file that was renamed (renames.h) is two changes, and one half alone would lose it: to
 * apply the deletion and not the new place, to drop the new place and not the deletion. Where barred keeps the other
 * half out, the losing half is held back. So is a deleted directory of which something is barred or held.
 */
struct pv_halves {
        const bool *barred;       /* one a change: must not come along */
        bool *held;               /* filled */
        enum pv_change_kind lone; /* which half is held back: PV_CHANGE_DELETED or PV_CHANGE_ADDED */
};
/*
 * Closes the selection (selected[i] belongs to changes->item[i]) over what belongs together: new parents, hard-link
 * groups, what an opaque or deleted directory hides, both halves of a rename. halves NULL: nothing is barred. Who
 * finds a barred change selected was told that what is selected cannot do without it.
 */
int pv_apply_close_selection(const struct pv_changes *changes, bool *selected, const struct pv_halves *halves,
                             struct pv_err *err);

/* PV_ERR_CONFLICT: result lists them all and nothing was changed (or, named as such, partly: see the theory). */
int pv_apply(struct pv_stage *s, struct pv_changes *changes, const bool *selected,
             const struct pv_apply_options *options, struct pv_apply_result *result, struct pv_err *err);

/* Takes back the newest batch that is not undone yet (batch NULL), or that one. Same errors. */
int pv_undo(struct pv_stage *s, const char *batch, struct pv_apply_result *result, struct pv_err *err);

/* Drops the selected changes from the stage; the target is not touched. */
int pv_drop_changes(struct pv_stage *s, struct pv_changes *changes, const bool *selected, struct pv_err *err);

/* Finishes or takes back a batch that a crash left in this stage. *did: one static sentence, or NULL: none was. */
int pv_apply_recover(struct pv_stage *s, const char **did, struct pv_err *err);

/* Whether one waits for that. */
bool pv_apply_is_unfinished(const struct pv_stage *s);
/* The same for what other stages left on this one's targets. Costs two look-ups a root when there is nothing. */
int pv_apply_recover_targets(struct pv_stage *s, struct pv_err *err);

/* One path of a batch that was given up: which version its place in the target holds, and where the other one lies. */
struct pv_abandoned_path {
        unsigned root;
        char *path;
        bool published; /* it holds the batch's version, else the one from before */
        bool metadata;  /* of a directory: may be either, and there is no other */
        char *other;    /* absolute; NULL: there is none */
};
struct pv_abandoned {
        struct pv_abandoned_path *item;
        size_t n;
        bool readable; /* else nothing is known of the paths */
        char *journal; /* where it is now */
};
void pv_abandoned_fini(struct pv_abandoned *a);
/* Gives up what pv_apply_recover() cannot end: nothing is moved, and nobody is kept from the target any more. */
int pv_apply_abandon(struct pv_stage *s, struct pv_abandoned *out, struct pv_err *err);

/* Batches, oldest first; *out is the caller's to free(). */
struct pv_batch {
        char id[32];
        struct timespec when;
        size_t n_paths;
        bool undone;
        bool damaged; /* what it did is not known any more, but its originals may be there; stands until it is undone */
};
int pv_batches_list(struct pv_stage *s, struct pv_batch **out, size_t *n, struct pv_err *err);
/* Paths of the batches that are not undone, of a damaged one at least one: nobody may take it for nothing. */
size_t pv_batches_count_standing(struct pv_stage *s);

#endif
