/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing a directory. An end that is an error must not pass for the end: what was not seen would count as not there.
 */
#ifndef PV_BASE_DIR_H
#define PV_BASE_DIR_H

#include <dirent.h>
#include "base/fd.h"

/*
 * Opens dirfd/name (no link; "." is dirfd itself, which may be O_PATH) to be listed from its beginning. The caller's:
 * pv_auto_dir. NULL with errno.
 */
DIR *pv_dir_open(int dirfd, const char *name);

/* The next entry but "." and "..", valid until the next call: 1; 0: there is none; -1 with errno. */
int pv_dir_next(DIR *d, struct dirent **out);

#endif
