/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Actors. The sandbox (hostile) lives in a network namespace in which nothing but lo exists. The launcher, before
 * anything hostile runs, gave it routes, rules and listening sockets (netns.c, nft.c) and passed the sockets out. The
 * data plane is a process of its own in the host's namespaces, with the person's rights and none over the sandbox; it
 * is not in the sandbox's process table.
 *
 * Way of a connection. The kernel inside terminates TCP: connect(2) to any address is redirected to our listening
 * socket. We read the original destination from connection tracking, find the name that a synthetic address stands
 * for (names.c), ask the policy (match.c), resolve the name with the host's resolver (resolve.c, main_resolve.c: a
 * process of its own), ask the policy again for each address that came out, connect from the host and move the bytes
 * (relay.c). flow.c holds that sequence; dns_serve.c answers the questions.
 *
 * What cannot be passed by: there is no route but into lo, and no rule set that lets a packet to another address keep
 * it; losing the rules (a flush needs a capability that nobody inside has) leaves packets that nobody answers. A name
 * is bound to its address for the whole run, and the real address is judged after it was resolved, so answers that
 * change find no handle.
 *
 * Grants. What the person allows or publishes while it runs comes from the supervisor (orders.c): it is added to our
 * copy of the policy and, by the netlink socket that the launcher opened inside, to the kernel's rules; deny rules
 * stay before it.
 *
 * Bounds, since the sandbox chooses how much: connections, names, questions, targets and lines in the record, the
 * head of a proxy request, time to connect. Bytes that one side does not take stop the other. When descriptors run
 * out, connections are reset at once and the record says so; some are kept from connections, so that names can always
 * be resolved.
 *
 * Death. Without this process its sockets are closed: connections are reset, new ones are refused, names are not
 * answered. The sandbox stays as closed as it was; the supervisor says so at the end. It dies with the supervisor
 * (PR_SET_PDEATHSIG).
 *
 * End. The supervisor shuts its half of the control stream down when the sandbox is dead. What the sandbox sent
 * before and the far end has not yet taken is still delivered, for at most LINGER_MS; then the sums go out through
 * the control stream.
 */
#include "net/plane.h"

#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "net/orders.h"
#include "net/plane_internal.h"

#define ACCEPT_BATCH 64
#define LINGER_MS    2000
#define LOG_BATCH    1024
#define SHUT_MS      100
#define DESCRIPTORS  65536 /* two a connection and a few */
#define OTHERS       256   /* descriptors for all else: the resolver's, the name server's connections */

/* A listening socket and what becomes of its connections. */
struct pv_door {
        struct pv_watch watch;
        struct pv_plane *plane;
        enum { DOOR_REDIRECTED4, DOOR_REDIRECTED6, DOOR_PROXY, DOOR_PUBLISHED, DOOR_HOST_PORT } kind;
        uint16_t port;
};

struct control {
        struct pv_watch watch;
        bool ended;
};

static void admit(struct pv_door *d, int fd)
{
        switch (d->kind) {
        case DOOR_REDIRECTED4:
        case DOOR_REDIRECTED6:
                pv_flow_accept_redirected(d->plane, fd, d->kind == DOOR_REDIRECTED6);
                break;
        case DOOR_PROXY:
                pv_flow_accept_proxied(d->plane, fd);
                break;
        case DOOR_PUBLISHED:
                pv_flow_accept_published(d->plane, fd, d->port);
                break;
        case DOOR_HOST_PORT:
                pv_flow_accept_host_port(d->plane, fd, d->port);
                break;
        }
}

static void shut_doors(struct pv_plane *p, uint64_t until_ms)
{
        for (size_t i = 0; i < p->n_doors; i++)
                (void)pv_loop_set(&p->loop, &p->doors[i]->watch, 0);
        p->reopen_ms = until_ms;
}

static void open_doors(struct pv_plane *p)
{
        p->reopen_ms = 0;
        for (size_t i = 0; i < p->n_doors; i++)
                if (pv_loop_set(&p->loop, &p->doors[i]->watch, EPOLLIN) < 0)
                        p->reopen_ms = p->loop.now_us / 1000 + SHUT_MS;
}

/*
 * There is no room: a connection left in the queue would wait for ever, so one is taken in with the spare descriptor
 * and reset. Should even that fail (the machine's own limit), the queue is left alone for a moment, not asked without
 * pause.
 */
static void turn_away(struct pv_plane *p, int listener)
{
        uint64_t now = p->loop.now_us / 1000;
        pv_fd_closep(&p->reserve);
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
                pv_relay_reset(fd);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
                shut_doors(p, now + SHUT_MS);
        p->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (now - p->exhausted_ms >= 1000 || p->exhausted_ms == 0) {
                pv_tally_note(p->tally, &(struct pv_flow_record){ .end = PV_FLOW_FAILED,
                                                                  .name = "(any)",
                                                                  .text = "too many connections at once" });
                p->exhausted_ms = now;
        }
}

