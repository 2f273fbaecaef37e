/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Each part that the changes touched costs one run of git in each of the two views, and the two
 * answers are compared here: references as sorted lists, index entries and settings as sets. Commits are counted in
 * the staged view alone, which has the objects of both sides. Nothing that git answers is trusted: each answer is
 * bounded in bytes, each record checked for its form, each list bounded in length, and a part whose answer cannot be
 * read is left out with the reason kept in `why`.
 */
#include "git/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "git/ask.h"

enum {
        REFS_BYTES_MAX = 32 << 20,
        INDEX_BYTES_MAX = 32 << 20,
        CONFIG_BYTES_MAX = 4 << 20,
        LOG_BYTES_MAX = 8 << 20,
        DESCRIBED_REFS_MAX = 8,
        KNOWN_TIPS_MAX = 1000,
};

struct source {
        const struct pv_git_runner *runner;
        const char *worktree;
        struct pv_git_words *words;
};

void pv_git_words_fini(struct pv_git_words *w)
{
        for (size_t i = 0; i < w->n_refs; i++) {
                free(w->ref[i].name);
                pv_strv_fini(&w->ref[i].subjects);
        }
        for (size_t i = 0; i < w->n_settings; i++) {
                free(w->setting[i].key);
                free(w->setting[i].old);
                free(w->setting[i].now);
        }
        free(w->ref);
        free(w->setting);
        free(w->head_old);
        free(w->head_now);
        pv_strv_fini(&w->staged);
        pv_strv_fini(&w->stash);
        *w = (struct pv_git_words){ 0 };
}

/* False when git could not answer; the reason is kept, the first one wins. A refusal of git's own is an answer. */
static bool ask(const struct source *from, const char *const *words, const char *in, size_t max,
                struct pv_git_answer *out)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_git_question q = { .worktree = from->worktree,
                                     .exact_repo = true,
                                     .words = words,
                                     .in = in,
                                     .in_len = in ? strlen(in) : 0,
                                     .max_out = max };
        if (pv_git_ask(from->runner, &q, out, &err) == 0)
                return true;
        if (!from->words->why[0])
                (void)snprintf(from->words->why, sizeof from->words->why, "%.199s",
                               err.kind == PV_ERR_NOT_FOUND ? "there is no git in the view" : err.msg);
        return false;
}

/* --- references --- */

struct tip {
        const char *id, *name; /* within the answer */
};

struct tips {
        struct pv_git_answer answer;
        struct tip *item;
        size_t n;
};

static void tips_finip(struct tips *t)
{
        pv_git_answer_fini(&t->answer);
        pv_freep(&t->item);
}
#define auto_tips __attribute__((cleanup(tips_finip))) struct tips

static bool is_object_name(const char *s)
{
        size_t n = strlen(s);
        return (n == 40 || n == 64) && strspn(s, "0123456789abcdef") == n;
}

static int by_name(const void *a, const void *b)
{
        const struct tip *x = a, *y = b;
        return strcmp(x->name, y->name);
}

/* "id NUL name NUL symref newline" a reference. Symbolic ones follow others and are left out. */
static void parse_tips(struct tips *t)
{
        char *p = t->answer.text, *end = p + t->answer.len;
        size_t cap = 0;
        while (p < end) {
                char *nl = memchr(p, '\n', (size_t)(end - p));
                if (!nl)
                        break;
                *nl = '\0';
                const char *at = p, *line_end = nl + 1;
                const char *id = pv_git_next_field(&at, line_end), *name = pv_git_next_field(&at, line_end);
                const char *symbolic = pv_git_next_field(&at, line_end);
                p = nl + 1;
                if (!symbolic || *symbolic || !is_object_name(id) || !pv_str_has_prefix(name, "refs/"))
                        continue;
                if (t->n == cap) {
                        cap = cap ? cap * 2 : 64;
                        t->item = pv_realloc(t->item, cap, sizeof *t->item);
                }
                t->item[t->n++] = (struct tip){ id, name };
        }
        if (t->n)
                qsort(t->item, t->n, sizeof *t->item, by_name);
}

/* A repository that is not there has no references. */
static bool read_tips(const struct source *from, struct tips *t)
{
        static const char *const words[] = { "for-each-ref", "--format=%(objectname)%00%(refname)%00%(symref)", NULL };
        if (!ask(from, words, NULL, REFS_BYTES_MAX, &t->answer))
                return false;
        if (t->answer.exit_code == 0)
                parse_tips(t);
        return true;
}

