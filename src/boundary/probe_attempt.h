/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attempts themselves, one function a probe. Each returns the errno of its refusal, or one of the values below;
 * each undoes what it did should it succeed.
 */
#ifndef PV_BOUNDARY_PROBE_ATTEMPT_H
#define PV_BOUNDARY_PROBE_ATTEMPT_H

#include "boundary/probe.h"

enum {
        PV_ATTEMPT_SUCCEEDED = 0,
        PV_ATTEMPT_ABSENT = -1,   /* the host has no such thing */
        PV_ATTEMPT_NOT_MADE = -2, /* what it needs is missing, or it could not tell */
};

typedef int pv_attempt(const struct pv_probe_spec *spec);

/* probe_files.c */
pv_attempt pv_attempt_read_absolute, pv_attempt_read_dotdot, pv_attempt_read_self_root, pv_attempt_read_init_root;
pv_attempt pv_attempt_read_host_process, pv_attempt_read_by_fd;
pv_attempt pv_attempt_create_absolute, pv_attempt_create_dotdot, pv_attempt_create_self_root,
        pv_attempt_create_init_root, pv_attempt_create_by_fd;
pv_attempt pv_attempt_root_absolute, pv_attempt_root_dotdot, pv_attempt_root_self_root, pv_attempt_root_init_root;
pv_attempt pv_attempt_create_read_only, pv_attempt_remount, pv_attempt_mount, pv_attempt_fsopen, pv_attempt_handle;
pv_attempt pv_attempt_sysctl, pv_attempt_sysrq, pv_attempt_own_proc, pv_attempt_own_cgroups, pv_attempt_share_socket,
        pv_attempt_share_fifo;
pv_attempt pv_attempt_masks, pv_attempt_hidden, pv_attempt_cgroup_files;

/* probe_network.c */
pv_attempt pv_attempt_tcp4, pv_attempt_tcp6, pv_attempt_udp4, pv_attempt_udp6, pv_attempt_abstract,
        pv_attempt_interface;
pv_attempt pv_attempt_vsock, pv_attempt_packet, pv_attempt_audit;

/* probe_processes.c */
pv_attempt pv_attempt_signal_pid, pv_attempt_signal_pidfd, pv_attempt_host_proc, pv_attempt_take_descriptor;
pv_attempt pv_attempt_hostname, pv_attempt_capset, pv_attempt_ambient, pv_attempt_no_new_privs, pv_attempt_userns;
pv_attempt pv_attempt_trace_init, pv_attempt_signal_init, pv_attempt_ipc_namespace;
pv_attempt pv_attempt_terminal_input, pv_attempt_bpf, pv_attempt_module, pv_attempt_keyring;
pv_attempt pv_attempt_descriptors, pv_attempt_stdio, pv_attempt_reopen, pv_attempt_secrets;
pv_attempt pv_attempt_raise_memory, pv_attempt_raise_processes, pv_attempt_raise_cpu, pv_attempt_raise_files,
        pv_attempt_raise_size, pv_attempt_raise_core, pv_attempt_pid_max;

#endif
