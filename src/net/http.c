/* SPDX-License-Identifier: Apache-2.0 */
#include "net/http.h"

#include <string.h>
#include <strings.h>

/* A piece of the request; never NUL-terminated. */
struct span {
        const char *s;
        size_t n;
};

static bool take_until(struct span *in, char stop, struct span *out)
{
        const char *end = memchr(in->s, stop, in->n);
        if (!end)
                return false;
        *out = (struct span){ in->s, (size_t)(end - in->s) };
        in->n -= out->n + 1;
        in->s = end + 1;
        return true;
}

static bool span_is(struct span a, const char *text)
{
        return a.n == strlen(text) && memcmp(a.s, text, a.n) == 0;
}

static bool has_prefix_nocase(struct span a, const char *prefix)
{
        size_t n = strlen(prefix);
        return a.n >= n && strncasecmp(a.s, prefix, n) == 0;
}

/* Length of the head with its empty line, 0 while it has not come. Bare LF ends lines too, as many clients rely on. */
static size_t head_length(const char *buf, size_t len)
{
        for (const char *p = buf; (p = memchr(p, '\n', len - (size_t)(p - buf)));) {
                size_t at = (size_t)(++p - buf);
                if (at < len && buf[at] == '\n')
                        return at + 1;
                if (at + 1 < len && buf[at] == '\r' && buf[at + 1] == '\n')
                        return at + 2;
        }
        return 0;
}

/* "host", "host:port", "[v6]", "[v6]:port". */
static bool parse_authority(struct span a, uint16_t standard_port, struct pv_http_request *out)
{
        struct span host = a, port = { "", 0 };
        if (a.n > 0 && a.s[0] == '[') {
                const char *end = memchr(a.s, ']', a.n);
                if (!end)
                        return false;
                host = (struct span){ a.s + 1, (size_t)(end - a.s - 1) };
                port = (struct span){ end + 1, a.n - host.n - 2 };
        } else {
                const char *colon = memchr(a.s, ':', a.n);
                if (colon) {
                        host.n = (size_t)(colon - a.s);
                        port = (struct span){ colon, a.n - host.n };
                }
        }
        unsigned v = standard_port;
        if (port.n > 0) {
                if (port.s[0] != ':' || port.n < 2 || port.n > 6)
                        return false;
                v = 0;
                for (size_t i = 1; i < port.n; i++) {
                        if (port.s[i] < '0' || port.s[i] > '9')
                                return false;
                        v = v * 10 + (unsigned)(port.s[i] - '0');
                }
        }
        if (host.n == 0 || host.n > PV_NETRULE_NAME_MAX || v == 0 || v > 65535 || memchr(host.s, '\0', host.n))
                return false;
        memcpy(out->host, host.s, host.n);
        out->host[host.n] = '\0';
        out->port = (uint16_t)v;
        return true;
}

enum pv_http_parse pv_http_parse(const char *buf, size_t len, struct pv_http_request *out)
{
        struct span rest = { buf, len }, line, method, target;
        *out = (struct pv_http_request){ 0 };
        out->head = head_length(buf, len);
        if (out->head == 0)
                return len >= PV_HTTP_HEAD_MAX ? PV_HTTP_BAD : PV_HTTP_MORE;
        if (!take_until(&rest, '\n', &line))
                return PV_HTTP_BAD;
        if (line.n > 0 && line.s[line.n - 1] == '\r')
                line.n--;
        if (!take_until(&line, ' ', &method) || method.n == 0 || !take_until(&line, ' ', &target) ||
            !(span_is(line, "HTTP/1.1") || span_is(line, "HTTP/1.0")))
                return PV_HTTP_BAD;
        if (span_is(method, "CONNECT"))
                return parse_authority(target, 443, out) ? PV_HTTP_CONNECT : PV_HTTP_BAD;
        if (!has_prefix_nocase(target, "http://"))
                return target.n > 0 && target.s[0] == '/' ? PV_HTTP_NOT_PROXY : PV_HTTP_BAD;
        struct span authority = { target.s + 7, target.n - 7 };
        for (size_t i = 0; i < authority.n; i++)
                if (strchr("/?#", authority.s[i])) {
                        authority.n = i;
                        break;
                }
        const char *at = memchr(authority.s, '@', authority.n); /* user information is not sent on */
        if (at)
                authority = (struct span){ at + 1, authority.n - (size_t)(at + 1 - authority.s) };
        return parse_authority(authority, 80, out) ? PV_HTTP_FORWARD : PV_HTTP_BAD;
}

static bool is_hop_by_hop(struct span line)
{
        static const char *const names[] = { "Connection:", "Proxy-", "Keep-Alive:", "Host:" };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (has_prefix_nocase(line, names[i]))
                        return true;
        return false;
}

static void put_host(struct pv_str *out, const struct pv_http_request *r)
{
        bool v6 = strchr(r->host, ':');
        pv_str_putf(out, "Host: %s%s%s", v6 ? "[" : "", r->host, v6 ? "]" : "");
        if (r->port != 80)
                pv_str_putf(out, ":%u", r->port);
        pv_str_put(out, "\r\n");
}

void pv_http_rewrite(const char *buf, const struct pv_http_request *r, struct pv_str *out)
{
        struct span rest = { buf, r->head }, line = { "", 0 }, method = { "", 0 }, target = { "", 0 };
        (void)take_until(&rest, '\n', &line);
        (void)take_until(&line, ' ', &method);
        (void)take_until(&line, ' ', &target);
        size_t skip = 7; /* http:// */
        while (skip < target.n && !strchr("/?#", target.s[skip]))
                skip++;
        pv_str_put_bytes(out, method.s, method.n);
        pv_str_put(out, skip < target.n && target.s[skip] == '/' ? " " : " /");
        pv_str_put_bytes(out, target.s + skip, target.n - skip);
        pv_str_put(out, " HTTP/1.1\r\n");
        put_host(out, r);
        while (take_until(&rest, '\n', &line)) {
                if (line.n > 0 && line.s[line.n - 1] == '\r')
                        line.n--;
                if (line.n == 0)
                        break;
                if (is_hop_by_hop(line))
                        continue;
                pv_str_put_bytes(out, line.s, line.n);
                pv_str_put(out, "\r\n");
        }
        pv_str_put(out, "Connection: close\r\n\r\n");
}

void pv_http_answer(struct pv_str *out, int status, const char *sentence)
{
        const char *reason = status == 400 ? "Bad Request" : status == 403 ? "Forbidden" : "Bad Gateway";
        pv_str_putf(out,
                    "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %zu\r\n"
                    "Connection: close\r\nProxy-Agent: pvisor\r\n\r\npvisor: %s\n",
                    status, reason, strlen(sentence) + sizeof "pvisor: \n" - 1, sentence);
}
