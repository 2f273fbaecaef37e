/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which probes speak for which control, what level they can earn it, and whether the control covers its dimension or a
 * part of it. What a control was installed for and what can be tried against it are different lists on purpose: the
 * probes know nothing of how the control works.
 */
#include "boundary/probe.h"

#include <string.h>
#include "boundary/control.h"
#include "boundary/limits.h"
#include "boundary/probe_attempt.h"

struct probe {
        const char *name, *attempted;
        pv_attempt *attempt;
        bool unless_limited; /* left out where the control said that it does not cover this */
};

struct control {
        enum pv_dimension dimension;
        const char *name;
        enum pv_level best;
        bool partial;
        struct probe probes[PV_PROBES_MAX];
};

#define WHOLE   false
#define PARTIAL true

static const struct control controls[] = {
        { PV_DIM_WORKSPACE_WRITES,
          PV_CONTROL_STAGE,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "stage.path", "the host's directory at its own path", pv_attempt_root_absolute },
            { "stage.dot-dot", "the host's directory by way of ..", pv_attempt_root_dotdot },
            { "stage.proc-self-root", "the host's directory below /proc/self/root", pv_attempt_root_self_root },
            { "stage.proc-1-root", "the host's directory below /proc/1/root", pv_attempt_root_init_root } } },
        { PV_DIM_WORKSPACE_WRITES,
          PV_CONTROL_ROOT,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "write.absolute-path", "create a file beside a canary of the host", pv_attempt_create_absolute },
            { "write.dot-dot", "the same by way of ..", pv_attempt_create_dotdot } } },
        { PV_DIM_HOST_WRITES,
          PV_CONTROL_ROOT,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "write.absolute-path", "create a file beside a canary of the host", pv_attempt_create_absolute },
            { "write.dot-dot", "the same by way of ..", pv_attempt_create_dotdot },
            { "write.proc-self-root", "the same below /proc/self/root", pv_attempt_create_self_root },
            { "write.proc-1-root", "the same below /proc/1/root", pv_attempt_create_init_root },
            { PV_PROBE_REOPEN, "open for writing a file that was passed for reading", pv_attempt_reopen } } },
        { PV_DIM_HOST_WRITES,
          PV_CONTROL_RO,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "read-only.create", "create a file in a system directory", pv_attempt_create_read_only },
            { "read-only.remount", "remount it writable", pv_attempt_remount } } },
        { PV_DIM_HOST_WRITES,
          PV_CONTROL_SHARES,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "share.socket", "connect to the host's socket through a read-only share", pv_attempt_share_socket },
            { "share.fifo", "open the host's FIFO for writing through it", pv_attempt_share_fifo } } },
        { PV_DIM_HOST_WRITES,
          PV_CONTROL_PROC,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "proc.sysctl", "open /proc/sys/kernel/core_pattern for writing", pv_attempt_sysctl },
            { "proc.sysrq", "open /proc/sysrq-trigger for writing", pv_attempt_sysrq },
            { "proc.of-its-own", "write a kernel setting through a proc of its own", pv_attempt_own_proc } } },
        { PV_DIM_HOST_WRITES,
          PV_CONTROL_LANDLOCK,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "landlock.create", "create a file in a canary's directory by a leaked descriptor",
              pv_attempt_create_by_fd } } },
        { PV_DIM_HOST_WRITES,
          PV_CONTROL_SECCOMP,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "filter.mount", "mount a file system", pv_attempt_mount },
            { "filter.fsopen", "mount one by the new interface", pv_attempt_fsopen },
            { "filter.handle", "open a file by its handle", pv_attempt_handle } } },
        { PV_DIM_HOST_WRITES,
          PV_CONTROL_CORE,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "core.raise", "raise the limit of core dumps", pv_attempt_raise_core } } },
        { PV_DIM_READS,
          PV_CONTROL_ROOT,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "read.absolute-path", "read a canary of the host", pv_attempt_read_absolute },
            { "read.dot-dot", "the same by way of ..", pv_attempt_read_dotdot },
            { "read.proc-self-root", "the same below /proc/self/root", pv_attempt_read_self_root },
            { "read.proc-1-root", "the same below /proc/1/root", pv_attempt_read_init_root },
            { "read.host-process", "a host process's working directory", pv_attempt_read_host_process } } },
        { PV_DIM_READS,
          PV_CONTROL_LANDLOCK,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "landlock.read", "read a canary by a leaked descriptor", pv_attempt_read_by_fd } } },
        { PV_DIM_SENSITIVE_PATHS,
          PV_CONTROL_HOME,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "sensitive.credential-stores", "find a credential store below HOME", pv_attempt_masks },
            { "sensitive.job-store", "find pVisor's own records", pv_attempt_hidden } } },
        { PV_DIM_NETWORK,
          PV_CONTROL_NETNS,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "network.tcp4", "connect to a canary on the host's 127.0.0.1", pv_attempt_tcp4 },
            { "network.tcp6", "connect to a canary on the host's ::1", pv_attempt_tcp6 },
            { "network.udp4", "send to a canary on the host's 127.0.0.1", pv_attempt_udp4 },
            { "network.udp6", "send to a canary on the host's ::1", pv_attempt_udp6 },
            { "network.interface", "find a network interface other than lo", pv_attempt_interface },
            { "network.abstract", "connect to an abstract Unix socket of the host", pv_attempt_abstract } } },
        { PV_DIM_NETWORK,
          PV_CONTROL_SECCOMP,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "filter.vsock", "a vsock socket, which knows no namespaces", pv_attempt_vsock },
            { "filter.packet", "a packet socket", pv_attempt_packet },
            { "filter.audit", "a netlink socket of the audit system", pv_attempt_audit } } },
        { PV_DIM_NETWORK,
          PV_CONTROL_LANDLOCK,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "landlock.abstract", "connect to an abstract Unix socket of the host", pv_attempt_abstract, true } } },
        { PV_DIM_CREDENTIALS,
          PV_CONTROL_ENV,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "environment.secrets", "find a secret's name that was not passed on purpose", pv_attempt_secrets } } },
        { PV_DIM_CREDENTIALS,
          PV_CONTROL_FDS,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "descriptors.inherited", "find an inherited descriptor", pv_attempt_descriptors },
            { "descriptors.stdio", "find a directory as stdin, stdout or stderr", pv_attempt_stdio } } },
        { PV_DIM_CREDENTIALS,
          PV_CONTROL_SECCOMP,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "filter.keyring", "ask for the session's keyring", pv_attempt_keyring } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_PIDNS,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "processes.signal", "signal a host process by its number", pv_attempt_signal_pid },
            { "processes.pidfd", "signal it by a leaked pidfd", pv_attempt_signal_pidfd },
            { "processes.proc", "see it in /proc", pv_attempt_host_proc } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_IPCNS,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "ipc.namespace", "be in the host's IPC namespace", pv_attempt_ipc_namespace } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_USERNS,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "userns.trace", "take a descriptor out of a host process", pv_attempt_take_descriptor },
            { "userns.control-groups", "mount the machine's control groups in namespaces of its own",
              pv_attempt_own_cgroups },
            { "userns.hostname", "use a capability over the namespaces", pv_attempt_hostname } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_NNP,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "privileges.no-new", "take no_new_privs back", pv_attempt_no_new_privs } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_CAPS,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "capabilities.regain", "regain a capability", pv_attempt_capset },
            { "capabilities.ambient", "raise an ambient capability", pv_attempt_ambient } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_SECCOMP,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "filter.user-namespace", "make a user namespace", pv_attempt_userns },
            { "filter.terminal-input", "push input into a terminal", pv_attempt_terminal_input },
            { "filter.bpf", "load a BPF program", pv_attempt_bpf },
            { "filter.module", "load a kernel module", pv_attempt_module } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_LANDLOCK,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "landlock.trace", "trace the sandbox's own first process", pv_attempt_trace_init },
            { "landlock.signal", "signal it", pv_attempt_signal_init, true } } },
        { PV_DIM_SUBPROCESSES,
          PV_CONTROL_CGROUP,
          PV_LEVEL_ENFORCED,
          PARTIAL,
          { { "cgroup.escape", "open the control group's files", pv_attempt_cgroup_files } } },
        { PV_DIM_RESOURCES,
          PV_LIMIT_MEMORY,
          PV_LEVEL_COOPERATIVE,
          WHOLE,
          { { "limit.memory", "raise the limit", pv_attempt_raise_memory } } },
        { PV_DIM_RESOURCES,
          PV_LIMIT_PROCESSES,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "limit.processes", "raise the limit", pv_attempt_raise_processes },
            { "limit.pid-max", "raise kernel.pid_max", pv_attempt_pid_max } } },
        { PV_DIM_RESOURCES,
          PV_LIMIT_CPU_TIME,
          PV_LEVEL_COOPERATIVE,
          WHOLE,
          { { "limit.cpu-time", "raise the limit", pv_attempt_raise_cpu } } },
        { PV_DIM_RESOURCES,
          PV_LIMIT_OPEN_FILES,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "limit.open-files", "raise the limit", pv_attempt_raise_files } } },
        { PV_DIM_RESOURCES,
          PV_LIMIT_FILE_SIZE,
          PV_LEVEL_ENFORCED,
          WHOLE,
          { { "limit.file-size", "raise the limit", pv_attempt_raise_size } } },
};

