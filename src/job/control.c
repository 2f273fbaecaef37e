/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to let the person's other pvisor processes speak with the supervisor of a running job. Not its job: what is
 * asked (verbs.c and the files that it names), and who may ask what: whoever may ask at all may ask everything.
 *
 * Actors. The supervisor serves, within the loop that watches the command (boundary/supervise.c): single-threaded, and
 * nothing here waits. A client is trusted when it is the person's own: it has our uid, and lives in our own user and
 * pid namespaces. The second half is what keeps the command out, whose uid is ours too: with --filesystem host it sees
 * the socket. (With a sandboxed filesystem no view shows the store at all.) A process outside that passes a connection
 * on to the inside is trusted to know why. An ambient run has no inside: its command is the person.
 *
 *   accept -> judge the peer -> one packet -> verb -> answer -> closed
 *                                               \-> kept: packets both ways until either side closes
 *
 * Who the peer is was noted by the kernel at its connect(2), by pid. That pid's namespaces are read from /proc; that it
 * still was the same process then is proved by its pidfd (SO_PEERPIDFD, Linux 6.5). Where there is none a peer that
 * died in between would be judged by whoever got its number, within microseconds.
 *
 * Bounds: a packet's bytes and descriptors, and the number of connections. With all places taken the oldest connection
 * that never asked for anything gives way; were all of them kept by verbs, the new one is told so. An answer that does
 * not fit into the socket's buffer ends its connection: no client can hold the job. Who cannot be taken for want of
 * descriptors stays in the backlog, and the listener rests for a moment: asked again at once it would be ready again.
 *
 * Failure: a supervisor that is killed leaves the socket's name behind, where connect(2) is refused; connections end
 * with it. Clients take both for "does not run any more".
 */
#include "job/control.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include "base/container.h"
#include "base/json.h"
#include "base/log.h"
#include "base/syscall.h"
#include "job/control_packet.h"

/* How long the listener rests, in nanoseconds. */
#define REST_NS 100000000L

struct pv_control_connection {
        struct pv_boundary_watch watch;
        struct pv_control *server;
        const struct pv_control_keeper *keeper; /* NULL: not kept */
        void *own;
        struct pv_control_packet *packet; /* being served */
        unsigned long number;             /* counts up: the oldest has the lowest */
        bool ending;
};

struct pv_control {
        struct pv_boundary_watch listener, rest; /* a timer, made before descriptors are scarce */
        int job_dir;
        struct pv_control_job job; /* job.boundary is NULL until it is served */
        struct pv_control_connection *connections[PV_CONTROL_CONNECTIONS_MAX];
        unsigned long numbers;
};

/*
 * Who it is.
 */

static bool same_namespace(pid_t pid, const char *which)
{
        char path[64];
        struct stat theirs, ours;
        (void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, which);
        if (stat(path, &theirs) < 0)
                return false;
        (void)snprintf(path, sizeof path, "/proc/self/ns/%s", which);
        return stat(path, &ours) == 0 && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
}

static bool is_alive(int pidfd)
{
        struct pollfd p = { .fd = pidfd, .events = POLLIN };
        return poll(&p, 1, 0) == 0;
}

static int judge_peer(int fd, struct pv_err *err)
{
        struct ucred peer;
        socklen_t n = sizeof peer;
        int got = -1;
        socklen_t got_size = sizeof got;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "control socket");
        bool pinned = getsockopt(fd, SOL_SOCKET, PV_SO_PEERPIDFD, &got, &got_size) == 0;
        pv_auto_fd pidfd = pinned ? got : -1;
        if (peer.uid != geteuid())
                return pv_err_set(err, PV_ERR_POLICY, 0, "the job is another user's");
        /* A pid of 0: it is in no pid namespace below ours. */
        if (peer.pid <= 0 || !same_namespace(peer.pid, "user") || !same_namespace(peer.pid, "pid") ||
            (pinned && !is_alive(pidfd)))
                return pv_err_set(err, PV_ERR_POLICY, 0,
                                  "a job is decided on from outside: this process lives in other namespaces than the "
                                  "job's supervisor");
        return 0;
}

/*
 * Connections.
 */

static void connection_free(struct pv_control_connection *c)
{
        struct pv_control *s = c->server;
        const struct pv_control_keeper *keeper = c->keeper;
        c->keeper = NULL;
        if (keeper && keeper->closed)
                keeper->closed(c, c->own);
        pv_boundary_watch_remove(s->job.boundary, &c->watch);
        for (size_t i = 0; i < PV_CONTROL_CONNECTIONS_MAX; i++)
                if (s->connections[i] == c)
                        s->connections[i] = NULL;
        pv_fd_closep(&c->watch.fd);
        free(c);
}

