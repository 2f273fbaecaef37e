/* SPDX-License-Identifier: Apache-2.0 */
/* Manual pages in man(7) format, written from the tables while pVisor is built. */
#ifndef PV_CMD_MAN_H
#define PV_CMD_MAN_H

#include "cmd/command.h"

/* pvisor-NAME(1) */
void pv_man_command(struct pv_str *out, const struct pv_command *c);
/* pvisor(1) */
void pv_man_overview(struct pv_str *out);

#endif
