/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/netrule.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

static const uint8_t v4_mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

bool pv_netaddr_is_v4(const struct pv_netaddr *a)
{
        return memcmp(a->b, v4_mapped, sizeof v4_mapped) == 0;
}

bool pv_netaddr_parse(const char *text, struct pv_netaddr *out)
{
        struct pv_netaddr a;
        memcpy(a.b, v4_mapped, sizeof v4_mapped);
        if (inet_pton(AF_INET, text, a.b + 12) != 1 && inet_pton(AF_INET6, text, a.b) != 1)
                return false;
        *out = a;
        return true;
}

void pv_netaddr_put(struct pv_str *out, const struct pv_netaddr *a)
{
        char text[INET6_ADDRSTRLEN];
        bool v4 = pv_netaddr_is_v4(a);
        (void)inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? a->b + 12 : a->b, text, sizeof text);
        pv_str_put(out, text);
}

bool pv_netaddr_in_prefix(const struct pv_netaddr *a, const struct pv_netaddr *net, unsigned prefix)
{
        unsigned whole = prefix / 8, rest = prefix % 8;
        if (memcmp(a->b, net->b, whole) != 0)
                return false;
        uint8_t mask = (uint8_t)(0xff00 >> rest);
        return rest == 0 || ((a->b[whole] ^ net->b[whole]) & mask) == 0;
}

static void clear_below_prefix(struct pv_netaddr *a, unsigned prefix)
{
        for (unsigned i = 0; i < 16; i++) {
                unsigned bits = prefix > 8 * i ? prefix - 8 * i : 0;
                a->b[i] &= bits >= 8 ? 0xff : (uint8_t)(0xff00 >> bits);
        }
}

/* In the order of the first that fits; the text is what a refusal says. */
static const struct {
        const char *prefix; /* "address/bits", bits in the address's own family */
        const char *what;
} special_prefixes[] = {
        { "0.0.0.0/8", "an unspecified address" },
        { "127.0.0.0/8", "a loopback address" },
        { "10.0.0.0/8", "a private address" },
        { "172.16.0.0/12", "a private address" },
        { "192.168.0.0/16", "a private address" },
        { "169.254.0.0/16", "a link-local address" },
        { "100.64.0.0/10", "a carrier's shared address" },
        { "192.0.0.0/24", "a protocol assignment" },
        { "192.88.99.0/24", "a 6to4 relay address" },
        { "198.18.0.0/15", "a benchmarking address" },
        { "224.0.0.0/4", "a multicast address" },
        { "240.0.0.0/4", "a reserved address" },
        { "::/128", "an unspecified address" },
        { "::1/128", "a loopback address" },
        { "::/96", "an IPv4 address in IPv6" },
        { "64:ff9b::/96", "an IPv4 address in IPv6" },
        { "64:ff9b:1::/48", "an IPv4 address in IPv6" },
        { "2002::/16", "an IPv4 address in IPv6" },
        { "2001::/32", "an IPv4 address in IPv6" },
        { "100::/64", "a discarded address" },
        { "fc00::/7", "a private address" },
        { "fe80::/10", "a link-local address" },
        { "fec0::/10", "a private address" },
        { "ff00::/8", "a multicast address" },
};

/* "addr" or "addr/bits" to the IPv6 form. */
static bool parse_prefix(const char *text, struct pv_netaddr *addr, unsigned *prefix)
{
        char host[INET6_ADDRSTRLEN];
        size_t n = strcspn(text, "/");
        if (n >= sizeof host)
                return false;
        memcpy(host, text, n);
        host[n] = '\0';
        if (!pv_netaddr_parse(host, addr))
                return false;
        /* ::ffff:1.2.3.4/120 is written with the bits of its own family. */
        bool written_v4 = pv_netaddr_is_v4(addr) && !strchr(host, ':');
        unsigned most = written_v4 ? 32 : 128, bits = most;
        if (text[n] == '/') {
                const char *p = text + n + 1;
                if (*p < '0' || *p > '9')
                        return false;
                for (bits = 0; *p >= '0' && *p <= '9' && bits <= most; p++)
                        bits = bits * 10 + (unsigned)(*p - '0');
                if (*p != '\0' || bits > most)
                        return false;
        }
        *prefix = written_v4 ? bits + 96 : bits;
        clear_below_prefix(addr, *prefix);
        return true;
}

const char *pv_netaddr_special(const struct pv_netaddr *a)
{
        for (size_t i = 0; i < sizeof special_prefixes / sizeof *special_prefixes; i++) {
                struct pv_netaddr net;
                unsigned prefix = 0;
                if (parse_prefix(special_prefixes[i].prefix, &net, &prefix) && pv_netaddr_in_prefix(a, &net, prefix))
                        return special_prefixes[i].what;
        }
        return NULL;
}

