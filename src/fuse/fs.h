/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file system is in memory, for the files of src/fuse alone. The theory of operation heads main.c.
 *
 * A node is what the kernel has an inode of. Its place is the names it has: a path, resolved anew for each act,
 * in each layer, one openat2(2) without links; so the host's directory is what it is at that moment. All functions
 * here want the file system's lock held unless they say otherwise, and return 0 or -1 with errno.
 */
#ifndef PV_FUSE_FS_H
#define PV_FUSE_FS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include "base/str.h"

#define PV_FUSE_LAYERS 256

struct pv_fuse_node;

/* One name of a node in a directory. */
struct pv_fuse_name {
        struct pv_fuse_node *dir, *node;
        struct pv_fuse_name *next_alias; /* of the same node */
        struct pv_fuse_name *next_hash;
        uint64_t hash;
        char text[];
};

/* An open file. Its descriptor changes under the lock alone, from a lower layer's to the upper's. */
struct pv_fuse_handle {
        struct pv_fuse_node *node;
        struct pv_fuse_handle *next;
        int fd;
        bool lower;  /* fd is a lower layer's: stale once the node was copied up */
        int retired; /* the descriptor that was replaced; a read may still use it */
};

struct pv_fuse_node {
        uint64_t lookups;    /* that the kernel will forget */
        uint64_t n_names_in; /* names of others in this directory */
        struct pv_fuse_name *names;
        struct pv_fuse_handle *handles;
        uint64_t ino;                    /* as shown; kept through copy up */
        mode_t type;                     /* S_IFMT bits */
        bool upper;                      /* it is in the upper layer (of a directory: it is there too) */
        size_t bottom;                   /* of a directory: the last layer that shows in it */
        uint64_t real_ino, real_dev;     /* of what is not a directory: what it was when it was looked up */
        struct pv_fuse_node *next_upper; /* chain of the table by real_ino */
        int fd;                          /* O_PATH of what has lost its last name; -1 */
        int wd;                          /* of a directory: its watch (watch.c); 0: none */
        bool watch_tried;
        bool no_capability; /* in the upper, and known to have no security.capability, which is asked at each write */
        /* What the kernel's cache of it is worth: the state at the last open. */
        struct timespec opened_ctime;
        off_t opened_size;
        bool opened;
        /* What it was last told. */
        struct timespec told_ctime;
        off_t told_size;
};

/* An id that the sandbox has, first to last. */
struct pv_fuse_range {
        uint32_t first, last;
};

struct pv_fuse_kept {
        uint64_t key, value;
        bool moved;
};
struct pv_fuse_table { /* open addressing; key 0 is free */
        struct pv_fuse_kept *slot;
        size_t n, cap;
};

struct pv_fuse_fs {
        pthread_mutex_t lock;
        int layer[PV_FUSE_LAYERS]; /* O_PATH, topmost first; [0] is the upper when writable; the last is the host's */
        size_t n_layers;
        bool writable;
        int work; /* a directory on the upper's file system */
        unsigned long n_temps;
        bool xattr_whiteouts; /* the upper cannot hold whiteouts as devices */
        bool root;            /* made by root: new files are given to who made them */
        int keeper;           /* keeper.h; -1 */
        struct pv_fuse_range uids[32], gids[32];
        size_t n_uids, n_gids;
        uint32_t own_uid, own_gid; /* what a foreign id is shown as */
        dev_t dev[16];             /* file systems seen, in order: the first is the host's directory's */
        size_t n_devs;
        /* How long the kernel may keep what the host can change, unwatched and watched, and what it cannot. */
        double short_s, watched_s, long_s;
        int inotify;
        struct pv_fuse_node **watched; /* by watch descriptor */
        size_t n_watched;
        struct pv_fuse_node root_node;
        struct pv_fuse_name **names;
        size_t n_names, names_cap;
        struct pv_fuse_node **uppers; /* by inode number in the upper layer */
        size_t n_uppers, uppers_cap;
        struct pv_fuse_table shown; /* upper inode -> number that is shown */
        struct pv_fuse_table seen;  /* hash of a directory's path -> the host's inode that was seen there */
        void *session;              /* struct fuse_session */
};

