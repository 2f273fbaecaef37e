/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities, capabilities(7): none for an ordinary user's run, those over staged files for root's. */
#ifndef PV_BOUNDARY_CAPS_H
#define PV_BOUNDARY_CAPS_H

#include <stdint.h>
#include "base/err.h"
#include "evidence/observation.h"

enum pv_caps_keep {
        PV_CAPS_NONE = 0,
        /*
         * CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SYS_CHROOT: what a direct run as root uses on files and
         * on its own processes (tar, apt, npm as root, su). In the innermost user namespace they reach the files of
         * mapped owners that the view makes writable, and nothing else: no namespace belongs to that one.
         */
        PV_CAPS_ROOT_FILES = 1 << 0,
        /* SYS_PTRACE over the innermost user namespace, for the rename helper: yama lets nobody else read a path. */
        PV_CAPS_TRACE = 1 << 1,
        /* SETFCAP: without it root cannot map root into a user namespace of its own (5.12), --allow-userns. */
        PV_CAPS_MAP_ROOT = 1 << 2,
};

/* Sets no_new_privs, for this thread and all that descends from it. Adds its observation. */
int pv_caps_no_new_privs(struct pv_observations *obs, struct pv_err *err);

/*
 * Reduces every set (bounding, ambient, inheritable, permitted, effective) to `keep` and locks the securebits, then
 * reads them back. Adds its observation (obs may be NULL).
 * Must: run in the innermost user namespace, holding all its capabilities; after all ids are set.
 */
int pv_caps_drop(enum pv_caps_keep keep, struct pv_observations *obs, struct pv_err *err);

/* Sets permitted and effective to this set, which must lie within the permitted one. 0, or -1 with errno. */
int pv_caps_set(uint64_t set);

#endif
