/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolution outside the sandbox, by the host's own resolver (getaddrinfo(3): nsswitch, /etc/hosts, DNS), which
 * blocks and loads what the host has configured: a program of its own asks, libexec/pvisor/pvisor-resolve, and the
 * loop is told through a descriptor. Answers are kept for a short while, and one question serves all who wait for the
 * same name.
 */
#ifndef PV_NET_RESOLVE_H
#define PV_NET_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "policy/netrule.h"

#define PV_RESOLVE_PROGRAM   "pvisor-resolve"
#define PV_RESOLVE_ADDRESSES 16   /* of one name, the rest is left out */
#define PV_RESOLVE_WAITING   1024 /* names that may be under way at once; a further one fails at once */

enum pv_resolve_status {
        PV_RESOLVE_FOUND,
        PV_RESOLVE_NO_NAME, /* the name does not exist, or has no address */
        PV_RESOLVE_FAILED,  /* the resolver failed or is too busy: try again later */
};

struct pv_resolved {
        enum pv_resolve_status status;
        size_t n;
        struct pv_netaddr addr[PV_RESOLVE_ADDRESSES];
};

/* Whoever waits. The memory is the caller's and must stay until done was called or pv_resolver_forget(). */
struct pv_resolve_wait {
        void (*done)(struct pv_resolve_wait *w, const struct pv_resolved *answer);
        struct pv_resolve_wait *next; /* the resolver's */
        void *lookup;                 /* the resolver's; NULL when not waiting */
};

struct pv_resolver; /* opaque */

/*
 * program: PV_RESOLVE_PROGRAM, as a descriptor (O_PATH will do) that stays the caller's; -1: every name fails. It is
 * started at the first question and ends with this resolver, or with the process, which must stay single-threaded.
 * When it ends before that, or says what it may not, all who wait have failed, and a later question starts it anew,
 * once a second at most.
 */
int pv_resolver_new(int program, struct pv_resolver **out, struct pv_err *err);
/* Ends the program. Whoever waits is not called. */
void pv_resolver_free(struct pv_resolver *r);
/* Readable when answers are there: pv_resolver_deliver() then. */
int pv_resolver_fd(const struct pv_resolver *r);
/* Calls done of everyone whose answer came. done may ask again and forget others. */
void pv_resolver_deliver(struct pv_resolver *r);
/* Asks for a name in its compared form. done is called before this returns when the answer is known. */
void pv_resolver_ask(struct pv_resolver *r, const char *name, struct pv_resolve_wait *w);
/* w waits no longer; nothing happens when it does not wait. */
void pv_resolver_forget(struct pv_resolver *r, struct pv_resolve_wait *w);

#endif
