/* SPDX-License-Identifier: Apache-2.0 */
/* The last step: from the launcher to the command. */
#ifndef PV_BOUNDARY_COMMAND_H
#define PV_BOUNDARY_COMMAND_H

#include "base/err.h"

/*
 * Looks argv[0] up as execvp(3) does, with the PATH of envp (not of this process), in the view as it now is, and
 * executes it. Returns only on failure: PV_ERR_NOT_FOUND or PV_ERR_NOT_EXEC.
 */
int pv_command_exec(char *const argv[], char *const envp[], struct pv_err *err);

#endif
