/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole data plane: a "host" and a "sandbox", each a network namespace of its own in which nothing but lo exists.
 * The servers listen on the host's loopback; the sandbox reaches them under PV_PLANE_HOST_NAME or by rules by
 * address.
 */
#include "base/test.h"
#include "base/pass_fd.h"
#include "net/plane.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/json.h"
#include "net/nfmsg.h"
#include "net/nft.h"

#define CHECK(condition)                                                                                        \
        do {                                                                                                    \
                if (!(condition)) {                                                                             \
                        (void)fprintf(stderr, "%s:%d: %s (errno %d)\n", __func__, __LINE__, #condition, errno); \
                        _exit(1);                                                                               \
                }                                                                                               \
        } while (0)

struct world {
        struct pv_netrule allow[4];
        struct pv_netpolicy policy;
        struct pv_plane_spec spec;
        int control;   /* the test's end */
        uint16_t port; /* of the server on the host */
        pid_t plane, server;
};

static int listen_on(const char *text, uint16_t *port)
{
        struct sockaddr_in a = { .sin_family = AF_INET };
        socklen_t n = sizeof a;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(inet_pton(AF_INET, text, &a.sin_addr) == 1);
        CHECK(bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 2048) == 0);
        CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
        *port = ntohs(a.sin_port);
        return fd;
}

/* Answers each connection with what it sent, in upper case, until its half-close. */
static void serve_echo(int listener)
{
        char buf[65536];
        for (;;) {
                int fd = accept(listener, NULL, NULL);
                CHECK(fd >= 0);
                for (ssize_t n; (n = recv(fd, buf, sizeof buf, 0)) > 0;) {
                        for (ssize_t i = 0; i < n; i++)
                                buf[i] = (char)(buf[i] >= 'a' && buf[i] <= 'z' ? buf[i] - 32 : buf[i]);
                        CHECK(send(fd, buf, (size_t)n, MSG_NOSIGNAL) == n);
                }
                CHECK(close(fd) == 0);
        }
}

