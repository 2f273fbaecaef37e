/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory: the loop's thread owns everything but the two queues between it and the workers, which a mutex guards. A
 * lookup is in the table from the question until its answer has expired; its waiters are touched by the loop's thread
 * only, so that forgetting one needs no lock. Workers know a lookup by its address alone and write nothing but its
 * answer, while it is in neither queue.
 */
#include "net/resolve.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include "base/clock.h"
#include "base/fd.h"

#define BUCKETS   512
#define KEEP_MS   10000 /* an answer; failures and missing names a tenth of it */
#define STACK     (256 * 1024)
#define KNOWN_MAX 4096 /* answers kept */

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
        size_t threads, most_threads; /* started when there is work for one more */
        int event;
        pthread_mutex_t mutex; /* guards the queues */
        pthread_cond_t asked_more;
        struct queue asked, answered;
};

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

static void add_address(struct pv_resolved *answer, const struct sockaddr *sa)
{
        struct pv_netaddr a = { { [10] = 0xff, [11] = 0xff } };
        if (answer->n == PV_RESOLVE_ADDRESSES)
                return;
        if (sa->sa_family == AF_INET)
                memcpy(a.b + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
        else if (sa->sa_family == AF_INET6)
                memcpy(a.b, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
        else
                return;
        answer->addr[answer->n++] = a;
}

/* In a worker. The dot at the end keeps the host's search domains out: the sandbox asked for this very name. */
static void look_up(struct lookup *l)
{
        struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list = NULL;
        char absolute[PV_NETRULE_NAME_MAX + 2];
        size_t n = strlen(l->name);
        memcpy(absolute, l->name, n + 1);
        if (strchr(l->name, '.'))
                memcpy(absolute + n, ".", 2);
        int e = getaddrinfo(absolute, NULL, &hints, &list);
        if (e == EAI_NONAME && absolute[n] == '.')
                e = getaddrinfo(l->name, NULL, &hints, &list); /* /etc/hosts knows it without the dot */
        l->answer = (struct pv_resolved){ .status = PV_RESOLVE_FAILED };
        if (e == EAI_NONAME || e == EAI_NODATA)
                l->answer.status = PV_RESOLVE_NO_NAME;
        if (e != 0)
                return;
        for (const struct addrinfo *a = list; a; a = a->ai_next)
                add_address(&l->answer, a->ai_addr);
        l->answer.status = l->answer.n ? PV_RESOLVE_FOUND : PV_RESOLVE_NO_NAME;
        freeaddrinfo(list);
}

static void *work(void *arg)
{
        struct pv_resolver *r = arg;
        for (;;) {
                (void)pthread_mutex_lock(&r->mutex);
                struct lookup *l;
                while (!(l = take(&r->asked)))
                        (void)pthread_cond_wait(&r->asked_more, &r->mutex);
                (void)pthread_mutex_unlock(&r->mutex);
                look_up(l);
                (void)pthread_mutex_lock(&r->mutex);
                put(&r->answered, l);
                (void)pthread_mutex_unlock(&r->mutex);
                (void)eventfd_write(r->event, 1);
        }
        return NULL;
}

int pv_resolver_new(unsigned threads, struct pv_resolver **out, struct pv_err *err)
{
        struct pv_resolver *r = pv_calloc(1, sizeof *r);
        r->most_threads = threads;
        r->asked.end = &r->asked.first;
        r->answered.end = &r->answered.first;
        r->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        (void)pthread_mutex_init(&r->mutex, NULL);
        (void)pthread_cond_init(&r->asked_more, NULL);
        if (r->event < 0) {
                free(r);
                return pv_err_set(err, PV_ERR_SYS, errno, "start the resolver");
        }
        *out = r;
        return 0;
}

/* Most runs ask for a name or two, and many for none. False: there is no thread at all. */
static bool have_thread(struct pv_resolver *r)
{
        pthread_attr_t attr;
        pthread_t thread;
        if (r->threads == r->most_threads || r->threads >= r->n_under_way)
                return true;
        (void)pthread_attr_init(&attr);
        (void)pthread_attr_setstacksize(&attr, STACK);
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attr, work, r) == 0)
                r->threads++;
        (void)pthread_attr_destroy(&attr);
        return r->threads > 0;
}

int pv_resolver_fd(const struct pv_resolver *r)
{
        return r->event;
}

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
        bool asked = have_thread(r);
        if (!asked)
                l->answer = (struct pv_resolved){ .status = PV_RESOLVE_FAILED };
        (void)pthread_mutex_lock(&r->mutex);
        put(asked ? &r->asked : &r->answered, l);
        (void)pthread_cond_signal(&r->asked_more);
        (void)pthread_mutex_unlock(&r->mutex);
        if (!asked)
                (void)eventfd_write(r->event, 1);
        return l;
}

void pv_resolver_ask(struct pv_resolver *r, const char *name, struct pv_resolve_wait *w)
{
        static const struct pv_resolved busy = { .status = PV_RESOLVE_FAILED };
        struct lookup *l = find(r, name);
        w->lookup = NULL;
        if (!l && r->n_under_way == PV_RESOLVE_WAITING) {
                w->done(w, &busy);
                return;
        }
        if (!l)
                l = start(r, name);
        if (!l->under_way) {
                w->done(w, &l->answer);
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

void pv_resolver_deliver(struct pv_resolver *r)
{
        eventfd_t unused;
        (void)eventfd_read(r->event, &unused);
        for (;;) {
                (void)pthread_mutex_lock(&r->mutex);
                struct lookup *l = take(&r->answered);
                (void)pthread_mutex_unlock(&r->mutex);
                if (!l)
                        return;
                struct pv_resolved answer = l->answer; /* l may be freed by what a waiter asks next */
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
}
