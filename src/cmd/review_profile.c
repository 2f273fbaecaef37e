/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent's profile added to the run, and what of it outlives the run. */
#include "base/json.h"
#include "cmd/review.h"

static const json_t *controls(const struct pv_review *r)
{
        return json_object_get(json_object_get(r->bundle, "plan"), "controls");
}

static void put_text(struct pv_str *out, const json_t *value)
{
        struct pv_err ignored = PV_ERR_INIT;
        char *text = NULL;
        if (pv_json_get_bytes(value, &text, &ignored) == 0)
                pv_str_put_safe(out, text);
        free(text);
}

/* A row with the values, as many in a line as fit; nothing when there are none. */
static void put_row(const struct pv_review *r, struct pv_str *out, const char *what, const json_t *list)
{
        size_t i, column = 0;
        json_t *value;
        json_array_foreach(list, i, value)
        {
                pv_auto_str text = { 0 };
                put_text(&text, value);
                if (!text.len)
                        continue;
                bool first = i == 0, full = column + text.len + 2 > r->screen.columns;
                if (first || full) {
                        pv_str_putf(out, "%s  %-18s ", first ? "" : "\n", first ? what : "");
                        column = 21;
                } else {
                        pv_str_put(out, "  ");
                        column += 2;
                }
                pv_str_put(out, text.s);
                column += text.len;
        }
        if (json_array_size(list))
                pv_str_putc(out, '\n');
}

static json_t *places(const json_t *state)
{
        size_t i;
        json_t *one, *list = json_array();
        json_array_foreach(state, i, one)
        {
                (void)json_array_append(list, json_object_get(one, "dst"));
        }
        return list;
}

/* Names of the profile's variables that the command had. */
static json_t *given(const struct pv_review *r, const json_t *profile)
{
        size_t i, k;
        json_t *name, *passed, *list = json_array();
        const json_t *all = json_object_get(json_object_get(r->bundle, "environment"), "passed");
        json_array_foreach(json_object_get(profile, "pass_env"), i, name)
        {
                json_array_foreach(all, k, passed)
                {
                        if (json_equal(name, passed))
                                (void)json_array_append(list, name);
                }
        }
        return list;
}

void pv_review_put_profile(const struct pv_review *r, struct pv_str *out)
{
        const json_t *profile = json_object_get(controls(r), "profile");
        pv_auto_str title = { 0 };
        if (!json_is_object(profile))
                return;
        pv_str_put(&title, "Profile ");
        put_text(&title, json_object_get(profile, "name"));
        pv_review_put_heading(r, out, PV_STYLE_BOLD, title.s, NULL);
        pv_auto_json state = places(json_object_get(json_object_get(controls(r), "kept"), "state"));
        pv_auto_json variables = given(r, profile);
        put_row(r, out, "may reach", json_object_get(profile, "hosts"));
        put_row(r, out, "keeps", state);
        put_row(r, out, "was given", variables);
        if (json_is_string(json_object_get(profile, "inner_sandbox"))) {
                pv_str_putf(out, "  %-18s ", "its own sandbox");
                put_text(out, json_object_get(profile, "inner_sandbox"));
                pv_str_putc(out, '\n');
        }
}
