/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/pass_fd.h"
#include "base/syscall.h"

#define FD_KEEPER 3

/* Two descriptors with one byte. */
static int receive(int fd, int pair[2])
{
        char byte;
        union pv_pass_room room;
        struct iovec io = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
        ssize_t n;
        pv_pass_accept(&m, &room, 2);
        while ((n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
                ;
        return n == 1 && pv_pass_take(&m, pair, 2) == 2 ? 0 : -1;
}

static void serve(int fd)
{
        int pair[2];
        while (receive(fd, pair) == 0) {
                struct stat st;
                char done = 0;
                if (fstat(pair[0], &st) == 0 && fchownat(pair[1], "", (uid_t)-1, st.st_gid, AT_EMPTY_PATH) == 0)
                        done = 1;
                (void)close(pair[0]);
                (void)close(pair[1]);
                if (send(fd, &done, 1, MSG_NOSIGNAL) != 1)
                        return;
        }
}

int pv_fuse_keeper_start(int *out, struct pv_err *err)
{
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a channel");
        pid_t parent = getpid(), pid = fork();
        if (pid < 0) {
                (void)close(pair[0]);
                (void)close(pair[1]);
                return pv_err_set(err, PV_ERR_SYS, errno, "start a process");
        }
        if (pid == 0) {
                /* Nothing but the channel: whoever took it over could change groups of files that it is sent. */
                if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent ||
                    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || dup2(pair[1], FD_KEEPER) < 0 ||
                    pv_sys_close_range(FD_KEEPER + 1, ~0U, 0) < 0)
                        _exit(1);
                serve(FD_KEEPER);
                _exit(0);
        }
        (void)close(pair[1]);
        *out = pair[0];
        return 0;
}

int pv_fuse_keeper_copy_group(int keeper, int from, int to)
{
        char byte = 0;
        int pair[2] = { from, to };
        union pv_pass_room room;
        struct iovec io = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
        pv_pass_fds(&m, &room, pair, 2);
        if (sendmsg(keeper, &m, MSG_NOSIGNAL) != 1)
                return -1;
        ssize_t n;
        while ((n = recv(keeper, &byte, 1, 0)) < 0 && errno == EINTR)
                ;
        if (n == 1)
                return 0;
        errno = EPIPE;
        return -1;
}
