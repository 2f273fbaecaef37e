/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes: the net effect of a stage's layers on each root, path by path, computed by merging the layers
 * newest first and comparing with the preimages. Costs as much as there are changes (and what is in deleted
 * or replaced directories), never the size of the workspace.
 */
#ifndef PV_STAGE_CHANGE_H
#define PV_STAGE_CHANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/arena.h"
#include "base/err.h"
#include "stage/facts.h"
#include "stage/preimage.h"
#include "stage/stage.h"

enum pv_change_kind {
        PV_CHANGE_ADDED,
        PV_CHANGE_MODIFIED, /* content (with or without metadata), link target */
        PV_CHANGE_DELETED,
        PV_CHANGE_TYPE,     /* file <-> directory <-> link ... */
        PV_CHANGE_METADATA, /* mode, owner, xattrs, times of a file only (times alone of a directory are none)
                             */
};

enum pv_change_flags {
        PV_CHANGE_OPAQUE = 1 << 0,  /* a directory that hides everything the lower had below it */
        PV_CHANGE_IMPLIED = 1 << 1, /* an entry below a deleted or type-changed directory: goes with it */
        PV_CHANGE_SUSPECT = 1 << 2, /* the host may have changed it after T0 and before stop: see why */
        PV_CHANGE_SPLIT = 1 << 3,   /* the host's file has several links; applying gives this one its own inode */
        PV_CHANGE_XATTRS = 1 << 4,  /* extended attributes differ */
        PV_CHANGE_MODE = 1 << 5,    /* permission bits differ */
        PV_CHANGE_OWNER = 1 << 6,
        PV_CHANGE_TIMES = 1 << 7,    /* mtime of a file differs and nothing else does */
        PV_CHANGE_LINKED = 1 << 8,   /* METADATA only in that it becomes one file with the others of its link_group */
        PV_CHANGE_HIDDEN = 1 << 9,   /* deleted without a whiteout of its own: by an opaque directory above */
        PV_CHANGE_BLOCKED = 1 << 10, /* cannot be looked into or applied: see why */
        PV_CHANGE_SETTLED = 1 << 11, /* the host changed it too, and a person decided: pre is what the host has now */
        PV_CHANGE_FILLED = 1 << 12,  /* the host's file has holes; this one takes far more of the disk */
};

/*
 * How the list says what happened to directories:
 *  - new: ADDED, and everything in it ADDED, each an item of its own.
 *  - deleted, or replaced by something else: DELETED or TYPE, and what the target had below it DELETED |
 * IMPLIED.
 *  - deleted and made again: the net effect, path by path. What is no longer there is DELETED | HIDDEN (its
 * own entries DELETED | IMPLIED); the directory itself is listed (METADATA | OPAQUE) only when its mode,
 * owner or attributes changed.
 *  - a directory in a new place of the same content: all of this, with renamed_from set.
 */
struct pv_change {
        unsigned root;
        char *path; /* relative to the root, bytes, no leading or trailing '/'; "" is the root directory
                       itself */
        enum pv_change_kind kind;
        unsigned flags;      /* enum pv_change_flags */
        struct pv_facts pre; /* the target's, when the stage was taken */
        struct pv_facts now; /* the stage's; mode 0 when deleted */
        unsigned layer;      /* the layer that holds `now` (or the whiteout), 0 = oldest */
        bool layer_shared;   /* another stage stands on that layer, or this stage does not own it: copy, never
                                move */
        char *renamed_from;  /* a deleted path whose content this one continues; else NULL */
        uint64_t link_group; /* the changes that share a staged inode have the same number; 0 when alone */
        unsigned overlay;    /* the overlay's own attributes of the staged entry (enum pv_overlay_attrs) ... */
        bool overlay_known;  /* ... where they were looked at */
        const char *why;     /* with SUSPECT or BLOCKED: a static sentence */
        const struct pv_merged *merged; /* what is published in place of the staged content; NULL: as it is staged */
};

/* Both sides' content put together, for a regular file that is one on both; see merge.h. */
struct pv_merged {
        int fd;             /* holds the content; of whoever made it, open until the apply is over */
        bool host_metadata; /* mode, owner and attributes are the host's; else the staged ones */
        unsigned char host_sha256[PV_SHA256_SIZE]; /* of the host's content that went into it */
};

/* A path whose conflict a person decided, before the list is computed. */
struct pv_settled {
        unsigned root;
        const char *path;
        bool below; /* and all that is below it */
};

