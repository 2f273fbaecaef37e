/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PV_CMD_PRUNE_CACHES_H
#define PV_CMD_PRUNE_CACHES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

struct pv_prune_caches {
        const char *most; /* a size that they may have together; "": no matter */
        uint64_t older;   /* milliseconds; 0: however old */
        bool dry_run, json;
};

/*
 * Removes workspaces' caches that no run has: those unused for longer than that, then the longest unused until the rest
 * has the size. Without either: all. Prints what it did; the exit code.
 */
int pv_prune_caches(const struct pv_prune_caches *o, struct pv_err *err);

#endif
