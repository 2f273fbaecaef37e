/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Canaries: things of the host that a probe inside must not reach, held by the supervisor while the probes run. They
 * are pVisor's own, so that a probe disturbs nobody: a socket and a FIFO in a private directory, an abstract socket,
 * TCP and UDP sockets on the host's loopback.
 */
#ifndef PV_BOUNDARY_CANARY_H
#define PV_BOUNDARY_CANARY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

enum pv_canary_kinds {
        PV_CANARY_PATHS = 1 << 0,    /* a directory with a file, a socket and a FIFO */
        PV_CANARY_ABSTRACT = 1 << 1, /* an abstract Unix socket */
        PV_CANARY_NETWORK = 1 << 2,  /* TCP and UDP on 127.0.0.1 and ::1 */
};

/* Plain data but for the descriptors, which all are close-on-exec. -1, "" and 0 for what was not made. */
struct pv_canary {
        char dir[256];                   /* absolute host path, in the parent; holds file, socket, fifo */
        char abstract[32];               /* the name without its leading NUL */
        uint16_t tcp4, tcp6, udp4, udp6; /* ports, host byte order */
        pid_t supervisor;                /* host pid */
        ino_t ipc_namespace;

        /* Two cross into the sandbox: that they lead nowhere there is what the probes try. */
        int dir_fd;        /* O_PATH of dir */
        int supervisor_fd; /* pidfd */
        /* The rest stays outside. */
        int socket, fifo, abstract_socket, tcp4_socket, tcp6_socket, udp4_socket, udp6_socket;
};
#define PV_CANARY_INIT                                                                                                 \
        {                                                                                                              \
                .dir_fd = -1, .supervisor_fd = -1, .socket = -1, .fifo = -1, .abstract_socket = -1, .tcp4_socket = -1, \
                .tcp6_socket = -1, .udp4_socket = -1, .udp6_socket = -1                                                \
        }

/*
 * Makes the canaries asked for (the supervisor itself is one always). parent: an absolute host directory that the view
 * does not show; needed for PV_CANARY_PATHS. A host without IPv6 has no v6 canaries: their probes are absent.
 * Called by the supervisor.
 */
int pv_canary_open(struct pv_canary *c, enum pv_canary_kinds kinds, const char *parent, struct pv_err *err);

/* Closes and removes. Idempotent. Called by the supervisor when the probes have reported. */
void pv_canary_close(struct pv_canary *c);

/* Sets all descriptors to -1 without closing any: those of a copy are another process's. */
void pv_canary_clear(struct pv_canary *c);

#endif
