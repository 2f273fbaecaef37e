/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: libexec/pvisor/pvisor-resolve
 *
 * Job: to ask the host's own resolver for the data plane (resolve.c). It is a program of its own since getaddrinfo(3)
 * loads what nsswitch.conf(5) names, which a statically linked `pvisor` cannot, and since it blocks.
 *
 * Actors. The plane starts it when the first name is asked, with a socket (resolve_packet.h), streams that lead
 * nowhere and three variables of resolv.conf(5). Names are of the sandbox's choice, in their compared form; answers
 * are those of the host's name servers, which the plane judges. Nothing else is shared with it.
 *
 * A thread a question: the plane asks no more than PV_RESOLVE_AT_ONCE before it has an answer. Ends with the plane
 * (PR_SET_PDEATHSIG, which its parent set, and the end of the socket).
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/str.h"
#include "net/resolve_packet.h"

#define STACK (256 * 1024)

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

/* The dot at the end keeps the host's search domains out: the sandbox asked for this very name. */
static void look_up(const char *name, struct pv_resolved *answer)
{
        struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *list = NULL;
        char absolute[PV_NETRULE_NAME_MAX + 2];
        size_t n = strlen(name);
        memcpy(absolute, name, n + 1);
        if (strchr(name, '.'))
                memcpy(absolute + n, ".", 2);
        int e = getaddrinfo(absolute, NULL, &hints, &list);
        if (e == EAI_NONAME && absolute[n] == '.')
                e = getaddrinfo(name, NULL, &hints, &list); /* /etc/hosts knows it without the dot */
        *answer = (struct pv_resolved){ .status = PV_RESOLVE_FAILED };
        if (e == EAI_NONAME || e == EAI_NODATA)
                answer->status = PV_RESOLVE_NO_NAME;
        if (e != 0)
                return;
        for (const struct addrinfo *a = list; a; a = a->ai_next)
                add_address(answer, a->ai_addr);
        answer->status = answer->n ? PV_RESOLVE_FOUND : PV_RESOLVE_NO_NAME;
        freeaddrinfo(list);
}

/* A packet is sent whole or not at all; that there is nobody to take it is seen where questions are read. */
static void say(uint32_t number, const struct pv_resolved *resolved)
{
        struct pv_resolve_answer a;
        memset(&a, 0, sizeof a); /* the gaps too */
        a.number = number;
        a.answer = *resolved;
        while (send(PV_RESOLVE_FD, &a, sizeof a, MSG_NOSIGNAL) < 0 && errno == EINTR)
                ;
}

static void *work(void *arg)
{
        pv_auto_free struct pv_resolve_question *q = arg;
        struct pv_resolved answer;
        look_up(q->name, &answer);
        say(q->number, &answer);
        return NULL;
}

static void answer(const struct pv_resolve_question *q, const pthread_attr_t *attr)
{
        static const struct pv_resolved failed = { .status = PV_RESOLVE_FAILED };
        pthread_t thread;
        pv_auto_free struct pv_resolve_question *own = malloc(sizeof *own);
        if (own) {
                *own = *q;
                if (pthread_create(&thread, attr, work, own) == 0) {
                        (void)pv_steal(&own);
                        return;
                }
        }
        say(q->number, &failed);
}

int main(void)
{
        struct pv_resolve_question q;
        pthread_attr_t attr;
        (void)prctl(PR_SET_DUMPABLE, 0);
        (void)prctl(PR_SET_NAME, PV_RESOLVE_PROGRAM); /* it was executed by its descriptor, and is called by that */
        if (pthread_attr_init(&attr) != 0 || pthread_attr_setstacksize(&attr, STACK) != 0 ||
            pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) != 0)
                return 1;
        for (;;) {
                ssize_t n = recv(PV_RESOLVE_FD, &q, sizeof q, MSG_TRUNC);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n == 0)
                        _exit(0);
                if (n != (ssize_t)sizeof q || strnlen(q.name, sizeof q.name) == sizeof q.name)
                        _exit(2); /* started by hand */
                answer(&q, &attr);
        }
}
