/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Network rules: what a person may write after --overlaynet-allow and --overlaynet-deny, as checked data.
 *
 *   example.com  *.example.com  203.0.113.7  2001:db8::/32  [2001:db8::1]:443  example.com:8000-8010  *:443  *
 *
 * Names are compared as DNS does: ASCII letters without case, a trailing dot does not count. `*.example.com` holds
 * every name below example.com and not example.com itself. A rule by name never holds an address, and the other way
 * round.
 *
 * The long form names its parts, as a configuration file has them; netrules.h reads what stands for several rules.
 *
 *   host=db.example.com;ports=5432;transports=tcp;allow_private_ips=true
 */
#ifndef PV_POLICY_NETRULE_H
#define PV_POLICY_NETRULE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

enum pv_netrule_kind {
        PV_NETRULE_ANY,    /* every name and address */
        PV_NETRULE_HOST,   /* one name */
        PV_NETRULE_SUFFIX, /* every name below */
        PV_NETRULE_PREFIX, /* addresses: CIDR */
};

/* An IPv6 address; IPv4 as ::ffff:a.b.c.d, so that one rule and one comparison serve both. Network byte order. */
struct pv_netaddr {
        uint8_t b[16];
};

#define PV_NETRULE_NAME_MAX  253 /* RFC 1035, 2.3.4: 255 octets on the wire */
#define PV_NETRULE_GROUP_MAX 32  /* "@" and a name of groups.h */

/* What a rule is about; UDP leads nowhere but to the name server, so that "udp" is "dns". */
enum pv_transport {
        PV_TRANSPORT_TCP = 1 << 0, /* connections */
        PV_TRANSPORT_DNS = 1 << 1, /* looking a name up */
};

struct pv_netrule {
        enum pv_netrule_kind kind;
        char name[PV_NETRULE_NAME_MAX + 1];   /* HOST, SUFFIX: lower case, no dot at either end */
        struct pv_netaddr addr;               /* PREFIX: bits below the prefix are 0 */
        unsigned prefix;                      /* PREFIX: 0 to 128, counted in the IPv6 form */
        uint16_t port_first, port_last;       /* 1 to 65535; 1-65535 when none was written */
        unsigned transports;                  /* of enum pv_transport; 0: all */
        bool allow_private_ips;               /* of an allow rule: its names may lead to private addresses */
        char group[PV_NETRULE_GROUP_MAX + 1]; /* "@npm" that it came from; "" */
};

static inline bool pv_netrule_is_for(const struct pv_netrule *r, enum pv_transport t)
{
        return r->transports == 0 || (r->transports & (unsigned)t) != 0;
}

/* The short form. PV_ERR_USAGE names the text and what is wrong with it. */
int pv_netrule_parse(const char *text, struct pv_netrule *out, struct pv_err *err);

/* The parts of the long form: a host without ports, and one "443", "8000-8010" or "*". PV_ERR_USAGE. */
int pv_netrule_parse_host(const char *text, struct pv_netrule *out, struct pv_err *err);
int pv_netrule_parse_ports(const char *text, struct pv_netrule *out, struct pv_err *err);

/* As pvisor would write it, in the short form where that says all: what review and `hint:` lines show. */
void pv_netrule_put(struct pv_str *out, const struct pv_netrule *rule);

/*
 * A DNS name to its compared form: ASCII lower case, one trailing dot off. False when it is not a host name that a rule
 * may hold: empty or overlong labels, more than 253 characters, other characters than letters, digits, '-' and '_'.
 * out has PV_NETRULE_NAME_MAX + 1 bytes.
 */
bool pv_netrule_fold_name(const char *name, size_t len, char *out);

/* Dotted quad or IPv6 text (no zone); false otherwise. */
bool pv_netaddr_parse(const char *text, struct pv_netaddr *out);
bool pv_netaddr_is_v4(const struct pv_netaddr *a);
void pv_netaddr_put(struct pv_str *out, const struct pv_netaddr *a);
bool pv_netaddr_in_prefix(const struct pv_netaddr *a, const struct pv_netaddr *net, unsigned prefix);

/*
 * Addresses that are not the public Internet's: loopback, private, link-local (169.254.169.254 is the clouds' metadata
 * service), shared, benchmarking, multicast, reserved, unspecified, and the IPv6 forms that carry an IPv4 address
 * (mapped, translated, 6to4, Teredo). IANA's special-purpose registries, RFC 6890; but for the documentation ranges,
 * which are nobody's and stand for the Internet in laboratories. Static text, or NULL.
 */
const char *pv_netaddr_special(const struct pv_netaddr *a);

/* Bits a second: "10mbps", "2mb/s" (bytes), "512kbit", "1gbps" to bytes a second. PV_ERR_USAGE. */
int pv_netrate_parse(const char *text, uint64_t *bytes_per_second, struct pv_err *err);

#endif
