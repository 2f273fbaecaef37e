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
 * Lays whiteouts for the paths (relative to lower's root) into layer. A missing parent is whited out itself: there is
 * nothing in it to see, and nothing that comes later shows. Parents that exist are copied with their mode, owner and
 * times, since a merged directory shows those of its topmost layer. A parent that is a link is left alone: where it
 * leads must be in the list itself.
 */
int pv_mask_lay(struct pv_pathfd layer, struct pv_pathfd lower, const struct pv_strv *paths, struct pv_err *err);

/*
 * Adds to paths where those of them lead that are links, or lie behind links, when that is within dir: the same file
 * must not stay visible under its other name.
 */
int pv_mask_resolve(const char *dir, struct pv_strv *paths, struct pv_err *err);

#endif
