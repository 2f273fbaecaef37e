/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounting overlayfs from descriptors of its layers: no path is ever written into mount options, so that commas,
 * colons, newlines and lengths in names do not matter. As an unprivileged mount (userxattr).
 */
#ifndef PV_BOUNDARY_OVERLAYFS_H
#define PV_BOUNDARY_OVERLAYFS_H

#include <stdbool.h>
#include "base/err.h"
#include "base/path.h"

struct pv_overlayfs {
        struct pv_pathfd *lower; /* topmost first; at least two when there is no upper */
        size_t n_lower;
        struct pv_pathfd upper, work; /* both or none (-1) */
        struct pv_pathfd place;       /* an empty directory to mount it in at first; where pv_overlayfs_needs_place() */
        unsigned attr;                /* MOUNT_ATTR_ flags of the mount */
};

/* The kernel's limit (OVL_MAX_STACK). */
#define PV_OVERLAYFS_LOWERS 500

/* Before Linux 6.7 more than a dozen layers are only mounted at a place. */
bool pv_overlayfs_needs_place(const struct pv_overlayfs *o);

/*
 * Creates it detached, or in o->place, from where it can be moved like a detached one. With an upper it is
 * `volatile`: unmounting does not sync the upper's whole file system. The error carries the kernel's own words where
 * it gives any. Must: CAP_SYS_ADMIN over the mount namespace, a /proc.
 */
int pv_overlayfs_mount(const struct pv_overlayfs *o, int *mount, struct pv_err *err);

#endif
