/* SPDX-License-Identifier: Apache-2.0 */
/* How a command that ran another ends itself. */
#ifndef PV_CMD_RUN_END_H
#define PV_CMD_RUN_END_H

#include "job/run.h"

/*
 * Returns the exit code, or ends this process by the signal: a shell leaves its loop or script on Ctrl-C only when it
 * sees that the command died of it.
 */
int pv_cmd_end_as(const struct pv_run_end *end);

#endif
