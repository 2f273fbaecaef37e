/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/gitconfig.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include "base/file.h"
#include "base/str.h"

#define CONFIG_MAX (1U << 20)

static bool is_section(const char *line, const char *section)
{
        size_t n = strlen(section);
        return strncasecmp(line + 1, section, n) == 0 && line[1 + n] == ']';
}

/* What stands behind "key =", NULL when the line is about something else. */
static const char *value_of(const char *line, const char *key)
{
        size_t n = strlen(key);
        if (strncasecmp(line, key, n) != 0)
                return NULL;
        line += n + strspn(line + n, " \t");
        if (*line != '=')
                return NULL;
        return line + 1 + strspn(line + 1, " \t");
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

char *pv_gitconfig_get(const char *dir, const char *name, const char *section, const char *key)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_free char *text = NULL, *value = NULL;
        size_t len = 0;
        bool inside = false;
        if (fd < 0 || pv_file_read_at(fd, name, CONFIG_MAX, &text, &len, &ignored) < 0)
                return NULL;
        char *rest = text;
        for (char *line; (line = strsep(&rest, "\n"));) {
                line += strspn(line, " \t");
                const char *found = inside ? value_of(line, key) : NULL;
                if (*line == '[')
                        inside = is_section(line, section);
                if (found) {
                        free(value);
                        value = decode(found);
                }
        }
        return pv_steal(&value);
}
