/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/scratch.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

void pv_scratch_close(struct pv_scratch *s)
{
        pv_pathfd_closep(&s->dir);
        pv_pathfd_closep(&s->empty_dir);
        pv_pathfd_closep(&s->empty_file);
}

int pv_scratch_mount(struct pv_scratch *s, struct pv_err *err)
{
        pv_auto_fd fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
        if (fs < 0)
                return pv_err_set(err, errno == EPERM ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno, "mount a tmpfs");
        pv_auto_fd mnt = -1;
        if (fsconfig(fs, FSCONFIG_SET_STRING, "source", "pvisor", 0) < 0 ||
            fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
            fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ||
            (mnt = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)) < 0)
                return pv_err_set(err, errno == EPERM || errno == EACCES ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno,
                                  "mount a tmpfs");
        s->over_root = move_mount(mnt, "", AT_FDCWD, "/proc/fs", MOVE_MOUNT_F_EMPTY_PATH) < 0;
        if (s->over_root && move_mount(mnt, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
                return pv_err_set(err, errno == EPERM || errno == EACCES ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno,
                                  "mount a tmpfs");
        s->dir.fd = pv_fd_steal(&mnt);
        return 0;
}

int pv_scratch_dir(struct pv_scratch *s, mode_t mode, struct pv_pathfd *out, struct pv_err *err)
{
        char name[16];
        (void)snprintf(name, sizeof name, "%u", s->n++);
        if (mkdirat(s->dir.fd, name, mode) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a scratch directory");
        int fd = openat(s->dir.fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open a scratch directory");
        out->fd = fd;
        return 0;
}

int pv_scratch_empty_dir(struct pv_scratch *s, struct pv_pathfd *out, struct pv_err *err)
{
        if (s->empty_dir.fd < 0 && pv_scratch_dir(s, 0555, &s->empty_dir, err) < 0)
                return -1;
        *out = s->empty_dir;
        return 0;
}

int pv_scratch_empty_file(struct pv_scratch *s, struct pv_pathfd *out, struct pv_err *err)
{
        if (s->empty_file.fd < 0) {
                pv_auto_fd made = openat(s->dir.fd, "empty", O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
                if (made < 0 || (s->empty_file.fd = openat(s->dir.fd, "empty", O_PATH | O_CLOEXEC)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "make an empty file");
        }
        *out = s->empty_file;
        return 0;
}

int pv_scratch_clone(struct pv_pathfd dir, unsigned attr, int *mount, struct pv_err *err)
{
        pv_auto_fd fd = open_tree(dir.fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "clone a scratch directory");
        struct mount_attr set = { .attr_set = attr };
        if (attr && mount_setattr(fd, "", AT_EMPTY_PATH, &set, sizeof set) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "set flags of a scratch directory's mount");
        *mount = pv_fd_steal(&fd);
        return 0;
}

bool pv_scratch_takes_xattrs(const struct pv_scratch *s)
{
        return setxattr(pv_fd_path(s->dir.fd).s, "user.pvisor", "", 0, 0) == 0;
}
