/* SPDX-License-Identifier: Apache-2.0 */
/* What a person grants besides the workspace: --mount and --device. */
#ifndef PV_POLICY_GRANT_H
#define PV_POLICY_GRANT_H

#include "base/err.h"
#include "policy/plan.h"

/*
 * Parses SRC[:DST]:read|stage|write. SRC is resolved (relative to the current directory; "~/" is home), must exist
 * and may hold colons; DST is absolute and defaults to SRC's real path, which then can be reached by the name in text,
 * too. out is the caller's to pv_mount_fini(). PV_ERR_USAGE.
 */
int pv_grant_parse_mount(const char *text, const char *home, struct pv_mount *out, struct pv_err *err);

/*
 * Adds the mounts to the plan, and those to stage to its roots. plan's workspace, filesystem, staged and roots must be
 * set. PV_ERR_USAGE for what would cover the workspace or a system directory, overlaps another staged root, or needs a
 * sandbox that is not there; PV_ERR_POLICY under --safe for a service of the host (services.h), unless i_know.
 */
int pv_grant_add_mounts(struct pv_plan *plan, const struct pv_strv *mounts, char *const *environment, bool i_know,
                        struct pv_err *err);

/* Adds devices: device nodes or directories of them, below /dev; i_know as for mounts (policy/devices.h). */
int pv_grant_add_devices(struct pv_plan *plan, const struct pv_strv *devices, bool i_know, struct pv_err *err);

/* Adds a root; PV_ERR_USAGE when it overlaps one that is there. */
int pv_grant_add_root(struct pv_plan *plan, enum pv_root_kind kind, const char *target, const char *view,
                      struct pv_err *err);

#endif
