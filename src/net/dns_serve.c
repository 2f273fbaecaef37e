/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's name server, over UDP and TCP: whatever server a program asks, nftables sends the question here.
 *
 * A name that the policy refuses does not exist (NXDOMAIN: resolvers believe it at once, where REFUSED makes them ask
 * again); a name that it allows is looked up outside, and answered with the synthetic addresses of that name, so that
 * the real ones never come in and the connection carries the name back. Bounds: questions under way, TCP connections,
 * their time.
 */
#include <limits.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include "net/plane_internal.h"

#define QUESTIONS      1024  /* under way at once; a further one is SERVFAIL */
#define STREAMS        64    /* TCP connections at once */
#define STREAM_MS      10000 /* of silence on one */
#define SHUT_MS        100
#define UDP_BATCH      64 /* datagrams a turn */
#define TTL_S          60
#define SAME_LOOKUP_MS 2000
#define UDP_MESSAGE    4096

/* A client over TCP: messages with two bytes of length before them (RFC 1035, 4.2.2). */
struct stream {
        struct pv_watch watch;
        struct pv_dns_server *server;
        struct stream *next;
        uint64_t deadline_ms;
        unsigned waiting; /* questions under way */
        bool closed;
        size_t len;
        uint8_t buf[2 + UDP_MESSAGE];
};

struct question {
        struct pv_resolve_wait wait;
        struct pv_dns_server *server;
        struct pv_dns_query query;
        struct stream *stream; /* or NULL: UDP, to peer through fd */
        int fd;
        struct sockaddr_storage peer;
        socklen_t peer_len;
        uint8_t message[12 + 255 + 4]; /* header and question: what an answer repeats */
};

struct pv_dns_server {
        struct pv_plane *plane;
        struct pv_watch udp[2], tcp[2];
        size_t n_questions, n_streams;
        uint64_t reopen_ms;                     /* TCP is shut until then; 0: it is open */
        char own_name[PV_NETRULE_NAME_MAX + 1]; /* of this machine, which the sandbox takes for its own; or "" */
        char last_name[PV_NETRULE_NAME_MAX + 1];
        uint16_t last_type; /* the last name that was refused, and what was asked of it; 0: none */
        uint64_t last_ms;
        struct stream *streams;
};

static void stream_release(struct stream *s)
{
        if (s->closed && s->waiting == 0) {
                for (struct stream **at = &s->server->streams; *at; at = &(*at)->next)
                        if (*at == s) {
                                *at = s->next;
                                break;
                        }
                s->server->n_streams--;
                free(s);
        }
}

static void stream_close(struct stream *s)
{
        int fd = s->watch.fd;
        if (fd >= 0) {
                pv_loop_remove(&s->server->plane->loop, &s->watch);
                (void)close(fd);
        }
        s->closed = true;
}

static void send_answer(const struct question *q, const struct pv_dns_answer *a)
{
        static uint8_t out[2 + UDP_MESSAGE];
        size_t limit = q->stream ? UDP_MESSAGE : q->query.udp_size;
        size_t n = pv_dns_write_answer(q->message, &q->query, a, out + 2, limit);
        if (!q->stream) {
                (void)sendto(q->fd, out + 2, n, MSG_DONTWAIT, (const struct sockaddr *)&q->peer, q->peer_len);
                return;
        }
        out[0] = (uint8_t)(n >> 8);
        out[1] = (uint8_t)n;
        /* An answer is far smaller than an empty send buffer; who lets it fill up is cut off. */
        if (q->stream->watch.fd >= 0 &&
            send(q->stream->watch.fd, out, n + 2, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)(n + 2))
                stream_close(q->stream);
}

static void answer_synthetic(const struct question *q)
{
        struct pv_netaddr a[2];
        struct pv_dns_answer answer = { .addrs = a, .n_addrs = 2, .ttl = TTL_S };
        if (!pv_names_give(q->server->plane->names, q->query.name, &a[0], &a[1]))
                answer = (struct pv_dns_answer){ .rcode = PV_DNS_SERVFAIL };
        send_answer(q, &answer);
}

