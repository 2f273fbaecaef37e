/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dir.h"

#include <fcntl.h>
#include "base/str.h"

DIR *pv_dir_open(int dirfd, const char *name)
{
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        if (d)
                (void)pv_fd_steal(&fd);
        return d;
}

int pv_dir_next(DIR *d, struct dirent **out)
{
        for (;;) {
                errno = 0;
                struct dirent *e = readdir(d);
                if (!e)
                        return errno ? -1 : 0;
                if (pv_streq(e->d_name, ".") || pv_streq(e->d_name, ".."))
                        continue;
                *out = e;
                return 1;
        }
}
