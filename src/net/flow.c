/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the sandbox, from accept to its end:
 *
 *   redirected: original destination -> name -> policy -> RESOLVING -> CONNECTING -> RELAYING
 *   proxied:    READING_HEAD -> policy -> RESOLVING -> CONNECTING -> RELAYING
 *   published:  CONNECTING (inside the namespace) -> RELAYING
 *
 * Before it relays, a refusal or failure answers the sandbox at once: a reset, or a sentence in HTTP through the proxy.
 * The peer inside is hostile: everything it can make this wait for has a deadline, everything it sends a bound.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "net/http.h"
#include "net/plane_internal.h"

#define IP6T_SO_ORIGINAL_DST 80    /* linux/netfilter_ipv6/ip6_tables.h does not compile beside netinet/in.h */
#define CONNECT_MS           15000 /* one address */
#define SETUP_MS             45000 /* head, resolution and all addresses */
#define TICK_MS              250
#define THROTTLE_MS          5
#define KEEPALIVE_IDLE_S     60

enum flow_state { READING_HEAD, RESOLVING, CONNECTING, RELAYING };

struct pv_flow {
        struct pv_relay relay;
        struct pv_plane *plane;
        struct pv_flow *next, **self;
        enum flow_state state;
        enum pv_flow_via via;
        struct pv_watch near, far; /* the accepted connection and the one being made, until the relay takes both */
        char *name;                /* or NULL */
        struct pv_netaddr addr;    /* of the far end; of the original destination before it is known */
        uint16_t port;
        struct pv_resolve_wait wait;
        struct pv_resolved *candidates;
        size_t next_candidate;
        struct pv_verdict special; /* why a candidate was passed over */
        int last_error;
        uint64_t started_ms, deadline_ms, setup_deadline_ms;
        char *head; /* PV_HTTP_HEAD_MAX bytes while the head is read */
        size_t head_len;
        struct pv_http_request request;
        enum pv_http_parse kind; /* CONNECT or FORWARD of a proxied flow */
};

static uint64_t now_ms(const struct pv_plane *p)
{
        return p->loop.now_us / 1000;
}

static struct pv_flow *flow_new(struct pv_plane *p, int fd, enum pv_flow_via via)
{
        struct pv_flow *f = pv_calloc(1, sizeof *f);
        f->plane = p;
        f->via = via;
        f->near.fd = fd;
        f->far.fd = -1;
        f->started_ms = now_ms(p);
        f->setup_deadline_ms = f->started_ms + SETUP_MS;
        f->next = p->flows;
        f->self = &p->flows;
        if (f->next)
                f->next->self = &f->next;
        p->flows = f;
        p->n_flows++;
        p->n_setting_up++;
        return f;
}

/* Off the list; its memory stays until the turn is over. The descriptors must be gone. */
static void flow_free(struct pv_flow *f)
{
        struct pv_plane *p = f->plane;
        pv_resolver_forget(p->resolver, &f->wait);
        *f->self = f->next;
        if (f->next)
                f->next->self = f->self;
        p->n_flows--;
        p->n_setting_up -= f->state != RELAYING;
        f->next = p->dead;
        p->dead = f;
}

void pv_flow_bury(struct pv_plane *p)
{
        while (p->dead) {
                struct pv_flow *f = p->dead;
                p->dead = f->next;
                free(f->name);
                free(f->head);
                free(f->candidates);
                free(f);
        }
}

static void note(struct pv_flow *f, enum pv_flow_end end, int error, const char *text, const struct pv_verdict *v)
{
        bool swapped = f->via == PV_VIA_PUBLISH;
        bool known = f->via != PV_VIA_PUBLISH && (f->state >= CONNECTING || !f->name);
        struct pv_flow_record r = {
                .end = end,
                .via = f->via,
                .name = f->name,
                .addr = known ? &f->addr : NULL,
                .port = f->port,
                .bytes_out = f->relay.from[swapped ? PV_RELAY_OUTSIDE : PV_RELAY_INSIDE].bytes,
                .bytes_in = f->relay.from[swapped ? PV_RELAY_INSIDE : PV_RELAY_OUTSIDE].bytes,
                .duration_ms = now_ms(f->plane) - f->started_ms,
                .error = error,
                .text = text,
                .verdict = v,
        };
        pv_tally_note(f->plane->tally, &r);
}

