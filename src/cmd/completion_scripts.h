/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for shells, written from the tables while pVisor is built. commands ends with NULL. */
#ifndef PV_CMD_COMPLETION_SCRIPTS_H
#define PV_CMD_COMPLETION_SCRIPTS_H

#include "cmd/command.h"

void pv_completion_bash(struct pv_str *out, const struct pv_command *const *commands);
void pv_completion_zsh(struct pv_str *out, const struct pv_command *const *commands);
void pv_completion_fish(struct pv_str *out, const struct pv_command *const *commands);

#endif