bool pv_netrule_fold_name(const char *name, size_t len, char *out)
{
        size_t label = 0;
        if (len > 0 && name[len - 1] == '.')
                len--;
        if (len == 0 || len > PV_NETRULE_NAME_MAX)
                return false;
        for (size_t i = 0; i < len; i++) {
                char c = name[i];
                if (c >= 'A' && c <= 'Z')
                        c = (char)(c - 'A' + 'a');
                bool in_label = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
                if (c == '.' ? label == 0 : !in_label || ++label > 63)
                        return false;
                if (c == '.')
                        label = 0;
                out[i] = c;
        }
        out[len] = '\0';
        return label > 0;
}

static bool parse_port(const char **p, uint16_t *port)
{
        unsigned v = 0;
        const char *start = *p;
        for (; **p >= '0' && **p <= '9' && v <= 65535; (*p)++)
                v = v * 10 + (unsigned)(**p - '0');
        *port = (uint16_t)v;
        return *p > start && v >= 1 && v <= 65535;
}

/* "443", "8000-8010" or "*". */
static bool parse_ports(const char *text, struct pv_netrule *out)
{
        if (pv_streq(text, "*"))
                return true;
        if (!parse_port(&text, &out->port_first))
                return false;
        out->port_last = out->port_first;
        if (*text == '-') {
                text++;
                if (!parse_port(&text, &out->port_last))
                        return false;
        }
        return *text == '\0' && out->port_first <= out->port_last;
}

/* Cuts host and ports apart: "[v6]:ports", "v6", "host:ports", "host". host has room for the whole text. */
static const char *split_ports(const char *text, char *host)
{
        const char *ports = NULL;
        if (text[0] == '[') {
                const char *end = strchr(text, ']');
                if (!end || (end[1] != '\0' && end[1] != ':' && end[1] != '/'))
                        return NULL;
                size_t n = (size_t)(end - text - 1);
                memcpy(host, text + 1, n);
                const char *bits_end = end + 1 + (end[1] == '/' ? strcspn(end + 1, ":") : 0);
                memcpy(host + n, end + 1, (size_t)(bits_end - end - 1));
                host[n + (size_t)(bits_end - end - 1)] = '\0';
                return *bits_end == ':' ? bits_end + 1 : *bits_end ? NULL : "*";
        }
        const char *colon = strchr(text, ':');
        bool one_colon = colon && !strchr(colon + 1, ':');
        size_t n = one_colon ? (size_t)(colon - text) : strlen(text);
        ports = one_colon ? colon + 1 : "*";
        memcpy(host, text, n);
        host[n] = '\0';
        return ports;
}

static int parse_host(const char *host, struct pv_netrule *r)
{
        if (pv_streq(host, "*")) {
                r->kind = PV_NETRULE_ANY;
                return 0;
        }
        if (parse_prefix(host, &r->addr, &r->prefix)) {
                r->kind = PV_NETRULE_PREFIX;
                return 0;
        }
        bool suffix = pv_str_has_prefix(host, "*.");
        r->kind = suffix ? PV_NETRULE_SUFFIX : PV_NETRULE_HOST;
        host += suffix ? 2 : 0;
        /* "1.2.3" or "127.1" would be an address to some resolvers and a name to us: refused, not guessed. */
        if (!pv_netrule_fold_name(host, strlen(host), r->name))
                return -1;
        const char *last = strrchr(r->name, '.');
        last = last ? last + 1 : r->name;
        return last[strspn(last, "0123456789")] == '\0' || pv_str_has_prefix(last, "0x") ? -1 : 0;
}

int pv_netrule_parse_host(const char *text, struct pv_netrule *out, struct pv_err *err)
{
        struct pv_netrule r = { .port_first = 1, .port_last = 65535 };
        char bare[PV_NETRULE_NAME_MAX + 32];
        size_t n = strlen(text);
        if (n > PV_NETRULE_NAME_MAX + 16)
                return pv_err_set(err, PV_ERR_USAGE, 0, "network target '%.40s...' is too long", text);
        for (const char *p = text; *p; p++)
                if ((unsigned char)*p >= 0x80) {
                        (void)pv_err_set(err, PV_ERR_USAGE, 0, "network target '%s' is not ASCII", text);
                        return pv_err_hint(err, "write the name as DNS has it, with xn-- labels");
                }
        bool bracketed = n > 2 && text[0] == '[' && text[n - 1] == ']';
        (void)snprintf(bare, sizeof bare, "%.*s", (int)(bracketed ? n - 2 : n), text + bracketed);
        if (parse_host(bare, &r) < 0)
                return pv_err_set(err, PV_ERR_USAGE, 0,
                                  "network target '%s' is not a host name, *.suffix, address or CIDR", text);
        *out = r;
        return 0;
}

int pv_netrule_parse_ports(const char *text, struct pv_netrule *out, struct pv_err *err)
{
        struct pv_netrule r = { .port_first = 1, .port_last = 65535 };
        if (!parse_ports(text, &r))
                return pv_err_set(err, PV_ERR_USAGE, 0, "'%.80s' is no port or port range", text);
        out->port_first = r.port_first;
        out->port_last = r.port_last;
        return 0;
}