static void on_resolved(struct pv_resolve_wait *w, const struct pv_resolved *found)
{
        struct question *q = PV_CONTAINER_OF(w, struct question, wait);
        if (found->status == PV_RESOLVE_FOUND) {
                answer_synthetic(q);
        } else {
                enum pv_dns_rcode rcode = found->status == PV_RESOLVE_NO_NAME ? PV_DNS_NXDOMAIN : PV_DNS_SERVFAIL;
                send_answer(q, &(struct pv_dns_answer){ .rcode = rcode });
        }
        q->server->n_questions--;
        if (q->stream)
                q->stream->waiting--; /* freed by the next tick, not here: this turn may still hold it */
        free(q);
}

static bool is_localhost(const char *name)
{
        return pv_streq(name, "localhost") || pv_str_has_suffix(name, ".localhost"); /* RFC 6761, 6.3 */
}

static const struct pv_netaddr local[2] = { { { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 } }, { { [15] = 1 } } };

static bool is_local(const struct pv_dns_server *d, const char *name)
{
        return is_localhost(name) || (d->own_name[0] && pv_streq(name, d->own_name));
}

static bool is_reverse(const struct pv_dns_query *q)
{
        return q->type == PV_DNS_PTR || pv_str_has_suffix(q->name, ".in-addr.arpa") ||
               pv_str_has_suffix(q->name, ".ip6.arpa");
}

/* The address back to the name that it was given to; nothing else has a reverse name here. */
static void answer_reverse(const struct question *q)
{
        struct pv_netaddr a;
        struct pv_dns_answer answer = { .rcode = PV_DNS_NXDOMAIN, .ttl = TTL_S };
        if (pv_dns_reverse_address(q->query.name, &a)) {
                bool own = memcmp(&a, &local[0], sizeof a) == 0 || memcmp(&a, &local[1], sizeof a) == 0;
                answer.pointer = own ? "localhost" : pv_names_find(q->server->plane->names, &a);
        }
        if (answer.pointer)
                answer.rcode = PV_DNS_NOERROR;
        send_answer(q, &answer);
}

/* Resolvers ask for both families of one name: that is one refusal. */
static bool is_other_family_of_last(struct pv_dns_server *d, const struct pv_dns_query *q)
{
        uint64_t now = d->plane->loop.now_us / 1000;
        bool same = now - d->last_ms < SAME_LOOKUP_MS && d->last_type != q->type && d->last_type != 0 &&
                    pv_streq(d->last_name, q->name);
        d->last_ms = now;
        d->last_type = same ? 0 : q->type;
        memcpy(d->last_name, q->name, sizeof d->last_name);
        return same;
}

static void refuse(const struct question *q, const struct pv_verdict *v)
{
        if (!is_other_family_of_last(q->server, &q->query))
                pv_tally_note(q->server->plane->tally,
                              &(struct pv_flow_record){
                                      .end = PV_FLOW_REFUSED, .via = PV_VIA_DNS, .name = q->query.name, .verdict = v });
        send_answer(q, &(struct pv_dns_answer){ .rcode = PV_DNS_NXDOMAIN, .blocked = true });
}

/* Answers at once where that can be done; false: the name is to be looked up outside. */
static bool answer_now(const struct question *q)
{
        struct pv_plane *p = q->server->plane;
        const char *name = q->query.name;
        bool host = pv_streq(name, PV_PLANE_HOST_NAME);
        if (!q->query.name_ok) {
                send_answer(q, &(struct pv_dns_answer){ .rcode = PV_DNS_NXDOMAIN });
        } else if (is_reverse(&q->query)) {
                answer_reverse(q);
        } else if (is_local(q->server, name)) {
                send_answer(q, &(struct pv_dns_answer){ .addrs = local, .n_addrs = 2, .ttl = TTL_S });
        } else if (host && pv_plane_allows_host_port(&p->policy, 0)) {
                answer_synthetic(q);
        } else {
                struct pv_verdict v = pv_match_name(&p->policy, name);
                if (v.kind == PV_VERDICT_ALLOWED && !host)
                        return false;
                if (v.kind == PV_VERDICT_ALLOWED) /* the host's own name, which no rule names */
                        v = (struct pv_verdict){ .kind = PV_VERDICT_NOT_ALLOWED, .layer = "base" };
                refuse(q, &v);
        }
        return true;
}

