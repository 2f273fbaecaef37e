/* SPDX-License-Identifier: Apache-2.0 */
#include "base/outer_ids.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/xattr.h>
#include "base/fd.h"
#include "base/pass_fd.h"
#include "base/str.h"

/* XATTR_SIZE_MAX of linux/limits.h; the names that are asked for are short. */
#define VALUE_MAX_BYTES 65536
#define NAME_SIZE       32

enum verb { GET = 1, SET, REMOVE };

struct request {
        uint32_t verb;
        uint32_t size; /* of the value that follows, or, to get it, of the room for it */
        char attr[NAME_SIZE];
};

struct answer {
        int32_t error;
        uint32_t size;
};

/* The way to the process outside; -1: there is none. */
static int channel = -1;

bool pv_outer_ids_has(const char *attr)
{
        return channel >= 0 && (pv_streq(attr, "system.posix_acl_access") ||
                                pv_streq(attr, "system.posix_acl_default") || pv_streq(attr, "security.capability"));
}

/* One packet: a head, a value, and, on the way out, the file that is meant. */
static int send_packet(int to, const void *head, size_t head_size, const void *value, size_t size, int fd)
{
        struct iovec part[] = { { .iov_base = (void *)(uintptr_t)head, .iov_len = head_size },
                                { .iov_base = (void *)(uintptr_t)value, .iov_len = size } };
        union pv_pass_room along;
        struct msghdr m = { .msg_iov = part, .msg_iovlen = size ? 2 : 1 };
        pv_pass_fds(&m, &along, &fd, fd >= 0);
        ssize_t n;
        do
                n = sendmsg(to, &m, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n == (ssize_t)(head_size + size) ? 0 : -1;
}

/* Returns the size of the value, -1 with errno. *fd is the caller's; fd NULL: none is expected. */
static ssize_t receive_packet(int from, void *head, size_t head_size, void *value, size_t room, int *fd)
{
        struct iovec part[] = { { .iov_base = head, .iov_len = head_size }, { .iov_base = value, .iov_len = room } };
        union pv_pass_room along;
        struct msghdr m = { .msg_iov = part, .msg_iovlen = 2 };
        if (fd)
                pv_pass_accept(&m, &along, 1);
        ssize_t n;
        do
                n = recvmsg(from, &m, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (fd && n >= 0)
                (void)pv_pass_take(&m, fd, 1);
        if (n < 0)
                return -1;
        errno = EPIPE;
        return n < (ssize_t)head_size || m.msg_flags & MSG_TRUNC ? -1 : n - (ssize_t)head_size;
}

/* ---- outside ---- */

/* The descriptor is of O_PATH: its link in /proc leads to the file itself, whatever that is. */
static struct answer carry_out(const struct request *r, int fd, void *value, size_t given)
{
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t n = 0;
        if (fd < 0 || memchr(r->attr, '\0', sizeof r->attr) == NULL)
                return (struct answer){ .error = EBADF };
        if (r->verb == GET)
                n = getxattr(path, r->attr, value, r->size < VALUE_MAX_BYTES ? r->size : VALUE_MAX_BYTES);
        else if (r->verb == SET)
                n = setxattr(path, r->attr, value, given, 0);
        else
                n = removexattr(path, r->attr);
        struct answer a = { 0 };
        if (n < 0)
                a.error = errno;
        else
                a.size = (uint32_t)n;
        return a;
}

static void serve(int peer)
{
        static char value[VALUE_MAX_BYTES];
        for (;;) {
                struct request r;
                pv_auto_fd fd = -1;
                ssize_t given = receive_packet(peer, &r, sizeof r, value, sizeof value, &fd);
                if (given < 0)
                        return; /* the caller is gone */
                struct answer a = carry_out(&r, fd, value, (size_t)given);
                if (send_packet(peer, &a, sizeof a, value, r.verb == GET && r.size ? a.size : 0, -1) < 0)
                        return;
        }
}

/* Keys that the caller may ignore in the middle of its work are none of this process's either. */
static void be_outside(int peer)
{
        static const int keys[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP };
        struct sigaction ignore = { .sa_handler = SIG_IGN };
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
                (void)sigaction(keys[i], &ignore, NULL);
        if (dup2(peer, 0) == 0 && close_range(1, ~0U, 0) == 0) /* nobody waits for the end of a pipe in vain */
                serve(0);
        _exit(0);
}

void pv_outer_ids_start(void)
{
        int ends[2];
        if (channel >= 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
                return;
        pid_t pid = fork();
        if (pid == 0)
                be_outside(ends[1]);
        (void)close(ends[1]);
        if (pid > 0)
                channel = ends[0];
        else
                (void)close(ends[0]);
}

/* ---- inside ---- */

/* A request and its answer belong together, whoever else asks. */
static int exchange(const struct request *r, int fd, const void *give, size_t given, struct answer *a, void *value,
                    size_t room)
{
        static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
        char none;
        (void)pthread_mutex_lock(&turn);
        bool done = send_packet(channel, r, sizeof *r, give, given, fd) == 0 &&
                    receive_packet(channel, a, sizeof *a, room ? value : &none, room, NULL) >= 0;
        (void)pthread_mutex_unlock(&turn);
        return done ? 0 : -1;
}

static ssize_t ask(const struct request *r, int dirfd, const char *name, const void *give, size_t given, void *value,
                   size_t room)
{
        struct answer a;
        const bool itself = !*name && dirfd != AT_FDCWD;
        pv_auto_fd fd = itself ? fcntl(dirfd, F_DUPFD_CLOEXEC, 0)
                               : openat(dirfd, *name ? name : ".", O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || exchange(r, fd, give, given, &a, value, room) < 0)
                return -1;
        errno = a.error;
        return a.error ? -1 : (ssize_t)a.size;
}

ssize_t pv_outer_ids_get(int dirfd, const char *name, const char *attr, void *value, size_t size)
{
        struct request r = { .verb = GET, .size = (uint32_t)(size < VALUE_MAX_BYTES ? size : VALUE_MAX_BYTES) };
        (void)snprintf(r.attr, sizeof r.attr, "%s", attr);
        return ask(&r, dirfd, name, NULL, 0, value, r.size);
}

int pv_outer_ids_set(int dirfd, const char *name, const char *attr, const void *value, size_t size)
{
        struct request r = { .verb = value ? SET : REMOVE };
        (void)snprintf(r.attr, sizeof r.attr, "%s", attr);
        if (size > VALUE_MAX_BYTES) {
                errno = E2BIG;
                return -1;
        }
        return ask(&r, dirfd, name, value, size, NULL, 0) < 0 ? -1 : 0;
}