static inline bool pv_fuse_is_upper(const struct pv_fuse_fs *fs, size_t layer)
{
        return fs->writable && layer == 0;
}
static inline bool pv_fuse_is_live(const struct pv_fuse_fs *fs, size_t layer)
{
        return layer == fs->n_layers - 1;
}

/* ---- node.c ---- */

int pv_fuse_nodes_init(struct pv_fuse_fs *fs);
struct pv_fuse_node *pv_fuse_node_new(mode_t type);
void pv_fuse_node_forget(struct pv_fuse_fs *fs, struct pv_fuse_node *n, uint64_t lookups);
/* The node of a name, or NULL. */
struct pv_fuse_node *pv_fuse_name_find(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const char *name);
void pv_fuse_name_add(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const char *name, struct pv_fuse_node *n);
/* Takes a name away (if there is one); the node may be freed with it. */
void pv_fuse_name_remove(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const char *name);
/* The node that stands for a file of the upper layer, by its number there. */
struct pv_fuse_node *pv_fuse_upper_find(struct pv_fuse_fs *fs, uint64_t ino);
void pv_fuse_upper_add(struct pv_fuse_fs *fs, struct pv_fuse_node *n, uint64_t ino);
/* The path of a directory below the root ("" is the root). ENOENT when it has no name any more. */
int pv_fuse_node_path(struct pv_fuse_fs *fs, const struct pv_fuse_node *n, struct pv_str *out);
/* All known nodes below dir, dir too. Each is complete in the upper layer from now on. */
void pv_fuse_nodes_complete(struct pv_fuse_fs *fs, struct pv_fuse_node *dir);

void pv_fuse_table_put(struct pv_fuse_table *t, uint64_t key, uint64_t value);
struct pv_fuse_kept *pv_fuse_table_get(const struct pv_fuse_table *t, uint64_t key);

/* The number shown for an inode of a layer. */
uint64_t pv_fuse_shown_ino(struct pv_fuse_fs *fs, const struct stat *st, bool upper);
/* Notes which directory the host has at dir/name; once it is another one, the path is never vouched for again. */
void pv_fuse_witness(struct pv_fuse_fs *fs, const char *path, uint64_t ino);
/* The host's directory that was seen at the path throughout; 0: none, or not throughout. */
uint64_t pv_fuse_testify(struct pv_fuse_fs *fs, const char *path);

/* ---- layer.c ---- */

/* A directory in its layers, opened as they are asked for. */
struct pv_fuse_place {
        struct pv_fuse_fs *fs;
        struct pv_fuse_node *dir;
        struct pv_str path;
        int fd[PV_FUSE_LAYERS]; /* -1: not asked for; -2: is not in that layer */
};
int pv_fuse_place_open(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, struct pv_fuse_place *p);
void pv_fuse_place_close(struct pv_fuse_place *p);
#define pv_auto_place __attribute__((cleanup(pv_fuse_place_close))) struct pv_fuse_place
#define PV_FUSE_PLACE_INIT \
        {                  \
                .fs = NULL \
        }
/* O_PATH in a layer; -1 with errno, ENOENT where it is not in that layer. */
int pv_fuse_place_fd(struct pv_fuse_place *p, size_t layer);

/* What a name is: the topmost layer's. */
struct pv_fuse_found {
        size_t layer;
        int dirfd; /* of the directory in that layer; the place's */
        struct stat st;
        struct stat low; /* of a directory: the lowest that is merged */
        size_t low_layer;
        bool upper;
        size_t bottom;
};
/* Looks from layer `from` downwards. 1, 0 when there is nothing, or -1. */
int pv_fuse_find(struct pv_fuse_place *p, const char *name, size_t from, struct pv_fuse_found *f);
/* A node's own place and what it is there. ESTALE when the host has put something else in its place. */
int pv_fuse_locate(struct pv_fuse_fs *fs, struct pv_fuse_node *n, struct pv_fuse_place *p, const char **name,
                   struct pv_fuse_found *f);
