/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resource limits. Each limit that was asked for becomes one observation (dimension resources) with what was
 * requested, what is in force, by which mechanism, and what that mechanism does not cover.
 *
 *   memory       cgroup memory.max, for the whole run; else RLIMIT_DATA, for each process alone
 *   processes    cgroup pids.max; else RLIMIT_NPROC, which counts per user namespace since Linux 5.14 but never holds
 *                the host's root; with it kernel.pid_max of the pid namespace (6.14), which holds everybody, coarsely
 *   cpu-time     RLIMIT_CPU, for each process alone
 *   open-files   RLIMIT_NOFILE, for each process
 *   file-size    RLIMIT_FSIZE, for each file
 *
 * Unasked, a sandbox gets an eighth less processes than the person may have.
 */
#ifndef PV_BOUNDARY_LIMITS_H
#define PV_BOUNDARY_LIMITS_H

#include <stdbool.h>
#include "base/err.h"
#include "boundary/cgroup.h"
#include "evidence/observation.h"
#include "policy/plan.h"

#define PV_LIMIT_MEMORY     "memory"
#define PV_LIMIT_PROCESSES  "processes"
#define PV_LIMIT_CPU_TIME   "cpu-time"
#define PV_LIMIT_OPEN_FILES "open-files"
#define PV_LIMIT_FILE_SIZE  "file-size"
/* How the mechanism of a limit begins that a control group keeps. */
#define PV_LIMITS_BY_CGROUP "cgroup v"

/* pid 1, the rename helper and one worker of it run beside the workload and are not counted against it. */
#define PV_LIMITS_OWN_PROCESSES 3

/*
 * The part that needs privilege over the pid namespace: kernel.pid_max. Called by pid 1 with an open directory, sys of
 * the namespace's own proc, still writable. Sets *pid_max to what is in force, 0 where the kernel has none for a
 * namespace or no limit was asked for.
 */
int pv_limits_apply_namespace(const struct pv_limits *limits, int sysctl, uint64_t *pid_max, struct pv_err *err);

/*
 * Whether this process is the host's root, whatever namespace it is in, whom the kernel exempts: what belongs to the
 * machine looks like its own.
 */
bool pv_limits_is_hosts_root(void);

/* What gives root a limit where it has none. */
#define PV_LIMITS_NO_GROUP "a control group that may be divided: systemd-run --scope -p Delegate=yes pvisor ..."

/* Says, as -1, that a limit of processes was asked for and would be none. */
int pv_limits_refuse_processes(struct pv_err *err);

enum pv_limits_flags {
        PV_LIMITS_ROOT = 1 << 0,    /* the workload is the host's root: RLIMIT_NPROC does not hold it */
        PV_LIMITS_NO_CORE = 1 << 1, /* no core dumps: a piped core_pattern runs a host program on hostile data */
        PV_LIMITS_AMBIENT = 1 << 2, /* no user namespace of its own: RLIMIT_NPROC counts all that the person runs */
};

/*
 * The rest, in the process that will be the workload: sets the soft and the hard rlimits, adds the observations.
 * `cgroup` is all zero when there is none; pid_max is what pv_limits_apply_namespace() said. Called last before the
 * probes: the launcher's own work (descriptors, the helper's fork) must not meet the workload's limits.
 */
int pv_limits_apply(const struct pv_limits *limits, const struct pv_cgroup_effect *cgroup, uint64_t pid_max,
                    enum pv_limits_flags flags, struct pv_observations *obs, struct pv_err *err);

#endif
