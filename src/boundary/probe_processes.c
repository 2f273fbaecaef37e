/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/probe_attempt.h"

#include <errno.h>
#include <linux/capability.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/str.h"
#include "base/syscall.h"

/* The sandbox's own first processes have small numbers: one of those says nothing about the host's. */
#define OWN_PIDS 16

static int refusal(long r)
{
        return r < 0 ? errno : PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_signal_pid(const struct pv_probe_spec *spec)
{
        if (spec->canary->supervisor <= OWN_PIDS)
                return PV_ATTEMPT_NOT_MADE;
        return refusal(kill(spec->canary->supervisor, 0));
}

int pv_attempt_signal_pidfd(const struct pv_probe_spec *spec)
{
        if (spec->canary->supervisor_fd < 0)
                return PV_ATTEMPT_NOT_MADE;
        return refusal(pv_sys_pidfd_send_signal(spec->canary->supervisor_fd, 0));
}

int pv_attempt_host_proc(const struct pv_probe_spec *spec)
{
        char path[64];

        if (spec->canary->supervisor <= OWN_PIDS)
                return PV_ATTEMPT_NOT_MADE;
        (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)spec->canary->supervisor);
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        return refusal(fd);
}

/* Taking a descriptor out of a process asks for the right to trace it (pidfd_getfd(2)), and names no pid. */
int pv_attempt_take_descriptor(const struct pv_probe_spec *spec)
{
        if (spec->canary->supervisor_fd < 0)
                return PV_ATTEMPT_NOT_MADE;
        pv_auto_fd fd = (int)syscall(SYS_pidfd_getfd, spec->canary->supervisor_fd, 0, 0);
        return refusal(fd);
}

/* The hostname's namespace belongs to the outer user namespace, as all others do. */
int pv_attempt_hostname(const struct pv_probe_spec *spec)
{
        char name[HOST_NAME_MAX + 1];

        (void)spec;
        if (gethostname(name, sizeof name) < 0)
                return PV_ATTEMPT_NOT_MADE;
        return refusal(sethostname(name, strnlen(name, sizeof name)));
}

int pv_attempt_capset(const struct pv_probe_spec *spec)
{
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { 0 };

        (void)spec;
        if (syscall(SYS_capget, &head, data) < 0)
                return PV_ATTEMPT_NOT_MADE;
        data[0].permitted |= 1U << CAP_SYS_ADMIN;
        data[0].effective |= 1U << CAP_SYS_ADMIN;
        return refusal(syscall(SYS_capset, &head, data));
}

int pv_attempt_ambient(const struct pv_probe_spec *spec)
{
        (void)spec;
        return refusal(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0));
}

