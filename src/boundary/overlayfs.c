/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/overlayfs.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/utsname.h>
#include "base/str.h"

struct fd_path {
        char s[32];
};

static struct fd_path fd_path(struct pv_pathfd fd)
{
        struct fd_path p;
        (void)snprintf(p.s, sizeof p.s, "/proc/self/fd/%d", fd.fd);
        return p;
}

/* The last message in the file system context's log, without its "e " and newline; "" when there is none. */
static void read_log(int fs, char *out, size_t size)
{
        out[0] = '\0';
        char line[256];
        for (int i = 0; i < 16; i++) {
                ssize_t n = read(fs, line, sizeof line - 1);
                if (n < 0)
                        break;
                line[n] = '\0';
                line[strcspn(line, "\n")] = '\0';
                (void)snprintf(out, size, ": %.200s", strncmp(line, "e ", 2) == 0 ? line + 2 : line);
        }
}

static int fail(int fs, const char *what, struct pv_err *err)
{
        int sys = errno;
        char log[224];
        read_log(fs, log, sizeof log);
        return pv_err_set(err, PV_ERR_SYS, sys, "%s%s", what, log);
}

/* A string of fsconfig(2) ends at 255 bytes: enough for a dozen layers. */
static int set_lowers_at_once(int fs, const struct pv_overlayfs *o)
{
        pv_auto_str list = { 0 };
        for (size_t i = 0; i < o->n_lower; i++)
                pv_str_putf(&list, "%s%s", i ? ":" : "", fd_path(o->lower[i]).s);
        return fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", list.s, 0);
}

static int set_lowers_one_by_one(int fs, const struct pv_overlayfs *o)
{
        for (size_t i = 0; i < o->n_lower; i++)
                if (fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir+", fd_path(o->lower[i]).s, 0) < 0)
                        return -1;
        return 0;
}

static int set_upper(int fs, const struct pv_overlayfs *o)
{
        if (fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", fd_path(o->upper).s, 0) < 0 ||
            fsconfig(fs, FSCONFIG_SET_STRING, "workdir", fd_path(o->work).s, 0) < 0)
                return -1;
        /* Inode numbers of lowers, so that they stay on copy up, and the stage can tell whose directories it saw. */
        if (fsconfig(fs, FSCONFIG_SET_STRING, "xino", "on", 0) < 0)
                return -1;
        return fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0);
}

/* The file system, not yet mounted. */
static int create(const struct pv_overlayfs *o, bool at_once, int *out, struct pv_err *err)
{
        pv_auto_fd fs = fsopen("overlay", FSOPEN_CLOEXEC);
        if (fs < 0)
                return pv_err_set(err, errno == ENODEV || errno == EPERM ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno,
                                  "overlayfs");
        if (fsconfig(fs, FSCONFIG_SET_STRING, "source", "pvisor", 0) < 0 ||
            fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0)
                return fail(fs, "overlayfs", err);
        if ((at_once ? set_lowers_at_once(fs, o) : set_lowers_one_by_one(fs, o)) < 0)
                return fail(fs, "overlayfs: lower layers", err);
        if (o->upper.fd >= 0 && set_upper(fs, o) < 0)
                return fail(fs, "overlayfs: upper layer", err);
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return fail(fs, "overlayfs", err);
        *out = pv_fd_steal(&fs);
        return 0;
}

/* Before 6.7 there is no "lowerdir+"; before 6.5 it is found out at the end only, with a line in the kernel's log. */
static bool is_too_old(void)
{
        struct utsname u;
        unsigned major, minor;
        return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
               (major < 6 || (major == 6 && minor < 7));
}

int pv_overlayfs_mount(const struct pv_overlayfs *o, int *mount, struct pv_err *err)
{
        pv_auto_fd fs = -1;
        if (create(o, is_too_old(), &fs, err) < 0)
                return -1;
        int fd = fsmount(fs, FSMOUNT_CLOEXEC, o->attr | (o->upper.fd < 0 ? MOUNT_ATTR_RDONLY : 0));
        if (fd < 0)
                return fail(fs, "overlayfs: mount", err);
        *mount = fd;
        return 0;
}
