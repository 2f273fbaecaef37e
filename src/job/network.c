/* SPDX-License-Identifier: Apache-2.0 */
#include "job/network.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/log.h"
#include "base/syscall.h"
#include "boundary/caps.h"
#include "net/nflog.h"
#include "net/nft.h"

#define SUMMARY_MAX (16U << 20)
#define MAKER_MS    500   /* for a socket from the namespace; the sandbox may stop whoever makes it */
#define END_MS      10000 /* for the plane to deliver and to sum up; it takes two seconds at most by itself */

/* ---- on the sandbox side ---- */

/* A process of its own in the namespace, which makes sockets there for the plane until that is gone. */
static int start_maker(struct pv_run_network *n, struct pv_err *err)
{
        pid_t pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network namespace: fork");
        if (pid > 0)
                return 0;
        if ((dup3(n->maker[1], 3, O_CLOEXEC) < 0 && n->maker[1] != 3) || chdir("/") < 0)
                _exit(1);
        if (pv_sys_close_range(4, ~0U, 0) < 0 || pv_sys_close_range(0, 2, 0) < 0)
                _exit(1);
        pv_netns_serve_sockets(3);
        _exit(0);
}

static void keep_proxy_alone(struct pv_netns_sockets *s)
{
        for (int i = 0; i < PV_NETNS_SOCKETS; i++)
                if (i != PV_NETNS_PROXY4 && i != PV_NETNS_PROXY6)
                        pv_fd_closep(&s->fd[i]);
}

/* What nftables refuses is told to us where the kernel can; refusing does not depend on it. */
static int load_rules(struct pv_run_network *n, struct pv_boundary_network_words *words, struct pv_err *err)
{
        struct pv_err why = PV_ERR_INIT;
        n->sockets.log = pv_nflog_open(&why);
        for (;;) {
                pv_auto_str rules = { 0 };
                pv_nft_write_rules(&rules, &n->plan->netpolicy, &n->sockets);
                if (pv_nft_load(rules.s, rules.len, err) == 0)
                        break;
                if (n->sockets.log < 0)
                        return -1;
                pv_err_clear(err);
                pv_fd_closep(&n->sockets.log); /* once more without `log` */
        }
        if (n->sockets.log < 0)
                (void)strcpy(words->limit[0],
                             "What is refused in connect is not recorded: the kernel lacks nfnetlink_log.");
        return 0;
}

/* With nftables: routes lead everything to us. Without: there is no route, and the proxy is what can be reached. */
static int enter(void *ctx, int *fd, struct pv_boundary_network_words *words, struct pv_err *err)
{
        struct pv_run_network *n = ctx;
        if (pv_netns_set_up_loopback(err) < 0 || pv_netns_listen(&n->sockets, err) < 0)
                return -1;
        if (load_rules(n, words, err) == 0) {
                if (pv_netns_set_up(err) < 0)
                        return -1;
                pv_netns_forget_ended_connections();
                (void)strcpy(words->mechanism, "network namespace whose every connection nftables hands to pVisor");
        } else if (err->kind == PV_ERR_UNSUPPORTED) {
                (void)strcpy(words->mechanism, "network namespace with nothing but pVisor's proxy");
                (void)snprintf(words->limit[0], sizeof words->limit[0],
                               "Only programs that use the proxy reach anything, and only they are recorded.");
                (void)snprintf(words->limit[1], sizeof words->limit[1], "%.120s.", err->msg);
                pv_err_clear(err);
                keep_proxy_alone(&n->sockets);
        } else {
                return -1;
        }
        if (n->plan->n_publications && start_maker(n, err) < 0)
                return -1;
        memcpy(fd, n->sockets.fd, sizeof n->sockets.fd);
        fd[PV_NETNS_SOCKETS] = n->sockets.log;
        return 0;
}

static void add_proxy_variables(struct pv_strv *env, uint16_t port)
{
        static const char *const names[] = { "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
                                             "http_proxy", "https_proxy", "all_proxy" };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                pv_strv_take(env, pv_strf("%s=http://127.0.0.1:%u", names[i], port));
        pv_strv_add(env, "NO_PROXY=localhost,127.0.0.1,::1");
        pv_strv_add(env, "no_proxy=localhost,127.0.0.1,::1");
}

static void adapt(void *ctx, struct pv_strv *env)
{
        const struct pv_run_network *n = ctx;
        if (n->sockets.fd[PV_NETNS_TCP4] < 0 && n->sockets.port[PV_NETNS_TCP4] != 0)
                add_proxy_variables(env, n->sockets.port[PV_NETNS_PROXY4]);
}

/* ---- the supervisor ---- */

static int listen_at(const struct pv_netaddr *addr, uint16_t port, uint16_t *got, struct pv_err *err)
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
                return pv_err_set(err, PV_ERR_USAGE, errno, "listen at port %u of %s", port, text.s);
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
                n->publish[i].fd = listen_at(&p->publications[i].addr, p->publications[i].host_port, &unused, err);
                if (n->publish[i].fd < 0)
                        return pv_err_wrap(err, "--publish");
        }
        struct timeval most = { .tv_usec = MAKER_MS * 1000 };
        if (p->n_publications && (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, n->maker) < 0 ||
                                  setsockopt(n->maker[0], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) < 0))
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
        n->sockets.fd[PV_NETNS_PROXY4] = listen_at(&loopback, 0, &port, err);
        if (n->sockets.fd[PV_NETNS_PROXY4] < 0)
                return -1;
        add_proxy_variables(&plan->env, port);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                pv_strv_add(&plan->env_injected, names[i]);
        return 0;
}

