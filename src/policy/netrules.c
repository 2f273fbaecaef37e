/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/netrules.h"

#include <string.h>

#define PORTS_MAX      64 /* ranges of one text */
#define TRANSPORTS_MAX 4

void pv_netrules_fini(struct pv_netrules *r)
{
        free(r->v);
        *r = (struct pv_netrules){ 0 };
}

static void append(struct pv_netrules *r, const struct pv_netrule *one)
{
        r->v = pv_realloc(r->v, r->n + 1, sizeof *r->v);
        r->v[r->n++] = *one;
}

/* Cuts the text at a separator, in place; an empty part is one, too. What follows the most-th part is cut off. */
static size_t split(char *text, char separator, char **parts, size_t most)
{
        size_t n = 0;
        for (char *next = text; next && n < most; n++) {
                parts[n] = next;
                next = strchr(next, separator);
                if (next)
                        *next++ = '\0';
        }
        return n;
}

/* One rule a range; none is every port. */
static int append_ports(struct pv_netrules *r, struct pv_netrule *one, const char *ports, struct pv_err *err)
{
        char *parts[PORTS_MAX + 1];
        pv_auto_free char *copy = pv_strdup(ports);
        size_t n = split(copy, ',', parts, PORTS_MAX + 1);
        if (n > PORTS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "more than %d port ranges", PORTS_MAX);
        for (size_t i = 0; i < n; i++) {
                if (pv_netrule_parse_ports(parts[i], one, err) < 0)
                        return -1;
                append(r, one);
        }
        return 0;
}

/* Each target of a group, with what the text says of all of them. */
static int append_group(struct pv_netrules *r, const char *name, const struct pv_groups *groups,
                        const struct pv_netrule *like, struct pv_err *err)
{
        if (!groups)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%.80s: groups cannot be named here", name);
        const struct pv_group *g = pv_groups_need(groups, name, err);
        if (!g)
                return -1;
        for (size_t i = 0; i < g->targets.n; i++) {
                struct pv_netrule one;
                if (pv_netrule_parse(g->targets.v[i], &one, err) < 0)
                        return pv_err_wrap(err, "%s: @%s", g->file, g->name);
                one.transports = like->transports;
                one.allow_private_ips = like->allow_private_ips;
                (void)snprintf(one.group, sizeof one.group, "@%.*s", PV_GROUP_NAME_MAX, g->name);
                append(r, &one);
        }
        return 0;
}

/* ---- the long form ---- */

enum part { PART_HOST, PART_PORTS, PART_TRANSPORTS, PART_PRIVATE_IPS, PART_RATE, PARTS };

/* Each field by its name and another spelling. */
static const char *const part_names[PARTS][2] = {
        [PART_HOST] = { "host", "host" },
        [PART_PORTS] = { "ports", "port" },
        [PART_TRANSPORTS] = { "transports", "transport" },
        [PART_PRIVATE_IPS] = { "allow_private_ips", "allow-private-ips" },
        [PART_RATE] = { "rate", "rate" },
};

struct parts {
        unsigned given; /* 1 << enum part */
        const char *host, *ports;
        struct pv_netrule like; /* transports, allow_private_ips */
        uint64_t rate;
};

static enum part find_part(const char *name)
{
        int part = 0;
        while (part < PARTS && !pv_streq(name, part_names[part][0]) && !pv_streq(name, part_names[part][1]))
                part++;
        return (enum part)part;
}

static int read_transports(struct parts *p, char *value, struct pv_err *err)
{
        char *words[TRANSPORTS_MAX + 1];
        size_t n = split(value, ',', words, TRANSPORTS_MAX + 1);
        if (n > TRANSPORTS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "transports: more than %d", TRANSPORTS_MAX);
        for (size_t i = 0; i < n; i++) {
                if (pv_streq(words[i], "tcp"))
                        p->like.transports |= PV_TRANSPORT_TCP;
                else if (pv_streq(words[i], "dns") || pv_streq(words[i], "udp"))
                        p->like.transports |= PV_TRANSPORT_DNS;
                else
                        return pv_err_set(err, PV_ERR_USAGE, 0, "transports: '%.80s' is neither tcp nor dns (or udp)",
                                          words[i]);
        }
        return 0;
}