/* A limit that a control group keeps: the same probe against its files, whatever the limit. */
static const struct control by_cgroup = { PV_DIM_RESOURCES,
                                          NULL,
                                          PV_LEVEL_ENFORCED,
                                          WHOLE,
                                          { { "limit.control-group", "open the control group's files",
                                              pv_attempt_cgroup_files } } };

static const struct control *find(const struct pv_observation *o)
{
        if (o->dimension == PV_DIM_RESOURCES &&
            strncmp(o->mechanism, PV_LIMITS_BY_CGROUP, strlen(PV_LIMITS_BY_CGROUP)) == 0)
                return &by_cgroup;
        for (size_t i = 0; i < sizeof controls / sizeof *controls; i++)
                if (controls[i].dimension == o->dimension && strcmp(controls[i].name, o->control) == 0)
                        return &controls[i];
        return NULL;
}

static void run(const struct probe *p, const struct pv_probe_spec *spec, struct pv_observation *o)
{
        int r = spec->skip ? PV_ATTEMPT_NOT_MADE : p->attempt(spec);
        enum pv_outcome outcome = r == PV_ATTEMPT_SUCCEEDED  ? PV_OUTCOME_SUCCEEDED
                                  : r == PV_ATTEMPT_ABSENT   ? PV_OUTCOME_ABSENT
                                  : r == PV_ATTEMPT_NOT_MADE ? PV_OUTCOME_NOT_RUN
                                                             : PV_OUTCOME_REFUSED;

        pv_observation_probe(o, p->name, p->attempted, outcome, r > 0 ? r : 0);
}

void pv_probe_run(const struct pv_probe_spec *spec, struct pv_observations *obs)
{
        for (unsigned i = 0; i < obs->n && i < PV_CONTROLS_MAX; i++) {
                struct pv_observation *o = &obs->item[i];
                const struct control *c = find(o);
                bool limited = o->n_limits > 0;

                if (!o->installed)
                        continue;
                for (size_t j = 0; c && j < PV_PROBES_MAX && c->probes[j].name; j++)
                        if (!(c->probes[j].unless_limited && limited))
                                run(&c->probes[j], spec, o);
                if (c)
                        o->partial = c->partial;
                /* What nothing is tried against is taken at its word, and no more. */
                pv_observation_conclude(o, c ? c->best : PV_LEVEL_COOPERATIVE);
        }
}
