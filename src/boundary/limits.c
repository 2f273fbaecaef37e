/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "boundary/control.h"

/*
 * The kernel takes no less (PIDS_RESERVED), and starts again there once the numbers have run out: pids below stay
 * with whoever has them, so that N processes more need 300 + N numbers.
 */
#define PIDS_RESERVED 300
#define PIDS_MOST     UINT64_C(4194304)
/* Below /proc/sys; the second belongs to the machine in every namespace. */
#define PID_MAX          "kernel/pid_max"
#define MACHINES_SETTING "kernel/core_pattern"

#define UNHELD_ROOT "RLIMIT_NPROC does not hold root, and this kernel has no pid_max a namespace (6.14)"

int pv_limits_refuse_processes(struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "--max-processes: nothing holds it here: " UNHELD_ROOT);
        return pv_err_hint(err, PV_LIMITS_NO_GROUP ", or run it as an ordinary user");
}

/* In a child: can who is not the host's root write it, by the rights over the namespace alone? The exit status. */
static int try_as_another(int sysctl)
{
        const uid_t another = 65534, same = (uid_t)-1;

        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0 || syscall(SYS_setresuid, same, another, same) < 0)
                return 1;
        return openat(sysctl, PID_MAX, O_WRONLY | O_CLOEXEC) < 0;
}

static bool owns_machine(int dir, const char *setting)
{
        struct stat st;
        return geteuid() == 0 && (fstatat(dir, setting, &st, 0) < 0 || st.st_uid == 0);
}

bool pv_limits_is_hosts_root(void)
{
        return owns_machine(AT_FDCWD, "/proc/sys/" MACHINES_SETTING);
}

/*
 * Whether kernel.pid_max is the namespace's. Before Linux 6.14 there is one for the whole machine, which the host's
 * root may write in any namespace, so that for that user the right to write it proves nothing.
 */
