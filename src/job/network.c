/* SPDX-License-Identifier: Apache-2.0 */
#include "job/network.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/log.h"
#include "base/place.h"
#include "boundary/caps.h"
#include "job/network_internal.h"
#include "net/resolve.h"

#define SUMMARY_MAX (16U << 20)
#define MAKER_MS    500   /* for a socket from the namespace */
#define END_MS      10000 /* for the plane to deliver and to sum up; it takes two seconds at most by itself */

int pv_run_network_listen(const struct pv_netaddr *addr, uint16_t port, uint16_t *got, struct pv_err *err)
{
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
        bool is_v4 = pv_netaddr_is_v4(addr);
        struct sockaddr *sa = is_v4 ? (struct sockaddr *)&v4 : (struct sockaddr *)&v6;
        socklen_t size = is_v4 ? sizeof v4 : sizeof v6;
        int one = 1;
        memcpy(&v4.sin_addr, addr->b + 12, 4);
        memcpy(&v6.sin6_addr, addr->b, 16);
        pv_auto_fd fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 || bind(fd, sa, size) < 0 ||
            listen(fd, SOMAXCONN) < 0 || getsockname(fd, sa, &size) < 0) {
                pv_auto_str text = { 0 };
                pv_netaddr_put(&text, addr);
                (void)pv_err_set(err, PV_ERR_SYS, errno, "listen at port %u of %s", port, text.s);
                if (errno == EADDRINUSE)
                        return pv_err_hint(err,
                                           "something listens there already; HOSTPORT:PORT takes another port here");
                return errno == EACCES
                               ? pv_err_hint(err, "ports below 1024 are root's; HOSTPORT:PORT takes a higher one here")
                               : -1;
        }
        *got = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
        return pv_fd_steal(&fd);
}

static int open_publications(struct pv_run_network *n, struct pv_err *err)
{
        const struct pv_plan *p = n->plan;
        n->publish = pv_calloc(p->n_publications, sizeof *n->publish);
        for (size_t i = 0; i < p->n_publications; i++)
                n->publish[i] = (struct pv_publish){ .fd = -1, .port = p->publications[i].port };
        for (size_t i = 0; i < p->n_publications; i++) {
                uint16_t unused;
                n->publish[i].fd =
                        pv_run_network_listen(&p->publications[i].addr, p->publications[i].host_port, &unused, err);
                if (n->publish[i].fd < 0)
                        return pv_err_wrap(err, "--publish");
        }
        struct timeval most = { .tv_usec = MAKER_MS * 1000 };
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, n->maker) < 0 ||
            setsockopt(n->maker[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network: make a channel");
        return 0;
}

/* The host's own loopback, which the command shares: the proxy is an offer. */
static int open_proxy(struct pv_run_network *n, struct pv_plan *plan, struct pv_err *err)
{
        static const struct pv_netaddr loopback = { { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } };
        static const char *const names[] = { "HTTP_PROXY",  "HTTPS_PROXY", "ALL_PROXY", "http_proxy",
                                             "https_proxy", "all_proxy",   "NO_PROXY",  "no_proxy" };
        uint16_t port = 0;
        n->sockets.fd[PV_NETNS_PROXY4] = pv_run_network_listen(&loopback, 0, &port, err);
        if (n->sockets.fd[PV_NETNS_PROXY4] < 0)
                return -1;
        pv_run_network_add_proxy(&plan->env, port);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                pv_strv_add(&plan->env_injected, names[i]);
        return 0;
}

/* Inside they lead elsewhere already. */
static int check_host_ports(const struct pv_plan *p, struct pv_err *err)
{
        for (size_t i = 0; i < p->n_host_ports; i++) {
                uint16_t port = p->host_ports[i].port;
                if (port == PV_NETNS_PROXY_PORT || port == 53)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--host-port: port %u inside is pVisor's %s", port,
                                          port == 53 ? "name server" : "proxy");
        }
        return 0;
}

/* By descriptor: the plane may have no way to it by name, and it stays the one that this executable came with. */
static int find_resolver(struct pv_run_network *n, struct pv_err *err)
{
        pv_auto_free char *path = NULL;
        if (pv_place_program(PV_RESOLVE_PROGRAM, &path, err) < 0)
                return pv_err_wrap(err, "network");
        n->resolver = open(path, O_PATH | O_CLOEXEC);
        return n->resolver < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "network: %s", path) : 0;
}

