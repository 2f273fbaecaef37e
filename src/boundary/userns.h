/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User namespaces, user_namespaces(7). Two, one inside the other: the outer one owns the mount, pid, ipc, uts and
 * network namespaces; the workload lives in the inner one, so that no capability it might regain reaches those.
 * Ids are what they are outside: an ordinary user's own id, and for root all that root has.
 */
#ifndef PV_BOUNDARY_USERNS_H
#define PV_BOUNDARY_USERNS_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

/* The text of uid_map and gid_map, made once by the supervisor and used for both namespaces. */
struct pv_idmap {
        char uid[1024], gid[1024];
        bool deny_setgroups; /* needed before gid_map may be written without privilege */
};

/*
 * Maps each id that the caller has to itself where the caller may (CAP_SETUID and CAP_SETGID: root), else its
 * effective ids alone.
 */
int pv_idmap_prepare(struct pv_idmap *map, struct pv_err *err);

/*
 * Writes the maps of process pid (as seen in the caller's /proc), which is in a new user namespace below the caller's
 * and waits for it.
 */
int pv_idmap_write(const struct pv_idmap *map, pid_t pid, struct pv_err *err);

/*
 * Allows no user namespace but one more below the caller's, the inner one: the workload finds ENOSPC. sysctl is an open
 * directory: /proc/sys, writable.
 */
int pv_userns_allow_one(int sysctl, struct pv_err *err);

/*
 * Allows no further control group namespace. Who has a capability over one may mount the machine's control groups from
 * there, and what the person may write in them is theirs: freezing and killing what shares a group with the run,
 * lifting its limits. sysctl as above.
 */
int pv_userns_allow_no_cgroups(int sysctl, struct pv_err *err);

/*
 * Of what inotify(7) gives to each user, leaves the person a quarter: what the sandbox has counts as the person's, too.
 * No wall: where the kernel does not take it nothing is said. sysctl as above.
 */
void pv_userns_leave_watches(int sysctl);

/*
 * Turns the failure to make a user namespace, or to mount in it, into PV_ERR_UNSUPPORTED with what forbids it on this
 * host and the fix as a hint. Called by the supervisor with the errno.
 */
int pv_userns_explain(int sys, struct pv_err *err);

#endif
