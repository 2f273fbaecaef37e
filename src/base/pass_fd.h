/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that go with a message over a Unix socket: SCM_RIGHTS of unix(7). */
#ifndef PV_BASE_PASS_FD_H
#define PV_BASE_PASS_FD_H

#include <stddef.h>
#include <sys/socket.h>
#include "base/err.h"

#define PV_PASS_FDS 8 /* with one message */

/* What the message's control data lies in: has to live until it was sent, or taken from. */
union pv_pass_room {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(PV_PASS_FDS * sizeof(int))];
};

/* Has sendmsg(2) of m pass the n descriptors along; n 0: none. They stay the caller's. */
void pv_pass_fds(struct msghdr *m, union pv_pass_room *room, const int *fds, size_t n);

/* Adds to err, of a sendmsg(2) that failed with descriptors, the hint that there may be. Returns -1. */
int pv_pass_hint(struct pv_err *err);

/*
 * Has recvmsg(2) of m, which wants MSG_CMSG_CLOEXEC, accept n descriptors. The kernel closes those above that, and says
 * so (MSG_CTRUNC).
 */
void pv_pass_accept(struct msghdr *m, union pv_pass_room *room, size_t n);
/* After it, whatever it returned above 0: they are the caller's, -1 where there is none. Returns how many there are. */
size_t pv_pass_take(struct msghdr *m, int *fds, size_t n);

#endif
