/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fuse_channel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

bool pv_fuse_channel_is(int fd)
{
        struct stat st;
        return fd >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

int pv_fuse_channel_ask(int fd, const char *path, uint64_t *ino)
{
        size_t len = strlen(path);
        if (len == 0 || send(fd, path, len, MSG_NOSIGNAL) != (ssize_t)len)
                return -1;
        ssize_t n;
        while ((n = recv(fd, ino, sizeof *ino, 0)) < 0 && errno == EINTR)
                ;
        return n == (ssize_t)sizeof *ino ? 0 : -1;
}
