/* SPDX-License-Identifier: Apache-2.0 */
#include "net/relay.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include "base/str.h"

#define CHUNK_LEAST (8 * 1024)
#define MEMORY      (16 * 1024 * 1024) /* bytes: what all pending chunks together are meant to stay below */
#define WORTHWHILE  512                /* bytes that a limit must let through before a direction goes on */
#define TURN        4                  /* chunks a direction may move before the others have their turn */

/* Failing to, it ends with a FIN: no worse than that. */
static void end_with_reset(int fd, bool reset)
{
        struct linger l = { .l_onoff = reset, .l_linger = 0 };
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
}

void pv_relay_reset(int fd)
{
        end_with_reset(fd, true);
        (void)close(fd);
}

static size_t chunk_size(const struct pv_relay_pool *p)
{
        size_t fair = MEMORY / (2 * (p->n ? p->n : 1));
        return fair > PV_RELAY_BUFFER ? PV_RELAY_BUFFER : fair < CHUNK_LEAST ? CHUNK_LEAST : fair;
}

static enum pv_relay_side other(enum pv_relay_side side)
{
        return side == PV_RELAY_INSIDE ? PV_RELAY_OUTSIDE : PV_RELAY_INSIDE;
}

/* Bytes that the limits let through from that side now. */
static size_t allowance(struct pv_relay *r, enum pv_relay_side from, size_t want)
{
        for (struct pv_rate **l = r->limit[from]; l && *l; l++) {
                uint64_t n = pv_rate_available(*l, r->pool->loop->now_us);
                want = n < want ? (size_t)n : want;
        }
        return want;
}

static void account(struct pv_relay *r, enum pv_relay_side from, size_t n)
{
        r->from[from].bytes += n;
        for (struct pv_rate **l = r->limit[from]; l && *l; l++)
                pv_rate_take(*l, n);
}

/* Into the queue, at its end: whoever got something last gets more last. */
static void throttle(struct pv_relay *r, enum pv_relay_side from)
{
        struct pv_relay_pool *p = r->pool;
        r->from[from].waits = true;
        if (r->throttled_self)
                return;
        if (!p->throttled)
                p->throttled_end = &p->throttled;
        r->throttled_next = NULL;
        r->throttled_self = p->throttled_end;
        *p->throttled_end = r;
        p->throttled_end = &r->throttled_next;
}

static void unthrottle(struct pv_relay *r)
{
        r->from[PV_RELAY_INSIDE].waits = r->from[PV_RELAY_OUTSIDE].waits = false;
        if (!r->throttled_self)
                return;
        *r->throttled_self = r->throttled_next;
        if (r->throttled_next)
                r->throttled_next->throttled_self = r->throttled_self;
        else
                r->pool->throttled_end = r->throttled_self;
        r->throttled_self = NULL;
}

static void close_side(struct pv_relay *r, enum pv_relay_side side, bool reset)
{
        int fd = r->watch[side].fd;
        if (fd < 0)
                return;
        pv_loop_remove(r->pool->loop, &r->watch[side]);
        end_with_reset(fd, reset);
        (void)close(fd);
}

static void release(struct pv_relay *r, bool reset_inside, bool reset_outside)
{
        close_side(r, PV_RELAY_INSIDE, reset_inside);
        close_side(r, PV_RELAY_OUTSIDE, reset_outside);
        for (size_t i = 0; i < 2; i++)
                pv_freep(&r->from[i].pending);
        unthrottle(r);
        r->pool->n--;
}

static void finish(struct pv_relay *r, int error)
{
        release(r, error != 0, error != 0);
        r->ended(r, error);
}

