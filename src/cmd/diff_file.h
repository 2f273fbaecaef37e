/* SPDX-License-Identifier: Apache-2.0 */
/* The difference of one change, or of both halves of a rename, as `pvisor diff` tells it. */
#ifndef PV_CMD_DIFF_FILE_H
#define PV_CMD_DIFF_FILE_H

#include "base/err.h"
#include "base/str.h"
#include "cmd/patch.h"
#include "stage/change.h"

#define PV_DIFF_FILE_MAX (16U << 20) /* a larger file is named with its size */

struct pv_diff_file {
        const struct pv_change *change; /* the new half of a rename */
        const char *old_path;           /* of a rename, else NULL */
        struct pv_str note;             /* what a patch cannot say: sentences of safe ASCII, each "# ...\n" */
        struct pv_str patch;            /* raw bytes; empty when there is only a note */
        size_t added, deleted;
        uint64_t old_size, new_size;
        bool binary, large;
};
void pv_diff_file_fini(struct pv_diff_file *f);
#define pv_auto_diff_file __attribute__((cleanup(pv_diff_file_fini))) struct pv_diff_file

/*
 * change is one of all. old: the deleted half of a rename, else NULL. The old content is the target's of this moment;
 * where that is not what the stage was taken from, the note says so. A file that cannot be read is a note, not an
 * error.
 */
int pv_diff_file_make(struct pv_stage *s, const struct pv_changes *all, const struct pv_change *change,
                      const struct pv_change *old, enum pv_patch_flags flags, struct pv_diff_file *out,
                      struct pv_err *err);

#endif