static bool has_own_pid_max(int sysctl)
{
        int status;

        if (!owns_machine(sysctl, MACHINES_SETTING))
                return true;
        pid_t pid = fork();
        if (pid == 0)
                _exit(try_as_another(sysctl));
        return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int pv_limits_apply_namespace(const struct pv_limits *limits, int sysctl, uint64_t *pid_max, struct pv_err *err)
{
        char text[24];
        int len;

        *pid_max = 0;
        if (limits->max_processes == 0 || limits->max_processes > PIDS_MOST - PIDS_RESERVED || !has_own_pid_max(sysctl))
                return 0;

        pv_auto_fd fd = openat(sysctl, PID_MAX, O_WRONLY | O_CLOEXEC);
        if (fd < 0) /* the host's own */
                return errno == EACCES || errno == EPERM || errno == ENOENT || errno == EROFS
                               ? 0
                               : pv_err_set(err, PV_ERR_SYS, errno, "open kernel.pid_max");
        len = snprintf(text, sizeof text, "%" PRIu64, PIDS_RESERVED + limits->max_processes);
        if (write(fd, text, (size_t)len) != len)
                return errno == EPERM || errno == EACCES || errno == EINVAL
                               ? 0
                               : pv_err_set(err, PV_ERR_SYS, errno, "set kernel.pid_max");
        *pid_max = PIDS_RESERVED + limits->max_processes;
        return 0;
}

/* One limit: hard as well as soft, never above the hard limit that is there already. *effective is what holds. */
static int set(int resource, const char *name, uint64_t soft, uint64_t hard, uint64_t *effective, struct pv_err *err)
{
        struct rlimit old, new = { .rlim_cur = (rlim_t)soft, .rlim_max = (rlim_t)hard };

        if (getrlimit((__rlimit_resource_t)resource, &old) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read the limit of %s", name);
        if (old.rlim_max < new.rlim_max)
                new.rlim_max = old.rlim_max;
        if (new.rlim_max < new.rlim_cur)
                new.rlim_cur = new.rlim_max;
        if (setrlimit((__rlimit_resource_t)resource, &new) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "limit %s", name);
        if (getrlimit((__rlimit_resource_t)resource, &old) < 0 || old.rlim_cur != new.rlim_cur)
                return pv_err_set(err, PV_ERR_SYS, errno, "the limit of %s did not hold", name);
        *effective = new.rlim_cur;
        return 0;
}

static struct pv_observation *observe(struct pv_observations *obs, const char *limit, uint64_t requested,
                                      uint64_t effective, const char *mechanism)
{
        struct pv_observation *o = pv_observations_add(obs, PV_DIM_RESOURCES, limit, mechanism);

        if (o) {
                o->requested = requested;
                o->effective = effective;
                o->installed = effective != 0;
        }
        return o;
}

static void by_cgroup(char mechanism[96], const struct pv_cgroup_effect *cgroup, const char *file)
{
        (void)snprintf(mechanism, 96, PV_LIMITS_BY_CGROUP "%u %s, for the whole run", cgroup->version, file);
}

static int apply_memory(const struct pv_limits *limits, const struct pv_cgroup_effect *cgroup,
                        struct pv_observations *obs, struct pv_err *err)
{
        char mechanism[96];
        uint64_t effective = 0;
        struct pv_observation *o;

        if (cgroup->memory_bytes) {
                by_cgroup(mechanism, cgroup, "memory limit");
                (void)observe(obs, PV_LIMIT_MEMORY, limits->memory_bytes, cgroup->memory_bytes, mechanism);
                return 0;
        }
        /* Not RLIMIT_AS: node, go and java reserve far more address space than they use, and would not start. */
        if (set(RLIMIT_DATA, PV_LIMIT_MEMORY, limits->memory_bytes, limits->memory_bytes, &effective, err) < 0)
                return -1;
        o = observe(obs, PV_LIMIT_MEMORY, limits->memory_bytes, effective, "RLIMIT_DATA, for each process");
        if (o) {
                pv_observation_limit(o, "no control group may be made here: each process has the limit for itself");
                pv_observation_limit(o, "shared memory, files in memory and the kernel's own are not counted");
        }
        return 0;
}

static int apply_processes(const struct pv_limits *limits, const struct pv_cgroup_effect *cgroup, uint64_t pid_max,
                           enum pv_limits_flags flags, struct pv_observations *obs, struct pv_err *err)
{
        uint64_t wanted = limits->max_processes, effective = 0, counted = wanted + PV_LIMITS_OWN_PROCESSES;
        struct pv_observation *o;
        char mechanism[96];

        if (cgroup->max_processes) {
                by_cgroup(mechanism, cgroup, "pids limit");
                (void)observe(obs, PV_LIMIT_PROCESSES, wanted, cgroup->max_processes, mechanism);
                return 0;
        }
        if (flags & PV_LIMITS_AMBIENT) {
                o = observe(obs, PV_LIMIT_PROCESSES, wanted, 0, "none without a sandbox or a control group");
                if (o)
                        pv_observation_limit(o, "RLIMIT_NPROC would count everything that the person runs");
                return 0;
        }
        /* Root of some other namespace than the host's is held by it all the same: set it always, claim it rarely. */
        if (set(RLIMIT_NPROC, PV_LIMIT_PROCESSES, counted, counted, &effective, err) < 0)
                return -1;
        if (!(flags & PV_LIMITS_ROOT)) {
                (void)observe(obs, PV_LIMIT_PROCESSES, wanted, wanted,
                              pid_max ? "RLIMIT_NPROC of the user namespace; kernel.pid_max of the pid namespace"
                                      : "RLIMIT_NPROC of the user namespace");
                return 0;
        }
        o = observe(obs, PV_LIMIT_PROCESSES, wanted, pid_max,
                    pid_max ? "kernel.pid_max of the pid namespace" : "none for root without a control group");
        if (o && pid_max)
                pv_observation_limit(o, "the first 300 processes of the run come on top");
        else if (o)
                pv_observation_limit(o, UNHELD_ROOT);
        return 0;
}

static int apply_cpu_time(const struct pv_limits *limits, struct pv_observations *obs, struct pv_err *err)
{
        uint64_t seconds = (limits->max_cpu_ms + 999) / 1000, effective = 0;
        struct pv_observation *o;

        /* SIGXCPU first, which says what it was; SIGKILL a second later. */
        if (set(RLIMIT_CPU, PV_LIMIT_CPU_TIME, seconds, seconds + 1, &effective, err) < 0)
                return -1;
        o = observe(obs, PV_LIMIT_CPU_TIME, limits->max_cpu_ms, effective * 1000, "RLIMIT_CPU, for each process");
        if (o)
                pv_observation_limit(o, "each process has the limit for itself");
        return 0;
}

static int apply_simple(int resource, const char *limit, uint64_t wanted, const char *mechanism,
                        struct pv_observations *obs, struct pv_err *err)
{
        uint64_t effective = 0;

        if (set(resource, limit, wanted, wanted, &effective, err) < 0)
                return -1;
        (void)observe(obs, limit, wanted, effective, mechanism);
        return 0;
}

/*
 * A limit of one byte, not of none: for a piped core_pattern the kernel ignores the limit but for this value, which
 * it reserves for refusing (fs/coredump.c).
 */
static int refuse_core_dumps(struct pv_observations *obs, struct pv_err *err)
{
        uint64_t effective = 0;

        if (set(RLIMIT_CORE, "core dumps", 1, 1, &effective, err) < 0)
                return -1;
        struct pv_observation *o = pv_observations_add(obs, PV_DIM_HOST_WRITES, PV_CONTROL_CORE,
                                                       "RLIMIT_CORE: no dump, and no host program that takes one");
        if (o)
                o->installed = effective == 1;
        return 0;
}

/*
 * What the sandbox runs counts as the person's, too, but its own limit is asked of what it has alone (5.14): an eighth
 * less than the person has leaves room to look and to end it.
 */
static int leave_processes(struct pv_err *err)
{
        struct rlimit old;
        uint64_t effective = 0;

        if (getrlimit(RLIMIT_NPROC, &old) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read the limit of " PV_LIMIT_PROCESSES);
        if (old.rlim_cur == RLIM_INFINITY)
                return 0;
        uint64_t most = old.rlim_cur - old.rlim_cur / 8;
        return set(RLIMIT_NPROC, PV_LIMIT_PROCESSES, most, most, &effective, err);
}

int pv_limits_apply(const struct pv_limits *limits, const struct pv_cgroup_effect *cgroup, uint64_t pid_max,
                    enum pv_limits_flags flags, struct pv_observations *obs, struct pv_err *err)
{
        if (flags & PV_LIMITS_NO_CORE && refuse_core_dumps(obs, err) < 0)
                return -1;
        if (!(flags & PV_LIMITS_AMBIENT) && leave_processes(err) < 0)
                return -1;
        if (limits->memory_bytes && apply_memory(limits, cgroup, obs, err) < 0)
                return -1;
        if (limits->max_processes && apply_processes(limits, cgroup, pid_max, flags, obs, err) < 0)
                return -1;
        if (limits->max_cpu_ms && apply_cpu_time(limits, obs, err) < 0)
                return -1;
        if (limits->max_file_bytes && apply_simple(RLIMIT_FSIZE, PV_LIMIT_FILE_SIZE, limits->max_file_bytes,
                                                   "RLIMIT_FSIZE, for each file", obs, err) < 0)
                return -1;
        return limits->max_open_files ? apply_simple(RLIMIT_NOFILE, PV_LIMIT_OPEN_FILES, limits->max_open_files,
                                                     "RLIMIT_NOFILE, for each process", obs, err)
                                      : 0;
}
