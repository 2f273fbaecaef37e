/* SPDX-License-Identifier: Apache-2.0 */
/* The view of a plan: system directories, /etc without its secrets, devices, private directories, HOME, workspace. */
#ifndef PV_BOUNDARY_ROOT_H
#define PV_BOUNDARY_ROOT_H

#include "base/err.h"
#include "base/mountinfo.h"
#include "boundary/view.h"
#include "policy/plan.h"

/*
 * Fills *view (zero-initialised) with the steps for this plan. Looks at the host's file system, changes nothing.
 * `mounts` is the caller's mount table: an overlay cannot have a lower with mounts below it. `tty` is the path of the
 * person's terminal or NULL; it is shown as /dev/console, so that ttyname(3) finds it.
 * PV_ERR_USAGE for a declared mount or device that cannot be shown.
 */
int pv_root_view(const struct pv_plan *plan, const struct pv_mountinfo *mounts, const char *tty, struct pv_view *view,
                 struct pv_err *err);

#endif