/* What is there of a node, by a name, a handle, or the descriptor kept of it. */
int pv_fuse_stat(struct pv_fuse_fs *fs, struct pv_fuse_node *n, struct stat *st, size_t *layer);

bool pv_fuse_is_whiteout(const struct pv_fuse_fs *fs, size_t layer, int dirfd, const char *name, const struct stat *st);
/* Whether something is mounted there on the host. */
bool pv_fuse_is_mount_point(int dirfd, const char *name);
/* dirfd/name as a path for calls that have no *at form; name is not followed. */
struct pv_fuse_proc {
        char s[320];
};
struct pv_fuse_proc pv_fuse_proc(int dirfd, const char *name);

/* Visible names of a directory, merged. add() returns -1 with errno to end. */
typedef int pv_fuse_add(void *ctx, const char *name, ino_t ino, unsigned char type);
int pv_fuse_list(struct pv_fuse_place *p, pv_fuse_add *add, void *ctx);

/* ---- raise.c: copy up, whiteouts ---- */

enum pv_fuse_raise_flags {
        PV_FUSE_EMPTY = 1 << 0, /* its content is about to be cut off */
};
/* Brings a node into the upper layer, with the directories above it. */
int pv_fuse_raise(struct pv_fuse_fs *fs, struct pv_fuse_node *n, unsigned flags);
/* Brings all of a directory into the upper layer and makes it opaque. */
int pv_fuse_raise_tree(struct pv_fuse_fs *fs, struct pv_fuse_node *dir);
/* Opens (O_PATH) the directory in the upper layer, brought there when it is not. The place's. */
int pv_fuse_place_raise(struct pv_fuse_place *p);
/* Makes a whiteout of upper/name, in place of what is there in that layer. */
int pv_fuse_whiteout(struct pv_fuse_fs *fs, int upper, const char *name);
/* Moves upper/name into the work directory under a fresh name, which is put into temp. */
int pv_fuse_set_aside(struct pv_fuse_fs *fs, int upper, const char *name, char temp[32]);
void pv_fuse_discard(struct pv_fuse_fs *fs, const char *temp);
int pv_fuse_make_opaque(int dirfd, const char *name);
/* Finds out how the upper takes whiteouts; fails where it takes them in no way, saying why in errno. */
int pv_fuse_probe_upper(struct pv_fuse_fs *fs);
/* A descriptor (O_PATH) of a node of the upper layer that stays when its names go. */
int pv_fuse_hold(struct pv_fuse_fs *fs, struct pv_fuse_node *n);

/* ---- watch.c: what the host changes ---- */

int pv_fuse_watch_open(struct pv_fuse_fs *fs);
/* Watches the host's directory at the place, before anything in it is told, once. */
void pv_fuse_watch(struct pv_fuse_place *p);
void pv_fuse_unwatch(struct pv_fuse_fs *fs, struct pv_fuse_node *dir);
/* A thread's. Unlocked. */
void *pv_fuse_watch_run(void *fs);

/* ---- ids.c ---- */

bool pv_fuse_uid_is_foreign(const struct pv_fuse_fs *fs, uid_t uid);
bool pv_fuse_gid_is_foreign(const struct pv_fuse_fs *fs, gid_t gid);
int pv_fuse_ids_parse(const char *text, struct pv_fuse_range *out, size_t max, size_t *n);
/* As the sandbox sees it. */
void pv_fuse_show(const struct pv_fuse_fs *fs, const struct pv_fuse_node *n, struct stat *st);
/*
 * The kernel judges by what it is shown; a foreign owner it cannot be shown. What it let pass is judged here by the
 * host's own rules, for the person. EACCES or EPERM.
 */
int pv_fuse_may_write(const struct pv_fuse_fs *fs, const struct pv_fuse_found *f, const char *name);
int pv_fuse_may_list(struct pv_fuse_place *p);
int pv_fuse_may_own(const struct pv_fuse_fs *fs, const struct stat *st);
/* Whether names in the directory may be made and taken away; victim: what a sticky bit may protect, or NULL. */
int pv_fuse_may_change_dir(struct pv_fuse_place *p, const struct stat *victim);

#endif
