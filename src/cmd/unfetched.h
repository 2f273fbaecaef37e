/* SPDX-License-Identifier: Apache-2.0 */
/* Commits that only the stage has: what no count of files tells, and nothing may throw away unasked. */
#ifndef PV_CMD_UNFETCHED_H
#define PV_CMD_UNFETCHED_H

#include <stdbool.h>
#include "stage/change.h"

/*
 * Does a staged reference (branch, tag, stash, detached HEAD, packed ones) name something else than the host's of that
 * name? By the bytes of the files, without asking git: rather once too often than once too seldom.
 */
bool pv_has_unfetched_commits(struct pv_stage *s, const struct pv_changes *changes);

#endif
