/* SPDX-License-Identifier: Apache-2.0 */
/* Each test runs in a child with user and network namespaces of its own, in which nothing but lo exists. */
#include "base/test.h"
#include "net/netns.h"

#include <arpa/inet.h>
#include <linux/netfilter_ipv4.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/pass_fd.h"
#include "net/nfmsg.h"
#include "net/nft.h"

#define IP6T_SO_ORIGINAL_DST 80 /* linux/netfilter_ipv6/ip6_tables.h does not compile beside netinet/in.h */

#define CHECK(condition)                                                                                        \
        do {                                                                                                    \
                if (!(condition)) {                                                                             \
                        (void)fprintf(stderr, "%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno); \
                        _exit(1);                                                                               \
                }                                                                                               \
        } while (0)

struct rig {
        struct pv_netns_sockets sockets;
        struct pv_netrule allow[4], deny[4];
        struct pv_netpolicy policy;
};

static void enter(void)
{
        CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
}

static void set_up(struct rig *r, const char *allow, const char *deny)
{
        struct pv_err e = PV_ERR_INIT;
        struct pv_netlayer *l = &r->policy.layer[0];
        enter();
        CHECK(pv_netns_set_up(&e) == 0);
        CHECK(pv_netns_listen(&r->sockets, &e) == 0);
        *l = (struct pv_netlayer){ .name = "session", .allow = r->allow, .deny = r->deny };
        r->policy.n_layers = 1;
        if (allow)
                CHECK(pv_netrule_parse(allow, &r->allow[l->n_allow++], &e) == 0);
        if (deny)
                CHECK(pv_netrule_parse(deny, &r->deny[l->n_deny++], &e) == 0);
        r->sockets.rules = pv_nfmsg_open(&e);
        if (r->sockets.rules < 0 || pv_nft_load(r->sockets.rules, &r->policy, &r->sockets, &e) < 0) {
                (void)fprintf(stderr, "%s: %s\n", e.msg, strerror(e.sys));
                _exit(1);
        }
}

static socklen_t address(const char *text, uint16_t port, struct sockaddr_storage *out)
{
        struct sockaddr_in *v4 = (void *)out;
        struct sockaddr_in6 *v6 = (void *)out;
        memset(out, 0, sizeof *out);
        if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
                v4->sin_family = AF_INET;
                v4->sin_port = htons(port);
                return sizeof *v4;
        }
        CHECK(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1);
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        return sizeof *v6;
}

/* 0 and the socket in *fd, or the errno of connect. */
static int try_connect(int type, const char *text, uint16_t port, int *fd)
{
        struct sockaddr_storage a;
        socklen_t n = address(text, port, &a);
        *fd = socket(a.ss_family, type | SOCK_CLOEXEC, 0);
        CHECK(*fd >= 0);
        return connect(*fd, (struct sockaddr *)&a, n) == 0 ? 0 : errno;
}

/* Connects to `to` and sees it arrive as `text`. */
static void expect_arrival(struct rig *r, const char *to, const char *text, uint16_t port)
{
        struct sockaddr_storage want, got;
        socklen_t n = sizeof got, want_n = address(text, port, &want);
        bool v4 = want.ss_family == AF_INET;
        int fd = -1;
        CHECK(try_connect(SOCK_STREAM, to, port, &fd) == 0);
        int peer = accept4(r->sockets.fd[v4 ? PV_NETNS_TCP4 : PV_NETNS_TCP6], NULL, NULL, SOCK_CLOEXEC);
        CHECK(peer >= 0);
        CHECK(getsockopt(peer, v4 ? SOL_IP : SOL_IPV6, v4 ? SO_ORIGINAL_DST : IP6T_SO_ORIGINAL_DST, &got, &n) == 0);
        CHECK(memcmp(&want, &got, want_n) == 0);
        CHECK(close(peer) == 0 && close(fd) == 0);
}

static void expect_redirected(struct rig *r, const char *text, uint16_t port)
{
        expect_arrival(r, text, text, port);
}

static int errno_of(int type, const char *text, uint16_t port)
{
        int fd = -1, e = try_connect(type, text, port, &fd);
        if (e == 0 && type == SOCK_DGRAM && send(fd, "x", 1, 0) < 0)
                e = errno;
        CHECK(close(fd) == 0);
        return e;
}

static void run_in_child(void (*body)(void))
{
        int status = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                (void)alarm(20);
                body();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void any_address_arrives(void)
{
        struct rig r = { 0 };
        set_up(&r, NULL, NULL);
        expect_redirected(&r, "203.0.113.5", 443);
        expect_redirected(&r, "203.0.113.5", 1);
        expect_redirected(&r, "10.1.2.3", 65535);
        expect_redirected(&r, "2001:db8::5", 443);
        expect_arrival(&r, "::ffff:203.0.113.9", "203.0.113.9", 80);
}

static void every_tcp_connection_arrives_with_its_address(void **state)
{
        run_in_child(any_address_arrives);
}

static void rules_by_address(void)
{
        struct rig r = { 0 };
        set_up(&r, "203.0.113.0/24:443", "203.0.113.66");
        expect_redirected(&r, "203.0.113.5", 443);
        CHECK(errno_of(SOCK_STREAM, "203.0.113.5", 80) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "203.0.113.66", 443) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "8.8.8.8", 443) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "198.18.1.1", 443) == ECONNREFUSED); /* no rule by name */
        CHECK(errno_of(SOCK_STREAM, "2001:db8::5", 443) == ECONNREFUSED);
}

