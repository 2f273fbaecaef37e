/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sandbox's first process hears of the job, which is made while it builds (launch.c): where the layers lie,
 * the canaries, descriptors. From the supervisor, over the control channel, once.
 */
#ifndef PV_BOUNDARY_JOB_ORDER_H
#define PV_BOUNDARY_JOB_ORDER_H

#include "boundary/boundary.h"
#include "boundary/canary.h"

/* That nobody is there to hear it is silence: why, comes on the report channel. */
int pv_job_order_send(int control, const struct pv_boundary_job *job, const struct pv_canary *canary,
                      struct pv_err *err);

/*
 * In pid 1: waits for it. What *job points at, and the descriptors of both, live as long as the process; of the
 * canaries there are only the two that cross.
 */
int pv_job_order_receive(int control, const struct pv_boundary_spec *spec, struct pv_boundary_job *job,
                         struct pv_canary *canary, struct pv_err *err);

#endif
