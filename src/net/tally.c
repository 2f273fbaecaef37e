/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tally.h"

#include <string.h>
#include "base/clock.h"

enum state { REACHED, REFUSED, FAILED };
static const char *const state_names[] = { [REACHED] = "reached", [REFUSED] = "refused", [FAILED] = "failed" };
static const char *const via_names[] = {
        [PV_VIA_CONNECT] = "connect",     [PV_VIA_DNS] = "dns", [PV_VIA_PROXY] = "proxy", [PV_VIA_PUBLISH] = "publish",
        [PV_VIA_HOST_PORT] = "host-port",
};
static const char *const end_names[] = {
        [PV_FLOW_DONE] = "done",
        [PV_FLOW_BROKEN] = "broken",
        [PV_FLOW_FAILED] = "failed",
        [PV_FLOW_REFUSED] = "refused",
};

struct target {
        char *name; /* "example.com" or an address */
        uint16_t port;
        enum state state;
        uint64_t count, bytes_out, bytes_in;
        char *why;
        bool by_rule; /* an allow rule would not help: a deny rule or a special address refuses */
        bool private; /* ... a private one, by name */
        bool by_file; /* the configuration file's list is what does not name it */
        struct target *next_in_bucket;
};

#define BUCKETS 256

struct pv_tally {
        int events;
        uint64_t lines, lines_left_out;
        struct target **target; /* in the order of their first sight */
        size_t n;
        struct target *bucket[BUCKETS];
        uint64_t flows, refused, failed, questions_refused, bytes_out, bytes_in;
};

struct pv_tally *pv_tally_new(int events)
{
        struct pv_tally *t = pv_calloc(1, sizeof *t);
        t->events = events;
        return t;
}

void pv_tally_free(struct pv_tally *t)
{
        if (!t)
                return;
        for (size_t i = 0; i < t->n; i++) {
                free(t->target[i]->name);
                free(t->target[i]->why);
                free(t->target[i]);
        }
        free(t->target);
        free(t);
}

const char *pv_verdict_text(const struct pv_verdict *v, char *buf, size_t size)
{
        pv_auto_str rule = { 0 };
        switch (v->kind) {
        case PV_VERDICT_ALLOWED:
                return "allowed";
        case PV_VERDICT_DENIED:
                pv_netrule_put(&rule, v->rule);
                (void)snprintf(buf, size, "denied by the rule %s (%s)", rule.s, v->layer);
                return buf;
        case PV_VERDICT_NOT_ALLOWED:
                (void)snprintf(buf, size, "not named by an allow rule (%s)", v->layer);
                return buf;
        case PV_VERDICT_SPECIAL:
                (void)snprintf(buf, size, "it is %s, which needs a rule by address", v->what);
                return buf;
        }
        return "refused";
}

static const char *reason_of(const struct pv_flow_record *r, char *buf, size_t size)
{
        if (r->end == PV_FLOW_REFUSED && r->verdict)
                return pv_verdict_text(r->verdict, buf, size);
        if (r->text)
                return r->text;
        return r->error ? strerror(r->error) : NULL;
}

static void put_target(struct pv_str *out, const struct pv_flow_record *r)
{
        if (r->name)
                pv_str_put(out, r->name);
        else if (r->addr)
                pv_netaddr_put(out, r->addr);
}

static void write_line(struct pv_tally *t, const struct pv_flow_record *r, const char *target, const char *why)
{
        char at[PV_CLOCK_TEXT];
        struct timespec now = pv_clock_now();
        pv_auto_str addr = { 0 };
        if (t->events < 0)
                return;
        if (t->lines == PV_TALLY_LINES) {
                t->lines_left_out++;
                return;
        }
        t->lines++;
        pv_clock_format(&now, at);
        if (r->addr)
                pv_netaddr_put(&addr, r->addr);
        pv_auto_json j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?, s:i, s:I, s:I, s:I, s:s?, s:s?}", "at", at, "event",
                                   r->via == PV_VIA_DNS ? "network.name" : "network.flow", "end", end_names[r->end],
                                   "via", via_names[r->via], "target", target, "address", addr.s, "port", (int)r->port,
                                   "bytes_out", (json_int_t)r->bytes_out, "bytes_in", (json_int_t)r->bytes_in,
                                   "duration_ms", (json_int_t)r->duration_ms, "why", why, "tls_name", r->tls_name);
        pv_auto_free char *text = j ? json_dumps(j, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
        struct pv_err ignored = PV_ERR_INIT;
        if (!text)
                return;
        size_t n = strlen(text);
        text[n] = '\n'; /* the NUL's place; the length is passed on */
        (void)pv_fd_write_all(t->events, text, n + 1, "events", &ignored);
}