static int receive_sockets(int channel, struct pv_netns_sockets *out)
{
        union pv_pass_room room;
        struct iovec data = { out, sizeof *out };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        pv_pass_accept(&m, &room, PV_NETNS_SOCKETS);
        if (recvmsg(channel, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *out)
                return -1;
        return pv_pass_take(&m, out->fd, PV_NETNS_SOCKETS) == PV_NETNS_SOCKETS ? 0 : -1;
}

static void send_sockets(int channel, struct pv_netns_sockets *s)
{
        union pv_pass_room room;
        struct iovec data = { s, sizeof *s };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        pv_pass_fds(&m, &room, s->fd, PV_NETNS_SOCKETS);
        CHECK(sendmsg(channel, &m, 0) == (ssize_t)sizeof *s);
}

static void start_plane(struct world *w, int channel)
{
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        w->control = pair[0];
        w->spec.control = pair[1];
        w->spec.events = w->spec.orders = w->spec.sockets_from = w->spec.resolver = -1;
        w->spec.policy = &w->policy;
        CHECK(receive_sockets(channel, &w->spec.sockets) == 0);
        w->spec.sockets.rules = -1; /* not passed */
        w->plane = fork();
        if (w->plane == 0) {
                struct pv_err e = PV_ERR_INIT;
                (void)close(w->control);
                if (pv_plane_run(&w->spec, &e) < 0) {
                        (void)fprintf(stderr, "%s\n", e.msg);
                        _exit(1);
                }
                _exit(0);
        }
        (void)close(w->spec.control);
}

/* The sandbox: a network namespace with the rules loaded; runs body, then ends. */
static void sandbox(struct world *w, int channel, void (*body)(struct world *))
{
        struct pv_err e = PV_ERR_INIT;
        struct pv_netns_sockets s;
        char go;
        CHECK(unshare(CLONE_NEWNET) == 0);
        CHECK(pv_netns_set_up(&e) == 0 && pv_netns_listen(&s, &e) == 0);
        s.rules = pv_nfmsg_open(&e);
        CHECK(s.rules >= 0 && pv_nft_load(s.rules, &w->policy, &s, &e) == 0);
        send_sockets(channel, &s);
        w->spec.sockets = s;
        CHECK(read(channel, &go, 1) == 1);
        body(w);
        _exit(0);
}

/*
 * Runs body in a sandbox with rules that allow these hosts at the server's port; the summary of the network goes to
 * *summary.
 */
static void run(const char *const *allow, void (*body)(struct world *), json_t **summary)
{
        struct world w = { 0 };
        struct pv_err e = PV_ERR_INIT;
        int channel[2], status = 0;
        CHECK(unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0);
        CHECK(pv_netns_set_up_loopback(&e) == 0);
        int listener = listen_on("127.0.0.1", &w.port);
        w.server = fork();
        if (w.server == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed check ends the parent without more ado */
                serve_echo(listener);
        }
        w.policy.layer[0] = (struct pv_netlayer){ .name = "session", .allow = w.allow };
        w.policy.n_layers = 1;
        for (; *allow; allow++) {
                pv_auto_free char *text = pv_strf("%s:%u", *allow, w.port);
                CHECK(pv_netrule_parse(text, &w.allow[w.policy.layer[0].n_allow++], &e) == 0);
        }
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
        pid_t inside = fork();
        if (inside == 0)
                sandbox(&w, channel[1], body);
        start_plane(&w, channel[0]);
        CHECK(write(channel[0], "g", 1) == 1);
        CHECK(waitpid(inside, &status, 0) == inside && status == 0);
        CHECK(shutdown(w.control, SHUT_WR) == 0);
        char *text = NULL;
        CHECK(pv_fd_read_all(w.control, 1 << 20, "summary", &text, NULL, &e) == 0);
        CHECK(waitpid(w.plane, &status, 0) == w.plane && status == 0);
        CHECK(kill(w.server, SIGKILL) == 0 && waitpid(w.server, NULL, 0) == w.server);
        *summary = json_loads(text, 0, NULL);
        CHECK(*summary != NULL);
        free(text);
}

static void run_in_child(void (*test)(void))
{
        int status = 0;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                (void)alarm(60);
                test();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static int connect_to(const char *text, uint16_t port)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(inet_pton(AF_INET, text, &a.sin_addr) == 1);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
                return fd;
        int e = errno;
        CHECK(close(fd) == 0);
        errno = e;
        return -1;
}

/* Asks the name server over UDP for an A record; the address as text, "" and the rcode when there is none. */
static unsigned ask(const char *name, char *address)
{
        uint8_t m[512] = { 0x12, 0x34, 1, 0, 0, 1 };
        size_t n = 12;
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(53) };
        CHECK(inet_pton(AF_INET, "203.0.113.53", &a.sin_addr) == 1);
        for (const char *p = name; *p;) {
                size_t label = strcspn(p, ".");
                m[n++] = (uint8_t)label;
                memcpy(m + n, p, label);
                n += label;
                p += label + (p[label] == '.');
        }
        memcpy(m + n, "\0\0\1\0\1", 5);
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
        CHECK(send(fd, m, n + 5, 0) == (ssize_t)(n + 5));
        struct pollfd p = { .fd = fd, .events = POLLIN };
        CHECK(poll(&p, 1, 20000) == 1);
        ssize_t got = recv(fd, m, sizeof m, 0);
        CHECK(got >= 12 && close(fd) == 0);
        address[0] = '\0';
        if (m[7] > 0)
                CHECK(inet_ntop(AF_INET, m + got - 4, address, INET_ADDRSTRLEN) != NULL);
        return m[3] & 15;
}

static json_int_t counter(json_t *summary, const char *name)
{
        return json_integer_value(json_object_get(json_object_get(summary, "counters"), name));
}

/* ---- */

static void talk_by_name(struct world *w)
{
        char address[INET_ADDRSTRLEN], buf[16] = { 0 };
        CHECK(ask(PV_PLANE_HOST_NAME, address) == 0);
        CHECK(strncmp(address, "198.18.", 7) == 0);
        int fd = connect_to(address, w->port);
        CHECK(fd >= 0);
        CHECK(send(fd, "hello", 5, 0) == 5 && shutdown(fd, SHUT_WR) == 0);
        CHECK(recv(fd, buf, sizeof buf, MSG_WAITALL) == 5);
        CHECK(strcmp(buf, "HELLO") == 0);
        CHECK(connect_to(address, (uint16_t)(w->port + 1)) < 0 && errno == ECONNREFUSED);
        CHECK(ask("localhost", address) == 0 && strcmp(address, "127.0.0.1") == 0);
        CHECK(ask("other.example", address) == 3); /* NXDOMAIN */
}

