/* SPDX-License-Identifier: Apache-2.0 */
#include "net/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include "base/pass_fd.h"
#include "base/fd.h"

/* The tables of the kernel: local is asked first (rule 0), ours stand between it and main (32766). */
#define RULE_DNS         100u
#define RULE_UNREACHABLE 101u

/* One request of rtnetlink(7): header, fixed part, attributes. */
struct request {
        struct nlmsghdr h;
        char body[256];
};

static void begin(struct request *r, uint16_t type, uint16_t flags, const void *fixed, size_t size)
{
        memset(r, 0, sizeof *r);
        r->h.nlmsg_type = type;
        r->h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
        r->h.nlmsg_len = (uint32_t)NLMSG_LENGTH(size);
        memcpy(NLMSG_DATA(&r->h), fixed, size);
}

static void attribute(struct request *r, unsigned short type, const void *data, size_t size)
{
        struct rtattr *a = (struct rtattr *)(void *)((char *)r + NLMSG_ALIGN(r->h.nlmsg_len));
        a->rta_type = type;
        a->rta_len = (unsigned short)RTA_LENGTH(size);
        memcpy(RTA_DATA(a), data, size);
        r->h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(r->h.nlmsg_len) + RTA_ALIGN(a->rta_len));
}

static int transact(int nl, struct request *r, const char *what, struct pv_err *err)
{
        struct {
                struct nlmsghdr h;
                struct nlmsgerr e;
                char rest[512];
        } reply;
        if (send(nl, r, r->h.nlmsg_len, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network namespace: %s", what);
        ssize_t n = recv(nl, &reply, sizeof reply, 0);
        if (n < (ssize_t)(sizeof reply.h + sizeof reply.e) || reply.h.nlmsg_type != NLMSG_ERROR)
                return pv_err_set(err, PV_ERR_SYS, n < 0 ? errno : EPROTO, "network namespace: %s", what);
        if (reply.e.error != 0)
                return pv_err_set(err, PV_ERR_SYS, -reply.e.error, "network namespace: %s", what);
        return 0;
}

static int set_lo_up(int nl, struct pv_err *err)
{
        struct request r;
        struct ifinfomsg i = { .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP };
        begin(&r, RTM_NEWLINK, 0, &i, sizeof i);
        return transact(nl, &r, "bring up lo", err);
}

struct address {
        unsigned char family, size;
        unsigned char b[16];
};

static int add_address(int nl, const struct address *a, struct pv_err *err)
{
        struct request r;
        struct ifaddrmsg i = {
                .ifa_family = a->family,
                .ifa_prefixlen = (unsigned char)(8 * a->size),
                .ifa_flags = IFA_F_NODAD,
                .ifa_index = 1,
        };
        begin(&r, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &i, sizeof i);
        attribute(&r, IFA_LOCAL, a->b, a->size);
        attribute(&r, IFA_ADDRESS, a->b, a->size);
        return transact(nl, &r, "add an address to lo", err);
}

/*
 * The kernel gives a new IPv6 address its local route in a work queue, some time later; what is sent to the address
 * before that is unreachable. This one, of a lower priority, is there at once.
 */
static int add_local_route(int nl, const struct address *a, struct pv_err *err)
{
        struct request r;
        struct rtmsg m = {
                .rtm_family = a->family,
                .rtm_dst_len = (unsigned char)(8 * a->size),
                .rtm_table = RT_TABLE_LOCAL,
                .rtm_protocol = RTPROT_STATIC,
                .rtm_scope = RT_SCOPE_HOST,
                .rtm_type = RTN_LOCAL,
        };
        int lo = 1;
        begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m);
        attribute(&r, RTA_DST, a->b, a->size);
        attribute(&r, RTA_OIF, &lo, sizeof lo);
        return transact(nl, &r, "add a local route", err);
}

static int add_default_route(int nl, const struct address *a, struct pv_err *err)
{
        struct request r;
        struct rtmsg m = {
                .rtm_family = a->family,
                .rtm_table = RT_TABLE_MAIN,
                .rtm_protocol = RTPROT_STATIC,
                .rtm_scope = RT_SCOPE_LINK,
                .rtm_type = RTN_UNICAST,
        };
        int lo = 1;
        begin(&r, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m);
        attribute(&r, RTA_OIF, &lo, sizeof lo);
        attribute(&r, RTA_PREFSRC, a->b, a->size);
        return transact(nl, &r, "add the default route", err);
}

struct rule {
        uint32_t priority;
        uint8_t protocol; /* 0: any */
        uint16_t port;    /* 0: any */
        uint8_t action;
};

static int add_rule(int nl, unsigned char family, const struct rule *w, struct pv_err *err)
{
        struct request r;
        struct fib_rule_hdr h = { .family = family, .action = w->action };
        if (w->action == FR_ACT_TO_TBL)
                h.table = RT_TABLE_MAIN;
        begin(&r, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, &h, sizeof h);
        attribute(&r, FRA_PRIORITY, &w->priority, sizeof w->priority);
        if (w->protocol)
                attribute(&r, FRA_IP_PROTO, &w->protocol, sizeof w->protocol);
        if (w->port) {
                struct fib_rule_port_range range = { w->port, w->port };
                attribute(&r, FRA_DPORT_RANGE, &range, sizeof range);
        }
        return transact(nl, &r, "add a routing rule", err);
}

/*
 * A look-up without a protocol (connect of an unbound UDP socket asks with one; ip route get does not) stays
 * unreachable.
 */
static const struct rule rules[] = {
        { RULE_DNS, IPPROTO_TCP, 0, FR_ACT_TO_TBL },
        { RULE_DNS, IPPROTO_UDP, 53, FR_ACT_TO_TBL },
        { RULE_UNREACHABLE, 0, 0, FR_ACT_UNREACHABLE },
};

/*
 * Connection tracking remembers a connection for two minutes after its end, and the number that one namespace may
 * have is the machine's to set: a job that makes many in sequence would run into it, and then into silence. Best
 * effort: the files are there once a rule set with nat is, and may be read-only in a container.
 */
void pv_netns_forget_ended_connections(void)
{
        static const char *const files[] = {
                "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait",
                "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close",
        };
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                pv_auto_fd fd = open(files[i], O_WRONLY | O_CLOEXEC);
                if (fd >= 0)
                        (void)!write(fd, "1", 1);
        }
}

