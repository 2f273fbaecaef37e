/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/quote.h"

#include <string.h>

static bool needs_escape(unsigned char c)
{
        return c < 0x20 || c >= 0x7f || c == '"' || c == '\\';
}

static void put_escaped(struct pv_str *b, unsigned char c)
{
        static const char from[] = "\a\b\t\n\v\f\r\"\\", to[] = "abtnvfr\"\\";
        const char *at = c ? strchr(from, c) : NULL;
        if (!needs_escape(c))
                pv_str_putc(b, (char)c);
        else if (at)
                pv_str_putf(b, "\\%c", to[at - from]);
        else
                pv_str_putf(b, "\\%03o", c);
}

void pv_quote_name(struct pv_str *b, const char *prefix, const char *path)
{
        bool quote = false;
        for (const char *p = path; *p; p++)
                quote |= needs_escape((unsigned char)*p);
        if (!quote) {
                pv_str_put(b, prefix);
                pv_str_put(b, path);
                return;
        }
        pv_str_putc(b, '"');
        pv_str_put(b, prefix);
        for (const char *p = path; *p; p++)
                put_escaped(b, (unsigned char)*p);
        pv_str_putc(b, '"');
}

void pv_put_safe_line(struct pv_str *b, const char *s, size_t n)
{
        for (size_t i = 0; i < n;) {
                size_t k = i;
                while (k < n && s[k] != '\t' && s[k] != '\\')
                        k++;
                pv_str_put_safe_n(b, s + i, k - i);
                if (k < n)
                        pv_str_putc(b, s[k++]);
                i = k;
        }
}
