/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/userns.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/syscall.h"

#define SYSCTL_MAX_USERNS   "user/max_user_namespaces"
#define SYSCTL_MAX_CGROUPNS "user/max_cgroup_namespaces"

static bool may_set_ids(void)
{
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { { 0 } };
        unsigned want = 1u << CAP_SETUID | 1u << CAP_SETGID;
        return syscall(SYS_capget, &head, data) == 0 && (data[0].effective & want) == want;
}

/* Each range of the caller's own map, mapped to itself. */
static int identity_of(const char *path, char *out, size_t size, struct pv_err *err)
{
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        pv_auto_free char *text = NULL;
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", path);
        if (pv_fd_read_all(fd, 1 << 20, path, &text, NULL, err) < 0)
                return -1;
        size_t len = 0;
        unsigned long first, count;
        int used;
        for (const char *p = text; sscanf(p, " %lu %*u %lu%n", &first, &count, &used) == 2; p += used) {
                int n = snprintf(out + len, size - len, "%lu %lu %lu\n", first, first, count);
                if (n < 0 || (size_t)n >= size - len)
                        return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s: too many ranges", path);
                len += (size_t)n;
        }
        return len > 0 ? 0 : pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s: no ids are mapped here", path);
}

int pv_idmap_prepare(struct pv_idmap *map, struct pv_err *err)
{
        if (may_set_ids()) {
                map->deny_setgroups = false;
                return identity_of("/proc/self/uid_map", map->uid, sizeof map->uid, err) < 0
                               ? -1
                               : identity_of("/proc/self/gid_map", map->gid, sizeof map->gid, err);
        }
        map->deny_setgroups = true;
        (void)snprintf(map->uid, sizeof map->uid, "%u %u 1\n", geteuid(), geteuid());
        (void)snprintf(map->gid, sizeof map->gid, "%u %u 1\n", getegid(), getegid());
        return 0;
}

static int write_text(int dir, const char *path, const char *text, struct pv_err *err)
{
        pv_auto_fd fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
        ssize_t len = (ssize_t)strlen(text);
        if (fd < 0 || write(fd, text, (size_t)len) != len)
                return pv_err_set(err, PV_ERR_SYS, errno, "write %s", path);
        return 0;
}

int pv_idmap_write(const struct pv_idmap *map, pid_t pid, struct pv_err *err)
{
        char path[64];
        if (map->deny_setgroups) {
                (void)snprintf(path, sizeof path, "/proc/%d/setgroups", pid);
                if (write_text(AT_FDCWD, path, "deny", err) < 0)
                        return -1;
        }
        (void)snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
        if (write_text(AT_FDCWD, path, map->uid, err) < 0)
                return -1;
        (void)snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
        return write_text(AT_FDCWD, path, map->gid, err);
}

int pv_userns_allow_one(int sysctl, struct pv_err *err)
{
        return write_text(sysctl, SYSCTL_MAX_USERNS, "1", err);
}

int pv_userns_allow_no_cgroups(int sysctl, struct pv_err *err)
{
        return write_text(sysctl, SYSCTL_MAX_CGROUPNS, "0", err);
}

/* What the person has, less a quarter, for all of the sandbox. */
static void leave_some(int sysctl, const char *persons, const char *ours)
{
        struct pv_err ignored = PV_ERR_INIT;
        char text[24] = "";
        pv_auto_fd fd = openat(sysctl, persons, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
                return;
        long most = strtol(text, NULL, 10);
        (void)snprintf(text, sizeof text, "%ld", most - most / 4);
        (void)write_text(sysctl, ours, text, &ignored);
}

void pv_userns_leave_watches(int sysctl)
{
        leave_some(sysctl, "fs/inotify/max_user_instances", "user/max_inotify_instances");
        leave_some(sysctl, "fs/inotify/max_user_watches", "user/max_inotify_watches");
}

static long read_number(const char *path)
{
        long n = -1;
        FILE *f = fopen(path, "re");
        if (f) {
                if (fscanf(f, "%ld", &n) != 1)
                        n = -1;
                (void)fclose(f);
        }
        return n;
}

int pv_userns_explain(int sys, struct pv_err *err)
{
        if (read_number("/proc/sys/" SYSCTL_MAX_USERNS) == 0 || sys == ENOSPC) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, sys, "user namespaces are switched off or used up here");
                return pv_err_hint(err, "sudo sysctl user.max_user_namespaces=15000");
        }
        if (read_number("/proc/sys/kernel/unprivileged_userns_clone") == 0) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, sys, "user namespaces are reserved for root here");
                return pv_err_hint(err, "sudo sysctl kernel.unprivileged_userns_clone=1");
        }
        if (read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, sys, "AppArmor restricts user namespaces here");
                return pv_err_hint(err, "give pvisor an AppArmor profile with `userns,`, or: sudo sysctl "
                                        "kernel.apparmor_restrict_unprivileged_userns=0");
        }
        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, sys, "user namespaces are refused here");
        return pv_err_hint(err, "in a container: start that with --security-opt seccomp=unconfined; inside another "
                                "pvisor: start that with --allow-userns");
}
