/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/toml.h"

#include <ctype.h>
#include <string.h>
#include "base/str.h"

enum {
        NAME_MAX_LEN = 64,
        FIELDS_MAX = 64,
        DEPTH_MAX = 8,
};

struct field {
        char *name;         /* of this tool */
        struct pv_str text; /* YAML: of a list its elements */
        bool list;
};

/* A rule being read: [[overlaynet.rules]], or an inline table. */
struct table {
        char *host, *ports; /* ports: "443, 8443" */
        char *source, *target, *access;
};

struct reader {
        const char *p;
        bool (*knows)(void *ctx, const char *name);
        void *ctx;
        char section[NAME_MAX_LEN];
        struct table rule;
        struct field field[FIELDS_MAX];
        size_t n, left;
};

static void table_fini(struct table *t)
{
        char **const all[] = { &t->host, &t->ports, &t->source, &t->target, &t->access };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
                free(*all[i]);
                *all[i] = NULL;
        }
}

static void reader_fini(struct reader *r)
{
        for (size_t i = 0; i < r->n; i++) {
                free(r->field[i].name);
                pv_str_fini(&r->field[i].text);
        }
        table_fini(&r->rule);
}

static bool is_key_char(char c)
{
        return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static void skip_blanks(const char **p)
{
        *p += strspn(*p, " \t");
}

/* Lines, comments and blanks; between values of a list, too. */
static void skip_space(const char **p)
{
        for (;;) {
                *p += strspn(*p, " \t\r\n");
                if (**p != '#')
                        return;
                *p += strcspn(*p, "\n");
        }
}

bool pv_toml_is(const char *text)
{
        skip_space(&text);
        if (*text == '[') {
                text += strspn(text, "[");
                size_t n = 0;
                while (is_key_char(text[n]))
                        n++;
                return n > 0 && text[n] == ']' && strchr("] \t\r\n#", text[n + 1]);
        }
        size_t n = 0;
        while (is_key_char(text[n]))
                n++;
        const char *after = text + n;
        skip_blanks(&after);
        return n > 0 && *after == '=';
}

/* A key as this tool would name it: '_' is '-'. False: it is too long or none. */
static bool read_key(const char **p, char out[NAME_MAX_LEN])
{
        size_t n = 0;
        for (; is_key_char(**p) && n + 1 < NAME_MAX_LEN; (*p)++)
                out[n++] = **p == '_' ? '-' : **p;
        out[n] = '\0';
        return n > 0 && !is_key_char(**p);
}

static bool is_plain(const char *s)
{
        return isalnum((unsigned char)*s) &&
               s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                           "_./-")] == '\0';
}