/* Writes what is pending for the other side. 1: all is written, 0: the other side is full, -1: errno. */
static int flush(struct pv_relay *r, enum pv_relay_side from)
{
        struct pv_relay_direction *d = &r->from[from];
        while (d->pending) {
                ssize_t n = send(r->watch[other(from)].fd, d->pending + d->pending_off, d->pending_len - d->pending_off,
                                 MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN ? 0 : -1;
                d->pending_off += (size_t)n;
                if (d->pending_off == d->pending_len)
                        pv_freep(&d->pending);
        }
        return 1;
}

static void keep(struct pv_relay_direction *d, const void *bytes, size_t n)
{
        d->pending = pv_realloc(NULL, n, 1);
        memcpy(d->pending, bytes, n);
        d->pending_len = n;
        d->pending_off = 0;
}

/* Moves one chunk. 1: more may be there, 0: not now, -1: errno. */
static int move(struct pv_relay *r, enum pv_relay_side from)
{
        struct pv_relay_direction *d = &r->from[from];
        size_t want = allowance(r, from, chunk_size(r->pool));
        if (want == 0) {
                throttle(r, from);
                return 0;
        }
        ssize_t n = recv(r->watch[from].fd, r->pool->buffer, want, 0);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? 0 : -1;
        if (n == 0) {
                d->ended = true;
                return 0;
        }
        account(r, from, (size_t)n);
        if (r->first && from == PV_RELAY_INSIDE) {
                r->first(r, r->pool->buffer, (size_t)n);
                r->first = NULL;
        }
        ssize_t sent = send(r->watch[other(from)].fd, r->pool->buffer, (size_t)n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
                return -1;
        sent = sent < 0 ? 0 : sent;
        if (sent < n)
                keep(d, r->pool->buffer + sent, (size_t)(n - sent));
        return sent == n && (size_t)n == want;
}

/* Everything that can be done for one direction now. -1: errno. */
static int pump(struct pv_relay *r, enum pv_relay_side from)
{
        struct pv_relay_direction *d = &r->from[from];
        int more = flush(r, from);
        for (int i = 0; i < TURN && more == 1 && !d->ended; i++)
                more = move(r, from);
        if (more < 0)
                return -1;
        if (d->ended && !d->pending && !d->closed) {
                d->closed = true;
                if (shutdown(r->watch[other(from)].fd, SHUT_WR) < 0 && errno != ENOTCONN)
                        return -1;
        }
        return 0;
}

/*
 * A side is read while its direction is open, empty and within its limits, and written while something waits for it.
 * One that has sent its end is watched for a reset all the same (epoll(7) reports that unasked to whoever is in the
 * set); not so when both its halves are shut, since that hang-up stays.
 */
static int ask(struct pv_relay *r)
{
        for (unsigned side = 0; side < 2; side++) {
                const struct pv_relay_direction *d = &r->from[side], *to = &r->from[other(side)];
                bool may_read = !d->ended && !d->pending;
                if (may_read && allowance(r, side, 1) == 0) {
                        throttle(r, side);
                        may_read = false;
                }
                uint32_t events = (may_read ? EPOLLIN : 0) | (to->pending ? EPOLLOUT : 0);
                if (d->ended && !to->closed)
                        events |= EPOLLERR;
                if (pv_loop_set(r->pool->loop, &r->watch[side], events) < 0)
                        return -1;
        }
        return 0;
}

static void advance(struct pv_relay *r)
{
        if (pump(r, PV_RELAY_INSIDE) < 0 || pump(r, PV_RELAY_OUTSIDE) < 0)
                finish(r, errno);
        else if (r->from[PV_RELAY_INSIDE].closed && r->from[PV_RELAY_OUTSIDE].closed)
                finish(r, 0);
        else if (ask(r) < 0)
                finish(r, errno);
}

static int socket_error(int fd)
{
        int e = 0;
        socklen_t n = sizeof e;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0 ? errno : e;
}

static void side_ready(struct pv_relay *r, enum pv_relay_side side, uint32_t events)
{
        int e = events & (EPOLLERR | EPOLLHUP) ? socket_error(r->watch[side].fd) : 0;
        if (e == EPIPE) /* how the kernel calls a reset behind the end of file */
                e = ECONNRESET;
        if (e == 0 && events & EPOLLHUP && r->from[side].ended && !r->from[other(side)].closed)
                e = ECONNRESET; /* it ended its half before, and is gone now */
        if (e != 0)
                finish(r, e);
        else
                advance(r);
}

static void inside_ready(struct pv_watch *w, uint32_t events)
{
        side_ready(PV_CONTAINER_OF(w, struct pv_relay, watch[PV_RELAY_INSIDE]), PV_RELAY_INSIDE, events);
}

static void outside_ready(struct pv_watch *w, uint32_t events)
{
        side_ready(PV_CONTAINER_OF(w, struct pv_relay, watch[PV_RELAY_OUTSIDE]), PV_RELAY_OUTSIDE, events);
}

int pv_relay_start(struct pv_relay *r, struct pv_relay_pool *pool, int inside, int outside)
{
        r->pool = pool;
        pool->n++;
        r->watch[PV_RELAY_INSIDE] = (struct pv_watch){ .fd = inside, .ready = inside_ready };
        r->watch[PV_RELAY_OUTSIDE] = (struct pv_watch){ .fd = outside, .ready = outside_ready };
        /* Should this process be killed, half a transfer must not look like a whole one. */
        end_with_reset(inside, true);
        end_with_reset(outside, true);
        if (ask(r) == 0)
                return 0;
        int e = errno;
        release(r, true, true);
        errno = e;
        return -1;
}

void pv_relay_preload(struct pv_relay *r, enum pv_relay_side to, const void *bytes, size_t n)
{
        struct pv_relay_direction *d = &r->from[other(to)];
        if (n == 0)
                return;
        size_t left = d->pending ? d->pending_len - d->pending_off : 0;
        unsigned char *joined = pv_calloc(left + n, 1);
        if (left)
                memcpy(joined, d->pending + d->pending_off, left);
        memcpy(joined + left, bytes, n);
        pv_freep(&d->pending);
        d->pending = joined;
        d->pending_len = left + n;
        d->pending_off = 0;
}

static bool may_go_on(struct pv_relay *r)
{
        for (unsigned side = 0; side < 2; side++)
                if (r->from[side].waits && allowance(r, side, WORTHWHILE) >= WORTHWHILE)
                        return true;
        return false;
}

void pv_relay_pool_resume(struct pv_relay_pool *pool)
{
        struct pv_relay *last =
                pool->throttled ? PV_CONTAINER_OF(pool->throttled_end, struct pv_relay, throttled_next) : NULL;
        for (struct pv_relay *r = pool->throttled, *next; r; r = next) {
                next = r == last ? NULL : r->throttled_next;
                if (!may_go_on(r))
                        continue;
                unthrottle(r);
                advance(r);
        }
}

void pv_relay_abort(struct pv_relay *r)
{
        release(r, !r->from[PV_RELAY_OUTSIDE].closed, !r->from[PV_RELAY_INSIDE].closed);
}
