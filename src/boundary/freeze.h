/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops all processes of a sandbox, and lets them go on as if nothing had been. The theory of operation heads
 * freeze.c.
 */
#ifndef PV_BOUNDARY_FREEZE_H
#define PV_BOUNDARY_FREEZE_H

#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

/* What the freezer reports once, over its channel: one struct as one packet. */
struct pv_freezer_report {
        struct pv_err failure; /* kind NONE: all are stopped */
        unsigned threads;      /* that are held */
        unsigned us;           /* how long it took */
};

/*
 * A process of its own that stops all descendants of init but those `spared` (0 ends) and what comes of them, and
 * holds them until channel is closed or it dies. Reports once; gives up after timeout_ms, with nothing stopped. Must:
 * be forked from the supervisor; all signals may be blocked. Does not return.
 */
_Noreturn void pv_freezer_main(pid_t init, const pid_t *spared, unsigned timeout_ms, int channel);

struct pv_boundary_watch;
struct pv_freezing;
/* Its channel; borrowed. For who waits for the report alone. */
struct pv_boundary_watch *pv_freezer_watch(struct pv_freezing *z);

#endif