void pv_control_end(struct pv_control_connection *c)
{
        c->ending = true;
        c->watch.events |= POLLOUT; /* comes round at once */
}

void pv_control_keep(struct pv_control_connection *c, const struct pv_control_keeper *keeper, void *own)
{
        c->keeper = keeper;
        c->own = own;
}

bool pv_control_is_gone(const struct pv_control_connection *c)
{
        struct pollfd p = { .fd = c->watch.fd };
        return c->ending || (poll(&p, 1, 0) > 0 && (p.revents & POLLHUP));
}

const struct pv_control_job *pv_control_job_of(const struct pv_control_connection *c)
{
        return &c->server->job;
}

int pv_control_take_fd(struct pv_control_connection *c, size_t i)
{
        return c->packet && i < PV_CONTROL_FDS_MAX ? pv_fd_steal(&c->packet->fds[i]) : -1;
}

static int send_answer(struct pv_control_connection *c, const json_t *body, const int *fds, size_t n_fds)
{
        struct pv_err err = PV_ERR_INIT;
        if (c->ending || !body)
                return -1;
        if (pv_control_packet_send(c->watch.fd, body, fds, n_fds, MSG_DONTWAIT, &err) == 0)
                return 0;
        pv_log_debug("control: %s", err.msg);
        pv_control_end(c);
        return -1;
}

int pv_control_answer(struct pv_control_connection *c, json_t *fields, const int *fds, size_t n_fds)
{
        pv_auto_json body = json_pack("{s:b}", "ok", 1);
        pv_auto_json taken = fields;
        if (taken)
                (void)json_object_update_missing(body, taken);
        return send_answer(c, body, fds, n_fds);
}

void pv_control_refuse(struct pv_control_connection *c, const struct pv_err *failure)
{
        pv_auto_json body = pv_control_error_json(failure);
        (void)send_answer(c, body, NULL, 0);
}

static const struct pv_control_verb *find_verb(const json_t *request, struct pv_err *err)
{
        const char *name = NULL;
        if (pv_json_get_str(request, "verb", &name, err) < 0)
                return NULL;
        for (size_t i = 0; pv_control_verbs[i]; i++)
                if (pv_streq(pv_control_verbs[i]->name, name))
                        return pv_control_verbs[i];
        (void)pv_err_set(err, PV_ERR_USAGE, 0,
                         "the job's supervisor does not know \"%.40s\": it is of another version, pvisor " PV_VERSION,
                         name);
        (void)pv_err_hint(err, "use that one for this job, or wait for its end");
        return NULL;
}

/* 0, or -1 with the error that is the answer. */
static int serve_packet(struct pv_control_connection *c, struct pv_err *err)
{
        if (c->keeper) {
                if (!c->keeper->packet)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "nothing more was asked for");
                return c->keeper->packet(c, c->own, c->packet->body, err);
        }
        const struct pv_control_verb *verb = find_verb(c->packet->body, err);
        return verb ? verb->serve(c, c->packet->body, err) : -1;
}

static void connection_ready(struct pv_boundary_watch *w, short revents)
{
        struct pv_control_connection *c = PV_CONTAINER_OF(w, struct pv_control_connection, watch);
        pv_auto_control_packet packet = PV_CONTROL_PACKET_INIT;
        struct pv_err err = PV_ERR_INIT;
        if (c->ending) {
                connection_free(c);
                return;
        }
        int r = pv_control_packet_receive(w->fd, &packet, MSG_DONTWAIT, &err);
        if (r < 0 && err.kind == PV_ERR_SYS && err.sys == EAGAIN)
                return;
        if (r > 0) {
                c->packet = &packet;
                r = serve_packet(c, &err) < 0 ? -1 : 1;
                c->packet = NULL;
        }
        if (r < 0)
                pv_control_refuse(c, &err);
        if (r <= 0 || !c->keeper || c->ending)
                connection_free(c);
        (void)revents;
}

/* A free place; where there is none, that of the oldest connection which never asked for anything. NULL: none. */
static struct pv_control_connection **find_place(struct pv_control *s)
{
        struct pv_control_connection **oldest = NULL;
        for (size_t i = 0; i < PV_CONTROL_CONNECTIONS_MAX; i++) {
                struct pv_control_connection **c = &s->connections[i];
                if (!*c)
                        return c;
                if (!(*c)->keeper && (!oldest || (*c)->number < (*oldest)->number))
                        oldest = c;
        }
        if (oldest)
                connection_free(*oldest);
        return oldest;
}