static int open_rtnetlink(struct pv_err *err)
{
        int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
        if (nl < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network namespace: open rtnetlink");
        return nl;
}

int pv_netns_set_up_loopback(struct pv_err *err)
{
        pv_auto_fd nl = open_rtnetlink(err);
        return nl < 0 ? -1 : set_lo_up(nl, err);
}

int pv_netns_set_up(struct pv_err *err)
{
        struct address own[2] = { { .family = AF_INET, .size = 4 }, { .family = AF_INET6, .size = 16 } };
        (void)inet_pton(AF_INET, PV_NETNS_V4, own[0].b);
        (void)inet_pton(AF_INET6, PV_NETNS_V6, own[1].b);
        pv_auto_fd nl = open_rtnetlink(err);
        if (nl < 0 || set_lo_up(nl, err) < 0)
                return -1;
        for (size_t i = 0; i < 2; i++) {
                if (add_address(nl, &own[i], err) < 0 ||
                    (own[i].family == AF_INET6 && add_local_route(nl, &own[i], err) < 0) ||
                    add_default_route(nl, &own[i], err) < 0)
                        return pv_err_wrap(err, "%s", i ? "IPv6" : "IPv4");
                for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
                        if (add_rule(nl, own[i].family, &rules[k], err) < 0)
                                return pv_err_wrap(err, "%s", i ? "IPv6" : "IPv4");
        }
        return 0;
}

static int bind_socket(int family, int type, uint16_t port)
{
        struct sockaddr_in v4 = { .sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback };
        int one = 1;
        pv_auto_fd fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return -1;
        if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0)
                return -1;
        const struct sockaddr *addr = family == AF_INET ? (void *)&v4 : (void *)&v6;
        if (bind(fd, addr, family == AF_INET ? sizeof v4 : sizeof v6) < 0)
                return -1;
        if (type == SOCK_STREAM && listen(fd, SOMAXCONN) < 0)
                return -1;
        return pv_fd_steal(&fd);
}

static uint16_t port_of(int fd)
{
        union {
                struct sockaddr any;
                struct sockaddr_in v4;
                struct sockaddr_in6 v6;
        } a = { .v6 = { 0 } };
        socklen_t n = sizeof a;
        if (getsockname(fd, &a.any, &n) < 0)
                return 0;
        return ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
}

