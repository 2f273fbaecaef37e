/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults at a chosen system call, for the crash test. faults.c stands before libc's functions in the test's executable
 * and counts those that change something on disk; the chosen one kills the process, or fails.
 */
#ifndef PV_STAGE_FAULTS_H
#define PV_STAGE_FAULTS_H

enum fault_kind {
        FAULT_NONE,
        FAULT_KILL, /* just before the call */
        FAULT_ONCE, /* the call fails */
        FAULT_FROM, /* it and all that follow fail */
};

/* at counts from 1; error is an errno. From now on, in this process. */
void faults_arm(enum fault_kind kind, unsigned at, int error);
/* Calls so far. */
unsigned faults_count(void);

#endif
