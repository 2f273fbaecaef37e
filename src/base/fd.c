/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/syscall.h"

void pv_pid_killp(pid_t *pid)
{
        if (*pid > 0) {
                int e = errno;
                (void)kill(*pid, SIGKILL);
                while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
                        ;
                *pid = -1;
                errno = e;
        }
}

int pv_fd_write_all(int fd, const void *buf, size_t len, const char *what, struct pv_err *err)
{
        const char *p = buf;
        while (len > 0) {
                ssize_t n = write(fd, p, len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "write %s", what);
                p += n;
                len -= (size_t)n;
        }
        return 0;
}

int pv_fd_read_all(int fd, size_t max, const char *what, char **out, size_t *len, struct pv_err *err)
{
        size_t cap = 4096, have = 0;
        pv_auto_free char *buf = malloc(cap);
        if (!buf)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "read %s", what);
        for (;;) {
                if (have + 1 >= cap) {
                        char *bigger = realloc(buf, cap *= 2);
                        if (!bigger)
                                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "read %s", what);
                        buf = bigger;
                }
                ssize_t n = read(fd, buf + have, cap - have - 1);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read %s", what);
                if (n == 0)
                        break;
                have += (size_t)n;
                if (have > max)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "read %s: larger than %zu bytes", what, max);
        }
        buf[have] = '\0';
        *out = pv_steal(&buf);
        if (len)
                *len = have;
        return 0;
}

struct pv_fd_path pv_fd_path(int fd)
{
        struct pv_fd_path p;
        (void)snprintf(p.s, sizeof p.s, "/proc/self/fd/%d", fd);
        return p;
}

int pv_fd_chmod(int fd, mode_t mode)
{
        return chmod(pv_fd_path(fd).s, mode);
}

/* Range by range, between one that stays and the next. */
int pv_fd_keep_only(const int *keep, size_t n)
{
        unsigned from = 3;
        for (;;) {
                int next = -1;
                for (size_t i = 0; i < n; i++)
                        if (keep[i] >= (int)from && (next < 0 || keep[i] < next))
                                next = keep[i];
                if (next < 0)
                        return pv_sys_close_range(from, ~0U, 0);
                if ((unsigned)next > from && pv_sys_close_range(from, (unsigned)next - 1, 0) < 0)
                        return -1;
                from = (unsigned)next + 1;
        }
}

int pv_fd_set_cloexec(int fd, int on, struct pv_err *err)
{
        if (fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "set close-on-exec of descriptor %d", fd);
        return 0;
}
