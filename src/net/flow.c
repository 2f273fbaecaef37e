/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection of the sandbox, from accept to its end:
 *
 *   redirected: original destination -> name -> policy -> RESOLVING -> CONNECTING -> RELAYING
 *   proxied:    READING_HEAD -> policy -> RESOLVING -> CONNECTING -> RELAYING
 *   published:  CONNECTING (inside the namespace) -> RELAYING
 *   host port:  CONNECTING (to the host's loopback) -> RELAYING
 *
 * Before it relays, a refusal or failure answers the sandbox at once: a reset, or a sentence in HTTP through the proxy.
 * The peer inside is hostile: everything it can make this wait for has a deadline, everything it sends a bound.
 */
#include <netinet/in.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "net/http.h"
#include "net/plane_internal.h"
#include "net/tls.h"

#define IP6T_SO_ORIGINAL_DST 80    /* linux/netfilter_ipv6/ip6_tables.h does not compile beside netinet/in.h */
#define CONNECT_MS           15000 /* one address */
#define SETUP_MS             45000 /* head, resolution and all addresses */
#define TICK_MS              250
#define NEXT_MS              3000 /* one address, when there are others to try */
#define HEADS                512 /* requests to the proxy that are read at once; each may hold PV_HTTP_HEAD_MAX bytes */
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
        char *tls_name;            /* what the client asked of a TLS server, when it is another name; or NULL */
        struct pv_netaddr addr;    /* of the far end; of the original destination before it is known */
        uint16_t port;
        struct pv_resolve_wait wait;
        struct pv_resolved *candidates;
        size_t next_candidate;
        struct pv_verdict special; /* why a candidate was passed over */
        int last_error;
        uint64_t started_ms, deadline_ms, setup_deadline_ms;
        struct pv_rate **limits; /* both lists of the relay, one behind the other */
        unsigned next_loopback;  /* published: of the two addresses */
        char *head;              /* PV_HTTP_HEAD_MAX bytes while the head is read */
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
        p->n_heads -= f->head != NULL;
        f->next = p->dead;
        p->dead = f;
}