static void by_name(void)
{
        json_t *s = NULL;
        run((const char *const[]){ PV_PLANE_HOST_NAME, NULL }, talk_by_name, &s);
        CHECK(counter(s, "flows") == 1);
        CHECK(counter(s, "bytes_out") == 5 && counter(s, "bytes_in") == 5);
        CHECK(counter(s, "names_refused") == 1);
}

static void the_hosts_loopback_is_reached_by_its_name_at_the_ports_named(void **state)
{
        run_in_child(by_name);
}

static void talk_by_address(struct world *w)
{
        char buf[64] = { 0 };
        /* Allowed by address and port: this is the host's loopback, not the sandbox's own. */
        int fd = connect_to("127.0.0.1", w->port);
        CHECK(fd < 0 && errno == ECONNREFUSED); /* 127.0.0.1 stays the sandbox's own */
        fd = connect_to("127.0.0.1", w->spec.sockets.port[PV_NETNS_PROXY4]);
        char request[128];
        int n = snprintf(request, sizeof request, "CONNECT 127.0.0.1:%u HTTP/1.1\r\n\r\nping", w->port);
        CHECK(send(fd, request, (size_t)n, 0) == n);
        static const char want[] = "HTTP/1.1 200 Connection established\r\n\r\nPING";
        CHECK(recv(fd, buf, sizeof want - 1, MSG_WAITALL) == (ssize_t)sizeof want - 1);
        CHECK(strcmp(buf, want) == 0);
        fd = connect_to("127.0.0.1", w->spec.sockets.port[PV_NETNS_PROXY4]);
        static const char refused[] = "CONNECT other.example:443 HTTP/1.1\r\n\r\n";
        CHECK(send(fd, refused, sizeof refused - 1, 0) == (ssize_t)sizeof refused - 1);
        char answer[512] = { 0 };
        CHECK(recv(fd, answer, sizeof answer - 1, MSG_WAITALL) > 0);
        CHECK(strncmp(answer, "HTTP/1.1 403 ", 13) == 0);
        CHECK(strstr(answer, "other.example:443 is refused") != NULL);
}

static void by_address(void)
{
        json_t *s = NULL;
        run((const char *const[]){ "127.0.0.0/8", NULL }, talk_by_address, &s);
        CHECK(counter(s, "flows") == 2 && counter(s, "refused") == 1);
}

static void the_proxy_serves_the_same_policy(void **state)
{
        run_in_child(by_address);
}

#define MANY 1000

static void open_many(struct world *w)
{
        static int fd[MANY];
        char address[INET_ADDRSTRLEN], buf[4];
        CHECK(ask(PV_PLANE_HOST_NAME, address) == 0);
        for (int i = 0; i < MANY; i++) {
                fd[i] = connect_to(address, w->port);
                CHECK(fd[i] >= 0);
        }
        for (int i = 0; i < MANY; i++) { /* the server takes one after the other */
                CHECK(send(fd[i], "abc", 3, 0) == 3 && shutdown(fd[i], SHUT_WR) == 0);
                CHECK(recv(fd[i], buf, 3, MSG_WAITALL) == 3 && memcmp(buf, "ABC", 3) == 0);
                CHECK(close(fd[i]) == 0);
        }
        int one = connect_to(address, w->port); /* sent, and gone: it is delivered all the same */
        CHECK(one >= 0 && send(one, "last", 4, 0) == 4);
}

static void many(void)
{
        json_t *s = NULL;
        run((const char *const[]){ PV_PLANE_HOST_NAME, NULL }, open_many, &s);
        CHECK(counter(s, "flows") == MANY + 1);
        CHECK(counter(s, "bytes_out") == 3 * MANY + 4);
}

static void a_thousand_at_once_and_what_was_sent_before_the_end(void **state)
{
        run_in_child(many);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_hosts_loopback_is_reached_by_its_name_at_the_ports_named),
                cmocka_unit_test(the_proxy_serves_the_same_policy),
                cmocka_unit_test(a_thousand_at_once_and_what_was_sent_before_the_end),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