static bool out_of_room(int error)
{
        return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void door_ready(struct pv_watch *w, uint32_t events)
{
        struct pv_door *d = PV_CONTAINER_OF(w, struct pv_door, watch);
        struct pv_plane *p = d->plane;
        (void)events;
        for (int i = 0; i < ACCEPT_BATCH && p->reopen_ms == 0; i++) {
                if (p->n_flows >= p->most_flows) {
                        turn_away(p, w->fd);
                        return;
                }
                int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd >= 0)
                        admit(d, fd);
                else if (out_of_room(errno))
                        turn_away(p, w->fd);
                else if (errno != ECONNABORTED && errno != EINTR)
                        return;
        }
}

static void resolver_ready(struct pv_watch *w, uint32_t events);

struct resolver_watch {
        struct pv_watch watch;
        struct pv_plane *plane;
};

static void resolver_ready(struct pv_watch *w, uint32_t events)
{
        (void)events;
        pv_resolver_deliver(PV_CONTAINER_OF(w, struct resolver_watch, watch)->plane->resolver);
}

struct log_watch {
        struct pv_watch watch;
        struct pv_plane *plane;
};

static void note_refused(void *ctx, const struct pv_nflog_packet *packet)
{
        pv_flow_note_refused(ctx, packet);
}

static void log_ready(struct pv_watch *w, uint32_t events)
{
        (void)events;
        for (int i = 0; i < LOG_BATCH; i++)
                if (!pv_nflog_read(w->fd, note_refused, PV_CONTAINER_OF(w, struct log_watch, watch)->plane))
                        return;
}

struct orders_watch {
        struct pv_watch watch;
        struct pv_plane *plane;
};

static void orders_ready(struct pv_watch *w, uint32_t events)
{
        struct pv_plane *p = PV_CONTAINER_OF(w, struct orders_watch, watch)->plane;
        (void)events;
        if (!pv_plane_obey(p, w->fd))
                pv_loop_remove(&p->loop, w);
}

static void control_ready(struct pv_watch *w, uint32_t events)
{
        char unused[64];
        (void)events;
        if (recv(w->fd, unused, sizeof unused, MSG_DONTWAIT) <= 0)
                PV_CONTAINER_OF(w, struct control, watch)->ended = true;
}

/* As many as the person may have, and what that means in connections. */
static size_t raise_descriptor_limit(void)
{
        struct rlimit r;
        if (getrlimit(RLIMIT_NOFILE, &r) < 0)
                return PV_PLANE_FLOWS;
        struct rlimit more = r;
        more.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max > DESCRIPTORS ? DESCRIPTORS : r.rlim_max;
        if (more.rlim_cur > r.rlim_cur && setrlimit(RLIMIT_NOFILE, &more) == 0)
                r = more;
        size_t n = r.rlim_cur > DESCRIPTORS ? DESCRIPTORS : (size_t)r.rlim_cur;
        size_t flows = n > 2 * OTHERS ? (n - OTHERS) / 2 : n / 4;
        return flows > PV_PLANE_FLOWS ? PV_PLANE_FLOWS : flows;
}

static struct pv_door *add_door(struct pv_plane *p, int fd, int kind, uint16_t port)
{
        struct pv_door *d = pv_calloc(1, sizeof *d);
        *d = (struct pv_door){ .watch = { .fd = fd, .ready = door_ready }, .plane = p, .kind = kind, .port = port };
        p->doors = pv_realloc(p->doors, p->n_doors + 1, sizeof(struct pv_door *));
        p->doors[p->n_doors++] = d;
        return d;
}

static void list_doors(struct pv_plane *p)
{
        const struct pv_plane_spec *s = p->spec;
        static const struct {
                enum pv_netns_socket socket;
                int kind;
        } own[] = {
                { PV_NETNS_TCP4, DOOR_REDIRECTED4 },
                { PV_NETNS_TCP6, DOOR_REDIRECTED6 },
                { PV_NETNS_PROXY4, DOOR_PROXY },
                { PV_NETNS_PROXY6, DOOR_PROXY },
        };
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
                if (s->sockets.fd[own[i].socket] >= 0)
                        (void)add_door(p, s->sockets.fd[own[i].socket], own[i].kind, 0);
        for (size_t i = 0; i < s->n_publish; i++)
                (void)add_door(p, s->publish[i].fd, DOOR_PUBLISHED, s->publish[i].port);
        for (size_t i = 0; i < s->n_host_ports; i++)
                for (size_t k = 0; k < 2; k++)
                        (void)add_door(p, s->host_ports[i].fd[k], DOOR_HOST_PORT, s->host_ports[i].port);
}

int pv_plane_publish(struct pv_plane *p, int listener, uint16_t port, struct pv_err *err)
{
        if (p->spec->sockets_from < 0)
                return pv_err_set(err, PV_ERR_STATE, 0, "nobody makes sockets inside");
        struct pv_door *d = add_door(p, listener, DOOR_PUBLISHED, port);
        if (pv_loop_add(&p->loop, &d->watch, p->reopen_ms ? 0 : EPOLLIN) == 0)
                return 0;
        p->n_doors--;
        free(d);
        return pv_err_set(err, PV_ERR_SYS, errno, "watch a published port");
}

