/* SPDX-License-Identifier: Apache-2.0 */
#include "git/carry_names.h"

#include <string.h>

/* One component; git-check-ref-format(1), and stricter: what a shell or an option parser could stumble over. */
static bool is_sane_component(const char *s, size_t n)
{
        static const char forbidden[] = " ~^:?*[\\\"'`$&|;<>(){}!#%";
        if (n == 0 || n > 200 || s[0] == '.' || s[0] == '-' || s[n - 1] == '.')
                return false;
        if (n >= 5 && strncasecmp(s + n - 5, ".lock", 5) == 0)
                return false;
        for (size_t i = 0; i < n; i++) {
                unsigned char ch = (unsigned char)s[i];
                if (ch < 0x20 || ch == 0x7f || strchr(forbidden, ch) || (ch == '.' && i + 1 < n && s[i + 1] == '.') ||
                    (ch == '@' && i + 1 < n && s[i + 1] == '{'))
                        return false;
        }
        return true;
}

/* A name that could be taken for HEAD or for an object would make other commands mean something else. */
static bool is_ambiguous(const char *name)
{
        return strcasecmp(name, "HEAD") == 0 || pv_is_object_name(name) || pv_streq(name, "@") ||
               pv_str_has_prefix(name, "refs/");
}

static const char *short_of(const char *name)
{
        return pv_str_has_prefix(name, PV_HEADS)  ? name + strlen(PV_HEADS)
               : pv_str_has_prefix(name, PV_TAGS) ? name + strlen(PV_TAGS)
                                                  : name;
}

/* Nothing that a terminal would not show as it is. */
static bool is_printable(const char *name)
{
        pv_auto_str shown = { 0 };
        pv_str_put_safe(&shown, name);
        return pv_streq(shown.s, name);
}

bool pv_carry_is_sane(const char *name)
{
        const char *s = short_of(name);
        if (s == name || strlen(name) > 1000 || is_ambiguous(s) || !is_printable(name))
                return false;
        for (;;) {
                size_t n = strcspn(s, "/");
                if (!is_sane_component(s, n))
                        return false;
                if (!s[n])
                        return true;
                s += n + 1;
        }
}

/* a is a directory where b is a file, or the other way round. */
static bool clash(const char *a, const char *b)
{
        size_t n = strlen(a), m = strlen(b);
        return n < m ? strncmp(a, b, n) == 0 && b[n] == '/' : m < n && strncmp(a, b, m) == 0 && a[m] == '/';
}

bool pv_carry_clashes(const struct pv_carry *c, const char *name)
{
        for (size_t i = 0; i < c->host_tips.n; i++)
                if (clash(name, c->host_tips.item[i].name))
                        return true;
        for (size_t i = 0; i < c->n_refs; i++)
                if (c->ref[i].dest && clash(name, c->ref[i].dest))
                        return true;
        return false;
}

/* What the host had at the start: NULL when that is not known, "" for nothing. */
const char *pv_carry_at_start(const struct pv_git_start *start, const char *name)
{
        if (!start || !start->known)
                return NULL;
        const char *id = pv_tips_find(&start->tips, name);
        return id ? id : "";
}
