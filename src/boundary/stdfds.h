/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandboxed command's standard descriptors may be. They are the one thing of the host's that goes inside alive,
 * so one that would open more than itself is refused before anything is made: a socket belongs to the network namespace
 * that it was made in and can be disconnected and connected anew (connect(2), AF_UNSPEC), a pidfd signals a process, a
 * descriptor of a namespace leads into it.
 */
#ifndef PV_BOUNDARY_STDFDS_H
#define PV_BOUNDARY_STDFDS_H

#include "base/err.h"
#include "policy/plan.h"

/* PV_ERR_POLICY for a descriptor that would open what the plan closes. */
int pv_stdio_check(const struct pv_plan *plan, const int stdio[3], struct pv_err *err);

/* File status flags (O_NONBLOCK, O_ASYNC) are shared with whoever else has the terminal open, the person's shell. */
struct pv_stdio_flags {
        int flags[3]; /* of the caller's own 0, 1, 2 where they are a terminal; else -1 */
};
void pv_stdio_note_flags(struct pv_stdio_flags *f);
void pv_stdio_restore_flags(const struct pv_stdio_flags *f);

#endif