static void make_rates(struct pv_plane *p)
{
        size_t n = 2 * p->policy.n_limits;
        p->rates = pv_calloc(n, sizeof *p->rates);
        for (size_t i = 0; i < n; i++)
                pv_rate_init(&p->rates[i], p->policy.limits[i / 2].bytes_per_second, p->loop.now_us);
}

static int sooner(int a, int b)
{
        return a < 0 ? b : b < 0 || a < b ? a : b;
}

static int turn(struct pv_plane *p, int most_ms, struct pv_err *err)
{
        int ms = sooner(sooner(most_ms, pv_flow_timeout(p)),
                        sooner(pv_dns_server_timeout(p), p->reopen_ms ? SHUT_MS : -1));
        if (pv_loop_turn(&p->loop, ms, err) < 0)
                return -1;
        pv_flow_tick(p);
        pv_dns_server_tick(p);
        pv_flow_bury(p);
        if (p->reopen_ms && p->loop.now_us / 1000 >= p->reopen_ms)
                open_doors(p);
        return 0;
}

/* The sandbox is dead: what it sent is still delivered, nothing new is taken in. */
static int linger(struct pv_plane *p, struct pv_err *err)
{
        uint64_t end = p->loop.now_us + LINGER_MS * 1000;
        p->reopen_ms = 0;
        for (size_t i = 0; i < p->n_doors; i++)
                door_ready(&p->doors[i]->watch, EPOLLIN); /* what still waits in the queue was sent before the end */
        shut_doors(p, UINT64_MAX);
        while (pv_flow_any_unsent(p) && p->loop.now_us < end)
                if (turn(p, 20, err) < 0)
                        return -1;
        pv_flow_end_all(p);
        pv_flow_bury(p);
        return 0;
}

static int serve(struct pv_plane *p, struct pv_err *err)
{
        struct resolver_watch resolver = { .watch = { .fd = pv_resolver_fd(p->resolver), .ready = resolver_ready },
                                           .plane = p };
        struct control control = { .watch = { .fd = p->spec->control, .ready = control_ready } };
        struct log_watch log = { .watch = { .fd = p->spec->sockets.log, .ready = log_ready }, .plane = p };
        struct orders_watch orders = { .watch = { .fd = p->spec->orders, .ready = orders_ready }, .plane = p };
        int failed = pv_loop_add(&p->loop, &resolver.watch, EPOLLIN) < 0 ||
                     pv_loop_add(&p->loop, &orders.watch, EPOLLIN) < 0 ||
                     pv_loop_add(&p->loop, &control.watch, EPOLLIN) < 0 ||
                     pv_loop_add(&p->loop, &log.watch, EPOLLIN) < 0;
        for (size_t i = 0; i < p->n_doors && !failed; i++)
                failed = pv_loop_add(&p->loop, &p->doors[i]->watch, EPOLLIN) < 0;
        int r = failed ? pv_err_set(err, PV_ERR_SYS, errno, "watch the sockets") : 0;
        while (r == 0 && !control.ended)
                r = turn(p, -1, err);
        if (log.watch.fd >= 0)
                log_ready(&log.watch,
                          EPOLLIN); /* all that the kernel refused before the sandbox's end is there by now */
        return r == 0 ? linger(p, err) : r;
}

static int report(struct pv_plane *p, struct pv_err *err)
{
        pv_auto_json summary = pv_tally_summary(p->tally);
        pv_auto_free char *text = summary ? json_dumps(summary, JSON_COMPACT) : NULL;
        if (!text)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "sum up the network");
        return pv_fd_write_all(p->spec->control, text, strlen(text), "the network's sums", err);
}

int pv_plane_run(const struct pv_plane_spec *spec, struct pv_err *err)
{
        struct pv_plane p = { .spec = spec, .policy = *spec->policy };
        if (prctl(PR_SET_DUMPABLE, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "network: become undumpable");
        p.most_flows = raise_descriptor_limit();
        p.reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
        p.relays = (struct pv_relay_pool){ .loop = &p.loop, .buffer = pv_calloc(PV_RELAY_BUFFER, 1) };
        p.names = pv_names_new();
        p.tally = pv_tally_new(spec->events);
        int r = pv_loop_init(&p.loop, err);
        make_rates(&p);
        list_doors(&p);
        if (r == 0)
                r = pv_resolver_new(spec->resolver, &p.resolver, err);
        if (r == 0)
                r = pv_dns_server_start(&p, err);
        if (r == 0)
                r = serve(&p, err);
        if (r == 0)
                r = report(&p, err);
        pv_dns_server_free(&p);
        pv_resolver_free(p.resolver);
        pv_tally_free(p.tally);
        pv_names_free(p.names);
        pv_own_fini(&p.own);
        pv_loop_fini(&p.loop);
        free(p.relays.buffer);
        free(p.rates);
        for (size_t i = 0; i < p.n_doors; i++)
                free(p.doors[i]);
        free(p.doors);
        pv_netrules_fini(&p.policy.granted);
        pv_fd_closep(&p.reserve);
        return r < 0 ? pv_err_wrap(err, "network") : 0;
}