int pv_run_network_prepare(struct pv_run_network *n, struct pv_plan *plan, struct pv_err *err)
{
        n->plan = plan;
        for (size_t i = 0; i < PV_NETNS_SOCKETS; i++)
                n->sockets.fd[i] = -1;
        n->sockets.log = n->sockets.rules = -1;
        n->host_ports = pv_calloc(2 * plan->n_host_ports, sizeof *n->host_ports);
        for (size_t i = 0; i < 2 * plan->n_host_ports; i++)
                n->host_ports[i] = -1;
        if (plan->net != PV_NET_PROXY && plan->net != PV_NET_RULES)
                return 0;
        if (find_resolver(n, err) < 0)
                return -1;
        if (plan->net == PV_NET_PROXY)
                return open_proxy(n, plan, err);
        n->inside = true;
        pv_run_network_hook(n);
        return check_host_ports(plan, err) < 0 ? -1 : open_publications(n, err);
}

/* The stage's lock and the job's must not live on in the plane, nor the person's terminal and pipes. */
static int close_all_but(const int *keep, size_t n)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3; i++)
                if (dup2(null, i) < 0)
                        return -1;
        return pv_fd_keep_only(keep, n);
}

/*
 * The plane outlives a Ctrl-C and whatever else is meant for the command: only the supervisor ends it, or takes it
 * along. It works on descriptors it has and resolves names; no capability of root is of use to it.
 */
static int stand_apart(pid_t supervisor)
{
        sigset_t all;
        (void)sigfillset(&all);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != supervisor)
                return -1;
        if (setsid() < 0 || sigprocmask(SIG_SETMASK, &all, NULL) < 0 || chdir("/") < 0)
                return -1;
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1 : pv_caps_set(0);
}

static _Noreturn void become_plane(struct pv_run_network *n, int control, int orders, int events, pid_t supervisor)
{
        const struct pv_plan *p = n->plan;
        struct pv_err err = PV_ERR_INIT;
        size_t n_keep = 0;
        pv_auto_free int *keep =
                pv_calloc(PV_NETNS_SOCKETS + p->n_publications + 2 * p->n_host_ports + 7, sizeof *keep);
        pv_auto_free struct pv_plane_host_port *host_ports = pv_calloc(p->n_host_ports, sizeof *host_ports);
        if (stand_apart(supervisor) < 0)
                _exit(1);
        for (size_t i = 0; i < PV_NETNS_SOCKETS; i++)
                keep[n_keep++] = n->sockets.fd[i];
        for (size_t i = 0; i < p->n_publications; i++)
                keep[n_keep++] = n->publish[i].fd;
        for (size_t i = 0; i < p->n_host_ports; i++) {
                host_ports[i].port = p->host_ports[i].host_port;
                for (size_t k = 0; k < 2; k++)
                        keep[n_keep++] = host_ports[i].fd[k] = n->host_ports[2 * i + k];
        }
        const int others[] = { control, orders, events, n->maker[0], n->sockets.log, n->sockets.rules, n->resolver };
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
                keep[n_keep++] = others[i];
        if (close_all_but(keep, n_keep) < 0)
                _exit(1);
        const struct pv_plane_spec spec = {
                .policy = &p->netpolicy,
                .sockets = n->sockets,
                .control = control,
                .orders = orders,
                .events = events,
                .publish = n->publish,
                .n_publish = p->n_publications,
                .host_ports = host_ports,
                .n_host_ports = p->n_host_ports,
                .sockets_from = n->maker[0],
                .resolver = n->resolver,
        };
        _exit(pv_plane_run(&spec, &err) < 0 ? 1 : 0);
}

/* In a child of the supervisor: a member of the namespaces that nobody inside can see or signal. */
static _Noreturn void become_maker(const struct pv_run_network *n, pid_t supervisor)
{
        int keep[] = { n->maker[1] };
        if (setns(n->namespaces[0], CLONE_NEWUSER) < 0 || setns(n->namespaces[1], CLONE_NEWNET) < 0)
                _exit(1);
        if (prctl(PR_SET_DUMPABLE, 0) < 0 || stand_apart(supervisor) < 0 || close_all_but(keep, 1) < 0)
                _exit(1);
        pv_netns_serve_sockets(keep[0]);
        _exit(0);
}

int pv_run_network_start_maker(struct pv_run_network *n, struct pv_err *err)
{
        pid_t self = getpid();
        if (n->making > 0)
                return 0;
        if (n->namespaces[1] < 0 || n->maker[1] < 0)
                return pv_err_set(err, PV_ERR_STATE, 0, "network: this run has no namespace that is published from");
        n->making = fork();
        if (n->making == 0)
                become_maker(n, self);
        pv_fd_closep(&n->maker[1]);
        if (n->making > 0)
                return 0;
        n->making = 0;
        return pv_err_set(err, PV_ERR_SYS, errno, "network: start the maker of sockets");
}