/* One message, from a datagram or a stream. `from` holds where the answer goes. */
static void handle(struct pv_dns_server *d, const uint8_t *msg, size_t len, const struct question *from)
{
        struct question q = *from;
        enum pv_dns_rcode rcode = PV_DNS_NOERROR;
        enum pv_dns_parse kind = pv_dns_parse_query(msg, len, &q.query, &rcode);
        if (kind == PV_DNS_DROP)
                return;
        q.server = d;
        memcpy(q.message, msg, len < sizeof q.message ? len : sizeof q.message);
        if (kind == PV_DNS_ERROR || d->n_questions == QUESTIONS) {
                send_answer(&q, &(struct pv_dns_answer){ .rcode = kind == PV_DNS_ERROR ? rcode : PV_DNS_SERVFAIL });
                return;
        }
        if (answer_now(&q))
                return;
        struct question *kept = pv_calloc(1, sizeof *kept);
        *kept = q;
        kept->wait.done = on_resolved;
        d->n_questions++;
        if (kept->stream)
                kept->stream->waiting++;
        pv_resolver_ask(d->plane->resolver, kept->query.name, &kept->wait);
}

static void serve_udp(struct pv_dns_server *d, int fd)
{
        static uint8_t msg[UDP_MESSAGE];
        for (int i = 0; i < UDP_BATCH; i++) {
                struct question q = { .fd = fd, .peer_len = sizeof q.peer };
                ssize_t n = recvfrom(fd, msg, sizeof msg, MSG_DONTWAIT, (struct sockaddr *)&q.peer, &q.peer_len);
                if (n < 0)
                        return;
                handle(d, msg, (size_t)n, &q);
        }
}

static void udp4_ready(struct pv_watch *w, uint32_t events)
{
        (void)events;
        serve_udp(PV_CONTAINER_OF(w, struct pv_dns_server, udp[0]), w->fd);
}

static void udp6_ready(struct pv_watch *w, uint32_t events)
{
        (void)events;
        serve_udp(PV_CONTAINER_OF(w, struct pv_dns_server, udp[1]), w->fd);
}

/* All whole messages in the buffer. */
static void consume(struct stream *s)
{
        while (!s->closed && s->len >= 2) {
                size_t n = (size_t)s->buf[0] << 8 | s->buf[1];
                if (n > UDP_MESSAGE) {
                        stream_close(s); /* no question is that long */
                        return;
                }
                if (s->len < n + 2)
                        return;
                handle(s->server, s->buf + 2, n, &(struct question){ .stream = s });
                memmove(s->buf, s->buf + 2 + n, s->len - 2 - n);
                s->len -= 2 + n;
        }
}

static void stream_ready(struct pv_watch *w, uint32_t events)
{
        struct stream *s = PV_CONTAINER_OF(w, struct stream, watch);
        ssize_t n = recv(w->fd, s->buf + s->len, sizeof s->buf - s->len, 0);
        (void)events;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                stream_close(s);
                return; /* freed by the next tick: the loop may still hold it in this turn */
        }
        s->len += (size_t)n;
        s->deadline_ms = s->server->plane->loop.now_us / 1000 + STREAM_MS;
        consume(s);
}

static void set_tcp_doors(struct pv_dns_server *d, uint32_t events)
{
        d->reopen_ms = events ? 0 : d->plane->loop.now_us / 1000 + SHUT_MS;
        for (size_t i = 0; i < 2; i++)
                (void)pv_loop_set(&d->plane->loop, &d->tcp[i], events);
}