static void put_scalar(struct pv_str *b, const char *s)
{
        if (is_plain(s)) {
                pv_str_put(b, s);
                return;
        }
        pv_str_putc(b, '"');
        for (; *s; s++)
                pv_str_putf(b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
        pv_str_putc(b, '"');
}

/* Without its quotes; NULL: it is none that ends on its line. The caller's. */
static char *read_scalar(const char **p)
{
        char quote = **p;
        if (quote != '"' && quote != '\'') {
                size_t n = strcspn(*p, ",]}#\r\n \t");
                char *bare = n ? pv_strndup(*p, n) : NULL;
                *p += n;
                return bare;
        }
        size_t n = strcspn(*p + 1, quote == '"' ? "\"\\\n" : "'\n");
        if ((*p)[1 + n] != quote)
                return NULL;
        char *text = pv_strndup(*p + 1, n);
        *p += n + 2;
        return text;
}

static void keep(char **slot, char *value)
{
        free(*slot);
        *slot = value;
}

static char **slot_of(struct table *t, const char *key)
{
        return pv_streq(key, "host")     ? &t->host
               : pv_streq(key, "ports")  ? &t->ports
               : pv_streq(key, "source") ? &t->source
               : pv_streq(key, "target") ? &t->target
               : pv_streq(key, "access") ? &t->access
                                         : NULL;
}

static bool read_value(const char **p, struct pv_str *out, bool *list, int depth);

static bool read_into_table(const char **p, struct table *t, int depth)
{
        char key[NAME_MAX_LEN];
        pv_auto_str value = { 0 };
        bool list = false;
        if (!read_key(p, key))
                return false;
        skip_blanks(p);
        if (*(*p)++ != '=')
                return false;
        skip_blanks(p);
        char **slot = slot_of(t, key);
        bool text = **p == '"' || **p == '\'';
        char *scalar = text ? read_scalar(p) : NULL;
        if (text && !scalar)
                return false;
        if (!text && !read_value(p, &value, &list, depth))
                return false;
        if (!slot)
                free(scalar);
        else
                keep(slot, scalar ? scalar : pv_str_steal(&value));
        return slot != NULL;
}

/* As one value here: a mount, or a target of the network for each port. */
static bool put_table(struct pv_str *out, const struct table *t)
{
        pv_auto_str b = { 0 };
        if (t->source) {
                pv_str_putf(&b, "%s%s%s:%s", t->source, t->target ? ":" : "", t->target ? t->target : "",
                            t->access ? t->access : "read");
                put_scalar(out, b.s);
                return true;
        }
        if (!t->host)
                return false;
        if (!t->ports)
                put_scalar(out, t->host);
        for (const char *p = t->ports; p && *p;) {
                size_t n = strcspn(p, ", ");
                pv_auto_free char *one = pv_strf("%s:%.*s", t->host, (int)n, p);
                if (p != t->ports)
                        pv_str_put(out, ", ");
                put_scalar(out, one);
                p += n + strspn(p + n, ", ");
        }
        return true;
}

static bool read_inline_table(const char **p, struct pv_str *out, int depth)
{
        __attribute__((cleanup(table_fini))) struct table t = { 0 };
        (*p)++;
        for (skip_space(p); **p != '}'; skip_space(p)) {
                if (!read_into_table(p, &t, depth))
                        return false;
                skip_space(p);
                if (**p == ',')
                        (*p)++;
        }
        (*p)++;
        return put_table(out, &t);
}

/* The elements, without brackets. */
static bool read_list(const char **p, struct pv_str *out, int depth)
{
        bool nested = false;
        (*p)++;
        pv_str_put(out, "");
        for (skip_space(p); **p != ']'; skip_space(p)) {
                if (out->len)
                        pv_str_put(out, ", ");
                if (!read_value(p, out, &nested, depth) || nested)
                        return false;
                skip_space(p);
                if (**p == ',')
                        (*p)++;
        }
        (*p)++;
        return true;
}

static bool read_value(const char **p, struct pv_str *out, bool *list, int depth)
{
        if (depth == DEPTH_MAX)
                return false;
        *list = **p == '[';
        if (*list)
                return read_list(p, out, depth + 1);
        if (**p == '{')
                return read_inline_table(p, out, depth + 1);
        pv_auto_free char *text = read_scalar(p);
        if (text)
                put_scalar(out, text);
        return text != NULL;
}

static struct field *field_named(struct reader *r, const char *name)
{
        for (size_t i = 0; i < r->n; i++)
                if (pv_streq(r->field[i].name, name))
                        return &r->field[i];
        if (r->n == FIELDS_MAX || !r->knows(r->ctx, name))
                return NULL;
        struct field *f = &r->field[r->n++];
        *f = (struct field){ .name = pv_strdup(name) };
        return f;
}

static void put_field(struct reader *r, const char *name, const char *text, bool list)
{
        struct field *f = field_named(r, name);
        if (!f) {
                r->left++;
                return;
        }
        f->list |= list || f->text.len;
        if (f->text.len)
                pv_str_put(&f->text, ", ");
        pv_str_put(&f->text, text);
}

/* What [section] and key are called here. The caller's. */
static char *name_of(const struct reader *r, const char *key)
{
        pv_auto_free char *both = pv_strf("%s-%s", r->section, key);
        if (pv_streq(both, "filesystem-max-size"))
                return pv_strdup("stage-max-size");
        if (pv_streq(both, "overlaynet-mode"))
                return pv_strdup("overlaynet");
        return pv_strdup(*r->section && r->knows(r->ctx, both) ? both : key);
}

/* What a [[rules]] said, at its end. */
static void end_rule(struct reader *r)
{
        pv_auto_str text = { 0 };
        if (put_table(&text, &r->rule))
                put_field(r, pv_streq(r->section, "overlaynet.deny") ? "overlaynet-deny" : "overlaynet-allow", text.s,
                          true);
        table_fini(&r->rule);
}

static bool is_rule(const char *section)
{
        return pv_streq(section, "overlaynet.rules") || pv_streq(section, "overlaynet.allow") ||
               pv_streq(section, "overlaynet.deny");
}

static void read_header(struct reader *r)
{
        end_rule(r);
        r->p += strspn(r->p, "[ \t");
        if (!read_key(&r->p, r->section))
                r->section[0] = '\0';
        r->p += strcspn(r->p, "\n");
}

/* False when it is not understood. */
static bool read_assignment(struct reader *r)
{
        char key[NAME_MAX_LEN];
        pv_auto_str text = { 0 };
        bool list = false;
        if (is_rule(r->section))
                return read_into_table(&r->p, &r->rule, 0);
        if (!read_key(&r->p, key))
                return false;
        skip_blanks(&r->p);
        if (*r->p != '=')
                return false;
        r->p++;
        skip_blanks(&r->p);
        if (!read_value(&r->p, &text, &list, 0))
                return false;
        pv_auto_free char *name = name_of(r, key);
        put_field(r, name, text.s, list);
        return true;
}

char *pv_toml_as_yaml(const char *text, size_t max, bool (*knows)(void *ctx, const char *name), void *ctx, size_t *left)
{
        __attribute__((cleanup(reader_fini))) struct reader r = { .p = text, .knows = knows, .ctx = ctx };
        pv_auto_str out = { 0 };
        for (skip_space(&r.p); *r.p; skip_space(&r.p)) {
                if (*r.p == '[') {
                        read_header(&r);
                        continue;
                }
                if (!read_assignment(&r))
                        r.left++;
                r.p += strcspn(r.p, "\n");
        }
        end_rule(&r);
        for (size_t i = 0; i < r.n; i++) {
                const struct field *f = &r.field[i];
                const char *value = f->text.s ? f->text.s : "";
                if (out.len + strlen(f->name) + strlen(value) + sizeof ", : []}" > max) {
                        r.left++;
                        continue;
                }
                pv_str_putf(&out, "%s%s: %s%s%s", out.len ? ", " : "{", f->name, f->list ? "[" : "", value,
                            f->list ? "]" : "");
        }
        *left = r.left;
        if (!out.len)
                return NULL;
        pv_str_putc(&out, '}');
        return pv_str_steal(&out);
}