void pv_flow_bury(struct pv_plane *p)
{
        while (p->dead) {
                struct pv_flow *f = p->dead;
                p->dead = f->next;
                free(f->name);
                free(f->tls_name);
                free(f->head);
                free(f->limits);
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
                .tls_name = f->tls_name,
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

/* Said to the record, not enforced: the policy is about where bytes go, and a client may hide the name. */
static void look_for_tls_name(struct pv_relay *r, const unsigned char *bytes, size_t n)
{
        struct pv_flow *f = PV_CONTAINER_OF(r, struct pv_flow, relay);
        char name[PV_NETRULE_NAME_MAX + 1];
        if (pv_tls_server_name(bytes, n, name) && (!f->name || !pv_streq(f->name, name)))
                f->tls_name = pv_strdup(name);
}

static void set_limits(struct pv_flow *f)
{
        struct pv_plane *p = f->plane;
        size_t n = 0, most = p->policy.n_limits;
        if (most == 0)
                return;
        f->limits = pv_calloc(2 * (most + 1), sizeof *f->limits);
        for (size_t i = 0; i < most; i++)
                if (pv_match_limit(&p->policy.limits[i], f->name, &f->addr, f->port)) {
                        f->limits[n] = &p->rates[2 * i];
                        f->limits[most + 1 + n] = &p->rates[2 * i + 1];
                        n++;
                }
        f->relay.limit[PV_RELAY_INSIDE] = f->limits;
        f->relay.limit[PV_RELAY_OUTSIDE] = f->limits + most + 1;
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
        f->plane->n_heads--;
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
        f->relay.first = f->via == PV_VIA_PUBLISH ? NULL : look_for_tls_name;
        pv_freep(&f->candidates);
        set_limits(f);
        if (f->via == PV_VIA_PROXY)
                preload_proxied(f);
        if (pv_relay_start(&f->relay, &f->plane->relays, near, far) < 0)
                on_relay_end(&f->relay, errno);
}

/* ---- connecting ---- */

static void connect_next(struct pv_flow *f);
static void connect_inside(struct pv_flow *f);

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
        if (f->via == PV_VIA_PUBLISH)
                connect_inside(f);
        else
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
        bool others = f->candidates && f->next_candidate < f->candidates->n;
        f->deadline_ms = now_ms(f->plane) + (others ? NEXT_MS : CONNECT_MS);
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

static struct pv_verdict judge(struct pv_plane *p, const char *name, const struct pv_netaddr *a, uint16_t port)
{
        return pv_match_address(&p->policy, name, a, port,
                                pv_own_has(&p->own, a, now_ms(p)) ? PV_MATCH_OWN : PV_MATCH_ANYBODYS);
}

static void connect_next(struct pv_flow *f)
{
        const struct pv_resolved *c = f->candidates;
        while (f->next_candidate < c->n) {
                const struct pv_netaddr *a = &c->addr[f->next_candidate++];
                struct pv_verdict v = { .kind = PV_VERDICT_ALLOWED };
                if (!is_host_name(f))
                        v = judge(f->plane, f->name, a, f->port);
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
        *f->candidates = *answer; /* not the resolver's: that may expire meanwhile */
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

static const char not_a_host_port[] =
        "the host's loopback is reached at ports that a rule names with " PV_PLANE_HOST_NAME;

bool pv_plane_allows_host_port(const struct pv_netpolicy *policy, uint16_t port)
{
        struct pv_verdict v =
                port ? pv_match_name_port(policy, PV_PLANE_HOST_NAME, port) : pv_match_name(policy, PV_PLANE_HOST_NAME);
        return v.kind == PV_VERDICT_ALLOWED && pv_match_names_host(policy, PV_PLANE_HOST_NAME, port);
}

/* The policy's word on the destination, then the way there. */
static void go(struct pv_flow *f)
{
        struct pv_plane *p = f->plane;
        f->state = RESOLVING;
        f->wait.done = on_resolved;
        if (is_host_name(f)) {
                if (pv_plane_allows_host_port(&p->policy, f->port))
                        connect_to(f, loopback, 2);
                else
                        refuse_text(f, not_a_host_port);
                return;
        }
        struct pv_verdict v =
                f->name ? pv_match_name_port(&p->policy, f->name, f->port) : judge(p, NULL, &f->addr, f->port);
        if (v.kind != PV_VERDICT_ALLOWED)
                refuse(f, &v);
        else if (f->name)
                pv_resolver_ask(p->resolver, f->name, &f->wait);
        else
                connect_to(f, &f->addr, 1);
}

/* ---- the ways in ---- */

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

/* Why: asked of the policy again, as the rules in the kernel were made from it. */
void pv_flow_note_refused(struct pv_plane *p, const struct pv_nflog_packet *packet)
{
        const char *name = pv_names_find(p->names, &packet->to), *text = NULL;
        struct pv_verdict v = { .kind = PV_VERDICT_ALLOWED };
        if (packet->protocol != IPPROTO_TCP)
                text = "only TCP and DNS lead out";
        else if (name && pv_streq(name, PV_PLANE_HOST_NAME))
                text = not_a_host_port;
        else if (name)
                v = pv_match_name_port(&p->policy, name, packet->port);
        else if (pv_names_is_synthetic(&packet->to))
                text = "the address stands for no name";
        else
                v = judge(p, NULL, &packet->to, packet->port);
        if (!text && v.kind == PV_VERDICT_ALLOWED)
                text = "a port of pVisor's own";
        pv_tally_note(p->tally, &(struct pv_flow_record){
                                        .end = PV_FLOW_REFUSED,
                                        .via = PV_VIA_CONNECT,
                                        .name = name,
                                        .addr = name ? NULL : &packet->to,
                                        .port = packet->port,
                                        .text = text,
                                        .verdict = text ? NULL : &v,
                                });
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
        if (p->n_heads == HEADS) {
                note(f, PV_FLOW_FAILED, 0, "too many requests to the proxy at once", NULL);
                pv_relay_reset(fd);
                flow_free(f);
                return;
        }
        f->head = pv_calloc(PV_HTTP_HEAD_MAX, 1);
        p->n_heads++;
        f->near.ready = near_head_ready;
        if (pv_loop_add(&p->loop, &f->near, EPOLLIN) < 0)
                fail(f, errno, NULL);
}

/* "localhost" is either loopback address to the servers of the sandbox: IPv4, then IPv6. */
static void connect_inside(struct pv_flow *f)
{
        static const int family[] = { AF_INET, AF_INET6 };
        while (f->next_loopback < 2) {
                unsigned i = f->next_loopback++;
                f->addr = loopback[i];
                if (begin_connect(f, pv_netns_ask_socket(f->plane->spec->sockets_from, family[i]), &f->addr, f->port))
                        return;
        }
        fail(f, f->last_error, NULL);
}

void pv_flow_accept_published(struct pv_plane *p, int fd, uint16_t port)
{
        struct pv_flow *f = flow_new(p, fd, PV_VIA_PUBLISH);
        f->port = port;
        connect_inside(f);
}

/* Named by the person, and by that alone allowed; a deny rule for the host's name still wins. */
void pv_flow_accept_host_port(struct pv_plane *p, int fd, uint16_t port)
{
        struct pv_flow *f = flow_new(p, fd, PV_VIA_HOST_PORT);
        f->name = pv_strdup(PV_PLANE_HOST_NAME);
        f->port = port;
        f->wait.done = on_resolved;
        struct pv_verdict v = pv_match_name_port(&p->policy, PV_PLANE_HOST_NAME, port);
        if (v.kind == PV_VERDICT_DENIED && !pv_streq(v.layer, PV_LAYER_DENY_ALL))
                refuse(f, &v);
        else
                connect_to(f, loopback, 2);
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
        if (p->relays.throttled && now >= p->next_resume_ms) {
                p->next_resume_ms = now + PV_RELAY_THROTTLE_MS;
                pv_relay_pool_resume(&p->relays);
        }
        if (p->n_setting_up == 0 || now < p->next_tick_ms)
                return;
        p->next_tick_ms = now + TICK_MS;
        for (struct pv_flow *f = p->flows, *next; f; f = next) {
                next = f->next;
                if (f->state != RELAYING)
                        expire(f, now);
        }
}

int pv_flow_timeout(const struct pv_plane *p)
{
        return p->relays.throttled ? PV_RELAY_THROTTLE_MS : p->n_setting_up > 0 ? TICK_MS : -1;
}

/* Is there anything that the sandbox sent on a connection that has not reached the far end yet? */
static bool sent_something(const struct pv_flow *f)
{
        char byte;
        return f->via != PV_VIA_PUBLISH && (f->head_len > 0 || recv(f->near.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0);
}

bool pv_flow_any_unsent(const struct pv_plane *p)
{
        for (const struct pv_flow *f = p->flows; f; f = f->next) {
                enum pv_relay_side sandbox = f->via == PV_VIA_PUBLISH ? PV_RELAY_OUTSIDE : PV_RELAY_INSIDE;
                if (f->state == RELAYING ? !f->relay.from[sandbox].closed : sent_something(f))
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
