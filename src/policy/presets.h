/* SPDX-License-Identifier: Apache-2.0 */
/* What --safe knows of people's homes. */
#ifndef PV_POLICY_PRESETS_H
#define PV_POLICY_PRESETS_H

#include <stdbool.h>
#include "base/str.h"

/*
 * Adds the paths, relative to HOME and without links or wildcards, that hold credentials or what gives them away.
 * They are hidden in every view of HOME whether they exist or not.
 */
void pv_presets_add_masks(struct pv_strv *masks);

/* Is it one that is hidden for no more than what an agent's MCP servers are given? */
bool pv_presets_is_agent_settings(const char *rel);

#endif
