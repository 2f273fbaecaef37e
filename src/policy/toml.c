/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/toml.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX   32
#define WRITTEN_MAX (8U << 20) /* each table has its whole path before it: many below a long one grow without end */

struct reading {
        const char *at, *start;
        json_t *root, *table; /* borrowed; table: where keys go now */
        struct pv_err *err;
        int depth;
};

static int wrong(struct reading *r, const char *what)
{
        unsigned line = 1;
        for (const char *p = r->start; p < r->at; p++)
                line += *p == '\n';
        return pv_err_set(r->err, PV_ERR_INPUT, 0, "line %u: %s", line, what);
}

static void skip_blanks(struct reading *r)
{
        r->at += strspn(r->at, " \t");
}

static void skip_comment(struct reading *r)
{
        if (*r->at == '#')
                r->at += strcspn(r->at, "\n");
}

/* Blanks, comments and line ends. */
static void skip_all(struct reading *r)
{
        do {
                r->at += strspn(r->at, " \t\r\n");
                skip_comment(r);
        } while (*r->at && strchr(" \t\r\n", *r->at));
}

static int end_line(struct reading *r)
{
        skip_blanks(r);
        skip_comment(r);
        if (*r->at == '\r' && r->at[1] == '\n')
                r->at++;
        if (*r->at && *r->at != '\n')
                return wrong(r, "the line should end here");
        return 0;
}

