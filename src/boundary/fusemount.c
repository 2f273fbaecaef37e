/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/fusemount.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "base/fuse_channel.h"
#include "base/pass_fd.h"
#include "base/str.h"

#define DEVICE "/dev/fuse"

static int explain_device(struct pv_err *err)
{
        int sys = errno;
        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, sys, "FUSE: open " DEVICE);
        if (sys == EACCES)
                return pv_err_hint(err, "sudo chmod 0666 " DEVICE " (the package fuse3 makes it so for good)");
        if (sys == ENOENT || sys == ENODEV || sys == ENXIO)
                return pv_err_hint(err, "sudo modprobe fuse; in a container: start it with --device " DEVICE);
        return pv_err_hint(err, "in a container: start it with --device " DEVICE);
}

int pv_fusemount_check_device(struct pv_err *err)
{
        pv_auto_fd fd = open(DEVICE, O_RDWR | O_CLOEXEC);
        return fd < 0 ? explain_device(err) : 0;
}

static int configure(int fs, int device, mode_t mode)
{
        char fd[16], rootmode[16], uid[16], gid[16];
        (void)snprintf(fd, sizeof fd, "%d", device);
        (void)snprintf(rootmode, sizeof rootmode, "%o", (unsigned)mode);
        (void)snprintf(uid, sizeof uid, "%u", (unsigned)geteuid());
        (void)snprintf(gid, sizeof gid, "%u", (unsigned)getegid());
        const char *const options[][2] = {
                { "source", "pvisor" }, { "fd", fd }, { "rootmode", rootmode }, { "user_id", uid }, { "group_id", gid },
        };
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
                if (fsconfig(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
                        return -1;
        if (fsconfig(fs, FSCONFIG_SET_FLAG, "default_permissions", NULL, 0) < 0 ||
            fsconfig(fs, FSCONFIG_SET_FLAG, "allow_other", NULL, 0) < 0)
                return -1;
        return fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
}

static int create(int device, mode_t mode, unsigned attr, int *mount, struct pv_err *err)
{
        pv_auto_fd fs = fsopen("fuse", FSOPEN_CLOEXEC);
        if (fs < 0 || configure(fs, device, mode) < 0) {
                (void)pv_err_set(err, errno == ENODEV || errno == EPERM ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno,
                                 "mount FUSE");
                return pv_err_hint(err, "Linux 4.18 or later lets user namespaces mount it");
        }
        *mount = fsmount(fs, FSMOUNT_CLOEXEC, attr);
        return *mount < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "mount FUSE") : 0;
}

static int hand_over(const struct pv_fusemount *m, int device, struct pv_err *err)
{
        struct pv_fuse_hello hello = { .version = PV_FUSE_VERSION };
        int fds[2] = { device, m->mask.fd };
        union pv_pass_room room;
        static_assert(sizeof hello.uids == sizeof m->ids->uid && sizeof hello.gids == sizeof m->ids->gid, "same text");
        memcpy(hello.uids, m->ids->uid, sizeof hello.uids);
        memcpy(hello.gids, m->ids->gid, sizeof hello.gids);
        struct iovec io = { .iov_base = &hello, .iov_len = sizeof hello };
        struct msghdr msg = { .msg_iov = &io, .msg_iovlen = 1 };
        pv_pass_fds(&msg, &room, fds, m->mask.fd >= 0 ? 2 : 1);
        if (sendmsg(m->channel, &msg, MSG_NOSIGNAL) >= 0)
                return 0;
        (void)pv_err_set(err, PV_ERR_SYS, errno, "hand the mount to the FUSE server");
        return pv_pass_hint(err);
}

static int await_server(int channel, struct pv_err *err)
{
        struct pv_err word;
        ssize_t n;
        while ((n = recv(channel, &word, sizeof word, 0)) < 0 && errno == EINTR)
                ;
        if (n != (ssize_t)sizeof word)
                return pv_err_set(err, PV_ERR_SYS, n < 0 ? errno : 0, "the FUSE server ended before it served");
        if (word.kind == PV_ERR_NONE)
                return 0;
        *err = word;
        return pv_err_wrap(err, "FUSE server");
}

int pv_fusemount(const struct pv_fusemount *m, int *mount, struct pv_err *err)
{
        struct stat st;
        pv_auto_fd mnt = -1;
        pv_auto_fd device = open(DEVICE, O_RDWR | O_CLOEXEC);
        if (device < 0)
                return explain_device(err);
        if (fstat(m->target.fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "look at the staged directory");
        if (create(device, st.st_mode, m->attr, &mnt, err) < 0 || hand_over(m, device, err) < 0)
                return -1;
        pv_fd_closep(&device); /* with the server's copy alone, the mount fails when that is gone, and does not hang */
        if (await_server(m->channel, err) < 0)
                return -1;
        *mount = pv_fd_steal(&mnt);
        return 0;
}
