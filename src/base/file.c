/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include "base/str.h"

static int write_temporary(int dirfd, const char *tmp, const char *name, const void *buf, size_t len, mode_t mode,
                           enum pv_file_flags flags, struct pv_err *err)
{
        pv_auto_fd fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "create %s", name);
        if (pv_fd_write_all(fd, buf, len, name, err) < 0)
                return -1;
        if (fchmod(fd, mode) < 0) /* whatever the umask is */
                return pv_err_set(err, PV_ERR_SYS, errno, "set mode of %s", name);
        if (flags & PV_FILE_DURABLE && fsync(fd) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "sync %s", name);
        return 0;
}

int pv_file_write_at(int dirfd, const char *name, const void *buf, size_t len, mode_t mode, enum pv_file_flags flags,
                     struct pv_err *err)
{
        unsigned r = 0;
        if (getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r)
                r = (unsigned)getpid();
        const char *slash = strrchr(name, '/');
        int dirlen = slash ? (int)(slash - name) + 1 : 0;
        pv_auto_free char *tmp = pv_strf("%.*s.%s.%08x.tmp", dirlen, name, name + dirlen, r);
        if (write_temporary(dirfd, tmp, name, buf, len, mode, flags, err) < 0 ||
            (renameat(dirfd, tmp, dirfd, name) < 0 && pv_err_set(err, PV_ERR_SYS, errno, "rename to %s", name))) {
                int e = errno;
                (void)unlinkat(dirfd, tmp, 0);
                errno = e;
                return -1;
        }
        if (flags & PV_FILE_DURABLE) {
                pv_auto_free char *dir = dirlen ? pv_strndup(name, (size_t)dirlen) : pv_strdup(".");
                pv_auto_fd fd = openat(dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0 || fsync(fd) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "sync directory of %s", name);
        }
        return 0;
}

int pv_file_read_at(int dirfd, const char *name, size_t max, char **out, size_t *len, struct pv_err *err)
{
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", name);
        if (!S_ISREG(st.st_mode))
                return pv_err_set(err, PV_ERR_INPUT, 0, "read %s: not a regular file", name);
        return pv_fd_read_all(fd, max, name, out, len, err);
}
