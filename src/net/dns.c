/* SPDX-License-Identifier: Apache-2.0 */
#include "net/dns.h"

#include <string.h>

#define HEADER       12
#define CLASS_IN     1
#define TYPE_OPT     41
#define OPTION_EDE   15
#define EDE_BLOCKED  15
#define FLAG_QR      0x8000u
#define FLAG_TC      0x0200u
#define FLAG_RD      0x0100u
#define FLAG_RA      0x0080u
#define OPCODE(f)    ((f) >> 11 & 0xfu)
#define POINTER_MASK 0xc0u

/* A reader that never leaves the message: everything that is missing reads as failure. */
struct reader {
        const uint8_t *msg;
        size_t len, at;
        bool failed;
};

static unsigned get16(struct reader *r)
{
        if (r->failed || r->len - r->at < 2) {
                r->failed = true;
                return 0;
        }
        unsigned v = (unsigned)r->msg[r->at] << 8 | r->msg[r->at + 1];
        r->at += 2;
        return v;
}

static void skip(struct reader *r, size_t n)
{
        if (r->failed || r->len - r->at < n)
                r->failed = true;
        else
                r->at += n;
}

/*
 * A name at the reader, as text with dots. Pointers must lead backwards (RFC 1035, 4.1.4: to a prior name), so that
 * following them ends. *plain is false when a label holds what no host name does; the text is then not to be used.
 */
static void get_name(struct reader *r, char text[PV_NETRULE_NAME_MAX + 1], bool *plain)
{
        size_t n = 0, at = r->at, limit = r->at;
        bool jumped = false;
        *plain = true;
        for (;;) {
                if (r->failed || at >= r->len)
                        goto fail;
                unsigned label = r->msg[at];
                if ((label & POINTER_MASK) == POINTER_MASK) {
                        if (at + 1 >= r->len)
                                goto fail;
                        size_t to = (label & ~POINTER_MASK) << 8 | r->msg[at + 1];
                        if (!jumped)
                                r->at = at + 2;
                        jumped = true;
                        if (to >= limit || to < HEADER)
                                goto fail;
                        limit = at = to;
                        continue;
                }
                if (label & POINTER_MASK || r->len - at <= label)
                        goto fail;
                at++;
                if (label == 0)
                        break;
                if (n + (n > 0) + label > PV_NETRULE_NAME_MAX)
                        goto fail;
                if (n > 0)
                        text[n++] = '.';
                memcpy(text + n, r->msg + at, label);
                if (memchr(text + n, '.', label) || memchr(text + n, '\0', label))
                        *plain = false;
                n += label;
                at += label;
        }
        if (!jumped)
                r->at = at;
        text[n] = '\0';
        return;
fail:
        r->failed = true;
        text[0] = '\0';
}

/* Looks for the OPT record behind the question (RFC 6891, 6.1.1: it may stand anywhere in the additional section). */
static void read_edns(struct reader *r, unsigned records, struct pv_dns_query *q)
{
        for (unsigned i = 0; i < records && !r->failed; i++) {
                char name[PV_NETRULE_NAME_MAX + 1];
                bool plain = false;
                get_name(r, name, &plain);
                unsigned type = get16(r), class = get16(r);
                skip(r, 4);
                skip(r, get16(r));
                if (r->failed || type != TYPE_OPT)
                        continue;
                q->edns = true;
                q->udp_size = class < 512 ? 512 : class > PV_DNS_UDP_MAX ? PV_DNS_UDP_MAX : class;
        }
}

enum pv_dns_parse pv_dns_parse_query(const uint8_t *msg, size_t len, struct pv_dns_query *q, enum pv_dns_rcode *rcode)
{
        struct reader r = { .msg = msg, .len = len };
        *q = (struct pv_dns_query){ .udp_size = 512 };
        q->id = (uint16_t)get16(&r);
        unsigned flags = get16(&r), questions = get16(&r), answers = get16(&r), authorities = get16(&r);
        unsigned additional = get16(&r);
        if (r.failed || flags & FLAG_QR)
                return PV_DNS_DROP;
        q->recursion_desired = flags & FLAG_RD;
        *rcode = OPCODE(flags) != 0 ? PV_DNS_NOTIMP : PV_DNS_FORMERR;
        if (OPCODE(flags) != 0 || questions != 1)
                return PV_DNS_ERROR;

        char text[PV_NETRULE_NAME_MAX + 1];
        bool plain = false;
        get_name(&r, text, &plain);
        unsigned type = get16(&r), class = get16(&r);
        if (r.failed)
                return PV_DNS_ERROR;
        q->question = r.at - HEADER;
        q->type = (uint16_t)type;
        q->name_ok = plain && pv_netrule_fold_name(text, strlen(text), q->name);
        if (!q->name_ok)
                q->name[0] = '\0';
        read_edns(&r, answers + authorities + additional, q);
        if (r.failed)
                return PV_DNS_ERROR;
        *rcode = PV_DNS_REFUSED;
        return class == CLASS_IN ? PV_DNS_QUERY : PV_DNS_ERROR;
}

static uint8_t *put16(uint8_t *p, unsigned v)
{
        p[0] = (uint8_t)(v >> 8);
        p[1] = (uint8_t)v;
        return p + 2;
}

