/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/stdfds.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define PIDFS_MAGIC 0x50494446 /* linux/magic.h, since 6.9 */

/*
 * A stream of the Unix family that is connected stays with its peer, whoever holds it (unix_stream_connect: EISCONN).
 */
static bool is_tied_socket(int fd)
{
        int family = 0, type = 0;
        socklen_t n = sizeof family, m = sizeof type;
        struct sockaddr_storage peer;
        socklen_t k = sizeof peer;
        return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) == 0 &&
               getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &m) == 0 && family == AF_UNIX &&
               (type == SOCK_STREAM || type == SOCK_SEQPACKET) && getpeername(fd, (struct sockaddr *)&peer, &k) == 0;
}

/* Not a file, pipe, device or socket, but a handle of something of the kernel's. */
static bool is_handle(int fd)
{
        struct statfs fs;
        return fstatfs(fd, &fs) == 0 &&
               (fs.f_type == ANON_INODE_FS_MAGIC || fs.f_type == NSFS_MAGIC || fs.f_type == PIDFS_MAGIC);
}

int pv_stdio_check(const struct pv_plan *plan, const int stdio[3], struct pv_err *err)
{
        static const char *const names[] = { "stdin", "stdout", "stderr" };
        bool closed = plan->net == PV_NET_DENY_ALL || plan->net == PV_NET_RULES;
        for (int i = 0; i < 3; i++) {
                struct stat st;
                if (stdio[i] < 0 || fstat(stdio[i], &st) < 0)
                        continue;
                if (closed && S_ISSOCK(st.st_mode) && !is_tied_socket(stdio[i])) {
                        (void)pv_err_set(err, PV_ERR_POLICY, 0,
                                         "%s is a socket of the host's network, which the command could connect anew",
                                         names[i]);
                        return pv_err_hint(err, "put a pipe between: ... | pvisor run ... | ...");
                }
                if (plan->filesystem == PV_FS_SANDBOX && is_handle(stdio[i]))
                        return pv_err_set(
                                err, PV_ERR_POLICY, 0,
                                "%s is a handle of the kernel's (a process, a namespace, an event), not a file",
                                names[i]);
        }
        return 0;
}

void pv_stdio_note_flags(struct pv_stdio_flags *f)
{
        for (int i = 0; i < 3; i++)
                f->flags[i] = isatty(i) ? fcntl(i, F_GETFL) : -1;
}

void pv_stdio_restore_flags(const struct pv_stdio_flags *f)
{
        for (int i = 0; i < 3; i++)
                if (f->flags[i] >= 0 && isatty(i) && fcntl(i, F_GETFL) != f->flags[i])
                        (void)fcntl(i, F_SETFL, f->flags[i]);
}
