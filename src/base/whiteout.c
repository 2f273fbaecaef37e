/* SPDX-License-Identifier: Apache-2.0 */
#include "base/whiteout.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include "base/copy.h"
#include "base/str.h"
#include "base/syscall.h"

#define WHITEOUT "user.overlay.whiteout"

ssize_t pv_xattr_read_at(int dirfd, const char *name, const char *attr, void *value, size_t size)
{
        ssize_t n = pv_sys_getxattrat(dirfd, name, AT_SYMLINK_NOFOLLOW, attr, value, size);
        if (n >= 0 || errno != ENOSYS)
                return n;
        pv_auto_free char *path = pv_strf("/proc/self/fd/%d/%s", dirfd, name);
        return lgetxattr(path, attr, value, size);
}

int pv_whiteout_allow(int dirfd)
{
        pv_auto_free char *path = pv_strf("/proc/self/fd/%d/.", dirfd);
        char mark;
        if (lgetxattr(path, PV_OVERLAY_OPAQUE, &mark, 1) == 1)
                return 0; /* it hides all already, or was marked before */
        return lsetxattr(path, PV_OVERLAY_OPAQUE, "x", 1, 0);
}

static int make_by_attribute(int dirfd, const char *name)
{
        pv_auto_free char *path = pv_strf("/proc/self/fd/%d/%s", dirfd, name);
        if (pv_whiteout_allow(dirfd) < 0 || mknodat(dirfd, name, S_IFREG | 0600, 0) < 0)
                return -1;
        if (lsetxattr(path, WHITEOUT, "y", 1, 0) == 0)
                return 0;
        int e = errno;
        (void)unlinkat(dirfd, name, 0);
        errno = e;
        return -1;
}

int pv_whiteout_make(int dirfd, const char *name)
{
        if (mknodat(dirfd, name, S_IFCHR | 0600, makedev(0, 0)) == 0)
                return 0;
        if (errno != EPERM && errno != EOPNOTSUPP && errno != EINVAL)
                return -1;
        return make_by_attribute(dirfd, name);
}

bool pv_whiteout_is(int dirfd, const char *name, const struct stat *st)
{
        if (S_ISCHR(st->st_mode))
                return st->st_rdev == 0;
        return S_ISREG(st->st_mode) && st->st_size == 0 && pv_xattr_read_at(dirfd, name, WHITEOUT, NULL, 0) >= 0;
}
