/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between two connected stream sockets, both ways, until both have ended. An end of file passes on as a half-close,
 * an error as a reset. What one side does not take stops the other (back-pressure): at most one chunk a direction is kept.
 */
#ifndef PV_NET_RELAY_H
#define PV_NET_RELAY_H

#include <stddef.h>
#include "net/loop.h"
#include "net/rate.h"

#define PV_RELAY_BUFFER (256 * 1024) /* bytes: shared by all relays of a loop */
#define PV_RELAY_LIMITS 4            /* rate limits that may hold one flow */

enum pv_relay_side { PV_RELAY_INSIDE, PV_RELAY_OUTSIDE };

/* What the relays of one loop share. */
struct pv_relay_pool {
        struct pv_loop *loop;
        size_t n; /* relays under way: the chunk shrinks with it, so that memory stays bounded */
        unsigned char *buffer;
};

struct pv_relay_direction {
        unsigned char *pending; /* what could not be written yet; NULL when nothing is */
        size_t pending_len, pending_off;
        bool ended;  /* the reader saw the end of file */
        bool closed; /* and it was passed on */
        uint64_t bytes;
};

struct pv_relay {
        struct pv_relay_pool *pool;
        struct pv_watch watch[2];                  /* by side; the descriptors are the relay's */
        struct pv_relay_direction from[2];         /* what that side sends */
        struct pv_rate *limit[2][PV_RELAY_LIMITS]; /* borrowed, by direction; NULL ends */
        bool throttled;                            /* waits for a limit: pv_relay_resume() when time has passed */
        /* Called once, when both directions have ended or one failed; error is an errno or 0. May free the relay's memory
           only after the loop's turn. */
        void (*ended)(struct pv_relay *r, int error);
};

/* Takes both descriptors (connected, non-blocking). -1 with errno: both are reset, and ended is not called. */
int pv_relay_start(struct pv_relay *r, struct pv_relay_pool *pool, int inside, int outside);
/* Puts bytes that are for `to` first in line; before or after the start. Copies them. */
void pv_relay_preload(struct pv_relay *r, enum pv_relay_side to, const void *bytes, size_t n);
/* Goes on after a rate limit. */
void pv_relay_resume(struct pv_relay *r);
/* Ends it now, both sides with a reset; ended is not called. */
void pv_relay_abort(struct pv_relay *r);

/* Closes a stream socket so that its peer sees a reset (SO_LINGER of 0, socket(7)). */
void pv_relay_reset(int fd);

#endif