/* One A or AAAA record for the question's own name (a pointer to offset 12). */
static uint8_t *put_address(uint8_t *p, enum pv_dns_type type, uint32_t ttl, const struct pv_netaddr *a)
{
        unsigned size = type == PV_DNS_A ? 4 : 16;
        p = put16(p, POINTER_MASK << 8 | HEADER);
        p = put16(p, type);
        p = put16(p, CLASS_IN);
        p = put16(p, ttl >> 16);
        p = put16(p, ttl & 0xffff);
        p = put16(p, size);
        memcpy(p, a->b + 16 - size, size);
        return p + size;
}

/* A PTR record for the question's own name; the name is one that get_name() and pv_netrule_fold_name() took. */
static uint8_t *put_pointer(uint8_t *p, uint32_t ttl, const char *name)
{
        p = put16(p, POINTER_MASK << 8 | HEADER);
        p = put16(p, PV_DNS_PTR);
        p = put16(p, CLASS_IN);
        p = put16(p, ttl >> 16);
        p = put16(p, ttl & 0xffff);
        p = put16(p, (unsigned)strlen(name) + 2);
        for (;;) {
                size_t n = strcspn(name, ".");
                *p++ = (uint8_t)n;
                memcpy(p, name, n);
                p += n;
                if (name[n] == '\0')
                        break;
                name += n + 1;
        }
        *p++ = 0;
        return p;
}

static uint8_t *put_edns(uint8_t *p, bool blocked)
{
        *p++ = 0; /* the root */
        p = put16(p, TYPE_OPT);
        p = put16(p, PV_DNS_UDP_MAX);
        memset(p, 0, 4); /* extended rcode, version, flags */
        p = put16(p + 4, blocked ? 6 : 0);
        if (!blocked)
                return p;
        p = put16(p, OPTION_EDE);
        p = put16(p, 2);
        return put16(p, EDE_BLOCKED);
}

#define RECORD_MAX  28 /* put_address() with 16 bytes */
#define POINTER_MAX (12 + PV_NETRULE_NAME_MAX + 2)
#define EDNS_SIZE   17 /* with its option */

size_t pv_dns_write_answer(const uint8_t *msg, const struct pv_dns_query *q, const struct pv_dns_answer *a,
                           uint8_t *out, size_t limit)
{
        size_t room = limit - HEADER - q->question - (q->edns ? EDNS_SIZE : 0);
        unsigned flags = FLAG_QR | FLAG_RA | (q->recursion_desired ? FLAG_RD : 0) | (unsigned)a->rcode, records = 0;
        uint8_t *p = out + HEADER;
        memcpy(p, msg + HEADER, q->question); /* at most 12 + 255 + 4 bytes: pv_dns_parse_query() saw to it */
        p += q->question;
        for (size_t i = 0; a->rcode == PV_DNS_NOERROR && i < a->n_addrs; i++) {
                enum pv_dns_type type = pv_netaddr_is_v4(&a->addrs[i]) ? PV_DNS_A : PV_DNS_AAAA;
                if (q->type != type && q->type != PV_DNS_ANY)
                        continue;
                if (room < RECORD_MAX) {
                        flags |= FLAG_TC;
                        records = 0;
                        p = out + HEADER + q->question;
                        break;
                }
                uint8_t *end = put_address(p, type, a->ttl, &a->addrs[i]);
                room -= (size_t)(end - p);
                p = end;
                records++;
        }
        if (a->rcode == PV_DNS_NOERROR && a->pointer && q->type == PV_DNS_PTR && room >= POINTER_MAX) {
                p = put_pointer(p, a->ttl, a->pointer);
                records++;
        }
        if (q->edns)
                p = put_edns(p, a->blocked);
        uint8_t *h = put16(out, q->id);
        h = put16(h, flags);
        h = put16(h, q->question ? 1 : 0);
        h = put16(h, records);
        h = put16(h, 0);
        (void)put16(h, q->edns ? 1 : 0);
        return (size_t)(p - out);
}

static int hex_digit(char c)
{
        return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool reverse_v6(const char *name, size_t n, struct pv_netaddr *out)
{
        if (n != 63) /* 32 nibbles with dots between, lowest first */
                return false;
        for (size_t i = 0; i < 32; i++) {
                int v = hex_digit(name[2 * i]);
                if (v < 0 || (i < 31 && name[2 * i + 1] != '.'))
                        return false;
                uint8_t *byte = &out->b[15 - i / 2];
                *byte = (uint8_t)(i % 2 ? *byte | v << 4 : v);
        }
        return true;
}

static bool reverse_v4(const char *name, size_t n, struct pv_netaddr *out)
{
        unsigned v = 0, part = 0, digits = 0;
        memset(out->b, 0, 10);
        out->b[10] = out->b[11] = 0xff;
        for (size_t i = 0; i <= n; i++) {
                if (i < n && name[i] >= '0' && name[i] <= '9' && digits < 3) {
                        v = v * 10 + (unsigned)(name[i] - '0');
                        digits++;
                        continue;
                }
                if ((i < n && name[i] != '.') || digits == 0 || v > 255 || part > 3)
                        return false;
                out->b[15 - part++] = (uint8_t)v;
                v = digits = 0;
        }
        return part == 4;
}

bool pv_dns_reverse_address(const char *name, struct pv_netaddr *out)
{
        static const char v4[] = ".in-addr.arpa", v6[] = ".ip6.arpa";
        if (pv_str_has_suffix(name, v4))
                return reverse_v4(name, strlen(name) - strlen(v4), out);
        if (pv_str_has_suffix(name, v6))
                return reverse_v6(name, strlen(name) - strlen(v6), out);
        return false;
}
