/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nftables refuses inside the namespace never reaches a socket of ours; the kernel's packet log (nfnetlink_log)
 * tells of it. The launcher opens the log where it has the right to, the data plane reads it. Messages come from the
 * kernel, packets in them from the sandbox.
 */
#ifndef PV_NET_NFLOG_H
#define PV_NET_NFLOG_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "policy/netrule.h"

#define PV_NFLOG_GROUP 1
#define PV_NFLOG_PER_SEC \
        200 /* refusals that are logged; nftables drops the others from the log, not from being refused */
#define PV_NFLOG_BURST    1000
#define PV_NFLOG_SNAPSHOT 128 /* bytes of a packet: IP header, options, ports */

/*
 * A non-blocking netlink socket that hears PV_NFLOG_GROUP of the caller's network namespace. Must: CAP_NET_ADMIN over
 * it. -1 with PV_ERR_UNSUPPORTED where the kernel has no nfnetlink_log.
 */
int pv_nflog_open(struct pv_err *err);

struct pv_nflog_packet {
        struct pv_netaddr to;
        uint8_t protocol; /* IPPROTO_ */
        uint16_t port;    /* 0: the protocol has none, or it was not in the snapshot */
};

/* Reads one datagram of the socket: calls each for every packet in it. False when there was none. */
bool pv_nflog_read(int fd, void (*each)(void *ctx, const struct pv_nflog_packet *p), void *ctx);

/* The messages of such a datagram. */
void pv_nflog_parse(const uint8_t *bytes, size_t n, void (*each)(void *ctx, const struct pv_nflog_packet *p),
                    void *ctx);

/* The packet's destination; false when it is no whole IP header. */
bool pv_nflog_parse_packet(const uint8_t *bytes, size_t n, struct pv_nflog_packet *out);

#endif
