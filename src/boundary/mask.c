/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/mask.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "base/syscall.h"

static int whiteout(int dir, const char *name, const char *path, struct pv_err *err)
{
        if (mknodat(dir, name, S_IFCHR | 0600, makedev(0, 0)) == 0 || errno == EEXIST)
                return 0;
        return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
}

/* Makes name in the layer look like the lower's directory of that name, and opens it. */
static int copy_parent(int layer, int lower, const char *name, const char *path, int *out, struct pv_err *err)
{
        struct stat st;
        bool made = mkdirat(layer, name, 0700) == 0;
        if (!made && errno != EEXIST)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        pv_auto_fd fd = openat(layer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstatat(lower, "", &st, AT_EMPTY_PATH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        if (made) {
                /* An owner that is not mapped here cannot be given; such a directory is nobody's to use anyway. */
                if (fchown(fd, st.st_uid, st.st_gid) < 0 && errno != EPERM && errno != EINVAL)
                        return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
                struct timespec times[2] = { st.st_atim, st.st_mtim };
                if (fchmod(fd, st.st_mode & 07777) < 0 || futimens(fd, times) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        }
        *out = pv_fd_steal(&fd);
        return 0;
}

static bool is_whiteout(int dir, const char *name)
{
        struct stat st;
        return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0;
}

static int lay_one(struct pv_pathfd layer, struct pv_pathfd lower, const char *path, struct pv_err *err)
{
        pv_auto_fd in_layer = -1, in_lower = -1;
        int dir = layer.fd, below = lower.fd;
        pv_auto_free char *copy = pv_strdup(path);
        char *rest = copy;
        for (char *name; (name = strsep(&rest, "/"));) {
                if (!rest)
                        return whiteout(dir, name, path, err);
                int next_lower = openat(below, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (next_lower < 0)
                        return errno == ENOENT || errno == ENOTDIR
                                       ? whiteout(dir, name, path, err)
                                       : pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
                pv_fd_closep(&in_lower);
                below = in_lower = next_lower;
                struct stat st;
                if (fstat(in_lower, &st) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
                if (!S_ISDIR(st.st_mode) || is_whiteout(dir, name))
                        return 0;
                int next_layer = -1;
                if (copy_parent(dir, in_lower, name, path, &next_layer, err) < 0)
                        return -1;
                pv_fd_closep(&in_layer);
                dir = in_layer = next_layer;
        }
        return 0;
}

int pv_mask_lay(struct pv_pathfd layer, struct pv_pathfd lower, const struct pv_strv *paths, struct pv_err *err)
{
        for (size_t i = 0; i < paths->n; i++)
                if (lay_one(layer, lower, paths->v[i], err) < 0)
                        return -1;
        return 0;
}

int pv_mask_resolve(const char *dir, struct pv_strv *paths, struct pv_err *err)
{
        pv_auto_pathfd root = PV_PATHFD_INIT;
        if (pv_path_open_root(dir, &root, err) < 0)
                return -1;
        for (size_t i = 0; i < paths->n; i++) { /* grows: a link may lead to a link */
                pv_auto_fd fd = pv_path_openat(root, paths->v[i], O_PATH | O_NOFOLLOW, 0);
                struct stat st;
                if (fd < 0 ? errno != ELOOP : fstat(fd, &st) < 0 || !S_ISLNK(st.st_mode))
                        continue;
                pv_auto_free char *full = pv_path_join(dir, paths->v[i]);
                pv_auto_free char *real = realpath(full, NULL);
                if (!real || !pv_path_is_within(real, dir) || pv_streq(real, dir))
                        continue;
                const char *rel = real + strlen(dir) + (dir[1] != '\0');
                if (!pv_strv_has(paths, rel))
                        pv_strv_add(paths, rel);
        }
        return 0;
}
