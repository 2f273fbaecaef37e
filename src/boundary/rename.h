/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rename helper: gives back what a rootless overlay lacks, the rename of a directory that exists in a lower layer.
 * The theory of operation heads rename.c. Sequence and callers:
 *
 *   pid 1      pv_rename_prepare()    before it forks the launcher
 *   launcher   pv_rename_fork()       after no_new_privs and Landlock, while it still has its capabilities
 *   launcher   pv_rename_hand_over()  after pv_seccomp_install(), with the listener or -1
 *   pid 1      pv_rename_reaped()     for each child that it reaps: true for the helper
 *   pid 1      pv_rename_take_over()  then: a descriptor to poll for POLLIN, from now on
 *   pid 1      pv_rename_continue()   when it is ready: lets that rename go to the kernel
 */
#ifndef PV_BOUNDARY_RENAME_H
#define PV_BOUNDARY_RENAME_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "boundary/caps.h"

struct pv_rename_shared;

struct pv_rename {
        struct pv_rename_shared *shared; /* one page of pid 1, launcher and helper; the workload's exec drops it */
        int to_init[2], to_helper[2];    /* socket pairs that carry the listener, [1] the receiver; close-on-exec */
};
#define PV_RENAME_INIT                                         \
        {                                                      \
                .to_init = { -1, -1 }, .to_helper = { -1, -1 } \
        }

int pv_rename_prepare(struct pv_rename *r, struct pv_err *err);

/* In pid 1: lets go of what was prepared, when the helper is gone or never was. */
void pv_rename_fini(struct pv_rename *r);

/*
 * Forks the helper as a child of pid 1 (CLONE_PARENT), so that the workload has no child that it does not know. It
 * keeps the launcher's ids and Landlock domain and the capabilities that the workload will have (`keep`), cannot be
 * traced or dumped, is out of the terminal's reach, closes all descriptors but its own and waits for the listener.
 */
int pv_rename_fork(struct pv_rename *r, enum pv_caps_keep keep, struct pv_err *err);

/* In the launcher: a pidfd of the helper; -1: there is none. The caller's. */
int pv_rename_open_helper(const struct pv_rename *r);

/*
 * Gives the listener (taken: closed here) to the helper, and a copy to pid 1 for the day the helper dies. -1: the
 * helper ends. Closes the launcher's ends.
 */
int pv_rename_hand_over(struct pv_rename *r, int listener, struct pv_err *err);

/* Was one ever forked? */
bool pv_rename_has_helper(const struct pv_rename *r);

/* Was the reaped child of pid 1 the helper? False for a zeroed or unprepared r too. */
bool pv_rename_reaped(const struct pv_rename *r, pid_t pid);

/*
 * The helper died: the workload killed it, or memory ran out. Ends the renames that it had in hand with EINTR and
 * returns the listener, pid 1's from now on. While it is polled and answered no rename hangs or fails with ENOSYS:
 * those of lower directories fail with EXDEV, as they would without a helper. -1: there is no listener, or nobody whom
 * it could tell of.
 */
int pv_rename_take_over(struct pv_rename *r);

/* Lets one waiting rename go on in the kernel. False when nobody is left who could ask: close the listener. */
bool pv_rename_continue(int listener);

#endif
