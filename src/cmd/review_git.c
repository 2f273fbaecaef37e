/* SPDX-License-Identifier: Apache-2.0 */
/* What happened to repositories, in git's words. */
#include <string.h>
#include "base/path.h"
#include "cmd/review.h"

enum { SUBJECT_COLUMNS = 60, VALUE_COLUMNS = 40, STAGED_SHOWN = 6, REFS_SHOWN = 12 };

static void put_short_id(struct pv_str *out, const char *id)
{
        pv_str_putf(out, "%.8s", id);
}

/* "main", "tag v1", "refs/notes/x" */
static void put_ref_name(struct pv_str *out, const char *name)
{
        static const struct {
                const char *prefix, *word;
        } known[] = { { "refs/heads/", "" }, { "refs/tags/", "tag " } };
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (pv_str_has_prefix(name, known[i].prefix)) {
                        pv_str_put(out, known[i].word);
                        name += strlen(known[i].prefix);
                        break;
                }
        pv_put_fitted(out, name, 40);
}

static void put_number(struct pv_str *out, char sign, size_t n)
{
        pv_str_putf(out, " %c%zu%s", sign, n, n >= PV_GIT_COUNT_MAX ? " or more" : "");
}

static void put_subjects(struct pv_str *out, const struct pv_git_ref *r)
{
        for (size_t i = 0; i < r->subjects.n; i++) {
                pv_str_put(out, "\n      ");
                pv_put_fitted(out, r->subjects.v[i], SUBJECT_COLUMNS);
        }
        if (r->ahead > r->subjects.n && r->subjects.n)
                pv_str_putf(out, "\n      ... and %zu more", r->ahead - r->subjects.n);
}

/* A branch that moved to where this new one stands: its commits are told there. NULL: none. */
static const struct pv_git_ref *same_place(const struct pv_git_words *w, const struct pv_git_ref *ref)
{
        for (size_t i = 0; i < w->n_refs && ref->kind == PV_GIT_REF_ADDED; i++)
                if (&w->ref[i] != ref && pv_streq(w->ref[i].new_id, ref->new_id) &&
                    (w->ref[i].kind == PV_GIT_REF_MOVED || &w->ref[i] < ref))
                        return &w->ref[i];
        return NULL;
}

static void put_ref(const struct pv_review *r, struct pv_str *out, const struct pv_git_words *w,
                    const struct pv_git_ref *ref)
{
        const struct pv_git_ref *same = same_place(w, ref);
        pv_str_put(out, "  ");
        pv_str_put(out, pv_style_on(&r->screen, PV_STYLE_CYAN));
        put_ref_name(out, ref->name);
        pv_str_put(out, pv_style_off(&r->screen));
        if (ref->kind == PV_GIT_REF_DELETED) {
                pv_str_put(out, " deleted (was ");
                put_short_id(out, ref->old_id);
                pv_str_put(out, ")\n");
                return;
        }
        if (ref->kind == PV_GIT_REF_ADDED)
                pv_str_put(out, " new");
        if (same) {
                pv_str_put(out, ", where ");
                put_ref_name(out, same->name);
                pv_str_put(out, " is\n");
                return;
        }
        if (ref->counted && (ref->ahead || ref->behind)) {
                if (ref->ahead)
                        put_number(out, '+', ref->ahead);
                if (ref->behind) {
                        put_number(out, '-', ref->behind);
                        pv_str_put(out, ref->ahead ? " (rewritten)" : " (moved back)");
                }
        } else {
                pv_str_put(out, " at ");
                put_short_id(out, ref->new_id);
        }
        put_subjects(out, ref);
        pv_str_putc(out, '\n');
}

static void put_refs(const struct pv_review *r, struct pv_str *out, const struct pv_git_words *w)
{
        size_t shown = r->all_paths || w->n_refs < REFS_SHOWN ? w->n_refs : REFS_SHOWN;
        for (size_t i = 0; i < shown; i++)
                put_ref(r, out, w, &w->ref[i]);
        size_t more = w->n_refs - shown + w->n_refs_more;
        if (more)
                pv_str_putf(out, "  ... and %zu more references\n", more);
        if (w->n_remote)
                pv_str_putf(out, "  %zu remote-tracking reference%s\n", w->n_remote, w->n_remote == 1 ? "" : "s");
}