static void close_far(struct pv_flow *f)
{
        int fd = f->far.fd;
        if (fd >= 0) {
                pv_loop_remove(&f->plane->loop, &f->far);
                (void)close(fd);
        }
}

/* The last word to a client of the proxy; short enough for any socket buffer. */
static void answer_http(struct pv_flow *f, int status, const char *sentence)
{
        pv_auto_str text = { 0 };
        char rest[4096];
        pv_http_answer(&text, status, sentence);
        int fd = f->near.fd;
        pv_loop_remove(&f->plane->loop, &f->near);
        (void)!send(fd, text.s, text.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)shutdown(fd, SHUT_WR);
        /* Unread bytes would turn the close into a reset, which may overtake the answer (RFC 9112, 9.6). */
        while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
                ;
        (void)close(fd);
}

static void end_unreached(struct pv_flow *f, int status, const char *what, const char *why)
{
        close_far(f);
        if (f->via == PV_VIA_PROXY) {
                pv_auto_str s = { 0 };
                pv_str_putf(&s, "%s:%u %s: %s", f->name ? f->name : f->request.host, f->port, what, why);
                answer_http(f, status, s.s);
        } else {
                int fd = f->near.fd;
                pv_loop_remove(&f->plane->loop, &f->near);
                pv_relay_reset(fd);
        }
        flow_free(f);
}

static void refuse(struct pv_flow *f, const struct pv_verdict *v)
{
        char buf[512];
        note(f, PV_FLOW_REFUSED, 0, NULL, v);
        end_unreached(f, 403, "is refused", pv_verdict_text(v, buf, sizeof buf));
}

static void refuse_text(struct pv_flow *f, const char *text)
{
        note(f, PV_FLOW_REFUSED, 0, text, NULL);
        end_unreached(f, 403, "is refused", text);
}

static void fail(struct pv_flow *f, int error, const char *text)
{
        note(f, PV_FLOW_FAILED, error, text, NULL);
        end_unreached(f, 502, "cannot be reached", text ? text : strerror(error));
}

/* ---- relaying ---- */

static void on_relay_end(struct pv_relay *r, int error)
{
        struct pv_flow *f = PV_CONTAINER_OF(r, struct pv_flow, relay);
        note(f, error ? PV_FLOW_BROKEN : PV_FLOW_DONE, error, NULL, NULL);
        flow_free(f);
}

static void set_limits(struct pv_flow *f)
{
        struct pv_plane *p = f->plane;
        size_t n = 0;
        for (size_t i = 0; i < p->policy->n_limits && n < PV_RELAY_LIMITS; i++)
                if (pv_match_limit(&p->policy->limits[i], f->name, &f->addr, f->port)) {
                        f->relay.limit[PV_RELAY_INSIDE][n] = &p->rates[2 * i];
                        f->relay.limit[PV_RELAY_OUTSIDE][n] = &p->rates[2 * i + 1];
                        n++;
                }
}