static void take_descriptors(struct pv_run_network *n, struct pv_boundary *b)
{
        size_t i = 0;
        if (!n->inside)
                return;
        for (; i < PV_NETNS_SOCKETS; i++)
                n->sockets.fd[i] = pv_boundary_take_net_fd(b, i);
        n->sockets.log = pv_boundary_take_net_fd(b, i++);
        n->sockets.rules = pv_boundary_take_net_fd(b, i++);
        n->namespaces[0] = pv_boundary_take_net_fd(b, i++);
        n->namespaces[1] = pv_boundary_take_net_fd(b, i++);
        for (size_t k = 0; k < 2 * n->plan->n_host_ports; k++)
                n->host_ports[k] = pv_boundary_take_net_fd(b, i++);
}

/* What the plane has now is nobody else's. */
static void forget_descriptors(struct pv_run_network *n)
{
        pv_netns_close(&n->sockets);
        for (size_t i = 0; i < n->plan->n_publications; i++)
                pv_fd_closep(&n->publish[i].fd);
        for (size_t i = 0; i < 2 * n->plan->n_host_ports; i++)
                pv_fd_closep(&n->host_ports[i]);
        pv_fd_closep(&n->maker[0]);
        pv_fd_closep(&n->resolver);
}

int pv_run_network_start(struct pv_run_network *n, struct pv_boundary *b, int events, struct pv_err *err)
{
        int control[2], orders[2];
        if (!n->plan || (n->plan->net != PV_NET_RULES && n->plan->net != PV_NET_PROXY))
                return 0;
        take_descriptors(n, b);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network: make a channel");
        n->control = control[0];
        pv_auto_fd its_control = control[1];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, orders) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network: make a channel");
        n->orders = orders[0];
        pv_auto_fd its_orders = orders[1];
        pid_t self = getpid();
        n->plane = fork();
        if (n->plane == 0)
                become_plane(n, its_control, its_orders, events, self);
        if (n->plane < 0) {
                n->plane = 0;
                return pv_err_set(err, PV_ERR_SYS, errno, "network: start the data plane");
        }
        forget_descriptors(n);
        return n->plan->n_publications ? pv_run_network_start_maker(n, err) : 0;
}

static int read_result(struct pv_run_network *n, struct pv_err *err)
{
        pv_auto_free char *text = NULL;
        struct pollfd p = { .fd = n->control, .events = POLLIN };
        if (poll(&p, 1, END_MS) != 1)
                return pv_err_set(err, PV_ERR_SYS, 0, "the data plane did not answer");
        if (pv_fd_read_all(n->control, SUMMARY_MAX, "the network's sums", &text, NULL, err) < 0)
                return -1;
        n->result = json_loads(text, 0, NULL);
        return n->result ? 0 : pv_err_set(err, PV_ERR_SYS, 0, "the data plane ended before its time");
}

void pv_run_network_stop(struct pv_run_network *n)
{
        pv_run_grants_free(pv_steal(&n->grants));
        if (n->plane > 0)
                (void)shutdown(n->control, SHUT_WR);
}

void pv_run_network_end(struct pv_run_network *n)
{
        struct pv_err err = PV_ERR_INIT;
        if (n->plane <= 0)
                return;
        if (read_result(n, &err) < 0) {
                (void)pv_err_wrap(&err, "network: closed, and what passed is not known");
                pv_log_err(&err);
        }
        pv_pid_killp(&n->plane);
}

void pv_run_network_fini(struct pv_run_network *n)
{
        pv_pid_killp(&n->plane);
        pv_pid_killp(&n->making);
        pv_fd_closep(&n->control);
        pv_fd_closep(&n->orders);
        pv_fd_closep(&n->resolver);
        pv_fd_closep(&n->namespaces[0]);
        pv_fd_closep(&n->namespaces[1]);
        if (n->plan)
                pv_netns_close(&n->sockets);
        for (size_t i = 0; n->plan && n->publish && i < n->plan->n_publications; i++)
                pv_fd_closep(&n->publish[i].fd);
        free(n->publish);
        for (size_t i = 0; n->plan && n->host_ports && i < 2 * n->plan->n_host_ports; i++)
                pv_fd_closep(&n->host_ports[i]);
        free(n->host_ports);
        json_decref(n->granted);
        pv_fd_closep(&n->maker[0]);
        pv_fd_closep(&n->maker[1]);
        json_decref(n->result);
}