static void what_an_address_decides_is_refused_in_connect(void **state)
{
        run_in_child(rules_by_address);
}

static void rules_by_name(void)
{
        struct rig r = { 0 };
        set_up(&r, "*.example.com:443", NULL);
        expect_redirected(&r, "198.18.1.1", 443);
        expect_redirected(&r, "fd70:7669:736f::100", 443);
        CHECK(errno_of(SOCK_STREAM, "198.18.1.1", 80) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "8.8.8.8", 443) == ECONNREFUSED);
}

static void names_are_reached_by_synthetic_addresses_alone(void **state)
{
        run_in_child(rules_by_name);
}

static void other_protocols(void)
{
        struct rig r = { 0 };
        set_up(&r, NULL, NULL);
        CHECK(errno_of(SOCK_DGRAM, "8.8.8.8", 443) == ENETUNREACH); /* QUIC */
        CHECK(errno_of(SOCK_DGRAM, "2001:db8::5", 443) == ENETUNREACH);
        CHECK(errno_of(SOCK_DGRAM, "10.255.0.1", 443) == 0); /* its own address */
        int fd = -1;
        CHECK(try_connect(SOCK_STREAM, "127.0.0.1", r.sockets.port[PV_NETNS_TCP4], &fd) == ECONNREFUSED);
        CHECK(try_connect(SOCK_STREAM, "::1", r.sockets.port[PV_NETNS_TCP6], &fd) == ECONNREFUSED);
        CHECK(try_connect(SOCK_STREAM, "10.255.0.1", r.sockets.port[PV_NETNS_TCP4], &fd) == ECONNREFUSED);
        CHECK(try_connect(SOCK_STREAM, "127.0.0.1", r.sockets.port[PV_NETNS_PROXY4], &fd) == 0);
}

static void udp_is_unreachable_and_the_own_ports_are_refused(void **state)
{
        run_in_child(other_protocols);
}

static void loopback_services(void)
{
        struct rig r = { 0 };
        set_up(&r, "example.com", NULL); /* all else is denied */
        struct sockaddr_storage a;
        socklen_t n = address("127.0.0.1", 0, &a);
        int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(bind(server, (struct sockaddr *)&a, n) == 0 && listen(server, 1) == 0);
        CHECK(getsockname(server, (struct sockaddr *)&a, &n) == 0);
        CHECK(errno_of(SOCK_STREAM, "127.0.0.1", ntohs(((struct sockaddr_in *)(void *)&a)->sin_port)) == 0);
}

