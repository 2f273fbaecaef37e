/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/canary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include "base/fd.h"
#include "base/syscall.h"

#define PREFIX        "pvisor-canary-"
#define RANDOM        "XXXXXX"
#define LEFT_BEHIND_S 600

static int open_unix(int *fd, struct sockaddr_un *name, socklen_t len, struct pv_err *err)
{
        pv_auto_fd s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (s < 0 || bind(s, (struct sockaddr *)name, len) < 0 || listen(s, 1) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: Unix socket");
        *fd = pv_fd_steal(&s);
        return 0;
}

static int open_abstract(struct pv_canary *c, struct pv_err *err)
{
        struct sockaddr_un name = { .sun_family = AF_UNIX };
        socklen_t len = sizeof name;

        /* With the family alone the kernel makes up a free abstract name (unix(7), autobind). */
        if (open_unix(&c->abstract_socket, &name, sizeof name.sun_family, err) < 0)
                return -1;
        if (getsockname(c->abstract_socket, (struct sockaddr *)&name, &len) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: name of the abstract socket");
        len -= (socklen_t)offsetof(struct sockaddr_un, sun_path) + 1;
        (void)snprintf(c->abstract, sizeof c->abstract, "%.*s", (int)len, name.sun_path + 1);
        return 0;
}

static void remove_things(int dir)
{
        static const char *const names[] = { "file", "fifo", "socket", "new" };

        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                (void)unlinkat(dir, names[i], 0);
}

/* What supervisors left that were killed while they held one; none holds it for so long. */
static void sweep(const char *parent)
{
        pv_auto_dir d = opendir(parent);
        time_t before = time(NULL) - LEFT_BEHIND_S;
        struct stat st;

        for (struct dirent *e; d && (e = readdir(d));) {
                if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0 ||
                    strlen(e->d_name) != strlen(PREFIX) + strlen(RANDOM) ||
                    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
                    st.st_uid != geteuid() || st.st_mtime > before)
                        continue;
                pv_auto_fd old = openat(dirfd(d), e->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (old < 0)
                        continue;
                remove_things(old);
                (void)unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
        }
}

static int open_paths(struct pv_canary *c, const char *parent, struct pv_err *err)
{
        struct sockaddr_un name = { .sun_family = AF_UNIX };
        pv_auto_fd file = -1;

        sweep(parent);

        if (snprintf(c->dir, sizeof c->dir, "%s/" PREFIX RANDOM, parent) >= (int)sizeof c->dir) {
                c->dir[0] = '\0';
                return pv_err_set(err, PV_ERR_SYS, ENAMETOOLONG, "canary: %s", parent);
        }
        if (!mkdtemp(c->dir)) {
                int error = errno;

                c->dir[0] = '\0';
                return pv_err_set(err, PV_ERR_SYS, error, "canary: directory in %s", parent);
        }
        c->dir_fd = open(c->dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (c->dir_fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: %s", c->dir);
        file = openat(c->dir_fd, "file", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (file < 0 || mkfifoat(c->dir_fd, "fifo", 0600) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: files in %s", c->dir);
        c->fifo = openat(c->dir_fd, "fifo", O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
        if (c->fifo < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: FIFO in %s", c->dir);
        /* A socket's address is short: by descriptor any directory will do. */
        (void)snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d/socket", c->dir_fd);
        return open_unix(&c->socket, &name, sizeof name, err);
}

/* One socket on the loopback, any free port. A host without this family has no canary of it. */
static int open_inet(int family, int type, int *fd, uint16_t *port, struct pv_err *err)
{
        union {
                struct sockaddr any;
                struct sockaddr_in v4;
                struct sockaddr_in6 v6;
        } a = { .any = { .sa_family = (sa_family_t)family } };
        socklen_t len = family == AF_INET ? sizeof a.v4 : sizeof a.v6;
        pv_auto_fd s = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (family == AF_INET)
                a.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        else
                a.v6.sin6_addr = in6addr_loopback;
        if (s < 0 || bind(s, &a.any, len) < 0) {
                if (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)
                        return 0;
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: loopback socket");
        }
        if ((type == SOCK_STREAM && listen(s, 1) < 0) || getsockname(s, &a.any, &len) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: loopback socket");
        *port = ntohs(family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
        *fd = pv_fd_steal(&s);
        return 0;
}

static int open_network(struct pv_canary *c, struct pv_err *err)
{
        if (open_inet(AF_INET, SOCK_STREAM, &c->tcp4_socket, &c->tcp4, err) < 0 ||
            open_inet(AF_INET6, SOCK_STREAM, &c->tcp6_socket, &c->tcp6, err) < 0 ||
            open_inet(AF_INET, SOCK_DGRAM, &c->udp4_socket, &c->udp4, err) < 0)
                return -1;
        return open_inet(AF_INET6, SOCK_DGRAM, &c->udp6_socket, &c->udp6, err);
}

static int open_kinds(struct pv_canary *c, enum pv_canary_kinds kinds, const char *parent, struct pv_err *err)
{
        struct stat ns;

        c->supervisor = getpid();
        c->supervisor_fd = pv_sys_pidfd_open(c->supervisor, 0);
        if (c->supervisor_fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "canary: this process");
        if (stat("/proc/self/ns/ipc", &ns) == 0)
                c->ipc_namespace = ns.st_ino;
        if (kinds & PV_CANARY_PATHS && open_paths(c, parent, err) < 0)
                return -1;
        if (kinds & PV_CANARY_ABSTRACT && open_abstract(c, err) < 0)
                return -1;
        return kinds & PV_CANARY_NETWORK ? open_network(c, err) : 0;
}

int pv_canary_open(struct pv_canary *c, enum pv_canary_kinds kinds, const char *parent, struct pv_err *err)
{
        *c = (struct pv_canary)PV_CANARY_INIT;
        if (open_kinds(c, kinds, parent, err) == 0)
                return 0;
        pv_canary_close(c);
        return -1;
}

void pv_canary_clear(struct pv_canary *c)
{
        c->dir_fd = c->supervisor_fd = c->socket = c->fifo = c->abstract_socket = -1;
        c->tcp4_socket = c->tcp6_socket = c->udp4_socket = c->udp6_socket = -1;
}

void pv_canary_close(struct pv_canary *c)
{
        int *fds[] = { &c->socket,      &c->fifo,        &c->abstract_socket, &c->tcp4_socket,  &c->tcp6_socket,
                       &c->udp4_socket, &c->udp6_socket, &c->dir_fd,          &c->supervisor_fd };

        if (c->dir_fd >= 0)
                remove_things(c->dir_fd);
        if (c->dir[0])
                (void)rmdir(c->dir);
        for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
                pv_fd_closep(fds[i]);
        *c = (struct pv_canary)PV_CANARY_INIT;
}
