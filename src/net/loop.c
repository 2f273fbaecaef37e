/* SPDX-License-Identifier: Apache-2.0 */
#include "net/loop.h"

#include <errno.h>
#include <time.h>
#include "base/fd.h"

#define BATCH 128

static uint64_t monotonic_us(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int pv_loop_init(struct pv_loop *l, struct pv_err *err)
{
        *l = (struct pv_loop){ .epoll = epoll_create1(EPOLL_CLOEXEC), .now_us = monotonic_us() };
        return l->epoll < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "event loop") : 0;
}

void pv_loop_fini(struct pv_loop *l)
{
        pv_fd_closep(&l->epoll);
}

int pv_loop_add(struct pv_loop *l, struct pv_watch *w, uint32_t events)
{
        w->events = 0;
        return pv_loop_set(l, w, events);
}

/* A hang-up is reported whether it is asked for or not and stays: who cannot act on it yet must not be in the set. */
int pv_loop_set(struct pv_loop *l, struct pv_watch *w, uint32_t events)
{
        struct epoll_event e = { .events = events, .data.ptr = w };
        if (w->fd < 0 || w->events == events)
                return 0;
        int op = w->events == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
        if (epoll_ctl(l->epoll, op, w->fd, &e) < 0)
                return -1;
        w->events = events;
        return 0;
}

void pv_loop_remove(struct pv_loop *l, struct pv_watch *w)
{
        (void)pv_loop_set(l, w, 0);
        w->fd = -1;
}

int pv_loop_turn(struct pv_loop *l, int timeout_ms, struct pv_err *err)
{
        struct epoll_event e[BATCH];
        int n = epoll_wait(l->epoll, e, BATCH, timeout_ms);
        l->now_us = monotonic_us();
        if (n < 0)
                return errno == EINTR ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "event loop");
        for (int i = 0; i < n; i++) {
                struct pv_watch *w = e[i].data.ptr;
                if (w->fd >= 0 && w->events != 0)
                        w->ready(w, e[i].events);
        }
        return 0;
}
