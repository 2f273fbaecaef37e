/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three versions of a text made one, by pvisor-merge: a process of its own, since it reads what the job wrote with a
 * library of C (main_merge.c says how it is confined).
 */
#ifndef PV_CMD_MERGE_TEXT_H
#define PV_CMD_MERGE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

#define PV_MERGE_FILE_MAX (16U << 20) /* of each side */

/* The descriptors of pvisor-merge. */
enum { PV_MERGE_BASE = 3, PV_MERGE_HOST, PV_MERGE_JOB };

struct pv_merge_side {
        const char *bytes; /* NULL: there is none; of the base alone */
        size_t len;
};

struct pv_merge_text {
        bool clean;                      /* else text has conflict markers in it */
        size_t job_added, job_deleted;   /* lines, from the base; without one, from the host's */
        size_t host_added, host_deleted; /* lines, from the base; without one 0 */
        int fd;                          /* of the merged text, read from its beginning; -1 before and after */
};

/* label: what markers call the job's side. out->fd is the caller's; its offset means nothing. */
int pv_merge_text(const struct pv_merge_side *base, const struct pv_merge_side *host, const struct pv_merge_side *job,
                  const char *label, struct pv_merge_text *out, struct pv_err *err);

#endif
