/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock (Documentation/userspace-api/landlock.rst): the second wall. The same allow-list as the view's, enforced by
 * another part of the kernel; what the mounts may have missed is refused here.
 */
#ifndef PV_BOUNDARY_LANDLOCK_H
#define PV_BOUNDARY_LANDLOCK_H

#include "base/err.h"
#include "boundary/view.h"
#include "evidence/observation.h"

/* The newest ABI whose rights are known here; older kernels get what they have. */
#define PV_LANDLOCK_ABI_MAX 7

/* The ABI that this kernel offers, at most PV_LANDLOCK_ABI_MAX; 0 when Landlock is missing or switched off. */
int pv_landlock_abi(void);

enum pv_landlock_flags {
        PV_LANDLOCK_SCOPE_ABSTRACT = 1 << 0, /* no abstract Unix socket of a process outside (ABI 6) */
        PV_LANDLOCK_DENY_TCP = 1 << 1,       /* no TCP at all, own loopback included (ABI 4): where the network is
                                                denied but no namespace can be had */
};

/*
 * Confines the calling thread and its later children to the view. Adds its observations (host_writes and reads,
 * network where a flag asks for it), installed as far as the ABI goes, with what it lacks as limits. Without Landlock
 * that is all that happens: not an error, admission decides.
 * Must: no_new_privs set; the view's root be this process's root; called before the rename helper is forked.
 * Mustn't: be called under --allow-userns (Landlock forbids mount(2) to the confined).
 */
int pv_landlock_confine(const struct pv_view *view, enum pv_landlock_flags flags, struct pv_observations *obs,
                        struct pv_err *err);

/*
 * A second layer without file rules, for the launcher after the rename helper forked off: the workload can neither
 * signal (ABI 6) nor trace (any ABI) the helper or anything else outside. Adds the subprocesses observation.
 */
int pv_landlock_scope_processes(struct pv_observations *obs, struct pv_err *err);

#endif
