/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/select.h"

#include <string.h>
#include "base/closest.h"
#include "base/path.h"
#include "cmd/opt.h"

void pv_select_fini(struct pv_select *s)
{
        pv_strv_fini(&s->path);
        pv_strv_fini(&s->include);
        pv_strv_fini(&s->exclude);
        *s = (struct pv_select){ 0 };
}

const char *pv_left_text(enum pv_left why)
{
        static const char *const text[PV_LEFTS] = {
                [PV_LEFT_NOT] = "",
                [PV_LEFT_NOT_ASKED] = "not asked for",
                [PV_LEFT_EXCLUDED] = "excluded",
                [PV_LEFT_HOST_RUNS] = "would run on the host by itself; naming the path takes it",
                [PV_LEFT_IGNORED] = "ignored by git; --ignored takes it",
                [PV_LEFT_GIT] = "part of a git directory; --git-raw takes it literally",
                [PV_LEFT_TOGETHER] = "left with what is left out: the other half of a rename, the rest of a deleted "
                                     "directory",
        };
        return text[why];
}

/* What a --path means: a path beneath one root. */
struct place {
        unsigned root;
        char *path; /* relative to the root; "" is all of it */
        size_t len;
};

struct places {
        struct place *item;
        size_t n;
};

static void places_finip(struct places *p)
{
        for (size_t i = 0; i < p->n; i++)
                free(p->item[i].path);
        pv_freep(&p->item);
}
#define auto_places __attribute__((cleanup(places_finip))) struct places

static bool lies_in(const struct pv_path_change *c, const struct place *p)
{
        return c->root == p->root && (p->len == 0 || (strncmp(c->path, p->path, p->len) == 0 &&
                                                      (c->path[p->len] == '\0' || c->path[p->len] == '/')));
}

static bool has_changes(const struct pv_verdicts *v, const struct place *p)
{
        for (size_t i = 0; i < v->n; i++)
                if (lies_in(&v->change[i], p))
                        return true;
        return false;
}

static void put_place(struct place *out, unsigned root, const char *path)
{
        free(out->path);
        *out = (struct place){ .root = root, .path = pv_strdup(path), .len = strlen(path) };
}

/* Finds the root that an absolute path lies in, as the host or as the command knew it, and changes at it. */
static bool find_place(const struct pv_verdicts *v, const char *absolute, struct place *out)
{
        pv_auto_free char *path = pv_path_normalise(absolute);
        for (unsigned i = 0; i < v->n_roots; i++) {
                const char *base[] = { v->root[i]->target, v->root[i]->view };
                for (size_t k = 0; k < 2; k++) {
                        if (!pv_path_is_within(path, base[k]))
                                continue;
                        const char *relative = path + strlen(base[k]);
                        put_place(out, i, relative + (*relative == '/'));
                        if (has_changes(v, out))
                                return true;
                }
        }
        return false;
}

static bool resolve(const struct pv_verdicts *v, const char *arg, const char *cwd, struct place *out)
{
        if (arg[0] == '/')
                return find_place(v, arg, out);
        pv_auto_free char *here = pv_path_join(cwd, arg);
        pv_auto_free char *in_workspace = pv_path_join(v->root[0]->target, arg);
        if (pv_path_is_within(cwd, v->root[0]->target) && find_place(v, here, out))
                return true;
        return find_place(v, in_workspace, out);
}

static int no_such_change(const struct pv_verdicts *v, const char *arg, struct pv_err *err)
{
        struct pv_closest closest = { .word = arg };
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: nothing changed there", arg);
        for (size_t i = 0; i < v->n; i++)
                pv_closest_offer(&closest, v->change[i].path);
        if (closest.best)
                return pv_err_hint(err, "did you mean %s?", closest.best);
        return pv_err_hint(err, "`pvisor review` lists what changed");
}

static int resolve_all(const struct pv_select *sel, const struct pv_verdicts *v, const char *cwd, struct places *out,
                       struct pv_err *err)
{
        out->item = pv_calloc(sel->path.n, sizeof *out->item);
        for (size_t i = 0; i < sel->path.n; i++) {
                struct place p = { 0 };
                if (!resolve(v, sel->path.v[i], cwd, &p)) {
                        free(p.path);
                        return no_such_change(v, sel->path.v[i], err);
                }
                out->item[out->n++] = p;
        }
        return 0;
}