static void put_head(struct pv_str *out, const struct pv_git_words *w)
{
        if (!w->head_now || (w->head_old && pv_streq(w->head_old, w->head_now)))
                return;
        pv_str_put(out, "  HEAD ");
        if (w->head_old) {
                pv_put_fitted(out, w->head_old, 40);
                pv_str_put(out, " -> ");
        }
        if (w->detached)
                pv_str_put(out, "detached at ");
        if (w->detached)
                put_short_id(out, w->head_now);
        else
                pv_put_fitted(out, w->head_now, 40);
        pv_str_putc(out, '\n');
}

static void put_staged(struct pv_str *out, const struct pv_git_words *w)
{
        if (w->n_staged) {
                pv_str_putf(out, "  staged: %zu entr%s", w->n_staged, w->n_staged == 1 ? "y" : "ies");
                for (size_t i = 0; i < w->staged.n && i < STAGED_SHOWN; i++) {
                        pv_str_put(out, "\n      ");
                        pv_put_fitted(out, w->staged.v[i], SUBJECT_COLUMNS);
                }
                if (w->n_staged > STAGED_SHOWN)
                        pv_str_putf(out, "\n      ... and %zu more", w->n_staged - STAGED_SHOWN);
                pv_str_putc(out, '\n');
        }
        if (w->n_unstaged && w->n_refs == 0)
                pv_str_putf(out, "  no longer staged: %zu entr%s\n", w->n_unstaged, w->n_unstaged == 1 ? "y" : "ies");
}

static void put_stash(struct pv_str *out, const struct pv_git_words *w)
{
        if (w->stash_now == w->stash_old && w->stash.n == 0)
                return;
        pv_str_putf(out, "  stash: %zu -> %zu", w->stash_old, w->stash_now);
        for (size_t i = 0; i < w->stash.n && w->stash_now > w->stash_old && i < w->stash_now - w->stash_old; i++) {
                pv_str_put(out, "\n      ");
                pv_put_fitted(out, w->stash.v[i], SUBJECT_COLUMNS);
        }
        pv_str_putc(out, '\n');
}

static void put_settings(const struct pv_review *r, struct pv_str *out, const struct pv_git_words *w)
{
        for (size_t i = 0; i < w->n_settings; i++) {
                const struct pv_git_setting *s = &w->setting[i];
                pv_str_putf(out, "  %sconfiguration%s ", pv_style_on(&r->screen, PV_STYLE_RED),
                            pv_style_off(&r->screen));
                pv_put_fitted(out, s->key, 40);
                if (!s->now) {
                        pv_str_put(out, " unset\n");
                        continue;
                }
                pv_str_put(out, " = ");
                pv_put_fitted(out, s->now, VALUE_COLUMNS);
                if (s->old) {
                        pv_str_put(out, " (was ");
                        pv_put_fitted(out, s->old, VALUE_COLUMNS);
                        pv_str_putc(out, ')');
                }
                pv_str_putc(out, '\n');
        }
        if (w->n_settings_more)
                pv_str_putf(out, "  ... and %zu more settings\n", w->n_settings_more);
}

/* Hooks and whatever else of the git directory may be told as files. */
static void put_files(const struct pv_review *r, struct pv_str *out, const struct pv_git_repo *repo)
{
        static const char *const done[] = { [PV_PATH_ADDED] = "new",
                                            [PV_PATH_MODIFIED] = "changed",
                                            [PV_PATH_DELETED] = "deleted",
                                            [PV_PATH_TYPE] = "replaced",
                                            [PV_PATH_METADATA] = "mode changed" };
        const struct pv_verdicts *v = &r->look.verdicts;
        for (size_t i = repo->first; i < v->n; i++) {
                const struct pv_verdict *one = &v->item[i];
                const char *name = strrchr(v->change[i].path, '/');
                bool hook = one->part == PV_GIT_HOOKS && one->reasons;
                bool told = hook || one->part == PV_GIT_ALTERNATES || (one->part == PV_GIT_INFO && one->reasons);
                if (!told || v->change[i].root != v->change[repo->first].root)
                        continue;
                pv_str_putf(out, "  %s%s%s ", pv_style_on(&r->screen, hook ? PV_STYLE_RED : PV_STYLE_YELLOW),
                            hook ? "hook" : pv_git_part_name(one->part), pv_style_off(&r->screen));
                pv_put_fitted(out, name ? name + 1 : v->change[i].path, 40);
                pv_str_putf(out, " %s\n", done[v->change[i].kind]);
        }
}

