/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DNS messages, as the sandbox sends them and pVisor answers them: RFC 1035, EDNS(0) of RFC 6891, the rules for
 * refusing of RFC 8020 and for ANY of RFC 8482. Pure functions over bytes; the sender is hostile. Names never leave
 * through here: an answer holds synthetic addresses, which net/names.h gave.
 */
#ifndef PV_NET_DNS_H
#define PV_NET_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "policy/netrule.h"

#define PV_DNS_UDP_MAX     1232 /* the largest answer over UDP, whatever the client offers (RFC 9715) */
#define PV_DNS_MESSAGE_MAX 65535

enum pv_dns_type { PV_DNS_A = 1, PV_DNS_CNAME = 5, PV_DNS_PTR = 12, PV_DNS_AAAA = 28, PV_DNS_ANY = 255 };

enum pv_dns_rcode {
        PV_DNS_NOERROR = 0,
        PV_DNS_FORMERR = 1,
        PV_DNS_SERVFAIL = 2,
        PV_DNS_NXDOMAIN = 3,
        PV_DNS_NOTIMP = 4,
        PV_DNS_REFUSED = 5,
};

struct pv_dns_query {
        uint16_t id, type;
        bool recursion_desired, edns;
        size_t udp_size; /* what the client takes over UDP: 512 to PV_DNS_UDP_MAX */
        size_t question; /* bytes of the question section behind the header, 0 when it could not be read */
        bool name_ok;    /* name is a host name; else it is "" and can only be refused */
        char name[PV_NETRULE_NAME_MAX + 1];
};

enum pv_dns_parse {
        PV_DNS_QUERY, /* one question of class IN: the policy decides */
        PV_DNS_ERROR, /* answer with *rcode and nothing else */
        PV_DNS_DROP,  /* not even a query: no answer (answering answers would make loops) */
};

/* Reads one message. Never reads past len; a loop of compression pointers is FORMERR. */
enum pv_dns_parse pv_dns_parse_query(const uint8_t *msg, size_t len, struct pv_dns_query *out,
                                     enum pv_dns_rcode *rcode);

struct pv_dns_answer {
        enum pv_dns_rcode rcode;
        const struct pv_netaddr *addrs; /* those of the query's family become records; the others are left out */
        size_t n_addrs;
        uint32_t ttl;        /* seconds */
        const char *pointer; /* a PTR record's name, in the compared form; or NULL */
        bool blocked;        /* the policy refuses it: an EDE of 15 (RFC 8914, 4.16) tells a client that knows EDNS */
};

/*
 * Writes the answer to a message that was parsed: header, its question, records, EDNS where the query had it. Over
 * limit bytes it is cut to header and question with TC set, as a client over UDP expects. Returns its length; limit
 * is at least 512.
 */
size_t pv_dns_write_answer(const uint8_t *msg, const struct pv_dns_query *query, const struct pv_dns_answer *answer,
                           uint8_t *out, size_t limit);

/* The address that a reverse query ("7.0.18.198.in-addr.arpa", "....ip6.arpa") asks for. */
bool pv_dns_reverse_address(const char *name, struct pv_netaddr *out);

#endif
