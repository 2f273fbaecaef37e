/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/probe_attempt.h"

#include <errno.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "base/fd.h"

/*
 * Loopback answers within the call, unless the answer is left to a kernel thread, which a busy machine may keep waiting
 * for a while. That long, in milliseconds, a probe stands before it is counted as one that nobody refused: a run that
 * is refused by mistake costs more than the seconds of one that is refused rightly.
 */
#define GRACE 3000

static int connect_loopback(int family, int type, uint16_t port, int *fd)
{
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback };
        pv_auto_fd s = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (s < 0)
                return errno;
        int r = family == AF_INET ? connect(s, (struct sockaddr *)&v4, sizeof v4)
                                  : connect(s, (struct sockaddr *)&v6, sizeof v6);
        if (r < 0 && errno != EINPROGRESS)
                return errno;
        *fd = pv_fd_steal(&s);
        return r == 0 ? 0 : EINPROGRESS;
}

static int pending_error(int fd)
{
        int error = 0;
        socklen_t len = sizeof error;

        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? errno : error;
}

static int try_tcp(int family, uint16_t port)
{
        pv_auto_fd fd = -1;

        if (port == 0)
                return PV_ATTEMPT_ABSENT;
        int r = connect_loopback(family, SOCK_STREAM, port, &fd);
        if (r != EINPROGRESS)
                return r;
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        if (poll(&p, 1, GRACE) == 0)
                return PV_ATTEMPT_SUCCEEDED;
        return pending_error(fd);
}

/* Refused is: no route, or the answer that nobody listens at that port here. */
static int try_udp(int family, uint16_t port)
{
        pv_auto_fd fd = -1;

        if (port == 0)
                return PV_ATTEMPT_ABSENT;
        int r = connect_loopback(family, SOCK_DGRAM, port, &fd);
        if (r != 0)
                return r;
        if (send(fd, "pvisor", 6, MSG_NOSIGNAL) < 0)
                return errno;
        struct pollfd p = { .fd = fd, .events = 0 };
        (void)poll(&p, 1, GRACE);
        return pending_error(fd);
}

int pv_attempt_tcp4(const struct pv_probe_spec *spec)
{
        return try_tcp(AF_INET, spec->canary->tcp4);
}

int pv_attempt_tcp6(const struct pv_probe_spec *spec)
{
        return try_tcp(AF_INET6, spec->canary->tcp6);
}

int pv_attempt_udp4(const struct pv_probe_spec *spec)
{
        return try_udp(AF_INET, spec->canary->udp4);
}

int pv_attempt_udp6(const struct pv_probe_spec *spec)
{
        return try_udp(AF_INET6, spec->canary->udp6);
}

/* Tunnels that the kernel puts into every namespace (tunl0, sit0) are down, and nobody inside can raise them. */
int pv_attempt_interface(const struct pv_probe_spec *spec)
{
        pv_auto_fd s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct if_nameindex *all = s >= 0 ? if_nameindex() : NULL;
        int r = all ? ENODEV : errno;

        (void)spec;
        for (struct if_nameindex *i = all; i && i->if_index != 0; i++) {
                struct ifreq q = { .ifr_flags = 0 };
                (void)strncpy(q.ifr_name, i->if_name, IFNAMSIZ - 1);
                if (strcmp(i->if_name, "lo") != 0 && ioctl(s, SIOCGIFFLAGS, &q) == 0 && q.ifr_flags & IFF_UP)
                        r = PV_ATTEMPT_SUCCEEDED;
        }
        if_freenameindex(all);
        return r;
}

int pv_attempt_abstract(const struct pv_probe_spec *spec)
{
        struct sockaddr_un name = { .sun_family = AF_UNIX };
        size_t len = strlen(spec->canary->abstract);
        pv_auto_fd s = -1;

        if (len == 0 || len >= sizeof name.sun_path)
                return PV_ATTEMPT_NOT_MADE;
        memcpy(name.sun_path + 1, spec->canary->abstract, len);
        s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0)
                return errno;
        len += offsetof(struct sockaddr_un, sun_path) + 1;
        return connect(s, (struct sockaddr *)&name, (socklen_t)len) == 0 || errno == EAGAIN ? PV_ATTEMPT_SUCCEEDED
                                                                                            : errno;
}

static int try_socket(int family, int type, int protocol)
{
        pv_auto_fd fd = socket(family, type | SOCK_CLOEXEC, protocol);

        return fd >= 0 ? PV_ATTEMPT_SUCCEEDED : errno;
}

int pv_attempt_vsock(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_socket(AF_VSOCK, SOCK_STREAM, 0);
}

int pv_attempt_packet(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_socket(AF_PACKET, SOCK_RAW, 0);
}

int pv_attempt_audit(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT);
}
