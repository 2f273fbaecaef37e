/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <stdarg.h>
#include <string.h>
#include <strings.h>

static void die_of_memory(void)
{
        static const char msg[] = "pvisor: out of memory\n";
        ssize_t n = write(STDERR_FILENO, msg, sizeof msg - 1);
        (void)n;
        abort();
}

void *pv_calloc(size_t n, size_t size)
{
        void *p = calloc(n ? n : 1, size ? size : 1);
        if (!p)
                die_of_memory();
        return p;
}

void *pv_realloc(void *p, size_t n, size_t size)
{
        void *q = reallocarray(p, n ? n : 1, size ? size : 1);
        if (!q)
                die_of_memory();
        return q;
}

char *pv_strndup(const char *s, size_t n)
{
        char *p = strndup(s, n);
        if (!p)
                die_of_memory();
        return p;
}

char *pv_strdup(const char *s)
{
        char *p = strdup(s);
        if (!p)
                die_of_memory();
        return p;
}

char *pv_strf(const char *fmt, ...)
{
        va_list ap;
        char *p = NULL;
        va_start(ap, fmt);
        int n = vasprintf(&p, fmt, ap);
        va_end(ap);
        if (n < 0)
                die_of_memory();
        return p;
}

void pv_str_fini(struct pv_str *b)
{
        pv_freep(&b->s);
        *b = (struct pv_str){ 0 };
}

static void reserve(struct pv_str *b, size_t more)
{
        size_t need = b->len + more + 1;
        if (need <= b->cap)
                return;
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
                cap *= 2;
        b->s = pv_realloc(b->s, cap, 1);
        b->cap = cap;
}

void pv_str_put_bytes(struct pv_str *b, const void *p, size_t n)
{
        reserve(b, n);
        if (n)
                memcpy(b->s + b->len, p, n);
        b->len += n;
        b->s[b->len] = '\0';
}

void pv_str_put(struct pv_str *b, const char *s)
{
        pv_str_put_bytes(b, s, strlen(s));
}

void pv_str_putc(struct pv_str *b, char c)
{
        pv_str_put_bytes(b, &c, 1);
}

void pv_str_putf(struct pv_str *b, const char *fmt, ...)
{
        va_list ap, again;
        va_start(ap, fmt);
        va_copy(again, ap);
        int n = vsnprintf(NULL, 0, fmt, ap);
        va_end(ap);
        if (n > 0) {
                reserve(b, (size_t)n);
                (void)vsnprintf(b->s + b->len, (size_t)n + 1, fmt, again);
                b->len += (size_t)n;
        }
        va_end(again);
}

char *pv_str_steal(struct pv_str *b)
{
        reserve(b, 0);
        b->s[b->len] = '\0';
        char *s = b->s;
        *b = (struct pv_str){ 0 };
        return s;
}

/*
 * Length of the well-formed UTF-8 sequence at s (RFC 3629: no overlong forms, no surrogates), its code point in *cp;
 * 0 when there is none.
 */