static void serve_tcp(struct pv_dns_server *d, int listener)
{
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                set_tcp_doors(d, 0); /* no room: asked again by the next tick that finds the pause over */
        if (fd < 0)
                return;
        if (d->n_streams == STREAMS) {
                pv_relay_reset(fd);
                return;
        }
        struct stream *s = pv_calloc(1, sizeof *s);
        s->watch = (struct pv_watch){ .fd = fd, .ready = stream_ready };
        s->server = d;
        s->deadline_ms = d->plane->loop.now_us / 1000 + STREAM_MS;
        s->next = d->streams;
        d->streams = s;
        d->n_streams++;
        if (pv_loop_add(&d->plane->loop, &s->watch, EPOLLIN) < 0)
                stream_close(s);
}

static void tcp4_ready(struct pv_watch *w, uint32_t events)
{
        (void)events;
        serve_tcp(PV_CONTAINER_OF(w, struct pv_dns_server, tcp[0]), w->fd);
}

static void tcp6_ready(struct pv_watch *w, uint32_t events)
{
        (void)events;
        serve_tcp(PV_CONTAINER_OF(w, struct pv_dns_server, tcp[1]), w->fd);
}

int pv_dns_server_start(struct pv_plane *p, struct pv_err *err)
{
        const int *fd = p->spec->sockets.fd;
        struct pv_dns_server *d = pv_calloc(1, sizeof *d);
        d->plane = p;
        p->dns = d;
        char host[HOST_NAME_MAX + 1] = "";
        if (gethostname(host, sizeof host - 1) < 0 || !pv_netrule_fold_name(host, strlen(host), d->own_name))
                d->own_name[0] = '\0';
        d->udp[0] = (struct pv_watch){ .fd = fd[PV_NETNS_DNS_UDP4], .ready = udp4_ready };
        d->udp[1] = (struct pv_watch){ .fd = fd[PV_NETNS_DNS_UDP6], .ready = udp6_ready };
        d->tcp[0] = (struct pv_watch){ .fd = fd[PV_NETNS_DNS_TCP4], .ready = tcp4_ready };
        d->tcp[1] = (struct pv_watch){ .fd = fd[PV_NETNS_DNS_TCP6], .ready = tcp6_ready };
        for (size_t i = 0; i < 2; i++)
                if ((d->udp[i].fd >= 0 && pv_loop_add(&p->loop, &d->udp[i], EPOLLIN) < 0) ||
                    (d->tcp[i].fd >= 0 && pv_loop_add(&p->loop, &d->tcp[i], EPOLLIN) < 0))
                        return pv_err_set(err, PV_ERR_SYS, errno, "watch the name server's sockets");
        return 0;
}

void pv_dns_server_tick(struct pv_plane *p)
{
        if (!p->dns)
                return;
        uint64_t now = p->loop.now_us / 1000;
        for (struct stream *s = p->dns->streams, *next; s; s = next) {
                next = s->next;
                if (now >= s->deadline_ms)
                        stream_close(s);
                stream_release(s);
        }
        if (p->dns->reopen_ms && now >= p->dns->reopen_ms)
                set_tcp_doors(p->dns, EPOLLIN);
}

int pv_dns_server_timeout(const struct pv_plane *p)
{
        return !p->dns ? -1 : p->dns->reopen_ms ? SHUT_MS : p->dns->streams ? 1000 : -1;
}

void pv_dns_server_free(struct pv_plane *p)
{
        if (!p->dns)
                return;
        for (struct stream *s = p->dns->streams, *next; s; s = next) {
                next = s->next;
                stream_close(s);
        }
        /* Streams and questions that wait for a thread's answer stay: the process ends now. */
        for (size_t i = 0; i < 2; i++) {
                pv_loop_remove(&p->loop, &p->dns->udp[i]);
                pv_loop_remove(&p->loop, &p->dns->tcp[i]);
        }
}
