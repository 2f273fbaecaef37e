/* SPDX-License-Identifier: Apache-2.0 */
/* The record of the launcher's own controls (control.h); what they are worth is the probes' to conclude. */
#ifndef PV_BOUNDARY_OBSERVE_H
#define PV_BOUNDARY_OBSERVE_H

#include "boundary/launch.h"

/* By pid 1, once the view was built, entered and verified and the namespaces are as they stay. */
void pv_observe_sandbox(const struct pv_launch *l, struct pv_observations *obs);
/* By the launcher, once the descriptors are closed: they and the environment. */
void pv_observe_inheritance(const struct pv_launch *l, struct pv_observations *obs);

#endif
