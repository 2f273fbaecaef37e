/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes what the host's files were when a run began (stage/notes.h), once a run has gone on for a second: a forked
 * process of the lowest priority asks git for its index and looks at each file once. A shorter run has none, and needs
 * none.
 */
#ifndef PV_JOB_NOTER_H
#define PV_JOB_NOTER_H

#include "boundary/boundary.h"
#include "stage/stage.h"

struct pv_noter; /* opaque */

/* For the workspace, which is root 0 of the stage; lock: the job's. All outlive *out. */
int pv_noter_start(struct pv_stage *stage, struct pv_boundary *boundary, int lock, struct pv_noter **out,
                   struct pv_err *err);
/* NULL is silence. */
void pv_noter_end(struct pv_noter *n);

#endif
