/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data plane: the process that every connection of a sandbox ends in. The theory of operation heads plane.c.
 */
#ifndef PV_NET_PLANE_H
#define PV_NET_PLANE_H

#include "net/netns.h"
#include "policy/netpolicy.h"

/* The name under which the host's own loopback is reached, for ports that an allow rule names with it. */
#define PV_PLANE_HOST_NAME "host.pvisor.internal"

struct pv_publish {
        int fd;        /* listening on the host, non-blocking */
        uint16_t port; /* of the sandbox's loopback */
};

/* A port of the host's loopback that the sandbox reaches at its own. */
struct pv_plane_host_port {
        int fd[2];     /* listening on the sandbox's loopback, non-blocking: IPv4, IPv6 */
        uint16_t port; /* of the host's */
};

struct pv_plane_spec {
        const struct pv_netpolicy *policy;
        struct pv_netns_sockets sockets;
        int control; /* a stream: its end of file ends the plane; the summary goes out through it then, as JSON */
        int events;  /* events.jsonl, O_APPEND; -1: none */
        const struct pv_publish *publish;
        size_t n_publish;
        const struct pv_plane_host_port *host_ports;
        size_t n_host_ports;
        int sockets_from; /* pv_netns_serve_sockets() is at the other end; -1: nothing can be published */
        int resolver;     /* PV_RESOLVE_PROGRAM, to be executed by this descriptor; -1: no name is resolved */
        int orders;       /* what the person grants while it runs (orders.h); -1: nothing */
};

/*
 * Serves until the control stream ends. Must: be a process of its own, in the host's namespaces, single-threaded at the
 * call. Takes every descriptor of the spec. Returns 0 after the summary was written.
 */
int pv_plane_run(const struct pv_plane_spec *spec, struct pv_err *err);

#endif
