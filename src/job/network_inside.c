/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox side of network.h: furnishes the namespace, before anything hostile runs. */
#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include "job/network_internal.h"
#include "net/nflog.h"
#include "net/nfmsg.h"
#include "net/nft.h"

static void keep_proxy_alone(struct pv_netns_sockets *s)
{
        for (int i = 0; i < PV_NETNS_SOCKETS; i++)
                if (i != PV_NETNS_PROXY4 && i != PV_NETNS_PROXY6)
                        pv_fd_closep(&s->fd[i]);
}

/* What is refused is told to us where the kernel can; refusing does not depend on it. */
static int load_rules(struct pv_run_network *n, struct pv_boundary_network_words *words, struct pv_err *err)
{
        struct pv_err why = PV_ERR_INIT;
        struct pv_netns_sockets *s = &n->sockets;
        s->rules = pv_nfmsg_open(err);
        if (s->rules < 0)
                return -1;
        s->log = pv_nflog_open(&why);
        while (pv_nft_load(s->rules, &n->plan->netpolicy, s, err) < 0) {
                if (s->log < 0) {
                        pv_fd_closep(&s->rules);
                        return -1;
                }
                pv_err_clear(err);
                pv_fd_closep(&s->log); /* once more without `log` */
        }
        (void)snprintf(words->limit[0], sizeof words->limit[0], "%s",
                       s->log < 0 ? "What is refused in connect is not recorded: the kernel lacks nfnetlink_log."
                                  : "Refused UDP and ICMP never become a packet (ENETUNREACH): they are not recorded.");
        return 0;
}

static int listen_for_host_ports(struct pv_run_network *n, struct pv_err *err)
{
        for (size_t i = 0; i < n->plan->n_host_ports; i++)
                if (pv_netns_listen_at(n->plan->host_ports[i].port, &n->host_ports[2 * i], err) < 0)
                        return pv_err_wrap(err, "--host-port");
        return 0;
}

/* For whoever makes sockets in here later. The host's /proc is still in view. */
static int open_namespaces(struct pv_run_network *n, struct pv_err *err)
{
        static const char *const paths[2] = { "/proc/self/ns/user", "/proc/self/ns/net" };
        for (size_t i = 0; i < 2; i++) {
                n->namespaces[i] = open(paths[i], O_RDONLY | O_CLOEXEC);
                if (n->namespaces[i] < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "%s", paths[i]);
        }
        return 0;
}

/* In the order in which the supervisor takes them. */
static void hand_out(const struct pv_run_network *n, int *fd)
{
        size_t i = PV_NETNS_SOCKETS;
        static_assert(PV_NETNS_SOCKETS + 4 + 2 * PV_HOST_PORTS_MAX <= PV_BOUNDARY_NET_FDS, "there is room for all");
        memcpy(fd, n->sockets.fd, sizeof n->sockets.fd);
        fd[i++] = n->sockets.log;
        fd[i++] = n->sockets.rules;
        fd[i++] = n->namespaces[0];
        fd[i++] = n->namespaces[1];
        for (size_t k = 0; k < 2 * n->plan->n_host_ports; k++)
                fd[i++] = n->host_ports[k];
}

/* With nftables: routes lead everything to us. Without: there is no route, and the proxy is what can be reached. */
static int enter(void *ctx, int *fd, struct pv_boundary_network_words *words, struct pv_err *err)
{
        struct pv_run_network *n = ctx;
        /* The person's ports before those that the kernel chooses. */
        if (pv_netns_set_up_loopback(err) < 0 || listen_for_host_ports(n, err) < 0 ||
            pv_netns_listen(&n->sockets, err) < 0)
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
                words->proxy = n->sockets.port[PV_NETNS_PROXY4];
                keep_proxy_alone(&n->sockets);
        } else {
                return -1;
        }
        if (open_namespaces(n, err) < 0)
                return -1;
        hand_out(n, fd);
        return 0;
}

void pv_run_network_add_proxy(struct pv_strv *env, uint16_t port)
{
        static const char *const names[] = { "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
                                             "http_proxy", "https_proxy", "all_proxy" };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                pv_strv_take(env, pv_strf("%s=http://127.0.0.1:%u", names[i], port));
        pv_strv_add(env, "NO_PROXY=localhost,127.0.0.1,::1");
        pv_strv_add(env, "no_proxy=localhost,127.0.0.1,::1");
}

static void adapt(void *ctx, const struct pv_boundary_network_words *words, struct pv_strv *env)
{
        (void)ctx;
        if (words->proxy)
                pv_run_network_add_proxy(env, words->proxy);
}

void pv_run_network_hook(struct pv_run_network *n)
{
        n->hooks = (struct pv_boundary_network){ .enter = enter, .adapt = adapt, .ctx = n };
}