/* Small writes must not wait for each other twice, and a peer that is gone must be found out. */
static void tune(int fd)
{
        int one = 1, idle = KEEPALIVE_IDLE_S;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

static void preload_proxied(struct pv_flow *f)
{
        static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
        pv_auto_str head = { 0 };
        if (f->kind == PV_HTTP_CONNECT) {
                pv_relay_preload(&f->relay, PV_RELAY_INSIDE, established, sizeof established - 1);
        } else {
                pv_http_rewrite(f->head, &f->request, &head);
                pv_relay_preload(&f->relay, PV_RELAY_OUTSIDE, head.s, head.len);
        }
        pv_relay_preload(&f->relay, PV_RELAY_OUTSIDE, f->head + f->request.head, f->head_len - f->request.head);
        pv_freep(&f->head);
}

static void start_relay(struct pv_flow *f)
{
        int near = f->near.fd, far = f->far.fd;
        pv_loop_remove(&f->plane->loop, &f->near);
        pv_loop_remove(&f->plane->loop, &f->far);
        tune(near);
        tune(far);
        f->state = RELAYING;
        f->plane->n_setting_up--;
        f->relay.ended = on_relay_end;
        pv_freep(&f->candidates);
        set_limits(f);
        if (f->via == PV_VIA_PROXY)
                preload_proxied(f);
        if (pv_relay_start(&f->relay, &f->plane->relays, near, far) < 0)
                on_relay_end(&f->relay, errno);
}

/* ---- connecting ---- */

static void connect_next(struct pv_flow *f);

static void far_ready(struct pv_watch *w, uint32_t events)
{
        struct pv_flow *f = PV_CONTAINER_OF(w, struct pv_flow, far);
        int e = 0;
        socklen_t n = sizeof e;
        (void)events;
        if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
                e = errno;
        if (e == 0) {
                start_relay(f);
                return;
        }
        f->last_error = e;
        close_far(f);
        connect_next(f);
}

static socklen_t socket_address(const struct pv_netaddr *a, uint16_t port, struct sockaddr_storage *out)
{
        memset(out, 0, sizeof *out);
        if (pv_netaddr_is_v4(a)) {
                struct sockaddr_in *v4 = (void *)out;
                v4->sin_family = AF_INET;
                v4->sin_port = htons(port);
                memcpy(&v4->sin_addr, a->b + 12, 4);
                return sizeof *v4;
        }
        struct sockaddr_in6 *v6 = (void *)out;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        memcpy(&v6->sin6_addr, a->b, 16);
        return sizeof *v6;
}

/* Starts a connection from fd, which it takes. False with last_error set when it failed at once. */
static bool begin_connect(struct pv_flow *f, int fd, const struct pv_netaddr *addr, uint16_t port)
{
        struct sockaddr_storage sa;
        socklen_t n = socket_address(addr, port, &sa);
        f->state = CONNECTING;
        f->far = (struct pv_watch){ .fd = fd, .ready = far_ready };
        f->deadline_ms = now_ms(f->plane) + CONNECT_MS;
        if (fd >= 0 && (connect(fd, (struct sockaddr *)&sa, n) == 0 || errno == EINPROGRESS) &&
            pv_loop_add(&f->plane->loop, &f->far, EPOLLOUT) == 0)
                return true;
        f->last_error = errno;
        if (fd >= 0)
                (void)close(fd);
        f->far.fd = -1;
        return false;
}

static bool is_host_name(const struct pv_flow *f)
{
        return f->name && pv_streq(f->name, PV_PLANE_HOST_NAME);
}

static void connect_next(struct pv_flow *f)
{
        const struct pv_resolved *c = f->candidates;
        while (f->next_candidate < c->n) {
                const struct pv_netaddr *a = &c->addr[f->next_candidate++];
                struct pv_verdict v = { .kind = PV_VERDICT_ALLOWED };
                if (!is_host_name(f))
                        v = pv_match_address(f->plane->policy, f->name, a, f->port);
                if (v.kind != PV_VERDICT_ALLOWED) {
                        f->special = v;
                        continue;
                }
                f->addr = *a;
                int fd =
                        socket(pv_netaddr_is_v4(a) ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
                if (begin_connect(f, fd, a, f->port))
                        return;
        }
        if (f->last_error == 0 && f->special.kind != PV_VERDICT_ALLOWED)
                refuse(f, &f->special);
        else
                fail(f, f->last_error ? f->last_error : EHOSTUNREACH, NULL);
}

static void on_resolved(struct pv_resolve_wait *w, const struct pv_resolved *answer)
{
        struct pv_flow *f = PV_CONTAINER_OF(w, struct pv_flow, wait);
        if (answer->status != PV_RESOLVE_FOUND) {
                fail(f, 0,
                     answer->status == PV_RESOLVE_NO_NAME ? "the name does not exist" : "the host's resolver failed");
                return;
        }
        f->candidates = pv_calloc(1, sizeof *f->candidates);
        *f->candidates = *answer;
        connect_next(f);
}

/* A candidate list of fixed addresses, for what is not resolved. */
static void connect_to(struct pv_flow *f, const struct pv_netaddr *addr, size_t n)
{
        struct pv_resolved answer = { .status = PV_RESOLVE_FOUND, .n = n };
        memcpy(answer.addr, addr, n * sizeof *addr);
        on_resolved(&f->wait, &answer);
}

static const struct pv_netaddr loopback[2] = {
        { { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } },
        { { [15] = 1 } },
};

bool pv_plane_allows_host_port(const struct pv_netpolicy *policy, uint16_t port)
{
        struct pv_verdict v =
                port ? pv_match_name_port(policy, PV_PLANE_HOST_NAME, port) : pv_match_name(policy, PV_PLANE_HOST_NAME);
        return v.kind == PV_VERDICT_ALLOWED && v.rule && v.rule->kind == PV_NETRULE_HOST;
}

/* The policy's word on the destination, then the way there. */
static void go(struct pv_flow *f)
{
        struct pv_plane *p = f->plane;
        f->state = RESOLVING;
        f->wait.done = on_resolved;
        if (is_host_name(f)) {
                if (pv_plane_allows_host_port(p->policy, f->port))
                        connect_to(f, loopback, 2);
                else
                        refuse_text(
                                f,
                                "the host's loopback is reached at ports that a rule names with " PV_PLANE_HOST_NAME);
                return;
        }
        struct pv_verdict v = f->name ? pv_match_name_port(p->policy, f->name, f->port)
                                      : pv_match_address(p->policy, NULL, &f->addr, f->port);
        if (v.kind != PV_VERDICT_ALLOWED)
                refuse(f, &v);
        else if (f->name)
                pv_resolver_ask(p->resolver, f->name, &f->wait);
        else
                connect_to(f, &f->addr, 1);
}

/* ---- the three ways in ---- */

void pv_flow_accept_redirected(struct pv_plane *p, int fd, bool v6)
{
        struct sockaddr_in6 sa6 = { 0 };
        struct sockaddr_in sa4 = { 0 };
        socklen_t n = v6 ? sizeof sa6 : sizeof sa4;
        struct pv_flow *f = flow_new(p, fd, PV_VIA_CONNECT);
        f->addr = (struct pv_netaddr){ { [10] = 0xff, [11] = 0xff } };
        if (getsockopt(fd, v6 ? SOL_IPV6 : SOL_IP, v6 ? IP6T_SO_ORIGINAL_DST : SO_ORIGINAL_DST,
                       v6 ? (void *)&sa6 : &sa4, &n) < 0) {
                refuse_text(f, "it came without a destination");
                return;
        }
        if (v6)
                memcpy(f->addr.b, &sa6.sin6_addr, 16);
        else
                memcpy(f->addr.b + 12, &sa4.sin_addr, 4);
        f->port = ntohs(v6 ? sa6.sin6_port : sa4.sin_port);
        const char *name = pv_names_find(p->names, &f->addr);
        f->name = name ? pv_strdup(name) : NULL;
        if (!name && pv_names_is_synthetic(&f->addr))
                refuse_text(f, "the address stands for no name");
        else
                go(f);
}

static void near_head_ready(struct pv_watch *w, uint32_t events)
{
        struct pv_flow *f = PV_CONTAINER_OF(w, struct pv_flow, near);
        ssize_t n = recv(w->fd, f->head + f->head_len, PV_HTTP_HEAD_MAX - f->head_len, 0);
        (void)events;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                int fd = w->fd;
                pv_loop_remove(&f->plane->loop, w);
                (void)close(fd);
                flow_free(f);
                return;
        }
        f->head_len += (size_t)n;
        f->kind = pv_http_parse(f->head, f->head_len, &f->request);
        if (f->kind == PV_HTTP_MORE)
                return;
        (void)pv_loop_set(&f->plane->loop, w, 0);
        if (f->kind == PV_HTTP_BAD || f->kind == PV_HTTP_NOT_PROXY) {
                answer_http(f, 400, "this is a proxy: it takes CONNECT and http:// addresses");
                flow_free(f);
                return;
        }
        char folded[PV_NETRULE_NAME_MAX + 1];
        f->port = f->request.port;
        if (pv_netaddr_parse(f->request.host, &f->addr)) {
                go(f);
        } else if (pv_netrule_fold_name(f->request.host, strlen(f->request.host), folded)) {
                f->name = pv_strdup(folded);
                go(f);
        } else {
                answer_http(f, 400, "the host is neither a name nor an address");
                flow_free(f);
        }
}

void pv_flow_accept_proxied(struct pv_plane *p, int fd)
{
        struct pv_flow *f = flow_new(p, fd, PV_VIA_PROXY);
        f->head = pv_calloc(PV_HTTP_HEAD_MAX, 1);
        f->near.ready = near_head_ready;
        if (pv_loop_add(&p->loop, &f->near, EPOLLIN) < 0)
                fail(f, errno, NULL);
}

void pv_flow_accept_published(struct pv_plane *p, int fd, uint16_t port)
{
        struct pv_flow *f = flow_new(p, fd, PV_VIA_PUBLISH);
        f->port = port;
        f->addr = loopback[0];
        if (!begin_connect(f, pv_netns_ask_socket(p->spec->sockets_from, AF_INET), &loopback[0], port))
                fail(f, f->last_error, NULL);
}

/* ---- time ---- */

static void expire(struct pv_flow *f, uint64_t now)
{
        if (f->state == CONNECTING && now >= f->deadline_ms && now < f->setup_deadline_ms && f->candidates) {
                f->last_error = ETIMEDOUT;
                close_far(f);
                connect_next(f);
        } else if (f->state != RELAYING &&
                   (now >= f->setup_deadline_ms || (f->state == CONNECTING && now >= f->deadline_ms))) {
                fail(f, ETIMEDOUT, NULL);
        }
}

void pv_flow_tick(struct pv_plane *p)
{
        uint64_t now = now_ms(p);
        bool set_up = p->n_setting_up > 0 && now >= p->next_tick_ms;
        if (!set_up && p->policy->n_limits == 0)
                return;
        p->next_tick_ms = set_up ? now + TICK_MS : p->next_tick_ms;
        for (struct pv_flow *f = p->flows, *next; f; f = next) {
                next = f->next;
                if (f->state != RELAYING && set_up)
                        expire(f, now);
                else if (f->state == RELAYING && f->relay.throttled)
                        pv_relay_resume(&f->relay);
        }
}

int pv_flow_timeout(const struct pv_plane *p)
{
        for (const struct pv_flow *f = p->policy->n_limits ? p->flows : NULL; f; f = f->next)
                if (f->state == RELAYING && f->relay.throttled)
                        return THROTTLE_MS;
        return p->n_setting_up > 0 ? TICK_MS : -1;
}

bool pv_flow_any_unsent(const struct pv_plane *p)
{
        for (const struct pv_flow *f = p->flows; f; f = f->next) {
                enum pv_relay_side sandbox = f->via == PV_VIA_PUBLISH ? PV_RELAY_OUTSIDE : PV_RELAY_INSIDE;
                if (f->state != RELAYING || !f->relay.from[sandbox].closed)
                        return true;
        }
        return false;
}

void pv_flow_end_all(struct pv_plane *p)
{
        while (p->flows) {
                struct pv_flow *f = p->flows;
                if (f->state == RELAYING) {
                        pv_relay_abort(&f->relay);
                        on_relay_end(&f->relay, 0);
                } else {
                        fail(f, ECANCELED, "the run ended");
                }
        }
}
