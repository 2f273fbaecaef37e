/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a stage in which a command runs. Inside src/stage; stage.h has what others need. */
#ifndef PV_STAGE_SNAPSHOT_H
#define PV_STAGE_SNAPSHOT_H

#include "stage/apply.h"
#include "stage/state.h"

/* Adds their names, oldest first. */
int pv_snapshots_list(const struct pv_stage *s, struct pv_strv *names, struct pv_err *err);
/* PV_ERR_BUSY while a job stands on one of them. */
int pv_snapshots_remove(struct pv_stage *s, struct pv_err *err);

#endif