static void the_sandbox_keeps_its_own_loopback(void **state)
{
        run_in_child(loopback_services);
}

static void ask_any_server(void)
{
        struct rig r = { 0 };
        static const char *const servers[] = { "8.8.8.8", "127.0.0.53", "2001:db8::53" };
        set_up(&r, "example.com", NULL);
        for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
                char buf[16];
                struct sockaddr_storage from;
                socklen_t n = sizeof from;
                int fd = -1;
                CHECK(try_connect(SOCK_DGRAM, servers[i], 53, &fd) == 0);
                CHECK(send(fd, "question", 8, 0) == 8);
                int dns = r.sockets.fd[strchr(servers[i], ':') ? PV_NETNS_DNS_UDP6 : PV_NETNS_DNS_UDP4];
                CHECK(recvfrom(dns, buf, sizeof buf, 0, (struct sockaddr *)&from, &n) == 8);
                CHECK(sendto(dns, "answer", 6, 0, (struct sockaddr *)&from, n) == 6);
                struct pollfd p = { .fd = fd, .events = POLLIN };
                CHECK(poll(&p, 1, 10000) == 1); /* connected: only an answer from that very server is received */
                CHECK(recv(fd, buf, sizeof buf, 0) == 6);
                CHECK(close(fd) == 0);
                CHECK(try_connect(SOCK_STREAM, servers[i], 53, &fd) == 0);
                int peer = accept4(r.sockets.fd[strchr(servers[i], ':') ? PV_NETNS_DNS_TCP6 : PV_NETNS_DNS_TCP4], NULL,
                                   NULL, SOCK_CLOEXEC);
                CHECK(peer >= 0);
        }
}

static void every_question_arrives_and_the_answer_comes_from_the_server_asked(void **state)
{
        run_in_child(ask_any_server);
}

static void granted_rules(void)
{
        struct rig r = { 0 };
        struct pv_err e = PV_ERR_INIT;
        struct pv_netrule grants[3];
        set_up(&r, "203.0.113.0/24:443", "203.0.113.66");
        CHECK(errno_of(SOCK_STREAM, "203.0.113.5", 80) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "198.18.1.1", 22) == ECONNREFUSED);
        CHECK(pv_netrule_parse("203.0.113.0/24:80", &grants[0], &e) == 0);
        CHECK(pv_netrule_parse("git.example.com:22", &grants[1], &e) == 0);
        CHECK(pv_netrule_parse("[2001:db8::]/64:80", &grants[2], &e) == 0);
        CHECK(pv_nft_grant(r.sockets.rules, grants, 3, &e) == 0);
        expect_redirected(&r, "203.0.113.5", 80);
        expect_redirected(&r, "203.0.113.5", 443);
        expect_redirected(&r, "198.18.1.1", 22);
        expect_redirected(&r, "2001:db8::5", 80);
        CHECK(errno_of(SOCK_STREAM, "203.0.113.66", 80) == ECONNREFUSED); /* denied */
        CHECK(errno_of(SOCK_STREAM, "203.0.113.5", 81) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "198.18.1.1", 80) == ECONNREFUSED);
}

static void a_grant_adds_and_denials_stay(void **state)
{
        run_in_child(granted_rules);
}