static void take_connection(struct pv_control *s, int fd)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_control_connection refused = { .watch.fd = fd };
        struct pv_control_connection **place = NULL;
        if (judge_peer(fd, &err) == 0 && !(place = find_place(s)))
                (void)pv_err_set(&err, PV_ERR_BUSY, 0, "%d others speak with the job's supervisor",
                                 PV_CONTROL_CONNECTIONS_MAX);
        if (!place) {
                pv_control_refuse(&refused, &err);
                pv_fd_closep(&fd);
                return;
        }
        struct pv_control_connection *c = pv_calloc(1, sizeof *c);
        c->watch = (struct pv_boundary_watch){ .fd = fd, .events = POLLIN, .ready = connection_ready };
        c->server = s;
        c->number = s->numbers++;
        if (pv_boundary_watch_add(s->job.boundary, &c->watch) < 0) {
                pv_fd_closep(&fd);
                free(c);
                return;
        }
        *place = c;
}

static void rest_over(struct pv_boundary_watch *w, short revents)
{
        struct pv_control *s = PV_CONTAINER_OF(w, struct pv_control, rest);
        uint64_t times;
        (void)revents;
        (void)!read(w->fd, &times, sizeof times);
        s->listener.events = POLLIN;
}

static void listener_ready(struct pv_boundary_watch *w, short revents)
{
        static const struct itimerspec once = { .it_value = { .tv_nsec = REST_NS } };
        struct pv_control *s = PV_CONTAINER_OF(w, struct pv_control, listener);
        int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        (void)revents;
        if (fd >= 0)
                take_connection(s, fd);
        else if ((errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) &&
                 timerfd_settime(s->rest.fd, 0, &once, NULL) == 0)
                w->events = 0;
}

/*
 * The socket.
 */

static int listen_at(int job_dir, struct pv_err *err)
{
        struct sockaddr_un at = { .sun_family = AF_UNIX };
        pv_auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "control socket");
        /* The store's own path may be longer than an address. */
        (void)snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/" PV_JOB_CONTROL, job_dir);
        mode_t mask = umask(0177);
        int r = bind(fd, (struct sockaddr *)&at, sizeof at);
        int e = errno;
        (void)umask(mask);
        if (r < 0 || listen(fd, PV_CONTROL_CONNECTIONS_MAX) < 0)
                return pv_err_set(err, PV_ERR_SYS, r < 0 ? e : errno, "control socket");
        return pv_fd_steal(&fd);
}

int pv_control_open(int job_dir, struct pv_control **out, struct pv_err *err)
{
        pv_auto_fd timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (timer < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "control socket");
        int fd = listen_at(job_dir, err);
        if (fd < 0)
                return -1;
        struct pv_control *s = pv_calloc(1, sizeof *s);
        s->rest = (struct pv_boundary_watch){ .fd = pv_fd_steal(&timer), .events = POLLIN, .ready = rest_over };
        s->listener = (struct pv_boundary_watch){ .fd = fd, .events = POLLIN, .ready = listener_ready };
        s->job_dir = job_dir;
        *out = s;
        return 0;
}

int pv_control_serve(struct pv_control *s, const struct pv_control_job *job, struct pv_err *err)
{
        s->job = *job;
        if (pv_boundary_watch_add(job->boundary, &s->listener) == 0 &&
            pv_boundary_watch_add(job->boundary, &s->rest) == 0)
                return 0;
        pv_boundary_watch_remove(job->boundary, &s->listener);
        s->job.boundary = NULL;
        return pv_err_set(err, PV_ERR_BUSY, 0, "control socket: too much is watched already");
}

void pv_control_close(struct pv_control *s)
{
        if (!s)
                return;
        (void)unlinkat(s->job_dir, PV_JOB_CONTROL, 0); /* first: who comes now finds that nothing runs */
        for (size_t i = 0; i < PV_CONTROL_CONNECTIONS_MAX; i++)
                if (s->connections[i])
                        connection_free(s->connections[i]);
        if (s->job.boundary) {
                pv_boundary_watch_remove(s->job.boundary, &s->listener);
                pv_boundary_watch_remove(s->job.boundary, &s->rest);
        }
        pv_fd_closep(&s->listener.fd);
        pv_fd_closep(&s->rest.fd);
        free(s);
}
