/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rename helper: gives back what a rootless overlay lacks, the rename of a directory that exists in a lower layer.
 * The theory of operation heads rename.c. Sequence and callers:
 *
 *   pid 1      pv_rename_prepare()    before it forks the launcher
 *   launcher   pv_rename_fork()       after Landlock and the dropping of capabilities, before seccomp
 *   launcher   pv_rename_hand_over()  after pv_seccomp_install() returned a listener (or -1: the helper ends)
 *   pid 1      pv_rename_reaped()     for each child that it reaps: true for the helper
 *   pid 1      pv_rename_take_over()  then: a descriptor to poll, from now on
 *   pid 1      pv_rename_continue()   when it is readable: lets that rename go to the kernel
 */
#ifndef PV_BOUNDARY_RENAME_H
#define PV_BOUNDARY_RENAME_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

struct pv_rename_shared;

struct pv_rename {
        struct pv_rename_shared
                *shared; /* one page, shared by pid 1, launcher and helper; gone for the workload at exec */
        int to_helper[2], to_init[2]; /* socket pairs that carry the listener; close-on-exec */
};
#define PV_RENAME_INIT                                         \
        {                                                      \
                .to_helper = { -1, -1 }, .to_init = { -1, -1 } \
        }

int pv_rename_prepare(struct pv_rename *r, struct pv_err *err);

/*
 * Forks the helper as a child of pid 1 (CLONE_PARENT), so that the workload has no child it does not know. It has the
 * launcher's credentials and Landlock domain, cannot be traced or dumped, closes all descriptors but its own, and
 * waits for the listener.
 */
int pv_rename_fork(struct pv_rename *r, struct pv_err *err);

/* Gives listener (taken, closed here) to the helper and a copy to pid 1's end, for the day the helper dies. */
int pv_rename_hand_over(struct pv_rename *r, int listener, struct pv_err *err);

/* Closes what the launcher (after hand-over) or the supervisor holds. Pid 1 keeps r until the end. */
void pv_rename_close(struct pv_rename *r);

/* Was the reaped child of pid 1 the helper? */
bool pv_rename_reaped(const struct pv_rename *r, pid_t pid);

/*
 * The helper died (the workload killed it, or memory ran out). Answers the renames that it had in hand with EINTR, and
 * returns the listener, pid 1's from now on: while it is polled and answered no rename hangs or fails with ENOSYS. -1:
 * there is no listener.
 */
int pv_rename_take_over(struct pv_rename *r);

/* Lets one waiting rename go on in the kernel. False when the listener is at its end (POLLHUP): close it. */
bool pv_rename_continue(int listener);

#endif