/* The entry of a target, made when new; the last one stands for all that come after the table is full. */
static struct target *entry(struct pv_tally *t, const char *name, uint16_t port, enum state state)
{
        if (t->n >= PV_TALLY_TARGETS) {
                name = "(other targets)";
                port = 0;
        }
        size_t h = 5381 + port + (size_t)state;
        for (const char *p = name; *p; p++)
                h = h * 33 ^ (unsigned char)*p;
        struct target **bucket = &t->bucket[h % BUCKETS];
        for (struct target *e = *bucket; e; e = e->next_in_bucket)
                if (e->port == port && e->state == state && pv_streq(e->name, name))
                        return e;
        struct target *e = pv_calloc(1, sizeof *e);
        *e = (struct target){ .name = pv_strdup(name), .port = port, .state = state, .next_in_bucket = *bucket };
        *bucket = e;
        t->target = pv_realloc(t->target, t->n + 1, sizeof *t->target);
        t->target[t->n++] = e;
        return e;
}

void pv_tally_note(struct pv_tally *t, const struct pv_flow_record *r)
{
        static const enum state states[] = {
                [PV_FLOW_DONE] = REACHED,
                [PV_FLOW_BROKEN] = REACHED,
                [PV_FLOW_FAILED] = FAILED,
                [PV_FLOW_REFUSED] = REFUSED,
        };
        char buf[512];
        pv_auto_str target = { 0 };
        const char *why = reason_of(r, buf, sizeof buf);
        put_target(&target, r);
        pv_str_put(&target, "");
        write_line(t, r, target.s, why);

        struct target *e = entry(t, target.s, r->port, states[r->end]);
        e->count++;
        e->bytes_out += r->bytes_out;
        e->bytes_in += r->bytes_in;
        if (!e->why && why && e->state != REACHED)
                e->why = pv_strdup(why);
        e->by_rule |= r->verdict && r->verdict->kind != PV_VERDICT_NOT_ALLOWED;
        e->by_file |=
                r->verdict && r->verdict->kind == PV_VERDICT_NOT_ALLOWED && pv_streq(r->verdict->layer, PV_LAYER_USER);
        e->private |=
                r->verdict && r->name && r->verdict->kind == PV_VERDICT_SPECIAL && strstr(r->verdict->what, "private");
        t->bytes_out += r->bytes_out;
        t->bytes_in += r->bytes_in;
        if (r->via == PV_VIA_DNS)
                t->questions_refused += r->end == PV_FLOW_REFUSED;
        else
                t->flows++;
        t->refused += r->end == PV_FLOW_REFUSED;
        t->failed += r->end == PV_FLOW_FAILED;
}

static json_t *target_json(const struct target *e)
{
        pv_auto_str allow = { 0 };
        if (e->state == REFUSED && !e->by_rule) {
                bool v6 = strchr(e->name, ':');
                pv_str_putf(&allow, "%s %s%s%s", e->by_file ? "overlaynet-allow:" : "--overlaynet-allow",
                            v6 && e->port ? "[" : "", e->name, v6 && e->port ? "]" : "");
                if (e->port)
                        pv_str_putf(&allow, ":%u", e->port);
                pv_str_put(&allow, e->by_file ? " in the configuration file" : "");
        }
        if (e->private)
                pv_str_put(&allow, "--overlaynet-allow-private-ips");
        return json_pack("{s:s, s:o, s:s, s:I, s:I, s:I, s:s?, s:s?}", "target", e->name, "port",
                         e->port ? json_integer(e->port) : json_null(), "state", state_names[e->state], "count",
                         (json_int_t)e->count, "bytes_out", (json_int_t)e->bytes_out, "bytes_in",
                         (json_int_t)e->bytes_in, "why", e->why, "allow_with", allow.s);
}

json_t *pv_tally_summary(const struct pv_tally *t)
{
        json_t *targets = json_array();
        for (size_t i = 0; i < t->n; i++)
                (void)json_array_append_new(targets, target_json(t->target[i]));
        return json_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:o}", "counters", "flows", (json_int_t)t->flows,
                         "refused", (json_int_t)t->refused, "failed", (json_int_t)t->failed, "names_refused",
                         (json_int_t)t->questions_refused, "bytes_out", (json_int_t)t->bytes_out, "bytes_in",
                         (json_int_t)t->bytes_in, "events_left_out", (json_int_t)t->lines_left_out, "targets", targets);
}
