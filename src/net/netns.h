/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the network namespace: what makes every packet of the sandbox end at pVisor. Called by the launcher,
 * single-threaded, in a fresh namespace that the caller's user namespace owns (CAP_NET_ADMIN), before anything
 * hostile runs.
 *
 * Routing (rtnetlink(7)): lo is up; a default route for both families leads into lo; UDP except to port 53, and all
 * that is neither TCP nor UDP, is unreachable beyond lo, so that it fails at once and with an error that programs
 * know.
 */
#ifndef PV_NET_NETNS_H
#define PV_NET_NETNS_H

#include <stdint.h>
#include "base/err.h"

/* Own source addresses inside; nothing else answers to them. */
#define PV_NETNS_V4 "10.255.0.1"
#define PV_NETNS_V6 "fd70:7669:736f:1::1"

/* Brings up lo with routes and rules. Must: own the namespace. Mustn't: be called twice. */
int pv_netns_set_up(struct pv_err *err);

/* lo alone, up: for a namespace whose only way out is the proxy (no nftables). */
int pv_netns_set_up_loopback(struct pv_err *err);

/* Once the rules are loaded: keeps the table of connections short. Must: the caller's namespace is its own. */
void pv_netns_forget_ended_connections(void);

enum pv_netns_socket {
        PV_NETNS_TCP4, /* where nft redirects connections to */
        PV_NETNS_TCP6,
        PV_NETNS_DNS_UDP4, /* where it redirects questions to, whatever server they were sent to */
        PV_NETNS_DNS_UDP6,
        PV_NETNS_DNS_TCP4,
        PV_NETNS_DNS_TCP6,
        PV_NETNS_PROXY4, /* HTTP proxy, for clients that are configured with one */
        PV_NETNS_PROXY6,
        PV_NETNS_SOCKETS
};

struct pv_netns_sockets {
        /*
         * All on the loopback addresses: a wildcard UDP socket would answer from another address than it was asked
         * at.
         */
        int fd[PV_NETNS_SOCKETS]; /* listening or bound, non-blocking, close-on-exec; -1 when there is none */
        uint16_t port[PV_NETNS_SOCKETS];
        int log;   /* what nftables refuses (nflog.h); -1: not known */
        int rules; /* takes further rules (nfmsg.h); -1: there are none in force */
};

/*
 * Where the proxy listens: the one port of ours that answers to the sandbox, so that it is none that the kernel may
 * have chosen for a canary on the host (probes would take the proxy for it).
 */
#define PV_NETNS_PROXY_PORT 15128

/*
 * Opens all but the log and the rules in the caller's namespace; the others' ports are the kernel's choice, the same
 * for v4 and v6.
 */
int pv_netns_listen(struct pv_netns_sockets *out, struct pv_err *err);
void pv_netns_close(struct pv_netns_sockets *s);

/* A port of the namespace's own loopback, of both families; out has two places. PV_ERR_USAGE: it is taken (by us). */
int pv_netns_listen_at(uint16_t port, int *out, struct pv_err *err);

/*
 * Sockets inside for the data plane, which has threads and cannot enter a user namespace: a process of its own that
 * enters the namespaces serves the channel until its end of file; each request is one byte, AF_INET or AF_INET6, each
 * answer a stream socket.
 */
void pv_netns_serve_sockets(int channel);
/*
 * A non-blocking stream socket of the namespace, or -1 with errno. The channel has a time limit (SO_RCVTIMEO), and is
 * given up for good once it was exceeded.
 */
int pv_netns_ask_socket(int channel, int family);

#endif
