/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static struct {
        enum fault_kind kind;
        unsigned at;
        atomic_uint count; /* threads may change something, too */
        int error;
} fault;

void faults_arm(enum fault_kind kind, unsigned at, int error)
{
        fault.kind = kind;
        fault.at = at;
        fault.error = error;
        atomic_store(&fault.count, 0);
}

unsigned faults_count(void)
{
        return atomic_load(&fault.count);
}

/* True when the call shall fail, with errno set. */
static bool strikes(void)
{
        unsigned count = atomic_fetch_add(&fault.count, 1) + 1;
        if (fault.kind == FAULT_NONE || count < fault.at || (fault.kind != FAULT_FROM && count > fault.at))
                return false;
        if (fault.kind == FAULT_KILL)
                (void)kill(getpid(), SIGKILL);
        errno = fault.error;
        return true;
}

static void *real(const char *name)
{
        void *p = dlsym(RTLD_NEXT, name);
        if (!p)
                _exit(126);
        return p;
}

/* A function of libc that counts as a change, with its parameters and their names. */
#define COUNTED(type, name, params, args)                              \
        type name params;                                              \
        type name params                                               \
        {                                                              \
                static type(*next) params;                             \
                if (!next)                                             \
                        next = (type(*) params)(uintptr_t)real(#name); \
                return strikes() ? (type)-1 : next args;               \
        }

#include <stdint.h>

COUNTED(int, renameat, (int a, const char *b, int c, const char *d), (a, b, c, d))
COUNTED(int, unlinkat, (int a, const char *b, int c), (a, b, c))
COUNTED(int, unlink, (const char *a), (a))
COUNTED(int, rmdir, (const char *a), (a))
COUNTED(int, mkdirat, (int a, const char *b, mode_t c), (a, b, c))
COUNTED(int, mkdir, (const char *a, mode_t b), (a, b))
COUNTED(int, mknodat, (int a, const char *b, mode_t c, dev_t d), (a, b, c, d))
COUNTED(int, linkat, (int a, const char *b, int c, const char *d, int e), (a, b, c, d, e))
COUNTED(int, symlinkat, (const char *a, int b, const char *c), (a, b, c))
COUNTED(int, chmod, (const char *a, mode_t b), (a, b))
COUNTED(int, fchmod, (int a, mode_t b), (a, b))
COUNTED(int, fchmodat, (int a, const char *b, mode_t c, int d), (a, b, c, d))
COUNTED(int, fchown, (int a, uid_t b, gid_t c), (a, b, c))
COUNTED(int, fchownat, (int a, const char *b, uid_t c, gid_t d, int e), (a, b, c, d, e))
COUNTED(int, utimensat, (int a, const char *b, const struct timespec c[2], int d), (a, b, c, d))
COUNTED(int, futimens, (int a, const struct timespec b[2]), (a, b))
COUNTED(int, setxattr, (const char *a, const char *b, const void *c, size_t d, int e), (a, b, c, d, e))
COUNTED(int, lsetxattr, (const char *a, const char *b, const void *c, size_t d, int e), (a, b, c, d, e))
COUNTED(int, fsetxattr, (int a, const char *b, const void *c, size_t d, int e), (a, b, c, d, e))
COUNTED(int, removexattr, (const char *a, const char *b), (a, b))
COUNTED(int, lremovexattr, (const char *a, const char *b), (a, b))
COUNTED(int, fremovexattr, (int a, const char *b), (a, b))
COUNTED(ssize_t, write, (int a, const void *b, size_t c), (a, b, c))
COUNTED(ssize_t, pwrite64, (int a, const void *b, size_t c, off_t d), (a, b, c, d))
COUNTED(ssize_t, copy_file_range, (int a, off_t *b, int c, off_t *d, size_t e, unsigned f), (a, b, c, d, e, f))
COUNTED(int, ftruncate64, (int a, off_t b), (a, b))
COUNTED(int, fsync, (int a), (a))

/* Some file systems take no flags (NFS, 9p): PV_TEST_NO_RENAME_FLAGS, a path, makes the one that it lies on so. */
static bool takes_no_flags(int a, int b)
{
        const char *path = getenv("PV_TEST_NO_RENAME_FLAGS");
        struct stat st, x, y;
        return path && stat(path, &st) == 0 && fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == st.st_dev &&
               y.st_dev == st.st_dev;
}

int renameat2(int a, const char *b, int c, const char *d, unsigned flags)
{
        static int (*next)(int, const char *, int, const char *, unsigned);
        if (!next)
                next = (int (*)(int, const char *, int, const char *, unsigned))(uintptr_t)real("renameat2");
        if (flags && takes_no_flags(a, c)) {
                errno = EINVAL;
                return -1;
        }
        return strikes() ? -1 : next(a, b, c, d, flags);
}

/* Not only counted but left out: other programs' unwritten data are not to be waited for. */
int syncfs(int fd)
{
        (void)fd;
        return strikes() ? -1 : 0;
}

/* Opening counts when it may create or truncate. */
int openat64(int dirfd, const char *path, int flags, ...)
{
        static int (*next)(int, const char *, int, ...);
        mode_t mode = 0;
        if (!next)
                next = (int (*)(int, const char *, int, ...))(uintptr_t)real("openat64");
        if (flags & (O_CREAT | O_TRUNC)) {
                va_list ap;
                va_start(ap, flags);
                mode = va_arg(ap, mode_t);
                va_end(ap);
                if (strikes())
                        return -1;
        }
        return next(dirfd, path, flags, mode);
}
