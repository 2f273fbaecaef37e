/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/scratch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define LEAST_BYTES (UINT64_C(64) << 20) /* what a run needs that does little */

void pv_scratch_close(struct pv_scratch *s)
{
        pv_pathfd_closep(&s->dir);
        pv_pathfd_closep(&s->empty_dir);
        pv_pathfd_closep(&s->empty_file);
}

/* Of proc_meminfo(5), in bytes; 0 when it is not there. */
static uint64_t meminfo(const char *text, const char *key)
{
        const char *at = strstr(text, key);
        return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

/*
 * What is written here stays in memory that no ending of a single process frees, so that the kernel, out of memory,
 * would end whatever else the person runs. Half of the memory is the kernel's own bound; three quarters of what nobody
 * needs now is ours, the rest being for inodes, which cost a quarter of a page each beside their page. 0: unknown.
 */
static uint64_t most_bytes(void)
{
        char text[4096];
        pv_auto_fd fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (n <= 0)
                return 0;
        text[n] = '\0';
        uint64_t half = meminfo(text, "MemTotal:") / 2, free = meminfo(text, "\nMemAvailable:");
        uint64_t ours = (free + meminfo(text, "\nSwapFree:")) / 4 * 3;
        if (half == 0 || free == 0)
                return 0;
        return ours < LEAST_BYTES ? LEAST_BYTES : ours < half ? ours : half;
}

static int set_bounds(int fs)
{
        char size[24], inodes[24];
        uint64_t most = most_bytes();
        if (most == 0)
                return 0;
        (void)snprintf(size, sizeof size, "%" PRIu64, most);
        (void)snprintf(inodes, sizeof inodes, "%" PRIu64, most / 4096);
        return fsconfig(fs, FSCONFIG_SET_STRING, "size", size, 0) < 0 ||
                               fsconfig(fs, FSCONFIG_SET_STRING, "nr_inodes", inodes, 0) < 0
                       ? -1
                       : 0;
}

int pv_scratch_mount(struct pv_scratch *s, struct pv_err *err)
{
        pv_auto_fd fs = fsopen("tmpfs", FSOPEN_CLOEXEC);
        if (fs < 0)
                return pv_err_set(err, errno == EPERM ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno, "mount a tmpfs");
        pv_auto_fd mnt = -1;
        if (fsconfig(fs, FSCONFIG_SET_STRING, "source", "pvisor", 0) < 0 ||
            fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 || set_bounds(fs) < 0 ||
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
