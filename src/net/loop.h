/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop of the data plane: epoll(7), level-triggered, one thread. */
#ifndef PV_NET_LOOP_H
#define PV_NET_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include "base/container.h"
#include "base/err.h"

/* A descriptor that is watched. Embedded in its owner, which outlives the watch. */
struct pv_watch {
        int fd;          /* -1: not watched */
        uint32_t events; /* what is asked for now */
        void (*ready)(struct pv_watch *w, uint32_t events);
};

struct pv_loop {
        int epoll;
        bool ended;
        uint64_t now_us; /* CLOCK_MONOTONIC at the start of this turn */
};

int pv_loop_init(struct pv_loop *l, struct pv_err *err);
void pv_loop_fini(struct pv_loop *l);
/* Watches w->fd for events. Asked for nothing it is parked: not even an error or a hang-up calls it. -1 with errno. */
int pv_loop_add(struct pv_loop *l, struct pv_watch *w, uint32_t events);
/* Asks for other events; no system call when nothing changes. -1 with errno. */
int pv_loop_set(struct pv_loop *l, struct pv_watch *w, uint32_t events);
/* Ends the watch; the descriptor stays open. */
void pv_loop_remove(struct pv_loop *l, struct pv_watch *w);
/*
 * One turn: waits at most timeout_ms (-1: until something happens) and calls what is ready. A watch that another one of
 * the same turn removed is not called; its memory must stay until the turn is over.
 */
int pv_loop_turn(struct pv_loop *l, int timeout_ms, struct pv_err *err);

#endif