static void add_ref(struct pv_git_words *w, const char *name, const char *old_id, const char *new_id)
{
        if (pv_str_has_prefix(name, "refs/remotes/")) {
                w->n_remote++;
                return;
        }
        if (w->n_refs == PV_GIT_REFS_MAX) {
                w->n_refs_more++;
                return;
        }
        w->ref = pv_realloc(w->ref, w->n_refs + 1, sizeof *w->ref);
        struct pv_git_ref *r = &w->ref[w->n_refs++];
        *r = (struct pv_git_ref){ .name = pv_strdup(name),
                                  .kind = !old_id   ? PV_GIT_REF_ADDED
                                          : !new_id ? PV_GIT_REF_DELETED
                                                    : PV_GIT_REF_MOVED };
        (void)snprintf(r->old_id, sizeof r->old_id, "%s", old_id ? old_id : "");
        (void)snprintf(r->new_id, sizeof r->new_id, "%s", new_id ? new_id : "");
}

static void compare_tips(struct pv_git_words *w, const struct tips *old, const struct tips *now)
{
        for (size_t i = 0, k = 0; i < old->n || k < now->n;) {
                int c = i == old->n ? 1 : k == now->n ? -1 : strcmp(old->item[i].name, now->item[k].name);
                const char *name = c <= 0 ? old->item[i].name : now->item[k].name;
                const char *old_id = c <= 0 ? old->item[i].id : NULL, *new_id = c >= 0 ? now->item[k].id : NULL;
                if (!old_id || !new_id || !pv_streq(old_id, new_id))
                        add_ref(w, name, old_id, new_id);
                i += c <= 0;
                k += c >= 0;
        }
}

/* Fills counts and subjects from "<subject" and ">subject" records. */
static void read_log(struct pv_git_ref *r, const struct pv_git_answer *a)
{
        const char *p = a->text, *end = a->text + a->len, *record;
        if (a->exit_code != 0)
                return;
        r->counted = true;
        while ((record = pv_git_next_field(&p, end))) {
                if (*record == '<') {
                        r->behind++;
                } else if (*record == '>') {
                        if (r->ahead++ < PV_GIT_SUBJECTS_MAX)
                                pv_strv_add(&r->subjects, record + 1);
                }
        }
}

static void describe_moved(const struct source *view, struct pv_git_ref *r)
{
        pv_auto_free char *range = pv_strf("%s...%s", r->old_id, r->new_id);
        pv_auto_free char *max = pv_strf("--max-count=%d", PV_GIT_COUNT_MAX);
        const char *const words[] = { "log",
                                      "--left-right",
                                      "-z",
                                      "--format=%m%s",
                                      "--no-color",
                                      "--no-decorate",
                                      "--no-show-signature",
                                      "--no-notes",
                                      max,
                                      range,
                                      "--",
                                      NULL };
        pv_auto_git_answer a = { 0 };
        if (ask(view, words, NULL, LOG_BYTES_MAX, &a))
                read_log(r, &a);
}

/* Commits of a new reference that no reference of the host leads to. */
static void describe_added(const struct source *view, struct pv_git_ref *r, const struct tips *known)
{
        pv_auto_free char *max = pv_strf("--max-count=%d", PV_GIT_COUNT_MAX);
        const char *const words[] = { "log",
                                      "-z",
                                      "--format=>%s",
                                      "--no-color",
                                      "--no-decorate",
                                      "--no-show-signature",
                                      "--no-notes",
                                      "--ignore-missing",
                                      max,
                                      "--stdin",
                                      NULL };
        pv_auto_str in = { 0 };
        pv_str_putf(&in, "%s\n", r->new_id);
        for (size_t i = 0; i < known->n && i < KNOWN_TIPS_MAX; i++)
                pv_str_putf(&in, "^%s\n", known->item[i].id);
        pv_auto_git_answer a = { 0 };
        if (ask(view, words, in.s, LOG_BYTES_MAX, &a))
                read_log(r, &a);
}

static void describe_refs(const struct source *view, const struct tips *known)
{
        struct pv_git_words *w = view->words;
        for (size_t i = 0, described = 0; i < w->n_refs && described < DESCRIBED_REFS_MAX; i++) {
                struct pv_git_ref *r = &w->ref[i];
                if (pv_streq(r->name, "refs/stash"))
                        continue;
                if (r->kind == PV_GIT_REF_MOVED)
                        describe_moved(view, r);
                else if (r->kind == PV_GIT_REF_ADDED)
                        describe_added(view, r, known);
                described++;
        }
}

/* --- HEAD --- */

