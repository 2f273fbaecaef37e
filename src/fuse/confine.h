/* SPDX-License-Identifier: Apache-2.0 */
/* The walls around the server itself: it is trusted, but a hostile command chooses every request. */
#ifndef PV_FUSE_CONFINE_H
#define PV_FUSE_CONFINE_H

#include "base/err.h"
#include "fuse/fs.h"

/*
 * Leaves the calling process, for good, its layers (Landlock: read all, write the upper and the work directory), the
 * system calls that serving needs, and of root's capabilities those over files. No network, no other program.
 * Must: single-threaded; everything that is opened by path is open.
 */
int pv_fuse_confine(const struct pv_fuse_fs *fs, struct pv_err *err);

#endif