/* How much of its path the person named: the longest --path it lies in, or all by an --include without wildcards. */
struct named {
        bool asked;
        size_t len;
};

static struct named name_of(const struct pv_select *sel, const struct places *places, const struct pv_path_change *c)
{
        struct named named = { .asked = places->n == 0 && (sel->all || sel->include.n) };
        for (size_t i = 0; i < places->n; i++)
                if (lies_in(c, &places->item[i])) {
                        named.asked = true;
                        if (places->item[i].len > named.len)
                                named.len = places->item[i].len;
                }
        if (places->n && sel->all)
                named.asked = true;
        if (!named.asked || sel->include.n == 0)
                return named;
        bool included = false;
        for (size_t i = 0; i < sel->include.n; i++)
                if (pv_glob_matches(sel->include.v[i], c->path)) {
                        included = true;
                        if (!strpbrk(sel->include.v[i], "*?["))
                                named.len = strlen(c->path);
                }
        named.asked = included;
        return named;
}

static bool git_is_taken(const struct pv_select *sel, const struct pv_verdict *v, const struct pv_path_change *c,
                         struct named named)
{
        if (sel->git_raw)
                return true;
        bool inside = named.len > v->gitdir_len && !pv_git_part_is_noise(v->part);
        return inside && named.len >= (v->anchor_len ? v->anchor_len : strlen(c->path));
}

static enum pv_left decide(const struct pv_select *sel, const struct places *places, const struct pv_path_change *c,
                           const struct pv_verdict *v, bool also)
{
        struct named named = name_of(sel, places, c);
        named.asked |= also;
        /* Excluded is more than not asked for: it does not come along with what it belongs to. */
        for (size_t i = 0; i < sel->exclude.n; i++)
                if (pv_glob_matches(sel->exclude.v[i], c->path))
                        return PV_LEFT_EXCLUDED;
        if (!named.asked)
                return PV_LEFT_NOT_ASKED;
        if (sel->everything)
                return PV_LEFT_NOT;
        if (v->place == PV_PLACE_GIT)
                return also || git_is_taken(sel, v, c, named) ? PV_LEFT_NOT : PV_LEFT_GIT;
        if (!sel->host_runs && pv_attention_host_runs(v->reasons) && named.len < v->anchor_len)
                return PV_LEFT_HOST_RUNS;
        if (v->ignored && !sel->ignored && !also && named.len < v->ignored_len)
                return PV_LEFT_IGNORED;
        return PV_LEFT_NOT;
}

/* Patterns that match nothing are a slip, as a path is at which nothing changed. */
static int check_matches(const struct pv_select *sel, const struct pv_verdicts *v, struct pv_err *err)
{
        if (sel->include.n == 0 || v->n == 0)
                return 0;
        for (size_t i = 0; i < v->n; i++)
                for (size_t k = 0; k < sel->include.n; k++)
                        if (pv_glob_matches(sel->include.v[k], v->change[i].path))
                                return 0;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: matches nothing that changed", sel->include.v[0]);
        return pv_err_hint(err, "`pvisor review --paths` lists what changed");
}

static int check_globs(const struct pv_strv *globs, struct pv_err *err)
{
        for (size_t i = 0; i < globs->n; i++)
                if (!globs->v[i][0] || pv_streq(globs->v[i], "/"))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "an empty pattern matches nothing");
        return 0;
}

int pv_select_run(const struct pv_select *sel, const struct pv_verdicts *v, const char *cwd, enum pv_left *left,
                  struct pv_err *err)
{
        auto_places places = { 0 };
        if (!sel->all && !sel->also && sel->path.n == 0 && sel->include.n == 0) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "nothing was selected");
                return pv_err_hint(err, "--all, --path PATH or --include GLOB says what");
        }
        if (check_globs(&sel->include, err) < 0 || check_globs(&sel->exclude, err) < 0 ||
            resolve_all(sel, v, cwd, &places, err) < 0 || check_matches(sel, v, err) < 0)
                return -1;
        for (size_t i = 0; i < v->n; i++)
                left[i] = decide(sel, &places, &v->change[i], &v->item[i], sel->also && sel->also[i]);
        return 0;
}