static size_t utf8_at(const unsigned char *s, size_t n, uint32_t *cp)
{
        static const struct {
                unsigned char mask, lead;
                uint32_t least;
        } form[] = { { 0x80, 0x00, 0 }, { 0xe0, 0xc0, 0x80 }, { 0xf0, 0xe0, 0x800 }, { 0xf8, 0xf0, 0x10000 } };
        for (size_t len = 1; len <= 4 && len <= n; len++) {
                if ((s[0] & form[len - 1].mask) != form[len - 1].lead)
                        continue;
                uint32_t c = s[0] & (unsigned char)~form[len - 1].mask;
                for (size_t i = 1; i < len; i++) {
                        if ((s[i] & 0xc0) != 0x80)
                                return 0;
                        c = c << 6 | (s[i] & 0x3f);
                }
                if (c < form[len - 1].least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
                        return 0;
                *cp = c;
                return len;
        }
        return 0;
}

struct range {
        uint32_t first, last;
};

static bool is_in(const struct range *range, size_t n, uint32_t c)
{
        for (size_t i = 0; i < n; i++)
                if (c >= range[i].first && c <= range[i].last)
                        return true;
        return false;
}
#define IS_IN(ranges, c) is_in(ranges, sizeof(ranges) / sizeof *(ranges), c)

/*
 * Bidi and other format characters may reorder what stands on the line (Trojan Source), and what is shown as nothing at
 * all makes two names look like one: Unicode's Default_Ignorable_Code_Point and Cf, and the empty Braille pattern.
 */
static bool is_deceptive(uint32_t c)
{
        static const struct range ranges[] = {
                { 0x80, 0x9f },       { 0xad, 0xad },       { 0x34f, 0x34f },     { 0x600, 0x605 },
                { 0x61c, 0x61c },     { 0x6dd, 0x6dd },     { 0x70f, 0x70f },     { 0x115f, 0x1160 },
                { 0x17b4, 0x17b5 },   { 0x180b, 0x180f },   { 0x200b, 0x200f },   { 0x2028, 0x202e },
                { 0x2060, 0x206f },   { 0x2800, 0x2800 },   { 0x3164, 0x3164 },   { 0xfe00, 0xfe0f },
                { 0xfeff, 0xfeff },   { 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb },   { 0x13430, 0x1345f },
                { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a }, { 0xe0000, 0xe0fff },
        };
        return c >= 0x80 && IS_IN(ranges, c);
}

/* Unicode's Zs but for the plain space. */
static bool is_odd_blank(uint32_t c)
{
        static const struct range ranges[] = { { 0xa0, 0xa0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200a },
                                               { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 } };
        return c >= 0x80 && IS_IN(ranges, c);
}

/* Is the character at p + i one at which a component begins or ends? */
static bool is_at_an_end(const unsigned char *p, size_t n, size_t i)
{
        return i == 0 || i + 1 == n || p[i - 1] == '/' || p[i + 1] == '/';
}

static void put_escaped(struct pv_str *b, const unsigned char *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (p[i] == '\n')
                        pv_str_put(b, "\\n");
                else if (p[i] == '\t')
                        pv_str_put(b, "\\t");
                else if (p[i] == '\\')
                        pv_str_put(b, "\\\\");
                else
                        pv_str_putf(b, "\\x%02x", p[i]);
}

static void put_safe(struct pv_str *b, const char *s, size_t n, bool path)
{
        const unsigned char *p = (const unsigned char *)s;
        for (size_t i = 0; i < n;) {
                uint32_t cp = 0;
                size_t len = utf8_at(p + i, n - i, &cp);
                bool blank = path && (is_odd_blank(cp) || (cp == ' ' && is_at_an_end(p, n, i)));
                if (len > 0 && cp >= 0x20 && cp != 0x7f && cp != '\\' && !is_deceptive(cp) && !blank)
                        pv_str_put_bytes(b, p + i, len);
                else
                        put_escaped(b, p + i, len ? len : 1);
                i += len ? len : 1;
        }
        reserve(b, 0);
        b->s[b->len] = '\0';
}

void pv_str_put_safe_n(struct pv_str *b, const char *s, size_t n)
{
        put_safe(b, s, n, false);
}

void pv_str_put_safe(struct pv_str *b, const char *s)
{
        put_safe(b, s, strlen(s), false);
}

void pv_str_put_path_n(struct pv_str *b, const char *path, size_t n)
{
        put_safe(b, path, n, true);
}

void pv_str_put_path(struct pv_str *b, const char *path)
{
        put_safe(b, path, strlen(path), true);
}

bool pv_str_has_prefix(const char *s, const char *prefix)
{
        return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool pv_str_has_suffix(const char *s, const char *suffix)
{
        size_t n = strlen(s), m = strlen(suffix);
        return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

void pv_strv_fini(struct pv_strv *v)
{
        for (size_t i = 0; i < v->n; i++)
                pv_freep(&v->v[i]);
        free(v->v);
        *v = (struct pv_strv){ 0 };
}

void pv_strv_take(struct pv_strv *v, char *s)
{
        if (v->n + 2 > v->room) {
                v->room = v->n < 4 ? v->n + 2 : 2 * v->n;
                v->v = pv_realloc(v->v, v->room, sizeof *v->v);
        }
        v->v[v->n++] = s;
        v->v[v->n] = NULL;
}

void pv_strv_add(struct pv_strv *v, const char *s)
{
        pv_strv_take(v, pv_strdup(s));
}

bool pv_strv_has(const struct pv_strv *v, const char *s)
{
        for (size_t i = 0; i < v->n; i++)
                if (pv_streq(v->v[i], s))
                        return true;
        return false;
}

/* Splits "12.5unit" into thousandths and the unit; false when there is no number or it is too large. */
static bool split_number(const char *text, uint64_t *milli, const char **unit)
{
        uint64_t v = 0;
        const char *p = text;
        if (*p < '0' || *p > '9')
                return false;
        for (; *p >= '0' && *p <= '9'; p++)
                if (__builtin_mul_overflow(v, 10U, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
                        return false;
        if (__builtin_mul_overflow(v, 1000U, &v))
                return false;
        if (*p == '.') {
                uint64_t scale = 100;
                for (p++; *p >= '0' && *p <= '9'; p++, scale /= 10)
                        if (__builtin_add_overflow(v, (uint64_t)(*p - '0') * scale, &v))
                                return false;
        }
        *milli = v;
        *unit = p;
        return true;
}

struct unit {
        const char *name;
        uint64_t factor;
};

static int parse_with_units(const char *text, const struct unit *units, size_t n, const char *what, uint64_t *out,
                            struct pv_err *err)
{
        uint64_t milli = 0, v = 0;
        const char *unit = NULL;
        if (split_number(text, &milli, &unit))
                for (size_t i = 0; i < n; i++)
                        if (strcasecmp(unit, units[i].name) == 0) {
                                if (__builtin_mul_overflow(milli / 1000, units[i].factor, &v) ||
                                    __builtin_add_overflow(v, milli % 1000 * units[i].factor / 1000, &v))
                                        break;
                                *out = v;
                                return 0;
                        }
        return pv_err_set(err, PV_ERR_USAGE, 0, "'%s' is not a %s", text, what);
}

int pv_parse_size(const char *text, uint64_t *bytes, struct pv_err *err)
{
        static const struct unit units[] = {
                { "", 1 },
                { "b", 1 },
                { "k", 1ULL << 10 },
                { "kib", 1ULL << 10 },
                { "m", 1ULL << 20 },
                { "mib", 1ULL << 20 },
                { "g", 1ULL << 30 },
                { "gib", 1ULL << 30 },
                { "t", 1ULL << 40 },
                { "tib", 1ULL << 40 },
                { "kb", 1000 },
                { "mb", 1000000 },
                { "gb", 1000000000 },
                { "tb", 1000000000000ULL },
        };
        return parse_with_units(text, units, sizeof units / sizeof *units, "size (such as 512MiB or 4GB)", bytes, err);
}

int pv_parse_duration(const char *text, uint64_t *ms, struct pv_err *err)
{
        static const struct unit units[] = {
                { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 },
        };
        uint64_t n = 0;
        if (parse_with_units(text, units, sizeof units / sizeof *units, "duration (such as 500ms, 30s or 5m)", &n,
                             err) < 0)
                return -1;
        if (n > PV_DURATION_MAX_MS)
                return pv_err_set(err, PV_ERR_USAGE, 0, "'%s' is longer than 36500d", text);
        *ms = n;
        return 0;
}

void pv_str_put_size(struct pv_str *b, uint64_t bytes)
{
        static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
        size_t u = 0;
        double v = (double)bytes;
        for (; v >= 1024 && u + 1 < sizeof unit / sizeof *unit; u++)
                v /= 1024;
        if (u == 0)
                pv_str_putf(b, "%llu B", (unsigned long long)bytes);
        else
                pv_str_putf(b, "%.1f %s", v, unit[u]);
}

void pv_hex(const void *bytes, size_t n, char *out)
{
        static const char digit[] = "0123456789abcdef";
        const unsigned char *p = bytes;
        for (size_t i = 0; i < n; i++) {
                out[2 * i] = digit[p[i] >> 4];
                out[2 * i + 1] = digit[p[i] & 15];
        }
        out[2 * n] = '\0';
}
