/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hiding paths of a tree by whiteouts in an overlay layer above it: what is there now and what appears later, without
 * a mount for each.
 */
#ifndef PV_BOUNDARY_MASK_H
#define PV_BOUNDARY_MASK_H

#include "base/err.h"
#include "base/path.h"
#include "base/str.h"

/*
 * Makes a list of masks ready: paths relative to dir, without "." and "..". Sorts it, drops what lies below another of
 * it, and adds where those lead that are links or lie behind links, when that is within dir: the same file must not
 * stay visible, or appear, under its other name. The absolute paths of those that exist now are appended to present.
 * A dir that does not exist is an empty one. Reads each directory that holds masks once.
 */
int pv_mask_prepare(const char *dir, struct pv_strv *paths, struct pv_strv *present, struct pv_err *err);

/* Sorts a list of masks and drops what lies below another of it: what pv_mask_lay() wants. */
void pv_mask_tidy(struct pv_strv *paths);

/*
 * Lays whiteouts for tidy paths (relative to lower's root) into layer. A missing parent is whited out itself:
 * there is nothing in it to see, and nothing that comes later shows. Parents that exist are copied with their mode,
 * owner and times, since a merged directory shows those of its topmost layer. A parent that is a link is left alone.
 */
int pv_mask_lay(struct pv_pathfd layer, struct pv_pathfd lower, const struct pv_strv *paths, struct pv_err *err);

#endif
