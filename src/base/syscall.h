/* SPDX-License-Identifier: Apache-2.0 */
/* Raw system calls and constants that Debian 12's libc or headers lack. The only place for them. */
#ifndef PV_BASE_SYSCALL_H
#define PV_BASE_SYSCALL_H

#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Linux 6.13; the numbers are the same on every architecture. */
#ifndef SYS_getxattrat
#define SYS_getxattrat 464
#endif
#ifndef SYS_listxattrat
#define SYS_listxattrat 465
#endif
#ifndef SYS_removexattrat
#define SYS_removexattrat 466
#endif

static inline int pv_sys_openat2(int dirfd, const char *path, const struct open_how *how)
{
        return (int)syscall(SYS_openat2, dirfd, path, how, sizeof *how);
}

static inline int pv_sys_pidfd_open(pid_t pid, unsigned flags)
{
        return (int)syscall(SYS_pidfd_open, pid, flags);
}

static inline int pv_sys_pidfd_send_signal(int pidfd, int sig)
{
        return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

static inline int pv_sys_close_range(unsigned first, unsigned last, unsigned flags)
{
        return (int)syscall(SYS_close_range, first, last, flags);
}

/* Landlock, landlock(7): the rights up to ABI 7; Debian 12's header ends at ABI 2. */
#define PV_LANDLOCK_FS_EXECUTE          (UINT64_C(1) << 0)
#define PV_LANDLOCK_FS_WRITE_FILE       (UINT64_C(1) << 1)
#define PV_LANDLOCK_FS_READ_FILE        (UINT64_C(1) << 2)
#define PV_LANDLOCK_FS_READ_DIR         (UINT64_C(1) << 3)
#define PV_LANDLOCK_FS_MAKE_BLOCK       (UINT64_C(1) << 11)
#define PV_LANDLOCK_FS_REFER            (UINT64_C(1) << 13) /* ABI 2 */
#define PV_LANDLOCK_FS_TRUNCATE         (UINT64_C(1) << 14) /* ABI 3 */
#define PV_LANDLOCK_FS_IOCTL_DEV        (UINT64_C(1) << 15) /* ABI 5 */
#define PV_LANDLOCK_NET_BIND_TCP        (UINT64_C(1) << 0)  /* ABI 4 */
#define PV_LANDLOCK_NET_CONNECT_TCP     (UINT64_C(1) << 1)
#define PV_LANDLOCK_SCOPE_ABSTRACT_UNIX (UINT64_C(1) << 0) /* ABI 6 */
#define PV_LANDLOCK_SCOPE_SIGNALS       (UINT64_C(1) << 1)
#define PV_LANDLOCK_VERSION             1U
#define PV_LANDLOCK_PATH_BENEATH        1

struct pv_landlock_attr {
        uint64_t fs, net, scoped;
};

static inline int pv_sys_landlock_create(const struct pv_landlock_attr *attr, size_t size, unsigned flags)
{
        return (int)syscall(SYS_landlock_create_ruleset, attr, size, flags);
}

static inline int pv_sys_landlock_allow_beneath(int ruleset, int dir, uint64_t rights)
{
        struct {
                uint64_t rights;
                int32_t dir;
        } __attribute__((packed)) rule = { rights, dir };

        return (int)syscall(SYS_landlock_add_rule, ruleset, PV_LANDLOCK_PATH_BENEATH, &rule, 0);
}

static inline int pv_sys_landlock_restrict(int ruleset)
{
        return (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
}

/* unix(7): a pidfd of the peer (Linux 6.5). */
#define PV_SO_PEERPIDFD 77

/* seccomp_unotify(2): the flag of the listener itself (Linux 6.6), which Debian 12's header lacks. */
#define PV_SECCOMP_IOCTL_NOTIF_SET_FLAGS _IOW('!', 4, uint64_t)
#define PV_SECCOMP_NOTIF_SYNC_WAKE_UP    UINT64_C(1)

static inline ssize_t pv_sys_listxattrat(int dirfd, const char *path, unsigned at_flags, char *list, size_t size)
{
        return syscall(SYS_listxattrat, dirfd, path, at_flags, list, size);
}

static inline ssize_t pv_sys_getxattrat(int dirfd, const char *path, unsigned at_flags, const char *name, void *value,
                                        size_t size)
{
        struct {
                uint64_t value;
                uint32_t size, flags;
        } args = { .value = (uint64_t)(uintptr_t)value, .size = (uint32_t)size };
        return syscall(SYS_getxattrat, dirfd, path, at_flags, name, &args, sizeof args);
}

static inline int pv_sys_removexattrat(int dirfd, const char *path, unsigned at_flags, const char *name)
{
        return (int)syscall(SYS_removexattrat, dirfd, path, at_flags, name);
}

#endif