int pv_attempt_no_new_privs(const struct pv_probe_spec *spec)
{
        (void)spec;
        if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
                return PV_ATTEMPT_SUCCEEDED;
        /* It cannot be taken back: the kernel knows no other value. */
        return refusal(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

/* In a child, so that a success does not move this process into the new namespace. */
int pv_attempt_userns(const struct pv_probe_spec *spec)
{
        long pid;

        if (spec->plan->allow_userns)
                return PV_ATTEMPT_NOT_MADE;
        pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0)
                _exit(0);
        if (pid < 0)
                return errno;
        (void)waitpid((pid_t)pid, NULL, 0);
        return PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_trace_init(const struct pv_probe_spec *spec)
{
        (void)spec;
        if (ptrace(PTRACE_SEIZE, 1, NULL, NULL) < 0)
                return errno;
        (void)ptrace(PTRACE_DETACH, 1, NULL, NULL);
        return PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_signal_init(const struct pv_probe_spec *spec)
{
        (void)spec;
        return refusal(kill(1, 0));
}

int pv_attempt_ipc_namespace(const struct pv_probe_spec *spec)
{
        struct stat st;

        if (spec->canary->ipc_namespace == 0 || stat("/proc/self/ns/ipc", &st) < 0)
                return PV_ATTEMPT_NOT_MADE;
        return st.st_ino == spec->canary->ipc_namespace ? PV_ATTEMPT_SUCCEEDED : ENOENT;
}

/* On no descriptor: the filter answers before the kernel looks at it. */
int pv_attempt_terminal_input(const struct pv_probe_spec *spec)
{
        (void)spec;
        if (ioctl(-1, TIOCSTI, "") < 0 && errno != EBADF)
                return errno;
        return PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_bpf(const struct pv_probe_spec *spec)
{
        (void)spec;
        long r = syscall(SYS_bpf, 0xffff, NULL, 0);
        return r < 0 && errno != EINVAL && errno != EFAULT ? errno : PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_module(const struct pv_probe_spec *spec)
{
        (void)spec;
        long r = syscall(SYS_finit_module, -1, "", 0);
        return r < 0 && errno != EBADF ? errno : PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_keyring(const struct pv_probe_spec *spec)
{
        (void)spec;
        /* KEYCTL_GET_KEYRING_ID of the session's keyring, without making one. ENOKEY is an answer all the same. */
        long r = syscall(SYS_keyctl, 0, -3, 0);
        return r < 0 && errno != ENOKEY ? errno : PV_ATTEMPT_SUCCEEDED;
}

static bool is_expected_fd(const struct pv_probe_spec *spec, int fd)
{
        return fd <= STDERR_FILENO || fd == spec->keep_fd || fd == spec->canary->dir_fd ||
               fd == spec->canary->supervisor_fd || fd == spec->share_fd;
}

static int count_expected(const struct pv_probe_spec *spec)
{
        const int fds[] = { 0, 1, 2, spec->keep_fd, spec->canary->dir_fd, spec->canary->supervisor_fd, spec->share_fd };
        int n = 0;

        for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
                n += fds[i] >= 0 && fcntl(fds[i], F_GETFD) >= 0;
        return n;
}

int pv_attempt_descriptors(const struct pv_probe_spec *spec)
{
        pv_auto_dir d = NULL;
        struct stat st;

        /* Since Linux 6.2 the directory's size is the number of descriptors, ten times cheaper than a list of them. */
        if (stat("/proc/self/fd", &st) == 0 && st.st_size == count_expected(spec))
                return EBADF;
        d = opendir("/proc/self/fd");
        if (!d)
                return PV_ATTEMPT_NOT_MADE;
        for (struct dirent *e; (e = readdir(d));) {
                int fd = atoi(e->d_name);

                if (e->d_name[0] != '.' && fd != dirfd(d) && !is_expected_fd(spec, fd))
                        return PV_ATTEMPT_SUCCEEDED;
        }
        return EBADF;
}

/* A directory as stdin is a way out for whoever opens "..", below every mount. */
int pv_attempt_stdio(const struct pv_probe_spec *spec)
{
        struct stat st;

        (void)spec;
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
                        return PV_ATTEMPT_SUCCEEDED;
        return ENOTDIR;
}

/* The file of `pvisor run ... < FILE` lies on a writable mount of the host: /proc/self/fd/0 leads to it anew. */
int pv_attempt_reopen(const struct pv_probe_spec *spec)
{
        int r = PV_ATTEMPT_ABSENT;

        (void)spec;
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
                struct stat st;
                int flags = fcntl(fd, F_GETFL);

                if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                        continue;
                int again = open(pv_fd_path(fd).s, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
                if (again >= 0) {
                        (void)close(again);
                        return PV_ATTEMPT_SUCCEEDED;
                }
                r = errno;
        }
        return r;
}

static bool is_secret_name(const char *variable)
{
        static const char *const parts[] = { "TOKEN",          "SECRET",          "PASSW",      "API_KEY",
                                             "ACCESS_KEY",     "PRIVATE_KEY",     "CREDENTIAL", "SSH_AUTH_SOCK",
                                             "GPG_AGENT_INFO", "DBUS_SESSION_BUS" };
        const char *end = strchrnul(variable, '=');

        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
                const char *at = strstr(variable, parts[i]);
                if (at && at < end)
                        return true;
        }
        return false;
}

static bool is_passed(const struct pv_strv *names, const char *variable)
{
        size_t len = (size_t)(strchrnul(variable, '=') - variable);

        for (size_t i = 0; i < names->n; i++)
                if (strncmp(names->v[i], variable, len) == 0 && names->v[i][len] == '\0')
                        return true;
        return false;
}

/* What the command is about to get: a name that smells of a secret and was not asked for. */
int pv_attempt_secrets(const struct pv_probe_spec *spec)
{
        const struct pv_plan *plan = spec->plan;

        for (size_t i = 0; i < plan->env.n; i++)
                if (is_secret_name(plan->env.v[i]) && !is_passed(&plan->env_passed, plan->env.v[i]) &&
                    !is_passed(&plan->env_injected, plan->env.v[i]))
                        return PV_ATTEMPT_SUCCEEDED;
        return ENOENT;
}

static int try_raise(int resource)
{
        struct rlimit old, more;

        if (getrlimit((__rlimit_resource_t)resource, &old) < 0 || old.rlim_max == RLIM_INFINITY)
                return PV_ATTEMPT_NOT_MADE;
        more = old;
        more.rlim_max++;
        if (setrlimit((__rlimit_resource_t)resource, &more) < 0)
                return errno;
        (void)setrlimit((__rlimit_resource_t)resource, &old);
        return PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_raise_memory(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_raise(RLIMIT_DATA);
}

int pv_attempt_raise_processes(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_raise(RLIMIT_NPROC);
}

int pv_attempt_raise_cpu(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_raise(RLIMIT_CPU);
}

int pv_attempt_raise_files(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_raise(RLIMIT_NOFILE);
}

int pv_attempt_raise_size(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_raise(RLIMIT_FSIZE);
}

int pv_attempt_raise_core(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_raise(RLIMIT_CORE);
}
