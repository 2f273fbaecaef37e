/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory: a lookup is in the table from the question until its answer has expired. While it is under way it is either
 * one of the few that the program was asked (`asked`) or in the queue behind them. What the program says is taken when
 * it is of the right form and answers what was asked; anything else ends the program, and with it all that was under
 * way. The program's socket changes with the program, so that the loop watches an epoll(7) descriptor that holds it.
 */
#include "net/resolve.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/syscall.h"
#include "net/resolve_packet.h"

#define BUCKETS   512
#define KEEP_MS   10000 /* an answer; failures and missing names a tenth of it */
#define KNOWN_MAX 4096  /* answers kept */
#define AGAIN_MS  1000  /* between two starts of the program */
#define VARIABLES 3

struct lookup {
        struct lookup *next_in_bucket, *next_in_queue;
        struct pv_resolve_wait *waiting;
        bool under_way;
        uint64_t expires_ms;
        struct pv_resolved answer;
        char name[];
};

struct queue {
        struct lookup *first, **end;
};

struct pv_resolver {
        struct lookup *bucket[BUCKETS];
        size_t n_under_way, n_known;
        int program;
        int ready;           /* epoll: holds the socket */
        int socket;          /* to the program that runs; -1: none does */
        pid_t pid;           /* its; 0 */
        uint64_t next_start; /* not before (CLOCK_MONOTONIC, ms) */
        uint32_t number;     /* of the last question */
        struct {
                uint32_t number;
                struct lookup *lookup; /* NULL: free */
        } asked[PV_RESOLVE_AT_ONCE];
        struct queue queue;
};

static const struct pv_resolved failed = { .status = PV_RESOLVE_FAILED };

static void put(struct queue *q, struct lookup *l)
{
        l->next_in_queue = NULL;
        *q->end = l;
        q->end = &l->next_in_queue;
}

static struct lookup *take(struct queue *q)
{
        struct lookup *l = q->first;
        if (l) {
                q->first = l->next_in_queue;
                if (!q->first)
                        q->end = &q->first;
        }
        return l;
}

