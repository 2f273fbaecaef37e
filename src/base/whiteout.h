/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whiteouts: entries of a layer that say that the name is gone (Documentation/filesystems/overlayfs.rst). A character
 * device 0:0, which everybody may make; where the file system takes none (another overlay), an empty file with an
 * attribute, in a directory that is marked for having such (Linux 6.7).
 */
#ifndef PV_BASE_WHITEOUT_H
#define PV_BASE_WHITEOUT_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Makes one under a name that is free. 0, or -1 with errno. */
int pv_whiteout_make(int dirfd, const char *name);

/* Whether dirfd/name, of which st is the status, is one of either kind. */
bool pv_whiteout_is(int dirfd, const char *name, const struct stat *st);

/* Marks a directory for whiteouts of the second kind that are moved into it. -1 with errno. */
int pv_whiteout_allow(int dirfd);

/* Reads an attribute of dirfd/name, which is not followed, as getxattr(2). */
ssize_t pv_xattr_read_at(int dirfd, const char *name, const char *attr, void *value, size_t size);

#endif
