/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holding a running job still from another process, to decide on what it has changed: all processes of the sandbox
 * stand still until the connection ends, so that a decider that dies lets the job go on. How: boundary/freeze.c.
 */
#ifndef PV_JOB_FREEZE_H
#define PV_JOB_FREEZE_H

#include <stdint.h>
#include "base/err.h"
#include "job/store.h"

struct pv_frozen {
        int connection; /* close it to let the job go on; -1: not frozen */
        unsigned threads;
        uint64_t since_us; /* CLOCK_MONOTONIC, when it stood still: for the length of the pause */
};
#define PV_FROZEN_INIT           \
        {                        \
                .connection = -1 \
        }

/*
 * Returns when the job stands still. PV_ERR_STATE: it does not run any more; PV_ERR_BUSY: somebody else holds it, its
 * supervisor does not answer, or its processes did not stop within timeout_ms (0: 5 s) and go on.
 */
int pv_freeze(const struct pv_job *job, unsigned timeout_ms, struct pv_frozen *out, struct pv_err *err);

/* The job goes on. Idempotent. */
void pv_thaw(struct pv_frozen *f);
#define pv_auto_frozen __attribute__((cleanup(pv_thaw))) struct pv_frozen

#endif
