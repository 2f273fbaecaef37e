/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/gitconfig.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/file.h"
#include "base/str.h"

#define CONFIG_MAX (1U << 20)

struct section {
        char *name, *sub; /* the name in lower case; sub NULL: there is none */
};

static void section_fini(struct section *s)
{
        free(s->name);
        free(s->sub);
        *s = (struct section){ 0 };
}

static void lower(char *s)
{
        for (; *s; s++)
                *s = (char)tolower((unsigned char)*s);
}

/* [name] or [name "sub"]: what is behind it in the line. "", and left empty, when it is neither. */
static const char *read_section(const char *line, struct section *out)
{
        section_fini(out);
        size_t n = strcspn(line + 1, " \t]\"");
        const char *rest = line + 1 + n;
        rest += strspn(rest, " \t");
        pv_auto_str sub = { 0 };
        if (*rest == '"') {
                pv_str_put(&sub, "");
                for (rest++; *rest && *rest != '"'; rest++) {
                        if (*rest == '\\' && rest[1])
                                rest++;
                        pv_str_putc(&sub, *rest);
                }
                if (*rest != '"')
                        return "";
                rest++;
        }
        if (*rest != ']')
                return "";
        out->name = pv_strndup(line + 1, n);
        out->sub = sub.s ? pv_str_steal(&sub) : NULL;
        lower(out->name);
        rest++;
        return rest + strspn(rest, " \t");
}

/* Quotes, escapes, comments and trailing blanks undone. NULL: it goes on in the next line, or is damaged. */
static char *decode(const char *text)
{
        pv_auto_str out = { 0 };
        bool quoted = false;
        size_t end = 0; /* behind the last character that is no trailing blank */
        pv_str_put(&out, "");
        for (const char *c = text; *c && *c != '\r'; c++) {
                if (*c == '"') {
                        quoted = !quoted;
                        continue;
                }
                if (!quoted && (*c == '#' || *c == ';'))
                        break;
                bool escaped = *c == '\\';
                if (escaped && !*++c)
                        return NULL;
                pv_str_putc(&out, escaped && *c == 'n' ? '\n' : escaped && *c == 't' ? '\t' : *c);
                if (quoted || escaped || (*c != ' ' && *c != '\t'))
                        end = out.len;
        }
        return quoted ? NULL : pv_strndup(out.s, end);
}

static bool ends_in_backslash(const char *line)
{
        size_t n = strlen(line);
        n -= n > 0 && line[n - 1] == '\r';
        return n > 0 && line[n - 1] == '\\';
}

/* "key = value" of the section. Returns whether the value goes on in the next line. */
static bool read_entry(const char *line, const struct section *section, pv_gitconfig_entry *each, void *ctx)
{
        size_t n = strcspn(line, " \t=");
        const char *rest = line + n + strspn(line + n, " \t");
        if (n == 0 || *rest != '=' || !section->name)
                return false;
        pv_auto_free char *key = pv_strndup(line, n);
        pv_auto_free char *value = decode(rest + 1 + strspn(rest + 1, " \t"));
        lower(key);
        each(ctx, section->name, section->sub, key, value);
        return !value && ends_in_backslash(line);
}

bool pv_gitconfig_each(const char *dir, const char *name, pv_gitconfig_entry *each, void *ctx)
{
        struct pv_err ignored = PV_ERR_INIT;
        struct section section = { 0 };
        pv_auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_free char *text = NULL;
        size_t len = 0;
        if (fd < 0 || pv_file_read_at(fd, name, CONFIG_MAX, &text, &len, &ignored) < 0)
                return false;
        char *rest = text;
        bool goes_on = false;
        for (const char *line; (line = strsep(&rest, "\n"));) {
                if (goes_on) { /* no entry, whatever it looks like */
                        goes_on = ends_in_backslash(line);
                        continue;
                }
                line += strspn(line, " \t");
                if (*line == '[') /* an entry may follow in the same line */
                        line = read_section(line, &section);
                goes_on = read_entry(line, &section, each, ctx);
        }
        section_fini(&section);
        return true;
}

struct wanted {
        const char *section, *key;
        char *value;
};

static void take_wanted(void *ctx, const char *section, const char *sub, const char *key, const char *value)
{
        struct wanted *w = ctx;
        if (sub || strcasecmp(section, w->section) != 0 || strcasecmp(key, w->key) != 0)
                return;
        free(w->value);
        w->value = value ? pv_strdup(value) : NULL;
}

char *pv_gitconfig_get(const char *dir, const char *name, const char *section, const char *key)
{
        struct wanted w = { .section = section, .key = key };
        (void)pv_gitconfig_each(dir, name, take_wanted, &w);
        return w.value;
}