int pv_run_network_prepare(struct pv_run_network *n, struct pv_plan *plan, struct pv_err *err)
{
        n->plan = plan;
        for (size_t i = 0; i < PV_NETNS_SOCKETS; i++)
                n->sockets.fd[i] = -1;
        n->sockets.log = -1;
        if (plan->net == PV_NET_PROXY)
                return open_proxy(n, plan, err);
        if (plan->net != PV_NET_RULES)
                return 0;
        n->inside = true;
        n->hooks = (struct pv_boundary_network){ .enter = enter, .adapt = adapt, .ctx = n };
        return open_publications(n, err);
}

static int compare_ints(const void *a, const void *b)
{
        return *(const int *)a - *(const int *)b;
}

/* The stage's lock and the job's must not live on in the plane, nor the person's terminal and pipes. */
static int close_all_but(int *keep, size_t n)
{
        unsigned next = 3;
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int i = 0; i < 3; i++)
                if (dup2(null, i) < 0)
                        return -1;
        qsort(keep, n, sizeof *keep, compare_ints);
        for (size_t i = 0; i < n; i++) {
                if (keep[i] < (int)next)
                        continue;
                if ((unsigned)keep[i] > next && pv_sys_close_range(next, (unsigned)keep[i] - 1, 0) < 0)
                        return -1;
                next = (unsigned)keep[i] + 1;
        }
        return pv_sys_close_range(next, ~0U, 0);
}

/*
 * The plane outlives a Ctrl-C and whatever else is meant for the command: only the supervisor ends it, or takes it along. It
 * works on descriptors it has and resolves names; no capability of root is of use to it.
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

static _Noreturn void become_plane(struct pv_run_network *n, int control, int events, pid_t supervisor)
{
        struct pv_err err = PV_ERR_INIT;
        size_t n_keep = 0;
        pv_auto_free int *keep = pv_calloc(PV_NETNS_SOCKETS + n->plan->n_publications + 4, sizeof *keep);
        if (stand_apart(supervisor) < 0)
                _exit(1);
        for (size_t i = 0; i < PV_NETNS_SOCKETS; i++)
                keep[n_keep++] = n->sockets.fd[i];
        for (size_t i = 0; i < n->plan->n_publications; i++)
                keep[n_keep++] = n->publish[i].fd;
        keep[n_keep++] = control;
        keep[n_keep++] = events;
        keep[n_keep++] = n->maker[0];
        keep[n_keep++] = n->sockets.log;
        if (close_all_but(keep, n_keep) < 0)
                _exit(1);
        const struct pv_plane_spec spec = {
                .policy = &n->plan->netpolicy,
                .sockets = n->sockets,
                .control = control,
                .events = events,
                .publish = n->publish,
                .n_publish = n->plan->n_publications,
                .sockets_from = n->maker[0],
        };
        _exit(pv_plane_run(&spec, &err) < 0 ? 1 : 0);
}

int pv_run_network_start(struct pv_run_network *n, struct pv_boundary *b, int events, struct pv_err *err)
{
        int pair[2];
        if (!n->plan || (n->plan->net != PV_NET_RULES && n->plan->net != PV_NET_PROXY))
                return 0;
        for (size_t i = 0; n->inside && i < PV_NETNS_SOCKETS; i++)
                n->sockets.fd[i] = pv_boundary_take_net_fd(b, i);
        n->sockets.log = n->inside ? pv_boundary_take_net_fd(b, PV_NETNS_SOCKETS) : -1;
        pv_fd_closep(&n->maker[1]);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network: make a channel");
        pid_t self = getpid();
        n->plane = fork();
        if (n->plane == 0)
                become_plane(n, pair[1], events, self);
        (void)close(pair[1]);
        n->control = pair[0];
        if (n->plane < 0) {
                n->plane = 0;
                return pv_err_set(err, PV_ERR_SYS, errno, "network: start the data plane");
        }
        pv_netns_close(&n->sockets);
        for (size_t i = 0; i < n->plan->n_publications; i++)
                pv_fd_closep(&n->publish[i].fd);
        pv_fd_closep(&n->maker[0]);
        return 0;
}

static int read_result(struct pv_run_network *n, struct pv_err *err)
{
        pv_auto_free char *text = NULL;
        struct pollfd p = { .fd = n->control, .events = POLLIN };
        if (shutdown(n->control, SHUT_WR) < 0 || poll(&p, 1, END_MS) != 1)
                return pv_err_set(err, PV_ERR_SYS, 0, "the data plane did not answer");
        if (pv_fd_read_all(n->control, SUMMARY_MAX, "the network's sums", &text, NULL, err) < 0)
                return -1;
        n->result = json_loads(text, 0, NULL);
        return n->result ? 0 : pv_err_set(err, PV_ERR_SYS, 0, "the data plane ended before its time");
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
        pv_fd_closep(&n->control);
        if (n->plan)
                pv_netns_close(&n->sockets);
        for (size_t i = 0; n->plan && n->publish && i < n->plan->n_publications; i++)
                pv_fd_closep(&n->publish[i].fd);
        free(n->publish);
        pv_fd_closep(&n->maker[0]);
        pv_fd_closep(&n->maker[1]);
        json_decref(n->result);
}
