/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/seccomp.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include "base/fd.h"
#include "base/syscall.h"
#include "boundary/control.h"
#include "seccomp_programs.h"

static int set_filter(unsigned options, unsigned flags)
{
        return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &programs[options]);
}

/*
 * Without WAIT_KILLABLE_RECV a signal makes a caller give up on a rename that the helper has already done, and its
 * restart then finds nothing to rename: better no help than that.
 */
static int install(enum pv_seccomp_options options, int *listener, const char **no_listener)
{
        *no_listener = NULL;
        if (options & PV_SECCOMP_RENAME) {
                *listener =
                        set_filter(options, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
                if (*listener >= 0)
                        return 0;
                if (errno == EBUSY)
                        *no_listener = "another filter listens already";
                else if (errno == EINVAL)
                        *no_listener = "this kernel's notifications are cut short by signals (before 5.19)";
                else
                        return -1;
                options &= ~(unsigned)PV_SECCOMP_RENAME;
        }
        return set_filter(options, 0);
}

static struct pv_observation *observe(struct pv_observations *obs, enum pv_dimension d, const char *what)
{
        char mechanism[96];

        (void)snprintf(mechanism, sizeof mechanism, "seccomp: %s", what);
        struct pv_observation *o = pv_observations_add(obs, d, PV_CONTROL_SECCOMP, mechanism);
        if (o)
                o->installed = true;
        return o;
}

static void observe_all(struct pv_observations *obs, unsigned options, const char *no_listener)
{
        struct pv_observation *writes = NULL, *processes;

        if (!(options & PV_SECCOMP_ALLOW_USERNS))
                writes = observe(obs, PV_DIM_HOST_WRITES, "no mounts, no files by handle");
        (void)observe(obs, PV_DIM_NETWORK, "sockets of UNIX, INET, INET6 and NETLINK_ROUTE only");
        (void)observe(obs, PV_DIM_CREDENTIALS, "no kernel keyrings");
        processes = observe(obs, PV_DIM_SUBPROCESSES,
                            options & PV_SECCOMP_ALLOW_USERNS
                                    ? "no modules, bpf, perf, terminal injection, foreign ABIs"
                                    : "no namespaces, modules, bpf, perf, terminal injection, foreign ABIs");
        if (processes && options & PV_SECCOMP_ALLOW_USERNS)
                pv_observation_limit(processes, "user namespaces and their mounts are allowed (--allow-userns)");
        if (processes && !(options & PV_SECCOMP_NO_IO_URING))
                pv_observation_limit(processes, "io_uring is allowed without --safe");
        if (writes && no_listener) {
                char sentence[128];

                (void)snprintf(sentence, sizeof sentence, "directories of the host cannot be renamed: %s", no_listener);
                pv_observation_limit(writes, sentence);
        }
}

int pv_seccomp_install(enum pv_seccomp_options options, int *listener, struct pv_observations *obs, struct pv_err *err)
{
        pv_auto_fd fd = -1;
        const char *no_listener;

        if (install(options, &fd, &no_listener) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "seccomp: install the filter");
        observe_all(obs, options, no_listener);
        if (listener)
                *listener = pv_fd_steal(&fd);
        return 0;
}
