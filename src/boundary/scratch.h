/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scratch file system: one tmpfs of the sandbox's mount namespace that holds everything private to a run - the new
 * root's directories, /tmp, layers of masks, throw-away uppers - and ends with it. One superblock serves all; what the
 * command sees of it are binds of single directories, so that it reaches none of the others.
 */
#ifndef PV_BOUNDARY_SCRATCH_H
#define PV_BOUNDARY_SCRATCH_H

#include <sys/types.h>
#include "base/err.h"
#include "base/path.h"

struct pv_scratch {
        struct pv_pathfd dir;                   /* the mount's root */
        struct pv_pathfd empty_dir, empty_file; /* stay empty; made on first use */
        bool over_root;                         /* where it is mounted */
        unsigned n;
};
#define PV_SCRATCH_INIT                                                                          \
        {                                                                                        \
                .dir = PV_PATHFD_INIT, .empty_dir = PV_PATHFD_INIT, .empty_file = PV_PATHFD_INIT \
        }

void pv_scratch_close(struct pv_scratch *s);

/*
 * Mounts it where nobody looks: on /proc/fs, or, where there is none, over the namespace's root, where look-ups of
 * paths do not arrive, since a process's root is the mount below. Must: own mount namespace and CAP_SYS_ADMIN over
 * it. PV_ERR_UNSUPPORTED when mounting is refused. It takes at most half of the machine's memory, and no more than
 * three quarters of what is available now.
 */
int pv_scratch_mount(struct pv_scratch *s, struct pv_err *err);

/* Makes a new directory and opens it O_PATH; the name is of no interest to anybody. */
int pv_scratch_dir(struct pv_scratch *s, mode_t mode, struct pv_pathfd *out, struct pv_err *err);

/* A directory and a file without anything in them, for masks; borrowed. */
int pv_scratch_empty_dir(struct pv_scratch *s, struct pv_pathfd *out, struct pv_err *err);
int pv_scratch_empty_file(struct pv_scratch *s, struct pv_pathfd *out, struct pv_err *err);

/* A detached clone of a scratch directory or file, to be mounted somewhere; attr are MOUNT_ATTR_ flags to set. */
int pv_scratch_clone(struct pv_pathfd dir, unsigned attr, int *mount, struct pv_err *err);

/* Can this tmpfs carry the overlay's user.overlay attributes (Linux 6.6, CONFIG_TMPFS_XATTR)? */
bool pv_scratch_takes_xattrs(const struct pv_scratch *s);

#endif
