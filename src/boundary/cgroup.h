/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control group of the run's own (Documentation/admin-guide/cgroup-v2.rst), where this process may make one: below
 * its own group or beside it (a delegated subtree, as systemd's user manager has; root). Used for what rlimits cannot
 * do: memory and processes of the whole run together, and killing and freezing it as one. Moving a process into a
 * group waits for an RCU grace period (milliseconds), so that none is made unless a limit asks for it.
 */
#ifndef PV_BOUNDARY_CGROUP_H
#define PV_BOUNDARY_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "evidence/observation.h"
#include "policy/plan.h"

struct pv_cgroup;

/*
 * Makes a group for limits->memory_bytes and limits->max_processes and sets them. *out is NULL, and that is success,
 * when no limit needs a group or none can be had. Called by the supervisor in the host's namespaces.
 */
int pv_cgroup_open(const struct pv_limits *limits, struct pv_cgroup **out, struct pv_err *err);

/* Moves a process (pid as this process sees it) into the group, before it starts others. */
int pv_cgroup_enter(struct pv_cgroup *g, pid_t pid, struct pv_err *err);

/* What the group limits; NULL: nothing. Plain data: pv_limits_apply() wants it in the sandbox. */
struct pv_cgroup_effect {
        uint64_t memory_bytes, max_processes; /* 0: not limited here */
        bool kill;                            /* cgroup.kill (5.14) is there */
        unsigned version;                     /* 1 or 2 */
        char dir[512];                        /* the group's, on the host: where a probe tries to get at it; or "" */
};
struct pv_cgroup_effect pv_cgroup_effect(const struct pv_cgroup *g);

/* Kills all processes of the group at once. False where the kernel cannot: kill pid 1 of the sandbox instead. */
bool pv_cgroup_kill(struct pv_cgroup *g);

/* The group's directory on the host, for the job's record (freezing); NULL for none or version 1. Borrowed. */
const char *pv_cgroup_path(const struct pv_cgroup *g);

/* Removes the group (its processes must be gone) and frees. NULL is silence. */
void pv_cgroup_free(struct pv_cgroup *g);
static inline void pv_cgroup_freep(struct pv_cgroup **g)
{
        pv_cgroup_free(*g);
        *g = NULL;
}
#define pv_auto_cgroup __attribute__((cleanup(pv_cgroup_freep))) struct pv_cgroup *

#endif
