/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of nf_tables messages (linux/netfilter/nf_tables.h) for the kernel: what nft(8) would send. A batch takes
 * effect as a whole or not at all. Attributes are written into a growing buffer; a long batch is cut at a rule, since
 * one datagram of an ordinary user's socket holds some 200 KiB.
 */
#ifndef PV_NET_NFMSG_H
#define PV_NET_NFMSG_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

struct pv_nfmsg {
        int nl;          /* of NETLINK_NETFILTER, borrowed */
        struct pv_str b; /* the batch so far */
        size_t message;  /* where the last message begins in it */
        uint32_t seq;
        unsigned n; /* messages in it, without its begin */
};

/*
 * A netlink socket for the rules of the caller's network namespace. Must: CAP_NET_ADMIN over it, at the opening;
 * whoever sends on it later must have that right too, which the owner of the namespace's user namespace has from
 * outside (user_namespaces(7)). -1 with PV_ERR_UNSUPPORTED.
 */
int pv_nfmsg_open(struct pv_err *err);

void pv_nfmsg_init(struct pv_nfmsg *m, int nl);
void pv_nfmsg_fini(struct pv_nfmsg *m);

/* A message of the inet family: NFT_MSG_NEWRULE with NLM_F_CREATE | NLM_F_APPEND, ... */
void pv_nfmsg_begin(struct pv_nfmsg *m, uint8_t type, uint16_t flags);
void pv_nfmsg_end(struct pv_nfmsg *m);

void pv_nfmsg_put(struct pv_nfmsg *m, uint16_t type, const void *data, size_t n);
void pv_nfmsg_put_text(struct pv_nfmsg *m, uint16_t type, const char *text); /* with its NUL */
void pv_nfmsg_put_u32(struct pv_nfmsg *m, uint16_t type, uint32_t value); /* big endian, as nf_tables has its numbers */
size_t pv_nfmsg_open_nest(struct pv_nfmsg *m, uint16_t type);
void pv_nfmsg_close_nest(struct pv_nfmsg *m, size_t nest);

/* Sends what there is, hears the kernel's answer and empties the batch. PV_ERR_UNSUPPORTED says what it refused. */
int pv_nfmsg_commit(struct pv_nfmsg *m, struct pv_err *err);
/* The same once the batch has grown long. */
int pv_nfmsg_commit_when_long(struct pv_nfmsg *m, struct pv_err *err);

#endif
