/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/overlayfs.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include "base/str.h"

/* A page, its last byte a null. */
#define MOUNT_OPTIONS_MAX 4096

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

static void put_lowers(struct pv_str *list, const struct pv_overlayfs *o)
{
        for (size_t i = 0; i < o->n_lower; i++)
                pv_str_putf(list, "%s%s", i ? ":" : "", pv_fd_path(o->lower[i].fd).s);
}

static int set_lowers_at_once(int fs, const struct pv_overlayfs *o)
{
        pv_auto_str list = { 0 };
        put_lowers(&list, o);
        return fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", list.s, 0);
}

static int set_lowers_one_by_one(int fs, const struct pv_overlayfs *o)
{
        for (size_t i = 0; i < o->n_lower; i++)
                if (fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir+", pv_fd_path(o->lower[i].fd).s, 0) < 0)
                        return -1;
        return 0;
}

static int set_upper(int fs, const struct pv_overlayfs *o)
{
        if (fsconfig(fs, FSCONFIG_SET_STRING, "upperdir", pv_fd_path(o->upper.fd).s, 0) < 0 ||
            fsconfig(fs, FSCONFIG_SET_STRING, "workdir", pv_fd_path(o->work.fd).s, 0) < 0)
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

/* A string of fsconfig(2) ends at 255 bytes, of which a layer takes up to 19. */
bool pv_overlayfs_needs_place(const struct pv_overlayfs *o)
{
        return o->n_lower > 12 && is_too_old();
}

/* By mount(2), whose options may be as long as a page: what is mounted there, by an O_PATH descriptor. */
static int mount_on_place(const struct pv_overlayfs *o, int *out, struct pv_err *err)
{
        pv_auto_str options = { 0 };
        pv_str_putf(&options, "userxattr,lowerdir=");
        put_lowers(&options, o);
        if (o->upper.fd >= 0)
                pv_str_putf(&options, ",upperdir=%s,workdir=%s,xino=on,volatile", pv_fd_path(o->upper.fd).s,
                            pv_fd_path(o->work.fd).s);
        if (options.len >= MOUNT_OPTIONS_MAX) /* mount(2) would cut them */
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "overlayfs: %zu layers are too many before Linux 6.7",
                                  o->n_lower);
        unsigned long flags = (o->attr & MOUNT_ATTR_NODEV ? MS_NODEV : 0) |
                              (o->attr & MOUNT_ATTR_NOSUID ? MS_NOSUID : 0) | (o->upper.fd < 0 ? MS_RDONLY : 0);
        pv_auto_free char *point = pv_strf("%s/view", pv_fd_path(o->place.fd).s);
        if (mkdirat(o->place.fd, "view", 0700) < 0 || mount("pvisor", point, "overlay", flags, options.s) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "overlayfs: mount %zu layers", o->n_lower);
        /* By its name: the descriptor of a directory does not lead to what is mounted on that. */
        int fd = open_tree(o->place.fd, "view", OPEN_TREE_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "overlayfs: open the mount");
        *out = fd;
        return 0;
}

int pv_overlayfs_mount(const struct pv_overlayfs *o, int *mount, struct pv_err *err)
{
        if (pv_overlayfs_needs_place(o))
                return mount_on_place(o, mount, err);
        pv_auto_fd fs = -1;
        if (create(o, is_too_old(), &fs, err) < 0)
                return -1;
        int fd = fsmount(fs, FSMOUNT_CLOEXEC, o->attr | (o->upper.fd < 0 ? MOUNT_ATTR_RDONLY : 0));
        if (fd < 0)
                return fail(fs, "overlayfs: mount", err);
        *mount = fd;
        return 0;
}