static void put_bare_facts(struct pv_str *out, const struct pv_git_repo *repo, const char *why)
{
        pv_str_putf(out, "  git directory changed (%zu file%s, ", repo->n_files, repo->n_files == 1 ? "" : "s");
        pv_str_put_size(out, repo->size);
        pv_str_put(out, ")");
        if (*why) {
                pv_str_put(out, "; in git's words it is not known: ");
                pv_str_put_safe(out, why);
        }
        pv_str_putc(out, '\n');
}

/* What apply --commits would find: put_next() offers it. */
static void note_offer(struct pv_review *r, const struct pv_git_words *w)
{
        for (size_t i = 0; i < w->n_refs; i++) {
                const struct pv_git_ref *ref = &w->ref[i];
                if (ref->kind == PV_GIT_REF_DELETED ||
                    !(pv_str_has_prefix(ref->name, "refs/heads/") || pv_str_has_prefix(ref->name, "refs/tags/") ||
                      pv_streq(ref->name, "HEAD")))
                        continue;
                r->n_commits += ref->counted && !same_place(w, ref) ? ref->ahead : 0;
                r->has_commits = true;
        }
}

static void put_repo(struct pv_review *r, struct pv_str *out, const struct pv_git_repo *repo)
{
        const struct pv_verdicts *v = &r->look.verdicts;
        const struct pv_path_change *first = &v->change[repo->first];
        pv_auto_free char *relative = pv_strndup(first->path, repo->path_len);
        const char *base = first->root_kind == PV_ROOT_GIT_DIR ? v->root[0]->view : first->root_view;
        pv_auto_free char *worktree = repo->path_len ? pv_path_join(base, relative) : pv_strdup(base);
        pv_auto_git_words w = { 0 };
        pv_auto_str text = { 0 }, title = { 0 };
        pv_str_put(&title, "Git");
        if (repo->path_len) {
                pv_str_put(&title, " in ");
                pv_put_fitted(&title, relative, 50);
        }
        if (repo->gone)
                pv_str_put(&text, "  the repository was deleted or replaced\n");
        if (repo->added)
                pv_str_put(&text, "  a new repository\n");
        if (repo->operation)
                pv_str_putf(&text, "  a %s is under way\n", repo->operation);
        if (r->look.result && r->look.host)
                pv_git_words_make(&r->look.view, &r->look.base, worktree, repo, &w);
        if (!repo->added && !repo->gone)
                note_offer(r, &w);
        put_head(&text, &w);
        put_refs(r, &text, &w);
        put_staged(&text, &w);
        put_stash(&text, &w);
        put_settings(r, &text, &w);
        put_files(r, &text, repo);
        if (!w.known)
                put_bare_facts(&text, repo, r->look.result ? w.why : v->no_git);
        pv_review_put_heading(r, out, PV_STYLE_BOLD, title.s,
                              text.len ? "left out by apply --all" : "nothing but git's own bookkeeping");
        if (text.len)
                pv_str_put_bytes(out, text.s, text.len);
}

void pv_review_put_git(struct pv_review *r, struct pv_str *out)
{
        pv_auto_free struct pv_git_repo *repo = NULL;
        size_t n = 0, more = 0;
        pv_git_repos_find(r->look.verdicts.change, r->look.verdicts.item, r->look.verdicts.n, PV_REVIEW_REPOS_MAX,
                          &repo, &n, &more);
        for (size_t i = 0; i < n; i++)
                put_repo(r, out, &repo[i]);
        if (more)
                pv_str_putf(out, "\n... and %zu more repositories\n", more);
}
