/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between two connected stream sockets, both ways, until both have ended. An end of file passes on as a
 * half-close, an error as a reset. What one side does not take stops the other (back-pressure): at most one chunk a
 * direction is kept.
 */
#ifndef PV_NET_RELAY_H
#define PV_NET_RELAY_H

#include <stddef.h>
#include "net/loop.h"
#include "net/rate.h"

#define PV_RELAY_THROTTLE_MS 5
#define PV_RELAY_BUFFER      (256 * 1024) /* bytes: shared by all relays of a loop */
enum pv_relay_side { PV_RELAY_INSIDE, PV_RELAY_OUTSIDE };

/* What the relays of one loop share. */
struct pv_relay_pool {
        struct pv_loop *loop;
        size_t n; /* relays under way: the chunk shrinks with it, so that memory stays bounded */
        unsigned char *buffer;
        struct pv_relay *throttled, **throttled_end; /* those that wait for a limit, the longest first */
};

struct pv_relay_direction {
        unsigned char *pending; /* what could not be written yet; NULL when nothing is */
        size_t pending_len, pending_off;
        bool ended;  /* the reader saw the end of file */
        bool closed; /* and it was passed on */
        bool waits;  /* for a limit */
        uint64_t bytes;
};

struct pv_relay {
        struct pv_relay_pool *pool;
        struct pv_watch watch[2];          /* by side; the descriptors are the relay's */
        struct pv_relay_direction from[2]; /* what that side sends */
        struct pv_rate **limit[2];         /* by direction, NULL ends each list; borrowed; a NULL list: no limit */
        struct pv_relay *throttled_next, **throttled_self; /* in the pool's queue; self is NULL outside it */
        /* Called once with the first bytes that the inside sent; may be NULL. */
        void (*first)(struct pv_relay *r, const unsigned char *bytes, size_t n);
        /*
         * Called once, when both directions have ended or one failed; error is an errno or 0. The relay's memory may be
         * freed after the loop's turn, not within.
         */
        void (*ended)(struct pv_relay *r, int error);
};

/* Takes both descriptors (connected, non-blocking). -1 with errno: both are reset, and ended is not called. */
int pv_relay_start(struct pv_relay *r, struct pv_relay_pool *pool, int inside, int outside);
/* Puts bytes that are for `to` first in line, before the start. Copies them. */
void pv_relay_preload(struct pv_relay *r, enum pv_relay_side to, const void *bytes, size_t n);
/* Those that wait for a limit go on as far as it lets them, in turn. To be called every PV_RELAY_THROTTLE_MS while
   pool->throttled is not NULL. */
void pv_relay_pool_resume(struct pv_relay_pool *pool);
/* Ends it now; ended is not called. A side that got all that the other one sent sees an orderly end, else a reset. */
void pv_relay_abort(struct pv_relay *r);

/* Closes a stream socket so that its peer sees a reset (SO_LINGER of 0, socket(7)). */
void pv_relay_reset(int fd);

#endif
