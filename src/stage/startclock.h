/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start clock: when a run began, in the time of the target's own filesystem, so that what the host changes from
 * then on can be told by its ctime. The theory of operation heads startclock.c.
 */
#ifndef PV_STAGE_STARTCLOCK_H
#define PV_STAGE_STARTCLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include "base/clock.h"
#include "base/err.h"
#include "base/path.h"

/*
 * T0 of the filesystem that target lies on: every change of an inode there that is made from now on has a ctime of T0
 * or later, every one made before the call an earlier one. Leaves no trace in target: what is touched is own, a
 * writable file of ours, when it lies on the same filesystem, else a nameless file in target.
 */
int pv_startclock_take(struct pv_pathfd target, int own, const char *name, struct timespec *t0, struct pv_err *err);

/* The machine's clocks when a run began. */
struct pv_startclock {
        char boot_id[PV_BOOT_ID_TEXT];
        int64_t realtime_ns;  /* CLOCK_REALTIME - CLOCK_BOOTTIME */
        int64_t suspended_ns; /* CLOCK_BOOTTIME - CLOCK_MONOTONIC */
        int64_t boottime_ns;
};
void pv_startclock_read(struct pv_startclock *out);

/* Tells of steps of CLOCK_REALTIME that were taken back again; fd -1: nobody watched. */
struct pv_clockwatch {
        int fd;
};
void pv_clockwatch_start(struct pv_clockwatch *w);
/* True when the clock was set, or the machine slept, since the start. */
bool pv_clockwatch_saw_step(const struct pv_clockwatch *w);

/* Whether ctimes of before and after can no longer be ordered. */
enum pv_clock_verdict {
        PV_CLOCK_STEADY,
        PV_CLOCK_STEPPED,
        PV_CLOCK_REBOOTED,
};
enum pv_clock_verdict pv_startclock_judge(const struct pv_startclock *then, const struct pv_startclock *now,
                                          const struct pv_clockwatch *w);

#endif