/* The pairs: v4 first, on a port that the kernel chooses (0) or on a known one, then v6 on the same. */
static const struct {
        enum pv_netns_socket v4, v6;
        int type;
        uint16_t port;
} pairs[] = {
        { PV_NETNS_TCP4, PV_NETNS_TCP6, SOCK_STREAM, 0 },
        { PV_NETNS_DNS_UDP4, PV_NETNS_DNS_UDP6, SOCK_DGRAM, 0 },
        { PV_NETNS_DNS_TCP4, PV_NETNS_DNS_TCP6, SOCK_STREAM, 0 },
        { PV_NETNS_PROXY4, PV_NETNS_PROXY6, SOCK_STREAM, PV_NETNS_PROXY_PORT },
};

int pv_netns_listen(struct pv_netns_sockets *out, struct pv_err *err)
{
        struct pv_netns_sockets s = { .log = -1, .rules = -1 };
        memset(&s.fd, 0xff, sizeof s.fd);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
                int *v4 = &s.fd[pairs[i].v4], *v6 = &s.fd[pairs[i].v6];
                uint16_t port = 0;
                *v4 = bind_socket(AF_INET, pairs[i].type, pairs[i].port);
                if (*v4 >= 0)
                        port = s.port[pairs[i].v4] = s.port[pairs[i].v6] = port_of(*v4);
                if (port)
                        *v6 = bind_socket(AF_INET6, pairs[i].type, port);
                if (*v6 < 0) {
                        (void)pv_err_set(err, PV_ERR_SYS, errno, "network namespace: open a listening socket");
                        pv_netns_close(&s);
                        return -1;
                }
        }
        *out = s;
        return 0;
}

void pv_netns_close(struct pv_netns_sockets *s)
{
        for (size_t i = 0; i < PV_NETNS_SOCKETS; i++)
                pv_fd_closep(&s->fd[i]);
        pv_fd_closep(&s->log);
        pv_fd_closep(&s->rules);
}

int pv_netns_listen_at(uint16_t port, int *out, struct pv_err *err)
{
        pv_auto_fd v4 = bind_socket(AF_INET, SOCK_STREAM, port);
        pv_auto_fd v6 = v4 < 0 ? -1 : bind_socket(AF_INET6, SOCK_STREAM, port);
        if (v6 < 0)
                return pv_err_set(err, errno == EADDRINUSE ? PV_ERR_USAGE : PV_ERR_SYS, errno,
                                  "listen at port %u of the sandbox's loopback", port);
        out[0] = pv_fd_steal(&v4);
        out[1] = pv_fd_steal(&v6);
        return 0;
}

/* A socket, or -1 and why there is none. */
static int answer(int channel, int fd, int error)
{
        union pv_pass_room room;
        struct iovec data = { &error, sizeof error };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        pv_pass_fds(&m, &room, &fd, fd >= 0);
        return sendmsg(channel, &m, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

void pv_netns_serve_sockets(int channel)
{
        unsigned char family;
        while (recv(channel, &family, 1, 0) == 1) {
                pv_auto_fd fd =
                        socket(family == AF_INET6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                if (fd >= 0 && answer(channel, fd, 0) == 0)
                        continue;
                if (answer(channel, -1, errno) < 0) /* also that it cannot be handed over: ETOOMANYREFS */
                        return;
        }
}

int pv_netns_ask_socket(int channel, int family)
{
        union pv_pass_room room;
        unsigned char request = (unsigned char)family;
        int answer = EPIPE;
        pv_auto_fd fd = -1;
        struct iovec data = { &answer, sizeof answer };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        pv_pass_accept(&m, &room, 1);
        if (send(channel, &request, 1, MSG_NOSIGNAL) != 1)
                return -1;
        ssize_t n = recvmsg(channel, &m, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EAGAIN)
                (void)shutdown(channel, SHUT_RDWR); /* a late answer would be taken for the next one's */
        if (n > 0)
                (void)pv_pass_take(&m, &fd, 1);
        if (n != (ssize_t)sizeof answer || answer != 0 || fd < 0) {
                errno = answer ? answer : EPROTO;
                return -1;
        }
        return pv_fd_steal(&fd);
}
