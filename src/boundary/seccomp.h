/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system-call filter: a deny-list of what a workload never needs and kernels get broken by. The BPF programs are
 * compiled by libseccomp when pVisor is built (seccomp_compile.c), one for each combination of options: a run spends
 * nothing on it, and does not link the library. Refused calls return what libc and programs take for "not available
 * here", never a signal.
 */
#ifndef PV_BOUNDARY_SECCOMP_H
#define PV_BOUNDARY_SECCOMP_H

#include "base/err.h"
#include "evidence/observation.h"

enum pv_seccomp_options {
        PV_SECCOMP_ALLOW_USERNS = 1 << 0, /* user namespaces and the mount family stay usable (--allow-userns) */
        PV_SECCOMP_NO_IO_URING = 1 << 1,  /* --safe */
        PV_SECCOMP_RENAME = 1 << 2,       /* rename, renameat, renameat2 go to the rename helper */
        PV_SECCOMP_VARIANTS = 1 << 3
};

/*
 * Installs the filter in the calling thread. With PV_SECCOMP_RENAME *listener becomes the caller's descriptor of the
 * notifications (close-on-exec), or -1 where the kernel cannot do it well (before 5.19, or inside another filter that
 * listens already): renames then go straight to the kernel, and a limit says so. listener may be NULL without it.
 * Adds its observations. Must: no_new_privs set.
 */
int pv_seccomp_install(enum pv_seccomp_options options, int *listener, struct pv_observations *obs, struct pv_err *err);

#endif