/* What the preimage of a SETTLED change was before: an undo brings it back, and the conflict with it. */
struct pv_unsettled {
        unsigned root;
        const char *path;
        struct pv_preimage pre;
};

/* A directory of both sides that is known to be the one from which the command started. */
struct pv_known_dir {
        unsigned root;
        char *path;
        struct pv_facts host;
};

struct pv_changes {
        struct pv_arena text;   /* all paths and link targets */
        struct pv_change *item; /* sorted by (root, path) with '/' lowest: parents before children, subtrees together */
        size_t n;
        struct pv_unsettled *unsettled; /* one a SETTLED change, in the same order */
        size_t n_unsettled;
        struct pv_settled *settled; /* as it was computed with */
        size_t n_settled;
        /* Of a stage in which a command runs and on which the opener may decide, both in the same order: */
        struct pv_known_dir *known;
        size_t n_known;
        void *compared; /* what was found to have the same content, for pv_changes_compute_again() */
};

/* *out is the caller's: pv_changes_free(). */
int pv_changes_compute(struct pv_stage *s, struct pv_changes **out, struct pv_err *err);
/*
 * The same as if the stage had been taken from what the host has now at these paths: what is staged is then compared
 * with that. settled is sorted by (root, path) in the order of a change list.
 */
int pv_changes_compute_settled(struct pv_stage *s, const struct pv_settled *settled, size_t n_settled,
                               struct pv_changes **out, struct pv_err *err);
/*
 * The same once more while the command is held still, in little time: only directories above and below what is
 * selected are looked into, files that are what they were are not read again, and renames are those that were found
 * before. For a stage opened with PV_STAGE_DECIDE.
 */
int pv_changes_compute_again(struct pv_stage *s, const struct pv_changes *before, const bool *selected,
                             struct pv_changes **out, struct pv_err *err);
void pv_changes_free(struct pv_changes *c);
static inline void pv_changes_freep(struct pv_changes **c)
{
        pv_changes_free(*c);
        *c = NULL;
}
#define pv_auto_changes __attribute__((cleanup(pv_changes_freep))) struct pv_changes *

/* NULL when there is none of that path. */
struct pv_change *pv_changes_find(struct pv_changes *c, unsigned root, const char *path);

/* Opens the staged entry of a change (O_PATH or more flags), confined to its layer, no links followed.
 * -1/errno. */
int pv_change_open_staged(struct pv_stage *s, const struct pv_change *c, int flags);
/* Opens the target's path of a change, confined to the target, no links followed. -1/errno. */
int pv_change_open_target(struct pv_stage *s, const struct pv_change *c, int flags);

/*
 * Compares the target's path now with the preimage of the change: true when applying may go on. When not,
 * *why is a static sentence ("changed on the host after the stage was taken"). Hashes only when the cheap
 * facts differ.
 */
bool pv_change_check(struct pv_stage *s, const struct pv_change *c, const char **why);

/*
 * The same for one of all changes, as applying it with those that belong to it would find it: the directory that it is
 * in has to be there, unless one of them makes it. pv_change_no_directory is the reason that nothing but putting it
 * back overcomes.
 */
extern const char pv_change_no_directory[];
bool pv_change_check_among(struct pv_stage *s, const struct pv_changes *all, const struct pv_change *c,
                           const char **why);
/* The nearest of the directories above c that is made by one of the changes; NULL: none is. */
const struct pv_change *pv_changes_find_maker(const struct pv_changes *all, const struct pv_change *c);

/*
 * Takes what landed while the command ran out of the layers, where they still have it as it landed: then the host's own
 * shows, as after an apply to a job that has ended. The stage is sealed and its lock taken.
 */
int pv_changes_let_go_of_landed(struct pv_stage *s, struct pv_err *err);

/*
 * Takes the selected changes out of the stage after they were applied or dropped: their entries go from this
 * stage's own layers (what the apply has already moved out is no error), opaque directories above them become
 * explicit whiteouts first, so that the host's files show again; their preimages are forgotten. Where an
 * entry lives in a shared layer it stays, and the target's present state becomes its preimage
 * (PV_CHANGES_APPLIED), or the path is covered in this stage's top layer (PV_CHANGES_DROPPED). May be
 * repeated after a crash.
 */
enum pv_changes_fate { PV_CHANGES_APPLIED, PV_CHANGES_DROPPED };
int pv_changes_forget(struct pv_stage *s, const struct pv_changes *c, const bool *selected, enum pv_changes_fate fate,
                      struct pv_err *err);

#endif