static int read_bool(bool *out, const char *key, const char *value, struct pv_err *err)
{
        *out = pv_streq(value, "true");
        if (*out || pv_streq(value, "false"))
                return 0;
        return pv_err_set(err, PV_ERR_USAGE, 0, "%s: not true or false: %.80s", key, value);
}

static int read_part(struct parts *p, char *text, struct pv_err *err)
{
        char *value = strchr(text, '=');
        if (!value)
                return pv_err_set(err, PV_ERR_USAGE, 0, "'%.80s' is not KEY=VALUE", text);
        *value++ = '\0';
        if (!*value)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%.80s: is empty", text);
        const enum part part = find_part(text);
        if (part != PARTS && p->given & 1U << part)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: is given twice", part_names[part][0]);
        p->given |= 1U << part;
        switch (part) {
        case PART_HOST:
                p->host = value;
                return 0;
        case PART_PORTS:
                p->ports = value;
                return 0;
        case PART_TRANSPORTS:
                return read_transports(p, value, err);
        case PART_PRIVATE_IPS:
                return read_bool(&p->like.allow_private_ips, text, value, err);
        case PART_RATE:
                return pv_netrate_parse(value, &p->rate, err);
        case PARTS:
                break;
        }
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%.80s: a network rule has no such field", text);
        return pv_err_hint(err, "fields are host, ports, transports, allow_private_ips, rate");
}

static int add_long(struct pv_netrules *r, const char *text, const struct pv_groups *groups, uint64_t *rate,
                    struct pv_err *err)
{
        char *part[PARTS + 1]; /* one more is a repeated or unknown one */
        struct parts p = { 0 };
        pv_auto_free char *copy = pv_strdup(text);
        size_t n = split(copy, ';', part, PARTS + 1);
        for (size_t i = 0; i < n; i++)
                if (read_part(&p, part[i], err) < 0)
                        return -1;
        if (!p.host)
                return pv_err_set(err, PV_ERR_USAGE, 0, "a network rule needs a host");
        *rate = p.rate;
        if (p.host[0] == '@' && p.ports)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%.80s: a group has ports of its own", p.host);
        if (p.host[0] == '@')
                return append_group(r, p.host, groups, &p.like, err);
        struct pv_netrule one;
        if (pv_netrule_parse_host(p.host, &one, err) < 0)
                return -1;
        one.transports = p.like.transports;
        one.allow_private_ips = p.like.allow_private_ips;
        return append_ports(r, &one, p.ports ? p.ports : "*", err);
}

/* ---- the short form ---- */

/* What is behind the last ':', when that is a list of ports: "a:80,443". */
static const char *port_list(const char *text)
{
        const char *colon = strrchr(text, ':');
        return colon && strchr(colon, ',') ? colon + 1 : NULL;
}

static int add_short(struct pv_netrules *r, const char *text, struct pv_err *err)
{
        struct pv_netrule one;
        const char *list = port_list(text);
        /* Read with the first port alone, so that an error is about the target; then with each. */
        pv_auto_free char *first = list ? pv_strndup(text, (size_t)(strchr(list, ',') - text)) : pv_strdup(text);
        if (pv_netrule_parse(first, &one, err) < 0)
                return -1;
        if (list)
                return append_ports(r, &one, list, err) < 0 ? pv_err_wrap(err, "network target '%.80s'", text) : 0;
        append(r, &one);
        return 0;
}

bool pv_netrules_names_group(const char *text)
{
        return text[0] == '@' || pv_str_has_prefix(text, "host=@") || strstr(text, ";host=@");
}

int pv_netrules_add(struct pv_netrules *r, const char *text, const struct pv_groups *groups, uint64_t *bytes_per_second,
                    struct pv_err *err)
{
        static const struct pv_netrule plain = { 0 };
        *bytes_per_second = 0;
        if (text[0] == '@')
                return append_group(r, text, groups, &plain, err);
        return strchr(text, '=') ? add_long(r, text, groups, bytes_per_second, err) : add_short(r, text, err);
}
