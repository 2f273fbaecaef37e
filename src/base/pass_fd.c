/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pass_fd.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

void pv_pass_fds(struct msghdr *m, union pv_pass_room *room, const int *fds, size_t n)
{
        assert(n <= PV_PASS_FDS);
        if (n == 0)
                return;
        *room = (union pv_pass_room){ .bytes = { 0 } };
        m->msg_control = room;
        m->msg_controllen = CMSG_SPACE(n * sizeof *fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n * sizeof *fds);
        memcpy(CMSG_DATA(c), fds, n * sizeof *fds);
}

int pv_pass_hint(struct pv_err *err)
{
        if (err->sys != ETOOMANYREFS)
                return -1;
        return pv_err_hint(err, "another program of this user holds too many descriptors in sockets: try again");
}

void pv_pass_accept(struct msghdr *m, union pv_pass_room *room, size_t n)
{
        assert(n <= PV_PASS_FDS);
        m->msg_control = room;
        m->msg_controllen = CMSG_LEN(n * sizeof(int)); /* with CMSG_SPACE's padding one more might fit */
}

size_t pv_pass_take(struct msghdr *m, int *fds, size_t n)
{
        size_t taken = 0;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
                for (size_t i = 0; i < got; i++) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                        if (taken < n)
                                fds[taken++] = fd;
                        else
                                (void)close(fd);
                }
        }
        for (size_t i = taken; i < n; i++)
                fds[i] = -1;
        return taken;
}
