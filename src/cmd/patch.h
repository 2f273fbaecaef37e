/* SPDX-License-Identifier: Apache-2.0 */
/* The patch of one file, in the form that `git apply` takes. In-memory work of libgit2; no repository is opened. */
#ifndef PV_CMD_PATCH_H
#define PV_CMD_PATCH_H

#include <stdbool.h>
#include "base/err.h"
#include "base/str.h"

/* One side. What git can hold: a regular file or a link, whose target is its content. */
struct pv_patch_side {
        const char *path; /* NULL: there is nothing on this side */
        unsigned mode;    /* 0100644, 0100755 or 0120000 */
        const char *data; /* borrowed */
        size_t len;
};

struct pv_patch {
        struct pv_str text;    /* headers and hunks, raw bytes; empty when nothing that git knows differs */
        size_t added, deleted; /* lines */
        bool binary;           /* text has no content unless binary was asked for */
        bool same_content;
        unsigned similarity; /* per cent */
};
void pv_patch_fini(struct pv_patch *p);
#define pv_auto_patch __attribute__((cleanup(pv_patch_fini))) struct pv_patch

enum pv_patch_flags {
        PV_PATCH_TEXT = 0,
        PV_PATCH_BINARY = 1 << 0, /* binary content as a "GIT binary patch" */
};

int pv_patch_begin(struct pv_err *err); /* once a process */

/*
 * Both sides have a path: a modification, or a rename when the paths differ. A binary file without PV_PATCH_BINARY
 * leaves text empty. Types must be equal: a file that became a link is a deletion and an addition.
 */
int pv_patch_make(const struct pv_patch_side *old, const struct pv_patch_side *now, enum pv_patch_flags flags,
                  struct pv_patch *out, struct pv_err *err);

/*
 * True for a name that makes `git apply` refuse a whole patch: what another file system would take for `.git`
 * (`git~1`, `.git.`, `.git:x`), or a link called .gitmodules. A real `.git` is not meant: see git/classify.h.
 */
bool pv_patch_is_refused(const char *path, unsigned mode);

/* git's own rule: a NUL in the first 8,000 bytes. */
bool pv_patch_is_binary(const char *data, size_t len);

#endif
