/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the data plane share: plane.c (the process), flow.c (connections), dns_serve.c (questions). */
#ifndef PV_NET_PLANE_INTERNAL_H
#define PV_NET_PLANE_INTERNAL_H

#include "net/dns.h"
#include "net/names.h"
#include "net/nflog.h"
#include "net/own.h"
#include "net/plane.h"
#include "net/relay.h"
#include "net/resolve.h"
#include "net/tally.h"

#define PV_PLANE_FLOWS 16384 /* at once, where there are descriptors for them; a further connection is reset */

struct pv_flow;
struct pv_door;

struct pv_plane {
        const struct pv_plane_spec *spec;
        struct pv_netpolicy policy; /* the spec's, which lends its layers and limits, and what was granted since */
        struct pv_loop loop;
        struct pv_relay_pool relays;
        struct pv_resolver *resolver;
        struct pv_names *names;
        struct pv_own own;
        struct pv_tally *tally;
        struct pv_rate *rates;        /* two a limit of the policy: from and to the sandbox */
        struct pv_flow *flows;        /* all that live, newest first */
        struct pv_flow *dead;         /* freed when the turn is over */
        size_t n_flows, most_flows;   /* now, and at once */
        size_t n_setting_up, n_heads; /* those that do not relay yet, and whose request to the proxy is being read */
        uint64_t next_tick_ms, next_resume_ms;
        struct pv_door **doors;
        size_t n_doors;
        int reserve;           /* given up when descriptors run out, so that a connection can be accepted to be reset */
        uint64_t exhausted_ms; /* when that was last noted */
        uint64_t reopen_ms;    /* until then the doors are shut; 0: they are open */
        struct pv_dns_server *dns;
};

/* Takes an accepted connection. */
void pv_flow_accept_redirected(struct pv_plane *p, int fd, bool v6);
void pv_flow_accept_proxied(struct pv_plane *p, int fd);
void pv_flow_accept_published(struct pv_plane *p, int fd, uint16_t port);
void pv_flow_accept_host_port(struct pv_plane *p, int fd, uint16_t port);
/* What nftables refused in the kernel, as a flow that ended there. */
void pv_flow_note_refused(struct pv_plane *p, const struct pv_nflog_packet *packet);
/* Deadlines and rate limits; once a turn. */
void pv_flow_tick(struct pv_plane *p);
/* Milliseconds until pv_flow_tick() has something to do; -1: nothing waits. */
int pv_flow_timeout(const struct pv_plane *p);
/* Frees what ended in this turn. */
void pv_flow_bury(struct pv_plane *p);
/* True while a flow may have bytes of the sandbox that the far end has not got yet. */
bool pv_flow_any_unsent(const struct pv_plane *p);
void pv_flow_end_all(struct pv_plane *p);

/* One more port of the sandbox on the host: takes the listening socket. */
int pv_plane_publish(struct pv_plane *p, int listener, uint16_t port, struct pv_err *err);

/*
 * May the sandbox reach the host's loopback at this port (0: at any)? Only a rule that names PV_PLANE_HOST_NAME says
 * so.
 */
bool pv_plane_allows_host_port(const struct pv_netpolicy *policy, uint16_t port);

struct pv_dns_server; /* opaque */
int pv_dns_server_start(struct pv_plane *p, struct pv_err *err);
void pv_dns_server_tick(struct pv_plane *p);
int pv_dns_server_timeout(const struct pv_plane *p);
void pv_dns_server_free(struct pv_plane *p);

#endif