/* More than one datagram of netlink can hold. */
static void many_rules(void)
{
        struct rig r = { 0 };
        struct pv_err e = PV_ERR_INIT;
        static struct pv_netrule allow[PV_NETPOLICY_RULES], deny[PV_NETPOLICY_RULES];
        struct pv_netlayer *l = &r.policy.layer[0];
        enter();
        CHECK(pv_netns_set_up(&e) == 0 && pv_netns_listen(&r.sockets, &e) == 0);
        for (unsigned i = 0; i < PV_NETPOLICY_RULES; i++) {
                pv_auto_free char *one = pv_strf("100.%u.%u.0/24:400-499", 64 + i / 256, i % 256);
                pv_auto_free char *other = pv_strf("100.%u.%u.7", 64 + i / 256, i % 256);
                CHECK(pv_netrule_parse(one, &allow[i], &e) == 0 && pv_netrule_parse(other, &deny[i], &e) == 0);
        }
        *l = (struct pv_netlayer){ .name = "session", .allow = allow, .deny = deny };
        l->n_allow = l->n_deny = PV_NETPOLICY_RULES;
        r.policy.n_layers = 1;
        r.sockets.rules = pv_nfmsg_open(&e);
        CHECK(pv_nft_load(r.sockets.rules, &r.policy, &r.sockets, &e) == 0);
        expect_redirected(&r, "100.64.0.1", 443);
        expect_redirected(&r, "100.67.255.1", 443);
        CHECK(errno_of(SOCK_STREAM, "100.67.255.7", 443) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "100.67.255.1", 80) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "100.68.0.1", 443) == ECONNREFUSED);
}

static void a_long_policy_is_loaded_whole(void **state)
{
        run_in_child(many_rules);
}

static void loopback_alone(void)
{
        struct pv_err e = PV_ERR_INIT;
        enter();
        CHECK(errno_of(SOCK_STREAM, "127.0.0.1", 9) == ENETUNREACH);
        CHECK(pv_netns_set_up_loopback(&e) == 0);
        CHECK(errno_of(SOCK_STREAM, "127.0.0.1", 9) == ECONNREFUSED);
        CHECK(errno_of(SOCK_STREAM, "8.8.8.8", 443) == ENETUNREACH);
}

static void without_routes_nothing_is_reachable(void **state)
{
        run_in_child(loopback_alone);
}

static void ask_while_no_descriptor_can_be_sent(void)
{
        int channel[2], holding[2], many[PV_PASS_FDS];
        const struct rlimit few = { 32, 32 };
        enter();
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) == 0 && socketpair(AF_UNIX, SOCK_DGRAM, 0, holding) == 0);
        pid_t server = fork();
        if (server == 0) {
                (void)close(channel[0]);
                (void)close(holding[1]);
                CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
                pv_netns_serve_sockets(channel[1]);
                _exit(0);
        }
        for (int i = 0; i < PV_PASS_FDS; i++)
                many[i] = channel[0];
        for (int i = 0; i < 5; i++) {
                union pv_pass_room room;
                struct iovec byte = { "", 1 };
                struct msghdr m = { .msg_iov = &byte, .msg_iovlen = 1 };
                pv_pass_fds(&m, &room, many, PV_PASS_FDS);
                CHECK(sendmsg(holding[0], &m, 0) == 1);
        }
        CHECK(pv_netns_ask_socket(channel[0], AF_INET) == -1 && errno == ETOOMANYREFS);
        CHECK(close(holding[1]) == 0);
        CHECK(pv_netns_ask_socket(channel[0], AF_INET) >= 0);
        CHECK(kill(server, SIGKILL) == 0 && waitpid(server, NULL, 0) == server);
}

/* ETOOMANYREFS, while another program of the user holds many in flight. */
static void a_socket_that_cannot_be_handed_over_is_the_only_one(void **state)
{
        (void)state;
        run_in_child(ask_while_no_descriptor_can_be_sent);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_tcp_connection_arrives_with_its_address),
                cmocka_unit_test(what_an_address_decides_is_refused_in_connect),
                cmocka_unit_test(names_are_reached_by_synthetic_addresses_alone),
                cmocka_unit_test(udp_is_unreachable_and_the_own_ports_are_refused),
                cmocka_unit_test(the_sandbox_keeps_its_own_loopback),
                cmocka_unit_test(every_question_arrives_and_the_answer_comes_from_the_server_asked),
                cmocka_unit_test(without_routes_nothing_is_reachable),
                cmocka_unit_test(a_grant_adds_and_denials_stay),
                cmocka_unit_test(a_long_policy_is_loaded_whole),
                cmocka_unit_test(a_socket_that_cannot_be_handed_over_is_the_only_one),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