int pv_resolver_new(int program, struct pv_resolver **out, struct pv_err *err)
{
        int ready = epoll_create1(EPOLL_CLOEXEC);
        if (ready < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start the resolver");
        struct pv_resolver *r = pv_calloc(1, sizeof *r);
        r->program = program;
        r->ready = ready;
        r->socket = -1;
        r->queue.end = &r->queue.first;
        *out = r;
        return 0;
}

int pv_resolver_fd(const struct pv_resolver *r)
{
        return r->ready;
}

/* ---- the program ---- */

/* All that the person's environment may say to a resolver (resolv.conf(5), hostname(7)). */
static void list_variables(char *out[VARIABLES + 1])
{
        static const char *const names[VARIABLES] = { "RES_OPTIONS=", "LOCALDOMAIN=", "HOSTALIASES=" };
        size_t n = 0;
        for (size_t i = 0; i < VARIABLES; i++)
                for (char **e = environ; *e; e++)
                        if (strncmp(*e, names[i], strlen(names[i])) == 0) {
                                out[n++] = *e;
                                break;
                        }
        out[n] = NULL;
}

/* In the child. Nothing of the plane's goes along but the socket. */
static _Noreturn void become_program(const struct pv_resolver *r, int socket, char **variables, pid_t plane)
{
        char name[] = PV_RESOLVE_PROGRAM;
        char *argv[] = { name, NULL };
        sigset_t none;
        (void)sigemptyset(&none);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != plane || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            sigprocmask(SIG_SETMASK, &none, NULL) < 0)
                _exit(127);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        int high = fcntl(socket, F_DUPFD_CLOEXEC, PV_RESOLVE_FD + 1);
        int program = fcntl(r->program, F_DUPFD_CLOEXEC, PV_RESOLVE_FD + 1);
        for (int i = 0; i < 3; i++)
                if (dup2(null, i) < 0)
                        _exit(127);
        if (dup2(high, PV_RESOLVE_FD) < 0 || pv_sys_close_range(PV_RESOLVE_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
                _exit(127);
        (void)fexecve(program, argv, variables);
        _exit(127);
}

/* True when one runs then. */
static bool have_program(struct pv_resolver *r)
{
        uint64_t now = pv_clock_monotonic_ms();
        struct epoll_event readable = { .events = EPOLLIN };
        char *variables[VARIABLES + 1];
        int pair[2];
        if (r->socket >= 0)
                return true;
        if (r->program < 0 || now < r->next_start)
                return false;
        r->next_start = now + AGAIN_MS;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return false;
        pv_auto_fd ours = pair[0], its = pair[1];
        list_variables(variables);
        if (epoll_ctl(r->ready, EPOLL_CTL_ADD, ours, &readable) < 0)
                return false;
        pid_t plane = getpid(), pid = fork();
        if (pid == 0)
                become_program(r, its, variables, plane);
        if (pid < 0)
                return false;
        r->pid = pid;
        r->socket = pv_fd_steal(&ours);
        return true;
}

/* Asks as much of the queue as may be asked at once. That the program is gone is seen where answers are read. */
static void ask_more(struct pv_resolver *r)
{
        for (size_t i = 0; i < PV_RESOLVE_AT_ONCE; i++) {
                struct lookup *l = r->asked[i].lookup ? NULL : take(&r->queue);
                if (!l)
                        continue;
                struct pv_resolve_question q = { .number = ++r->number };
                memcpy(q.name, l->name, strlen(l->name));
                r->asked[i].lookup = l;
                r->asked[i].number = q.number;
                (void)send(r->socket, &q, sizeof q, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
}

/* ---- answers ---- */

static void settle(struct pv_resolver *r, struct lookup *l, const struct pv_resolved *resolved)
{
        l->answer = *resolved;
        struct pv_resolved answer = *resolved; /* l may be freed by what a waiter asks next */
        l->expires_ms = pv_clock_monotonic_ms() + (answer.status == PV_RESOLVE_FOUND ? KEEP_MS : KEEP_MS / 10);
        r->n_under_way--;
        r->n_known++;
        while (l->waiting) { /* under way until all were told: find() keeps it */
                struct pv_resolve_wait *w = l->waiting;
                l->waiting = w->next;
                w->lookup = NULL;
                w->done(w, &answer);
        }
        l->under_way = false;
}

static void end_program(struct pv_resolver *r)
{
        pv_fd_closep(&r->socket);
        pv_pid_killp(&r->pid);
}

/* The program is gone, or cannot be believed. What waiters ask while they are told is asked of the next one. */
static void fail_all(struct pv_resolver *r)
{
        struct queue lost = { .end = &lost.first };
        struct lookup *l;
        end_program(r);
        for (size_t i = 0; i < PV_RESOLVE_AT_ONCE; i++)
                if (r->asked[i].lookup)
                        put(&lost, pv_steal(&r->asked[i].lookup));
        while ((l = take(&r->queue)))
                put(&lost, l);
        while ((l = take(&lost)))
                settle(r, l, &failed);
}

static bool is_well_formed(const struct pv_resolve_answer *a, size_t size)
{
        if (size != sizeof *a || a->answer.n > PV_RESOLVE_ADDRESSES)
                return false;
        switch (a->answer.status) {
        case PV_RESOLVE_FOUND:
                return a->answer.n > 0;
        case PV_RESOLVE_NO_NAME:
        case PV_RESOLVE_FAILED:
                return a->answer.n == 0;
        }
        return false;
}

/* The lookup that this answers, which is asked no more; NULL: none. */
static struct lookup *take_asked(struct pv_resolver *r, const struct pv_resolve_answer *a)
{
        for (size_t i = 0; i < PV_RESOLVE_AT_ONCE; i++)
                if (r->asked[i].lookup && r->asked[i].number == a->number)
                        return pv_steal(&r->asked[i].lookup);
        return NULL;
}

void pv_resolver_deliver(struct pv_resolver *r)
{
        while (r->socket >= 0) {
                struct pv_resolve_answer a;
                ssize_t n = recv(r->socket, &a, sizeof a, MSG_DONTWAIT | MSG_TRUNC);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                struct lookup *l = n > 0 && is_well_formed(&a, (size_t)n) ? take_asked(r, &a) : NULL;
                if (!l) {
                        fail_all(r);
                        return;
                }
                ask_more(r);
                settle(r, l, &a.answer);
        }
}

/* ---- questions ---- */

static struct lookup **bucket_of(struct pv_resolver *r, const char *name)
{
        size_t h = 5381;
        for (const char *p = name; *p; p++)
                h = h * 33 ^ (unsigned char)*p;
        return &r->bucket[h % BUCKETS];
}

/* The lookup of this name; what has expired in its bucket goes on the way. */
static struct lookup *find(struct pv_resolver *r, const char *name)
{
        struct lookup *found = NULL;
        uint64_t now = pv_clock_monotonic_ms();
        for (struct lookup **at = bucket_of(r, name); *at;) {
                struct lookup *l = *at;
                if (!l->under_way && (l->expires_ms <= now || r->n_known > KNOWN_MAX)) {
                        *at = l->next_in_bucket;
                        r->n_known--;
                        free(l);
                        continue;
                }
                if (pv_streq(l->name, name))
                        found = l;
                at = &l->next_in_bucket;
        }
        return found;
}

/* Known at once when there is nobody to ask. */
static struct lookup *start(struct pv_resolver *r, const char *name)
{
        size_t n = strlen(name);
        struct lookup *l = pv_calloc(1, sizeof *l + n + 1);
        memcpy(l->name, name, n);
        l->under_way = true;
        r->n_under_way++;
        struct lookup **bucket = bucket_of(r, name);
        l->next_in_bucket = *bucket;
        *bucket = l;
        if (n > PV_NETRULE_NAME_MAX || !have_program(r)) {
                settle(r, l, &failed);
                return l;
        }
        put(&r->queue, l);
        ask_more(r);
        return l;
}

void pv_resolver_ask(struct pv_resolver *r, const char *name, struct pv_resolve_wait *w)
{
        struct lookup *l = find(r, name);
        w->lookup = NULL;
        if (!l && r->n_under_way == PV_RESOLVE_WAITING) {
                w->done(w, &failed);
                return;
        }
        if (!l)
                l = start(r, name);
        if (!l->under_way) {
                struct pv_resolved answer = l->answer; /* l may be freed by what w asks next */
                w->done(w, &answer);
                return;
        }
        w->next = l->waiting;
        w->lookup = l;
        l->waiting = w;
}

void pv_resolver_forget(struct pv_resolver *r, struct pv_resolve_wait *w)
{
        struct lookup *l = w->lookup;
        (void)r;
        if (!l)
                return;
        for (struct pv_resolve_wait **at = &l->waiting; *at; at = &(*at)->next)
                if (*at == w) {
                        *at = w->next;
                        break;
                }
        w->lookup = NULL;
}

void pv_resolver_free(struct pv_resolver *r)
{
        if (!r)
                return;
        end_program(r);
        for (size_t i = 0; i < BUCKETS; i++)
                for (struct lookup *l = r->bucket[i], *next; l; l = next) {
                        next = l->next_in_bucket;
                        free(l);
                }
        pv_fd_closep(&r->ready);
        free(r);
}
