/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: read with a bound, written whole to a temporary name and renamed. */
#ifndef PV_BASE_FILE_H
#define PV_BASE_FILE_H

#include <sys/types.h>
#include "base/err.h"
#include "base/fd.h"

enum pv_file_flags {
        PV_FILE_REPLACE = 0,      /* an existing file of that name is replaced */
        PV_FILE_DURABLE = 1 << 0, /* fsync of the file before, of the directory after the rename */
};

/* Writes buf as dirfd/name with this mode, seen by others whole or not at all. */
int pv_file_write_at(int dirfd, const char *name, const void *buf, size_t len, mode_t mode, enum pv_file_flags flags,
                     struct pv_err *err);

/* Reads dirfd/name (a regular file; links are not followed) of at most max bytes; *out is the caller's. */
int pv_file_read_at(int dirfd, const char *name, size_t max, char **out, size_t *len, struct pv_err *err);

#endif
