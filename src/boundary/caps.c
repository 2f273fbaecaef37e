/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/caps.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include "base/syscall.h"
#include "boundary/control.h"

#define BIT(cap) (UINT64_C(1) << (cap))
#define ROOT_FILES                                                                                    \
        (BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) | BIT(CAP_KILL) | \
         BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SYS_CHROOT))

/* No capability comes back by being root, by changing ids or by the ambient set, and none of that can be unset. */
#define LOCKED_NONE                                                                                      \
        (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED | \
         SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)
/* Root's programs get root's (bounded) set at exec and lose it by setuid(2), as they expect. */
#define LOCKED_ROOT (SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

int pv_caps_set(uint64_t set)
{
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = {
                { .effective = (uint32_t)set, .permitted = (uint32_t)set },
                { .effective = (uint32_t)(set >> 32), .permitted = (uint32_t)(set >> 32) },
        };

        return (int)syscall(SYS_capset, &head, data);
}

static int get_caps(uint64_t *permitted)
{
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2];

        if (syscall(SYS_capget, &head, data) < 0)
                return -1;
        *permitted = (data[0].permitted | data[0].effective | data[0].inheritable) |
                     (uint64_t)(data[1].permitted | data[1].effective | data[1].inheritable) << 32;
        return 0;
}

/* The kernel may know capabilities that this header does not: it says EINVAL behind its last one. */
static int bound(uint64_t keep, struct pv_err *err)
{
        for (unsigned cap = 0; cap < 64; cap++) {
                if (keep & BIT(cap))
                        continue;
                if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
                        if (errno == EINVAL && cap > 0)
                                return 0;
                        return pv_err_set(err, PV_ERR_SYS, errno, "drop capability %u", cap);
                }
        }
        return 0;
}

static int verify(uint64_t keep, struct pv_err *err)
{
        uint64_t left;

        if (get_caps(&left) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read back the capabilities");
        if (left & ~keep)
                return pv_err_set(err, PV_ERR_SYS, 0, "capabilities remain after dropping them: %#llx",
                                  (unsigned long long)left);
        for (unsigned cap = 0; cap < 64; cap++) {
                int in = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

                if (in < 0)
                        break;
                if (in == 1 && !(keep & BIT(cap)))
                        return pv_err_set(err, PV_ERR_SYS, 0, "capability %u remains in the bounding set", cap);
        }
        return 0;
}

int pv_caps_no_new_privs(struct pv_observations *obs, struct pv_err *err)
{
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "set no_new_privs");

        struct pv_observation *o = pv_observations_add(obs, PV_DIM_SUBPROCESSES, PV_CONTROL_NNP,
                                                       "no_new_privs: setuid and file capabilities have no effect");
        if (o)
                o->installed = true;
        return 0;
}

static void observe(struct pv_observations *obs, enum pv_caps_keep keep)
{
        bool root = keep & PV_CAPS_ROOT_FILES;
        struct pv_observation *o = pv_observations_add(obs, PV_DIM_SUBPROCESSES, PV_CONTROL_CAPS,
                                                       root ? "file capabilities in the innermost user namespace alone"
                                                            : "every set empty, securebits locked");

        if (!o)
                return;
        o->installed = true;
        if (root)
                pv_observation_limit(o, "as root: changes owners, modes and ids of files and processes of the view");
}

int pv_caps_drop(enum pv_caps_keep keep, struct pv_observations *obs, struct pv_err *err)
{
        uint64_t set = (keep & PV_CAPS_ROOT_FILES ? ROOT_FILES : 0) | (keep & PV_CAPS_TRACE ? BIT(CAP_SYS_PTRACE) : 0) |
                       (keep & PV_CAPS_MAP_ROOT ? BIT(CAP_SETFCAP) : 0);
        unsigned long bits = keep & PV_CAPS_ROOT_FILES ? LOCKED_ROOT : LOCKED_NONE;

        if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "lock the securebits");
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "clear the ambient capabilities");
        if (bound(set, err) < 0)
                return -1;
        if (pv_caps_set(set) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "drop the capabilities");
        if (verify(set, err) < 0)
                return -1;
        if (obs)
                observe(obs, keep);
        return 0;
}