static void put_utf8(struct pv_str *out, unsigned long c)
{
        char b[4];
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const unsigned char first[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
        for (size_t i = n; i-- > 1; c >>= 6)
                b[i] = (char)(0x80 | (c & 0x3f));
        b[0] = (char)(n == 1 ? c : first[n] | c);
        pv_str_put_bytes(out, b, n);
}

static int read_escape(struct reading *r, struct pv_str *out)
{
        static const char names[] = "btnfr\"\\", chars[] = "\b\t\n\f\r\"\\";
        char c = *r->at++;
        const char *known = c ? strchr(names, c) : NULL;
        if (known) {
                pv_str_put_bytes(out, &chars[known - names], 1);
                return 0;
        }
        size_t digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (!digits || strspn(r->at, "0123456789abcdefABCDEF") < digits)
                return wrong(r, "no such escape");
        pv_auto_free char *hex = pv_strndup(r->at, digits);
        unsigned long v = strtoul(hex, NULL, 16);
        if (v == 0 || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
                return wrong(r, "no such character");
        r->at += digits;
        put_utf8(out, v);
        return 0;
}

/* One that ends with its quotes again: 1 of them, or 3 over several lines. */
static int read_string(struct reading *r, struct pv_str *out)
{
        char quote = *r->at;
        bool many = r->at[1] == quote && r->at[2] == quote;
        pv_str_put(out, "");
        r->at += many ? 3 : 1;
        if (many)
                r->at += *r->at == '\n' ? 1 : r->at[0] == '\r' && r->at[1] == '\n' ? 2 : 0;
        for (;;) {
                if (!*r->at || (*r->at == '\n' && !many))
                        return wrong(r, "a string is not closed");
                if (*r->at == quote && (!many || (r->at[1] == quote && r->at[2] == quote))) {
                        r->at += many ? 3 : 1;
                        for (int more = 0; many && more < 2 && *r->at == quote; more++, r->at++)
                                pv_str_put_bytes(out, &quote, 1);
                        return 0;
                }
                if (*r->at != '\\' || quote == '\'') {
                        pv_str_put_bytes(out, r->at++, 1);
                        continue;
                }
                r->at++;
                size_t blanks = strspn(r->at, " \t\r");
                if (many && r->at[blanks] == '\n')
                        r->at += strspn(r->at, " \t\r\n");
                else if (read_escape(r, out) < 0)
                        return -1;
        }
}

static int read_key(struct reading *r, struct pv_str *out)
{
        size_t n = 0;
        if (*r->at == '"' || *r->at == '\'')
                return r->at[1] == *r->at && r->at[2] == *r->at ? wrong(r, "a key") : read_string(r, out);
        while (isalnum((unsigned char)r->at[n]) || (r->at[n] && strchr("_-", r->at[n])))
                n++;
        if (n == 0)
                return wrong(r, "a key should stand here");
        pv_str_put_bytes(out, r->at, n);
        r->at += n;
        return 0;
}

/* a.b."c d": the table that holds the last one, made where it is missing. In an array of tables, its last one. */
static int read_path(struct reading *r, json_t *from, json_t **table, struct pv_str *last)
{
        for (int depth = 0; depth < DEPTH_MAX; depth++) {
                last->len = 0;
                skip_blanks(r);
                if (read_key(r, last) < 0)
                        return -1;
                skip_blanks(r);
                *table = from;
                if (*r->at != '.')
                        return 0;
                r->at++;
                json_t *next = json_object_get(from, last->s);
                if (!next && json_object_set_new(from, last->s, next = json_object()) < 0)
                        return wrong(r, "a key that is no text");
                if (json_is_array(next))
                        next = json_array_get(next, json_array_size(next) - 1);
                if (!json_is_object(next))
                        return wrong(r, "a value is used as a table");
                from = next;
        }
        return wrong(r, "too deep");
}

static json_t *read_value(struct reading *r);

static int read_pair(struct reading *r, json_t *table)
{
        pv_auto_str key = { 0 };
        json_t *holder = NULL;
        if (read_path(r, table, &holder, &key) < 0)
                return -1;
        if (*r->at++ != '=')
                return r->at--, wrong(r, "'=' should stand here");
        if (json_object_get(holder, key.s))
                return wrong(r, "a key stands there twice");
        json_t *value = read_value(r);
        if (!value)
                return -1;
        return json_object_set_new(holder, key.s, value) < 0 ? wrong(r, "a key that is no text") : 0;
}

static json_t *read_inline_table(struct reading *r)
{
        pv_auto_json table = json_object();
        r->at++;
        skip_blanks(r);
        for (bool first = true; *r->at != '}' || !first; first = false) {
                if (read_pair(r, table) < 0)
                        return NULL;
                skip_blanks(r);
                if (*r->at == '}')
                        break;
                if (*r->at++ != ',') {
                        (void)wrong(r, "',' or '}' should stand here");
                        return NULL;
                }
        }
        r->at++;
        return json_incref(table);
}

static json_t *read_array(struct reading *r)
{
        pv_auto_json array = json_array();
        r->at++;
        for (;;) {
                skip_all(r);
                if (*r->at == ']') {
                        r->at++;
                        return json_incref(array);
                }
                json_t *value = read_value(r);
                if (!value || json_array_append_new(array, value) < 0)
                        return NULL;
                skip_all(r);
                if (*r->at == ',') {
                        r->at++;
                } else if (*r->at != ']') {
                        (void)wrong(r, "',' or ']' should stand here");
                        return NULL;
                }
        }
}

static json_t *read_number(struct reading *r)
{
        size_t n = strcspn(r->at, " \t\r\n,]}#"), kept = 0;
        char text[64], *end = NULL;
        json_t *value = NULL;
        for (size_t i = 0; i < n && kept < sizeof text - 1; i++)
                if (r->at[i] != '_')
                        text[kept++] = r->at[i];
        text[kept] = '\0';
        const char *digits = text + strspn(text, "+-");
        bool whole = *digits && strspn(digits, "0123456789") == strlen(digits);
        bool real = isdigit((unsigned char)*digits) && strspn(digits, "0123456789.eE+-") == strlen(digits) &&
                    strpbrk(digits, ".eE");
        errno = 0;
        if (whole)
                value = json_integer(strtoll(text, &end, 10));
        else if (real)
                value = json_real(strtod(text, &end));
        if (!value || errno || !end || *end || digits > text + 1) {
                json_decref(value);
                (void)wrong(r, "a value that is not understood");
                return NULL;
        }
        r->at += n;
        return value;
}

static json_t *read_text(struct reading *r)
{
        pv_auto_str text = { 0 };
        if (read_string(r, &text) < 0)
                return NULL;
        json_t *value = json_stringn(text.s, text.len);
        if (!value)
                (void)wrong(r, "a string that is no text");
        return value;
}

static bool take_word(struct reading *r, const char *word)
{
        size_t n = strlen(word);
        if (strncmp(r->at, word, n) != 0 || isalnum((unsigned char)r->at[n]))
                return false;
        r->at += n;
        return true;
}

static json_t *read_value(struct reading *r)
{
        json_t *value = NULL;
        skip_blanks(r);
        if (++r->depth > DEPTH_MAX)
                (void)wrong(r, "too deep");
        else if (*r->at == '"' || *r->at == '\'')
                value = read_text(r);
        else if (*r->at == '[')
                value = read_array(r);
        else if (*r->at == '{')
                value = read_inline_table(r);
        else if (take_word(r, "true"))
                value = json_true();
        else if (take_word(r, "false"))
                value = json_false();
        else
                value = read_number(r);
        r->depth--;
        return value;
}

/* [table] or [[one more of an array of tables]] */
static int read_header(struct reading *r)
{
        pv_auto_str key = { 0 };
        json_t *holder = NULL;
        bool many = r->at[1] == '[';
        r->at += many ? 2 : 1;
        if (read_path(r, r->root, &holder, &key) < 0)
                return -1;
        if (*r->at != ']' || (many && r->at[1] != ']'))
                return wrong(r, "']' should stand here");
        r->at += many ? 2 : 1;
        json_t *there = json_object_get(holder, key.s);
        if (there ? !(many ? json_is_array(there) : json_is_object(there))
                  : json_object_set_new(holder, key.s, there = many ? json_array() : json_object()) < 0)
                return wrong(r, "a table stands there twice");
        if (many && json_array_append_new(there, json_object()) < 0)
                return wrong(r, "no memory");
        r->table = many ? json_array_get(there, json_array_size(there) - 1) : there;
        return 0;
}

int pv_toml_read(const char *text, json_t **out, struct pv_err *err)
{
        pv_auto_json root = json_object();
        struct reading r = { .at = text, .start = text, .root = root, .table = root, .err = err };
        if (pv_str_has_prefix(text, "\xef\xbb\xbf"))
                r.at += 3;
        for (skip_all(&r); *r.at; skip_all(&r))
                if ((*r.at == '[' ? read_header(&r) : read_pair(&r, r.table)) < 0 || end_line(&r) < 0)
                        return -1;
        *out = json_incref(root);
        return 0;
}

/* ---- writing ---- */

static void put_text(struct pv_str *out, const char *text)
{
        pv_str_put(out, "\"");
        for (const char *p = text; *p; p++) {
                if (*p == '"' || *p == '\\')
                        pv_str_putf(out, "\\%c", *p);
                else if ((unsigned char)*p < 0x20 || *p == 0x7f)
                        pv_str_putf(out, "\\u%04x", (unsigned)(unsigned char)*p);
                else
                        pv_str_put_bytes(out, p, 1);
        }
        pv_str_put(out, "\"");
}

static void put_value(struct pv_str *out, const json_t *value)
{
        const char *key;
        json_t *one;
        size_t i;
        switch (json_typeof(value)) {
        case JSON_STRING:
                put_text(out, json_string_value(value));
                break;
        case JSON_ARRAY:
                pv_str_put(out, "[");
                json_array_foreach(value, i, one)
                {
                        pv_str_put(out, i ? ", " : "");
                        put_value(out, one);
                }
                pv_str_put(out, "]");
                break;
        case JSON_OBJECT:
                pv_str_put(out, "{");
                i = 0;
                json_object_foreach((json_t *)(uintptr_t)value, key, one)
                {
                        pv_str_put(out, i++ ? ", " : "");
                        put_text(out, key);
                        pv_str_put(out, " = ");
                        put_value(out, one);
                }
                pv_str_put(out, "}");
                break;
        case JSON_INTEGER:
                pv_str_putf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
                break;
        case JSON_REAL:
                pv_str_putf(out, "%.17e", json_real_value(value));
                break;
        case JSON_TRUE:
        case JSON_FALSE:
        case JSON_NULL: /* there is none in TOML */
                pv_str_put(out, json_is_true(value) ? "true" : "false");
                break;
        }
}

static bool is_tables(const json_t *value)
{
        size_t i;
        json_t *one;
        bool all = json_array_size(value) > 0;
        json_array_foreach(value, i, one)
        {
                all = all && json_is_object(one);
        }
        return all;
}

static void put_table(struct pv_str *out, const char *path, const json_t *table);

static void put_header(struct pv_str *out, const char *path, const json_t *table, bool many)
{
        pv_str_putf(out, many ? "\n[[%s]]\n" : "\n[%s]\n", path);
        put_table(out, path, table);
}

static void put_table(struct pv_str *out, const char *path, const json_t *table)
{
        const char *key;
        json_t *value, *one;
        size_t i;
        json_object_foreach((json_t *)(uintptr_t)table, key, value)
        {
                if (json_is_object(value) || is_tables(value))
                        continue;
                put_text(out, key);
                pv_str_put(out, " = ");
                put_value(out, value);
                pv_str_put(out, "\n");
        }
        json_object_foreach((json_t *)(uintptr_t)table, key, value)
        {
                pv_auto_str below = { 0 };
                if (out->len > WRITTEN_MAX || !(json_is_object(value) || is_tables(value)))
                        continue;
                pv_str_putf(&below, "%s%s", path, *path ? "." : "");
                put_text(&below, key);
                if (json_is_object(value)) {
                        put_header(out, below.s, value, false);
                        continue;
                }
                json_array_foreach(value, i, one)
                {
                        if (out->len <= WRITTEN_MAX)
                                put_header(out, below.s, one, true);
                }
        }
}

int pv_toml_write(struct pv_str *out, const json_t *table, struct pv_err *err)
{
        put_table(out, "", table);
        return out->len > WRITTEN_MAX ? pv_err_set(err, PV_ERR_INPUT, 0, "too large") : 0;
}
