/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the rename helper; nobody else's. */
#ifndef PV_BOUNDARY_RENAME_HELPER_H
#define PV_BOUNDARY_RENAME_HELPER_H

#include <limits.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Renames in hand at a time: the one that the helper looks at, and one a worker. */
#define PV_RENAME_WORKERS 64
#define PV_RENAME_SLOTS   (PV_RENAME_WORKERS + 1)

struct pv_rename_shared {
        pid_t helper;          /* as pid 1 sees it */
        _Atomic uint64_t last; /* notification received */
        _Atomic uint64_t in_hand[PV_RENAME_SLOTS];
};

/* rename.c: answers notification id. Errors mean that the caller is gone, and are nobody's business. */
void pv_rename_answer(int listener, uint64_t id, int error);
void pv_rename_answer_continue(int listener, uint64_t id);
bool pv_rename_is_waiting(int listener, uint64_t id);

/* rename_helper.c: serves the listener until nobody is left who could ask. root: see PV_CAPS_ROOT_FILES. */
void pv_rename_serve(struct pv_rename_shared *shared, int listener, bool root);

/* rename_caller.c: what a caller asked for, read from its memory and its /proc. */
struct pv_rename_request {
        pid_t tid;
        unsigned flags; /* of renameat2(2) */
        struct pv_rename_end {
                int dirfd;           /* the caller's number, or AT_FDCWD */
                uint64_t address;    /* of the path, in the caller's memory */
                char path[PATH_MAX]; /* without trailing slashes, once it is read */
                bool slashes;        /* there were some */
        } old, new;
};

/* Takes the arguments apart. False when the call is none of rename's. */
bool pv_rename_parse(const struct seccomp_notif *n, struct pv_rename_request *out);
/* Reads the path of an end. False when that cannot be done: let the kernel judge it. */
bool pv_rename_read_path(pid_t tid, struct pv_rename_end *end);
/* Does the end name a directory, seen as the caller sees it? Decides nothing but whether to look closer. */
bool pv_rename_is_directory(const struct pv_rename_request *r, const struct pv_rename_end *end);
/* Has the caller the helper's root directory, mount and user namespaces? Else paths and ids mean other things. */
bool pv_rename_is_at_home(pid_t tid);
/* Opens where the end's path starts: the root for an absolute one, else the caller's directory. -1 with errno. */
int pv_rename_open_start(const struct pv_rename_request *r, const struct pv_rename_end *end);
/*
 * Opens the parent directory from there, following links but magic ones (O_PATH); *name points into end->path. -1
 * with errno.
 */
int pv_rename_open_parent(int start, struct pv_rename_end *end, const char **name);

/* What a caller may do to files, credentials(7). */
struct pv_rename_creds {
        uid_t uid;
        gid_t gid;
        uint64_t effective;
        gid_t groups[64];
        size_t n_groups;
};
bool pv_rename_read_creds(pid_t tid, struct pv_rename_creds *out);
bool pv_rename_same_creds(const struct pv_rename_creds *a, const struct pv_rename_creds *b);
/* Takes them on for good, in a worker. */
bool pv_rename_become(const struct pv_rename_creds *creds);

/*
 * rename_tree.c: moves directory parent/name beside its destination entry by entry, and renames it there, as one
 * rename(2) with these flags would. 0 or an errno; on an errno everything is where it was. wanted(ctx) is asked before
 * the one step that shows: false undoes all (EINTR).
 */
struct pv_rename_move {
        int old_parent, new_parent; /* O_PATH */
        const char *old_name, *new_name;
        unsigned flags; /* 0, RENAME_NOREPLACE or RENAME_EXCHANGE */
        bool (*wanted)(void *ctx);
        void *ctx;
};
int pv_rename_tree(const struct pv_rename_move *m);

#endif