/* The branch's short name, or the object name of a detached one. NULL: neither. */
static char *read_head(const struct source *from, bool *detached)
{
        static const char *const symbolic[] = { "symbolic-ref", "-q", "HEAD", NULL };
        static const char *const object[] = { "rev-parse", "-q", "--verify", "HEAD", NULL };
        pv_auto_git_answer a = { 0 }, b = { 0 };
        *detached = false;
        if (!ask(from, symbolic, NULL, 64 << 10, &a))
                return NULL;
        if (a.exit_code == 0 && a.len > 1) {
                a.text[a.len - 1] = '\0';
                return pv_strdup(pv_str_has_prefix(a.text, "refs/heads/") ? a.text + 11 : a.text);
        }
        if (!ask(from, object, NULL, 1 << 10, &b) || b.exit_code != 0 || b.len < 2)
                return NULL;
        b.text[b.len - 1] = '\0';
        *detached = is_object_name(b.text);
        return *detached ? pv_strdup(b.text) : NULL;
}

static void compare_heads(const struct source *view, const struct source *base)
{
        struct pv_git_words *w = view->words;
        bool was_detached = false;
        w->head_now = read_head(view, &w->detached);
        w->head_old = read_head(base, &was_detached);
        if (w->detached && was_detached && w->head_now && w->head_old && !pv_streq(w->head_now, w->head_old))
                add_ref(w, "HEAD", w->head_old, w->head_now);
}

/* --- staged entries --- */

struct entries {
        struct pv_git_answer answer;
        struct entry {
                const char *record, *path;
        } * item;
        size_t n;
};

static void entries_finip(struct entries *e)
{
        pv_git_answer_fini(&e->answer);
        pv_freep(&e->item);
}
#define auto_entries __attribute__((cleanup(entries_finip))) struct entries

static int by_entry(const void *a, const void *b)
{
        const struct entry *x = a, *y = b;
        int c = strcmp(x->path, y->path);
        return c ? c : strcmp(x->record, y->record);
}

/* ":mode mode id id STATUS NUL path NUL" each (git-diff's raw format without renames). */
static bool read_entries(const struct source *from, struct entries *e)
{
        static const char *const words[] = { "diff",
                                             "--cached",
                                             "--raw",
                                             "-z",
                                             "--no-abbrev",
                                             "--no-renames",
                                             "--no-ext-diff",
                                             "--no-color",
                                             "--ignore-submodules=none",
                                             NULL };
        if (!ask(from, words, NULL, INDEX_BYTES_MAX, &e->answer))
                return false;
        if (e->answer.exit_code != 0)
                return true;
        const char *p = e->answer.text, *end = p + e->answer.len, *record;
        size_t cap = 0;
        while ((record = pv_git_next_field(&p, end))) {
                const char *path = pv_git_next_field(&p, end);
                if (*record != ':' || !path)
                        break;
                if (e->n == cap) {
                        cap = cap ? cap * 2 : 64;
                        e->item = pv_realloc(e->item, cap, sizeof *e->item);
                }
                e->item[e->n++] = (struct entry){ record, path };
        }
        if (e->n)
                qsort(e->item, e->n, sizeof *e->item, by_entry);
        return true;
}

static void compare_index(const struct source *view, const struct source *base)
{
        struct pv_git_words *w = view->words;
        auto_entries now = { 0 }, old = { 0 };
        if (!read_entries(view, &now) || !read_entries(base, &old))
                return;
        for (size_t i = 0, k = 0; i < old.n || k < now.n;) {
                int c = i == old.n ? 1 : k == now.n ? -1 : by_entry(&old.item[i], &now.item[k]);
                if (c < 0) {
                        w->n_unstaged++;
                } else if (c > 0) {
                        const char *record = now.item[k].record;
                        if (w->n_staged++ < PV_GIT_LIST_MAX)
                                pv_strv_take(&w->staged,
                                             pv_strf("%c %s", record[strlen(record) - 1], now.item[k].path));
                }
                i += c <= 0;
                k += c >= 0;
        }
}

/* --- stash --- */

static size_t read_stash(const struct source *from, struct pv_strv *messages)
{
        static const char *const words[] = { "log",
                                             "-g",
                                             "-z",
                                             "--format=%gs",
                                             "--no-color",
                                             "--no-decorate",
                                             "--no-show-signature",
                                             "--no-notes",
                                             "--max-count=1000",
                                             "refs/stash",
                                             "--",
                                             NULL };
        pv_auto_git_answer a = { 0 };
        size_t n = 0;
        if (!ask(from, words, NULL, LOG_BYTES_MAX, &a) || a.exit_code != 0)
                return 0;
        const char *p = a.text, *end = a.text + a.len, *record;
        for (; (record = pv_git_next_field(&p, end)); n++)
                if (messages && n < PV_GIT_SUBJECTS_MAX)
                        pv_strv_add(messages, record);
        return n;
}