/* Rules know hosts and ports, no schemes and paths: what the URL's would be is hinted at. */
static int refuse_url(const char *url, struct pv_err *err)
{
        const char *host = strstr(url, "://") + strlen("://");
        size_t n = strcspn(host, "/?#");
        bool has_port = memchr(host, ':', n) != NULL;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "network target '%s' is a URL", url);
        return pv_err_hint(err, "name its host: %.*s%s", (int)n, host,
                           has_port                             ? ""
                           : pv_str_has_prefix(url, "https://") ? ":443"
                           : pv_str_has_prefix(url, "http://")  ? ":80"
                                                                : "");
}

int pv_netrule_parse(const char *text, struct pv_netrule *out, struct pv_err *err)
{
        struct pv_netrule r;
        if (strlen(text) > PV_NETRULE_NAME_MAX + 16)
                return pv_err_set(err, PV_ERR_USAGE, 0, "network target '%.40s...' is too long", text);
        char host[PV_NETRULE_NAME_MAX + 32];
        const char *ports = split_ports(text, host);
        struct pv_netrule range = { .port_first = 1, .port_last = 65535 };
        if (strstr(text, "://"))
                return refuse_url(text, err);
        if (!ports || !parse_ports(ports, &range))
                return pv_err_set(err, PV_ERR_USAGE, 0,
                                  "network target '%s' has no port (1 to 65535) or port range behind ':'", text);
        struct pv_err why = PV_ERR_INIT;
        if (pv_netrule_parse_host(host, &r, &why) < 0) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "network target '%s' is %s", text,
                                 why.hint[0] ? "not ASCII" : "not a host name, *.suffix, address or CIDR");
                return why.hint[0] ? pv_err_hint(err, "%s", why.hint) : -1;
        }
        r.port_first = range.port_first;
        r.port_last = range.port_last;
        *out = r;
        return 0;
}

static void put_host(struct pv_str *out, const struct pv_netrule *r, bool bracketed)
{
        bool v4 = pv_netaddr_is_v4(&r->addr) && r->prefix >= 96;
        switch (r->kind) {
        case PV_NETRULE_ANY:
                pv_str_putc(out, '*');
                break;
        case PV_NETRULE_HOST:
        case PV_NETRULE_SUFFIX:
                pv_str_putf(out, "%s%s", r->kind == PV_NETRULE_SUFFIX ? "*." : "", r->name);
                break;
        case PV_NETRULE_PREFIX:
                if (bracketed && !v4)
                        pv_str_putc(out, '[');
                pv_netaddr_put(out, &r->addr);
                if (bracketed && !v4)
                        pv_str_putc(out, ']');
                if (r->prefix < 128)
                        pv_str_putf(out, "/%u", v4 ? r->prefix - 96 : r->prefix);
                break;
        }
}

static void put_port_range(struct pv_str *out, const char *before, const struct pv_netrule *r)
{
        if (r->port_first == 1 && r->port_last == 65535)
                return;
        pv_str_putf(out, "%s%u", before, r->port_first);
        if (r->port_first != r->port_last)
                pv_str_putf(out, "-%u", r->port_last);
}

void pv_netrule_put(struct pv_str *out, const struct pv_netrule *r)
{
        static const unsigned all = PV_TRANSPORT_TCP | PV_TRANSPORT_DNS;
        bool some = r->transports != 0 && r->transports != all;
        if (!some && !r->allow_private_ips) {
                put_host(out, r, r->port_first != 1 || r->port_last != 65535);
                put_port_range(out, ":", r);
                return;
        }
        pv_str_put(out, "host=");
        put_host(out, r, false);
        put_port_range(out, ";ports=", r);
        if (some)
                pv_str_putf(out, ";transports=%s", r->transports == PV_TRANSPORT_TCP ? "tcp" : "dns");
        if (r->allow_private_ips)
                pv_str_put(out, ";allow_private_ips=true");
}

int pv_netrate_parse(const char *text, uint64_t *bytes_per_second, struct pv_err *err)
{
        static const struct {
                const char *unit;
                uint64_t bits;
        } units[] = {
                { "bps", 1 },          { "kbps", 1000 },     { "mbps", 1000000 }, { "gbps", 1000000000 },
                { "bit", 1 },          { "kbit", 1000 },     { "mbit", 1000000 }, { "gbit", 1000000000 },
                { "b/s", 8 },          { "kb/s", 8000 },     { "mb/s", 8000000 }, { "gb/s", 8000000000 },
                { "kib/s", 8 * 1024 }, { "mib/s", 8 << 20 },
        };
        uint64_t v = 0;
        const char *p = text;
        for (; *p >= '0' && *p <= '9' && v < 1000000000000; p++)
                v = v * 10 + (uint64_t)(*p - '0');
        for (size_t i = 0; p > text && v > 0 && i < sizeof units / sizeof *units; i++)
                if (strcasecmp(p, units[i].unit) == 0) {
                        uint64_t bits = 0;
                        if (__builtin_mul_overflow(v, units[i].bits, &bits) || bits < 8)
                                break;
                        *bytes_per_second = bits / 8;
                        return 0;
                }
        return pv_err_set(err, PV_ERR_USAGE, 0, "'%s' is not a rate (such as 10mbps or 2mb/s)", text);
}
