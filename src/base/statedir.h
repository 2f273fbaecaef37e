/* SPDX-License-Identifier: Apache-2.0 */
/* Where pVisor keeps what outlives a command: $PVISOR_HOME, else $XDG_STATE_HOME/pvisor, else ~/.local/state/pvisor. */
#ifndef PV_BASE_STATEDIR_H
#define PV_BASE_STATEDIR_H

#include "base/err.h"

/* Its absolute, normalised path, not made yet. The caller's. */
int pv_state_dir(char **out, struct pv_err *err);

#endif
