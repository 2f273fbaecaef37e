/* SPDX-License-Identifier: Apache-2.0 */
/* Showing a directory entry by entry, where overlayfs cannot have it as a layer because of the mounts below it. */
#ifndef PV_BOUNDARY_ENTRIES_H
#define PV_BOUNDARY_ENTRIES_H

#include "base/err.h"
#include "base/mountinfo.h"
#include "boundary/view.h"

/*
 * Adds the steps that show src at dst: one step of `op` (READ or COW) where nothing is mounted below src, else a
 * private directory with a step for each of its entries. Sockets, FIFOs and devices are left out, and so is what
 * `masks` (relative to src) names. PV_ERR_UNSUPPORTED when there are too many entries.
 */
int pv_entries_add(struct pv_view *view, enum pv_view_op op, const char *src, const char *dst,
                   const struct pv_strv *masks, const struct pv_mountinfo *mounts, struct pv_err *err);

#endif