/* The stash is told in words of its own, not as a reference. */
static void compare_stashes(const struct source *view, const struct source *base)
{
        struct pv_git_words *w = view->words;
        for (size_t i = 0; i < w->n_refs; i++) {
                if (!pv_streq(w->ref[i].name, "refs/stash"))
                        continue;
                if (w->ref[i].kind != PV_GIT_REF_DELETED)
                        w->stash_now = read_stash(view, &w->stash);
                if (w->ref[i].kind != PV_GIT_REF_ADDED)
                        w->stash_old = read_stash(base, NULL);
                free(w->ref[i].name);
                memmove(&w->ref[i], &w->ref[i + 1], (--w->n_refs - i) * sizeof *w->ref);
                return;
        }
}

/* --- configuration --- */

struct settings {
        struct pv_git_answer answer;
        struct setting {
                const char *key, *value;
        } * item;
        size_t n;
};

static void settings_finip(struct settings *s)
{
        pv_git_answer_fini(&s->answer);
        pv_freep(&s->item);
}
#define auto_settings __attribute__((cleanup(settings_finip))) struct settings

static int by_key(const void *a, const void *b)
{
        const struct setting *x = a, *y = b;
        int c = strcmp(x->key, y->key);
        return c ? c : strcmp(x->value, y->value);
}

/* "scope NUL key newline value NUL" each; what the repository itself says is of scope local or worktree. */
static bool read_settings(const struct source *from, struct settings *s)
{
        static const char *const words[] = { "config", "--list", "-z", "--show-scope", NULL };
        if (!ask(from, words, NULL, CONFIG_BYTES_MAX, &s->answer))
                return false;
        if (s->answer.exit_code != 0)
                return true;
        const char *p = s->answer.text, *end = p + s->answer.len, *scope;
        size_t cap = 0;
        while ((scope = pv_git_next_field(&p, end))) {
                char *key = (char *)pv_git_next_field(&p, end);
                if (!key)
                        break;
                if (!pv_streq(scope, "local") && !pv_streq(scope, "worktree"))
                        continue;
                char *nl = strchr(key, '\n');
                if (nl)
                        *nl = '\0';
                if (s->n == cap) {
                        cap = cap ? cap * 2 : 64;
                        s->item = pv_realloc(s->item, cap, sizeof *s->item);
                }
                s->item[s->n++] = (struct setting){ key, nl ? nl + 1 : "true" };
        }
        if (s->n)
                qsort(s->item, s->n, sizeof *s->item, by_key);
        return true;
}

static void add_setting(struct pv_git_words *w, const char *key, const char *old, const char *now)
{
        struct pv_git_setting *last = w->n_settings ? &w->setting[w->n_settings - 1] : NULL;
        if (last && pv_streq(last->key, key) && !last->now != !now && !last->old != !old) {
                char **missing = now ? &last->now : &last->old; /* one value went and one came: it changed */
                *missing = pv_strdup(now ? now : old);
                return;
        }
        if (w->n_settings == PV_GIT_LIST_MAX) {
                w->n_settings_more++;
                return;
        }
        w->setting = pv_realloc(w->setting, w->n_settings + 1, sizeof *w->setting);
        w->setting[w->n_settings++] = (struct pv_git_setting){ .key = pv_strdup(key),
                                                               .old = old ? pv_strdup(old) : NULL,
                                                               .now = now ? pv_strdup(now) : NULL };
}

static void compare_settings(const struct source *view, const struct source *base)
{
        auto_settings now = { 0 }, old = { 0 };
        if (!read_settings(view, &now) || !read_settings(base, &old))
                return;
        for (size_t i = 0, k = 0; i < old.n || k < now.n;) {
                int c = i == old.n ? 1 : k == now.n ? -1 : by_key(&old.item[i], &now.item[k]);
                if (c < 0)
                        add_setting(view->words, old.item[i].key, old.item[i].value, NULL);
                else if (c > 0)
                        add_setting(view->words, now.item[k].key, NULL, now.item[k].value);
                i += c <= 0;
                k += c >= 0;
        }
}

void pv_git_words_make(const struct pv_git_runner *view, const struct pv_git_runner *base, const char *worktree_view,
                       const struct pv_git_repo *repo, struct pv_git_words *out)
{
        struct source now = { view, worktree_view, out }, old = { base, worktree_view, out };
        auto_tips old_tips = { 0 }, new_tips = { 0 };
        *out = (struct pv_git_words){ 0 };
        if (repo->head || repo->added)
                compare_heads(&now, &old);
        if ((repo->refs || repo->added) && read_tips(&now, &new_tips) && read_tips(&old, &old_tips))
                compare_tips(out, &old_tips, &new_tips);
        compare_stashes(&now, &old);
        describe_refs(&now, &old_tips);
        if (repo->index && !repo->added)
                compare_index(&now, &old);
        if (repo->config)
                compare_settings(&now, &old);
        out->known = !out->why[0];
}
