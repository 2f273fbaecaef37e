/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/toml_hint.h"

#include <ctype.h>
#include <string.h>
#include "base/json.h"
#include "base/str.h"
#include "policy/toml.h"

#define FIELDS_MAX 64

struct field {
        char *name;         /* of this tool */
        struct pv_str text; /* YAML: of a list its elements */
        bool list;
};

struct hint {
        bool (*knows)(void *ctx, const char *name);
        void *ctx;
        struct field field[FIELDS_MAX];
        size_t n, left;
};

static void hint_fini(struct hint *h)
{
        for (size_t i = 0; i < h->n; i++) {
                free(h->field[i].name);
                pv_str_fini(&h->field[i].text);
        }
}

static bool is_key_char(char c)
{
        return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static size_t key_length(const char *text)
{
        size_t n = 0;
        while (is_key_char(text[n]))
                n++;
        return n;
}

bool pv_toml_hint_is_toml(const char *text)
{
        for (text += strspn(text, " \t\r\n"); *text == '#'; text += strspn(text, " \t\r\n"))
                text += strcspn(text, "\n");
        if (*text == '[') {
                text += strspn(text, "[");
                size_t n = key_length(text);
                return n > 0 && text[n] == ']' && strchr("] \t\r\n#", text[n + 1]);
        }
        size_t n = key_length(text);
        return n > 0 && text[n + strspn(text + n, " \t")] == '=';
}

static bool is_plain(const char *s)
{
        return isalnum((unsigned char)*s) &&
               s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")] == '\0';
}

static void put_text(struct pv_str *out, const char *s)
{
        if (is_plain(s)) {
                pv_str_put(out, s);
                return;
        }
        pv_str_putc(out, '"');
        for (; *s; s++)
                pv_str_putf(out, (unsigned char)*s < 0x20 ? "\\x%02x" : *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
        pv_str_putc(out, '"');
}

static const char *member(const json_t *table, const char *name)
{
        return json_string_value(json_object_get(table, name));
}

/* As one value here: a mount, or a target of the network for each port. False: it is something else. */
static bool put_table(struct pv_str *out, const json_t *table)
{
        const char *source = member(table, "source"), *target = member(table, "target");
        const char *access = member(table, "access"), *host = member(table, "host");
        const json_t *ports = json_object_get(table, "ports");
        pv_auto_str one = { 0 };
        if (source) {
                pv_str_putf(&one, "%s%s%s:%s", source, target ? ":" : "", target ? target : "",
                            access ? access : "read");
                put_text(out, one.s);
                return true;
        }
        if (!host)
                return false;
        if (json_array_size(ports) == 0)
                put_text(out, host);
        for (size_t i = 0; i < json_array_size(ports); i++) {
                pv_auto_free char *with =
                        pv_strf("%s:%" JSON_INTEGER_FORMAT, host, json_integer_value(json_array_get(ports, i)));
                pv_str_put(out, i ? ", " : "");
                put_text(out, with);
        }
        return true;
}

static bool put_scalar(struct pv_str *out, const json_t *value)
{
        if (json_is_string(value))
                put_text(out, json_string_value(value));
        else if (json_is_boolean(value))
                pv_str_put(out, json_is_true(value) ? "true" : "false");
        else if (json_is_integer(value))
                pv_str_putf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else
                return false;
        return true;
}

static bool put_value(struct pv_str *out, const json_t *value)
{
        size_t i;
        json_t *one;
        if (!json_is_array(value))
                return put_scalar(out, value);
        pv_str_put(out, "");
        json_array_foreach(value, i, one)
        {
                pv_str_put(out, i ? ", " : "");
                if (!(json_is_object(one) ? put_table(out, one) : put_scalar(out, one)))
                        return false;
        }
        return true;
}

static struct field *field_named(struct hint *h, const char *name)
{
        for (size_t i = 0; i < h->n; i++)
                if (pv_streq(h->field[i].name, name))
                        return &h->field[i];
        if (h->n == FIELDS_MAX || !h->knows(h->ctx, name))
                return NULL;
        struct field *f = &h->field[h->n++];
        *f = (struct field){ .name = pv_strdup(name) };
        return f;
}

/* What a key of a section is called here: with the section before it, where that is a field. The caller's. */
static char *name_of(const struct hint *h, const char *section, const char *key)
{
        static const struct {
                const char *theirs, *ours;
        } renamed[] = {
                { "filesystem-max-size", "stage-max-size" },
                { "overlaynet-mode", "overlaynet" },
                { "overlaynet-rules", "overlaynet-allow" },
        };
        pv_auto_free char *both = pv_strf("%s%s%s", section, *section ? "-" : "", key);
        for (char *p = both; *p; p++)
                *p = *p == '_' ? '-' : *p;
        for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
                if (pv_streq(both, renamed[i].theirs))
                        return pv_strdup(renamed[i].ours);
        return pv_strdup(!*section || h->knows(h->ctx, both) ? both : both + strlen(section) + 1);
}

static void take_value(struct hint *h, const char *section, const char *key, const json_t *value)
{
        pv_auto_str text = { 0 };
        pv_auto_free char *name = name_of(h, section, key);
        struct field *f = put_value(&text, value) ? field_named(h, name) : NULL;
        if (!f) {
                h->left++;
                return;
        }
        f->list |= json_is_array(value) || f->text.len;
        if (f->text.len)
                pv_str_put(&f->text, ", ");
        pv_str_put(&f->text, text.s);
}

static void take_table(struct hint *h, const char *section, const json_t *table)
{
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)table, key, value)
        {
                pv_auto_free char *below = pv_strf("%s%s%s", section, *section ? "-" : "", key);
                if (json_is_object(value))
                        take_table(h, below, value);
                else
                        take_value(h, section, key, value);
        }
}

char *pv_toml_hint_yaml(const char *text, size_t max, bool (*knows)(void *ctx, const char *name), void *ctx,
                        size_t *left)
{
        __attribute__((cleanup(hint_fini))) struct hint h = { .knows = knows, .ctx = ctx };
        pv_auto_json root = NULL;
        pv_auto_str out = { 0 };
        struct pv_err why = PV_ERR_INIT;
        *left = 0;
        if (pv_toml_read(text, &root, &why) < 0)
                return NULL;
        take_table(&h, "", root);
        for (size_t i = 0; i < h.n; i++) {
                const struct field *f = &h.field[i];
                if (out.len + strlen(f->name) + f->text.len + sizeof ", : []}" > max) {
                        h.left++;
                        continue;
                }
                pv_str_putf(&out, "%s%s: %s%s%s", out.len ? ", " : "{", f->name, f->list ? "[" : "", f->text.s,
                            f->list ? "]" : "");
        }
        *left = h.left;
        if (!out.len)
                return NULL;
        pv_str_putc(&out, '}');
        return pv_str_steal(&out);
}
