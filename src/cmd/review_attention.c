/* SPDX-License-Identifier: Apache-2.0 */
/* What deserves attention: reason by reason, the strongest first, with the paths below it. */
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "cmd/review.h"

enum {
        PATHS_SHOWN = 6,
        PATH_COLUMNS = 74,
};

/* Executables and lockfiles by the thousand in an ignored directory tell nothing. */
static bool is_worth_telling(const struct pv_verdict *v, enum pv_attention a)
{
        static const uint64_t even_ignored =
                PV_ATTENTION_BIT(PV_ATTENTION_SETUID) | PV_ATTENTION_BIT(PV_ATTENTION_LINK_LEAVES) |
                PV_ATTENTION_BIT(PV_ATTENTION_SPECIAL_FILE) | PV_ATTENTION_BIT(PV_ATTENTION_METADATA_LOST);
        if (!(v->reasons & PV_ATTENTION_BIT(a)))
                return false;
        return !v->ignored || pv_attention_info(a)->host_runs || (even_ignored & PV_ATTENTION_BIT(a));
}

/* In how many bytes of its path change i is told: those of the marked directory that it lies in with others. */
static size_t told_len(const struct pv_review *r, size_t i, enum pv_attention a)
{
        const struct pv_verdict *v = &r->look.verdicts.item[i];
        bool anchored = pv_attention_info(a)->host_runs && v->anchor_len;
        return anchored ? v->anchor_len : strlen(r->look.verdicts.change[i].path);
}

static bool is_told_with(const struct pv_review *r, size_t i, size_t k, enum pv_attention a)
{
        const struct pv_verdicts *v = &r->look.verdicts;
        size_t len = told_len(r, i, a);
        return v->change[i].root == v->change[k].root && told_len(r, k, a) == len &&
               strncmp(v->change[i].path, v->change[k].path, len) == 0;
}

static bool is_lone_dir(const struct pv_review *r, size_t i)
{
        const struct pv_path_change *c = &r->look.verdicts.change[i];
        return S_ISDIR(c->new_mode) && c->kind == PV_PATH_ADDED && r->look.verdicts.item[i].part != PV_GIT_DIR;
}

struct told {
        size_t first, n; /* changes that are told as one */
};

/* The groups of one reason; *out is the caller's. */
static size_t collect(const struct pv_review *r, enum pv_attention a, struct told **out)
{
        struct told *told = NULL;
        size_t n = 0;
        for (size_t i = 0; i < r->look.verdicts.n; i++) {
                if (!is_worth_telling(&r->look.verdicts.item[i], a) || is_lone_dir(r, i))
                        continue;
                if (n && is_told_with(r, told[n - 1].first, i, a)) {
                        told[n - 1].n++;
                        continue;
                }
                told = pv_realloc(told, n + 1, sizeof *told);
                told[n++] = (struct told){ i, 1 };
        }
        *out = told;
        return n;
}

static void put_told(const struct pv_review *r, struct pv_str *out, enum pv_attention a, const struct told *t)
{
        pv_auto_free char *path = pv_review_path(r, t->first);
        size_t whole = strlen(r->look.verdicts.change[t->first].path), len = told_len(r, t->first, a);
        const struct pv_path_change *c = &r->look.verdicts.change[t->first];
        pv_str_put(out, "      ");
        if (t->n > 1) {
                path[strlen(path) - (whole - len)] = '\0';
                pv_put_fitted(out, path, PATH_COLUMNS - 14);
                pv_str_putf(out, "/  %zu files\n", t->n);
                return;
        }
        pv_put_fitted(out, path, a == PV_ATTENTION_LINK_LEAVES ? 40 : PATH_COLUMNS);
        if (a == PV_ATTENTION_LINK_LEAVES && c->link) {
                pv_str_put(out, " -> ");
                pv_put_fitted(out, c->link, 30);
        }
        pv_str_putc(out, '\n');
}

static void put_reason(const struct pv_review *r, struct pv_str *out, enum pv_attention a)
{
        const struct pv_attention_info *info = pv_attention_info(a);
        const struct pv_screen *s = &r->screen;
        pv_auto_free struct told *told = NULL;
        size_t n = collect(r, a, &told);
        if (n == 0)
                return;
        pv_str_putf(out, "  %s %s%s%s - %s\n", info->host_runs ? "!" : "-",
                    pv_style_on(s, info->host_runs ? PV_STYLE_RED : PV_STYLE_YELLOW), info->title, pv_style_off(s),
                    info->reason);
        size_t shown = r->all_paths || info->host_runs || n <= PATHS_SHOWN + 1 ? n : PATHS_SHOWN;
        for (size_t i = 0; i < shown; i++)
                put_told(r, out, a, &told[i]);
        if (shown < n)
                pv_str_putf(out, "      ... and %zu more (--paths)\n", n - shown);
}

static void put_strength(const struct pv_review *r, struct pv_str *out, bool host_runs)
{
        pv_auto_str text = { 0 };
        for (int a = 0; a < PV_ATTENTIONS; a++)
                if (pv_attention_info((enum pv_attention)a)->host_runs == host_runs)
                        put_reason(r, &text, (enum pv_attention)a);
        if (text.len == 0)
                return;
        if (host_runs)
                pv_review_put_heading(r, out, PV_STYLE_RED_BOLD, "Would run on the host by itself",
                                      "apply --all leaves it out; --path takes it");
        else
                pv_review_put_heading(r, out, PV_STYLE_BOLD, "Worth a look", NULL);
        pv_str_put_bytes(out, text.s, text.len);
}

void pv_review_put_attention(const struct pv_review *r, struct pv_str *out)
{
        put_strength(r, out, true);
        put_strength(r, out, false);
}

json_t *pv_review_attention_json(const struct pv_review *r)
{
        json_t *list = json_array();
        for (size_t i = 0; i < r->look.verdicts.n; i++) {
                const struct pv_verdict *v = &r->look.verdicts.item[i];
                for (int a = 0; a < PV_ATTENTIONS; a++) {
                        const struct pv_attention_info *info = pv_attention_info((enum pv_attention)a);
                        if (!is_worth_telling(v, (enum pv_attention)a) || is_lone_dir(r, i))
                                continue;
                        (void)json_array_append_new(list, json_pack("{s:i, s:o, s:s, s:s, s:b}", "root",
                                                                    (int)r->look.verdicts.change[i].root, "path",
                                                                    pv_json_bytes(r->look.verdicts.change[i].path),
                                                                    "reason", info->name, "text", info->reason,
                                                                    "runs_on_host", info->host_runs));
                }
        }
        return list;
}
