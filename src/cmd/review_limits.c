/* SPDX-License-Identifier: Apache-2.0 */
/* Which limits held, from the Run Bundle's observations alone. */
#include <fcntl.h>
#include <string.h>
#include "base/json.h"
#include "cmd/review.h"
#include "evidence/observation.h"

static const char *level_of(const struct pv_review *r, enum pv_dimension d)
{
        const json_t *levels = json_object_get(json_object_get(r->bundle, "safety"), "levels");
        return json_string_value(json_object_get(levels, pv_dimension_name(d)));
}

static bool is_wanted(const struct pv_review *r, enum pv_dimension d)
{
        const json_t *all = json_object_get(json_object_get(r->bundle, "plan"), "dimensions");
        const json_t *one = json_object_get(all, pv_dimension_name(d));
        const char *wanted = json_string_value(json_object_get(one, "wanted"));
        return wanted && pv_streq(wanted, "enforced");
}

static const char *text_of(const json_t *object, const char *key)
{
        const char *s = json_string_value(json_object_get(object, key));
        return s ? s : "";
}

/* As many names as fit, then how many there are besides. */
static void put_controls(const struct pv_review *r, struct pv_str *out, enum pv_dimension d)
{
        size_t i, more = 0, room = r->screen.columns > 72 ? r->screen.columns - 36 : 36;
        json_t *one;
        json_array_foreach(json_object_get(r->bundle, "executor_observations"), i, one)
        {
                pv_auto_str name = { 0 };
                if (!pv_streq(text_of(one, "dimension"), pv_dimension_name(d)) ||
                    !json_is_true(json_object_get(one, "installed")))
                        continue;
                pv_str_put_safe(&name, text_of(one, "control"));
                if (more || out->len + name.len + 2 > room)
                        more++;
                else
                        pv_str_putf(out, "%s%s", out->len ? ", " : "", name.s);
        }
        if (more)
                pv_str_putf(out, "%s+%zu", out->len ? ", " : "", more);
}

static enum pv_style style_of(const char *level, bool wanted)
{
        if (level && pv_streq(level, "enforced"))
                return PV_STYLE_GREEN;
        if (!level || pv_streq(level, "cooperative"))
                return PV_STYLE_YELLOW;
        return wanted ? PV_STYLE_RED : PV_STYLE_DIM;
}

static void put_sentences(const struct pv_review *r, struct pv_str *out, enum pv_dimension d)
{
        size_t i, k;
        json_t *one, *sentence;
        json_array_foreach(json_object_get(r->bundle, "executor_observations"), i, one)
        {
                if (!pv_streq(text_of(one, "dimension"), pv_dimension_name(d)))
                        continue;
                json_array_foreach(json_object_get(one, "limits"), k, sentence)
                {
                        pv_str_put(out, "      not covered: ");
                        pv_str_put_safe(out, json_is_string(sentence) ? json_string_value(sentence) : "?");
                        pv_str_putc(out, '\n');
                }
        }
}

static void put_dimension(const struct pv_review *r, struct pv_str *out, enum pv_dimension d)
{
        const char *level = level_of(r, d);
        pv_auto_str controls = { 0 };
        pv_auto_free char *name = pv_strdup(pv_dimension_name(d));
        for (char *p = name; *p; p++)
                *p = *p == '_' ? ' ' : *p;
        put_controls(r, &controls, d);
        pv_str_putf(out, "  %-17s %s%-11s%s ", name, pv_style_on(&r->screen, style_of(level, is_wanted(r, d))),
                    level ? level : "not known", pv_style_off(&r->screen));
        if (controls.len)
                pv_str_put(out, controls.s);
        else if (level && !is_wanted(r, d))
                pv_str_put(out, "not asked for");
        while (out->s[out->len - 1] == ' ')
                out->s[--out->len] = '\0';
        pv_str_putc(out, '\n');
        if (r->verbose)
                put_sentences(r, out, d);
}

static bool any_limit(const struct pv_review *r)
{
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                const char *level = level_of(r, (enum pv_dimension)d);
                if (!level || !pv_streq(level, "unenforced") || is_wanted(r, (enum pv_dimension)d))
                        return true;
        }
        return false;
}

/* "network: unenforced" and "network: not known" stand in the table already. */
static bool is_in_table(const char *warning)
{
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                const char *name = pv_dimension_name((enum pv_dimension)d), *rest = warning + strlen(name);
                if (pv_str_has_prefix(warning, name) &&
                    (pv_streq(rest, ": unenforced") || pv_streq(rest, ": not known")))
                        return true;
        }
        return false;
}

void pv_review_put_limits(const struct pv_review *r, struct pv_str *out)
{
        size_t i;
        json_t *warning;
        if (!any_limit(r)) {
                pv_review_put_heading(r, out, PV_STYLE_BOLD, "Limits", NULL);
                pv_str_put(out, "  none: the command had all your rights\n");
                return;
        }
        pv_review_put_heading(r, out, PV_STYLE_BOLD, "Limits", r->verbose ? NULL : "-v says what they do not cover");
        for (int d = 0; d < PV_DIMENSIONS; d++)
                put_dimension(r, out, (enum pv_dimension)d);
        json_array_foreach(json_object_get(json_object_get(r->bundle, "safety"), "warnings"), i, warning)
        {
                struct pv_err ignored = PV_ERR_INIT;
                pv_auto_free char *text = NULL;
                if (pv_json_get_bytes(warning, &text, &ignored) < 0 || is_in_table(text))
                        continue;
                pv_str_putf(out, "  %swarning:%s ", pv_style_on(&r->screen, PV_STYLE_YELLOW), pv_style_off(&r->screen));
                pv_str_put_safe(out, text);
                pv_str_putc(out, '\n');
        }
}
