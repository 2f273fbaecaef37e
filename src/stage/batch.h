/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch: one apply or one undo, as a list of items that one engine carries out, takes back and recovers. The theory
 * of operation heads apply.c. Inside src/stage only.
 */
#ifndef PV_STAGE_BATCH_H
#define PV_STAGE_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>
#include "base/clock.h"
#include "base/copy.h"
#include "base/path.h"
#include "stage/apply.h"

/*
 * What an inode is recognised by: all that a rename leaves alone. Of a directory only mode and owner count besides
 * the inode number, since its size and times move with its entries.
 */
struct pv_ident {
        uint64_t ino, size, rdev;
        int64_t mtime_s;
        uint32_t mtime_ns;
        uint32_t mode, uid, gid; /* mode with the type; 0: there is nothing */
};
struct pv_ident pv_ident_of(const struct stat *st);

/* What an item does to its path in the target. */
enum pv_op {
        PV_OP_EXCHANGE = 1, /* counterpart <-> target, both exist */
        PV_OP_PLACE,        /* counterpart -> target, where nothing is */
        PV_OP_REMOVE,       /* target -> counterpart */
        PV_OP_META,         /* a directory's mode, owner and attributes, in place */
        PV_OP_WITHIN,       /* moves with the directory that an earlier item moves */
};

/* Where an item's counterpart is: the place that holds `in` before and `out` after. */
enum pv_at {
        PV_AT_LAYER = 1, /* the layer's own entry: nothing is copied */
        PV_AT_SLOT,      /* backup/<batch>/<slot> */
        PV_AT_BESIDE,    /* a temporary name in the target's own directory: the stage is on another filesystem */
};

enum pv_item_flags {
        PV_ITEM_COPY = 1 << 0,        /* the counterpart starts as a copy that the batch makes */
        PV_ITEM_SHALLOW = 1 << 1,     /* ... of the directory alone: its entries have items of their own */
        PV_ITEM_KEEP = 1 << 2,        /* the staged entry stays (shared layer, running job); its baseline is renewed */
        PV_ITEM_TIMES = 1 << 3,       /* the published file gets the time of the batch */
        PV_ITEM_OPAQUE = 1 << 4,      /* a directory that hides what lies below, when it goes (back) into a layer */
        PV_ITEM_IMPLIED = 1 << 5,     /* below a removed or replaced directory: has no whiteout of its own */
        PV_ITEM_MARKS = 1 << 6,       /* carries overlay attributes, or escaped ones: see ESCAPES */
        PV_ITEM_OPEN_IN = 1 << 7,     /* `in`, a directory without write permission, is given it for the move */
        PV_ITEM_OPEN_OUT = 1 << 8,    /* `out` likewise */
        PV_ITEM_HASHED = 1 << 9,      /* sha256 is that of the original */
        PV_ITEM_OLD_TREE = 1 << 10,   /* WITHIN: comes out of the target with its directory; else goes in */
        PV_ITEM_MOVED_TREE = 1 << 11, /* a directory that moves with the WITHIN items that follow */
        PV_ITEM_ESCAPES = 1 << 12,    /* carries attributes that are escaped in a layer */
        PV_ITEM_OUT_LINKED = 1 << 13, /* the original has several names */
        PV_ITEM_GROUPED = 1 << 14,    /* its slot is <slot>.d/<name>: the layer's directory becomes the backup's */
        PV_ITEM_NEWER = 1 << 15,      /* undo: the stage has something newer at the path; this version gives way */
        PV_ITEM_MERGED = 1 << 16,     /* what is published is no version of the stage's; that one goes to <slot>.job */
        PV_ITEM_LANDS = 1 << 17,      /* applied while the job runs: `landing` becomes its baseline (beside.c) */
        PV_ITEM_ORIGIN = 1 << 18,     /* MARKS: its origin alone */
};

enum pv_item_state {
        PV_ITEM_PENDING, /* counterpart holds `in` */
        PV_ITEM_DONE,    /* published */
        PV_ITEM_KEPT,    /* rolled back around it: the host's version stays where it is */
};

/* Metadata of a directory before and after: old and new values of what differs. */
struct pv_meta {
        uint32_t mode[2], uid[2], gid[2];
        struct pv_xattrs xattrs[2]; /* the whole sets */
};
void pv_meta_free(struct pv_meta *m);

/* What the target holds once the item is published, besides `in`. All zero where nothing is left there. */
struct pv_landing {
        uint64_t xattrs; /* as in struct pv_facts */
        uint32_t nlink;
        bool hashed;
        unsigned char sha256[PV_SHA256_SIZE];
        char *link; /* target of a symbolic link, or NULL; owned */
        /* MERGED: what the command has, which is not what was published. */
        uint64_t size;
        uint32_t mode, uid, gid;
};
void pv_landing_free(struct pv_landing *l);

struct pv_item {
        const char *path; /* borrowed from the batch's owner of strings */
        struct pv_ident in, out;
        struct timespec out_ctime;      /* at the check; not journalled */
        struct timespec staged_mtime;   /* with TIMES: what the stage has again after a rollback or an undo */
        struct pv_meta *meta;           /* META only, owned */
        const struct pv_merged *merged; /* MERGED only, of an apply; not journalled */
        unsigned char *sha256;          /* with HASHED, owned */
        struct pv_landing *landing;     /* with LANDS, owned */
        uint64_t original;              /* undo: the inode number of an original with other names; not journalled */
        uint32_t root, layer, slot;
        uint32_t flags;
        uint8_t op, at, state;
};

/* A directory that is given write permission for the batch. */
struct pv_access {
        uint32_t root;
        int32_t layer; /* -1: in the target */
        uint32_t mode;
        char *path;
};

enum pv_batch_kind { PV_BATCH_APPLY = 1, PV_BATCH_UNDO };
enum pv_root_mode {
        PV_ROOT_EXCHANGE = 0,    /* same filesystem */
        PV_ROOT_BESIDE = 1 << 0, /* rename said EXDEV: copies beside the target */
        PV_ROOT_WEAK = 1 << 1,   /* no RENAME_EXCHANGE: link and rename (implies BESIDE) */
};

#define PV_BATCH_ID 32
struct pv_batch_head {
        char id[PV_BATCH_ID]; /* also the directory below backup/ */
        char of[PV_BATCH_ID]; /* of an undo, the batch that is taken back: its slots are used; else "" */
        enum pv_batch_kind kind;
        struct timespec when; /* as the stage's filesystem stores it */
        uint32_t n_roots;
        uint32_t *root_mode; /* owned */
        /* Of the machine while it ran when the final plan was written; "" in the first one, before which nothing is. */
        char boot[PV_BOOT_ID_TEXT];
};

enum pv_batch_mark { PV_MARK_READY = 1, PV_MARK_COMMITTED = 2, PV_MARK_PARTLY = 4 };

struct pv_plan_list {
        struct pv_batch_head head;
        struct pv_item *item; /* sorted by (root, path) like a change list: directories before what is in them */
        size_t n, cap;
        struct pv_access *access;
        size_t n_access;
        unsigned marks; /* enum pv_batch_mark, from the journal */
        bool owns_paths;
};
void pv_plan_list_fini(struct pv_plan_list *p);
struct pv_item *pv_plan_list_add(struct pv_plan_list *p);
/* NULL: there is none of that path. */
struct pv_item *pv_plan_list_find(const struct pv_plan_list *p, uint32_t root, const char *path);
/* One past the last item below item i. */
size_t pv_plan_list_end(const struct pv_plan_list *p, size_t i);

#endif
