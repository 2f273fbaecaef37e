/* SPDX-License-Identifier: Apache-2.0 */
/* Staged entries, stash and configuration of the two sides. */
#include <stdlib.h>
#include <string.h>
#include "git/side.h"

/* A pair of strings within an answer; what the two are depends on the topic. */
struct pair {
        const char *key, *value;
};

struct pairs {
        struct pair *item;
        size_t n, cap;
};

static void pairs_finip(struct pairs *p)
{
        pv_freep(&p->item);
}
#define auto_pairs __attribute__((cleanup(pairs_finip))) struct pairs

static void add_pair(struct pairs *p, const char *key, const char *value)
{
        if (p->n == p->cap) {
                p->cap = p->cap ? p->cap * 2 : 64;
                p->item = pv_realloc(p->item, p->cap, sizeof *p->item);
        }
        p->item[p->n++] = (struct pair){ key, value };
}

static int compare_pairs(const void *a, const void *b)
{
        const struct pair *x = a, *y = b;
        int c = strcmp(x->key, y->key);
        return c ? c : strcmp(x->value, y->value);
}

static void sort_pairs(struct pairs *p)
{
        if (p->n)
                qsort(p->item, p->n, sizeof *p->item, compare_pairs);
}

typedef void only_in_one(struct pv_git_words *w, const struct pair *old, const struct pair *now);

/* Calls found for each pair that only one side has; the other is NULL. */
static void difference(const struct pairs *now, const struct pairs *old, only_in_one *found, struct pv_git_words *w)
{
        for (size_t i = 0, k = 0; i < old->n || k < now->n;) {
                int c = i == old->n ? 1 : k == now->n ? -1 : compare_pairs(&old->item[i], &now->item[k]);
                if (c < 0)
                        found(w, &old->item[i], NULL);
                else if (c > 0)
                        found(w, NULL, &now->item[k]);
                i += c <= 0;
                k += c >= 0;
        }
}

/* --- index: path and ":mode mode id id STATUS" (git-diff's raw format without renames) --- */

static void read_index(const struct pv_side *s, struct pairs *out)
{
        char *text;
        size_t len;
        const char *record, *path;
        if (!pv_side_get(s, PV_TOPIC_INDEX, &text, &len))
                return;
        const char *p = text, *end = text + len;
        while ((record = pv_git_next_field(&p, end)) && *record == ':' && (path = pv_git_next_field(&p, end)))
                add_pair(out, path, record);
        sort_pairs(out);
}

static void note_entry(struct pv_git_words *w, const struct pair *old, const struct pair *now)
{
        if (!now)
                w->n_unstaged++;
        else if (w->n_staged++ < PV_GIT_LIST_MAX)
                pv_strv_take(&w->staged, pv_strf("%c %s", now->value[strlen(now->value) - 1], now->key));
}

void pv_words_compare_index(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w)
{
        auto_pairs now_entries = { 0 }, old_entries = { 0 };
        read_index(now, &now_entries);
        read_index(old, &old_entries);
        difference(&now_entries, &old_entries, note_entry, w);
}

/* --- stash --- */

static size_t read_stash(const struct pv_side *s, struct pv_strv *messages)
{
        char *text;
        size_t len, n = 0;
        const char *message;
        if (!pv_side_get(s, PV_TOPIC_STASH, &text, &len))
                return 0;
        for (const char *p = text, *end = text + len; (message = pv_git_next_field(&p, end)); n++)
                if (messages && n < PV_GIT_SUBJECTS_MAX)
                        pv_strv_add(messages, message);
        return n;
}

/* Told in words of its own, not as the reference that it is. */
void pv_words_compare_stashes(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w)
{
        for (size_t i = 0; i < w->n_refs; i++) {
                if (!pv_streq(w->ref[i].name, "refs/stash"))
                        continue;
                w->stash_now = read_stash(now, &w->stash);
                w->stash_old = read_stash(old, NULL);
                free(w->ref[i].name);
                memmove(&w->ref[i], &w->ref[i + 1], (--w->n_refs - i) * sizeof *w->ref);
                return;
        }
}

/* --- configuration --- */

/* "scope NUL key newline value NUL" each; what the repository itself says is of scope local or worktree. */
static void read_settings(const struct pv_side *s, struct pairs *out)
{
        char *text, *key;
        size_t len;
        const char *scope;
        if (!pv_side_get(s, PV_TOPIC_CONFIG, &text, &len))
                return;
        const char *p = text, *end = text + len;
        while ((scope = pv_git_next_field(&p, end)) && (key = (char *)pv_git_next_field(&p, end))) {
                if (!pv_streq(scope, "local") && !pv_streq(scope, "worktree"))
                        continue;
                char *nl = strchr(key, '\n');
                if (nl)
                        *nl = '\0';
                add_pair(out, key, nl ? nl + 1 : "true");
        }
        sort_pairs(out);
}

static void note_setting(struct pv_git_words *w, const struct pair *old, const struct pair *now)
{
        const struct pair *one = now ? now : old;
        if (!one)
                return;
        const char *key = one->key, *value = one->value;
        struct pv_git_setting *last = w->n_settings ? &w->setting[w->n_settings - 1] : NULL;
        if (last && pv_streq(last->key, key) && !last->now != !now && !last->old != !old) {
                char **missing = now ? &last->now : &last->old; /* one value went and one came: it changed */
                *missing = pv_strdup(value);
                return;
        }
        if (w->n_settings == PV_GIT_LIST_MAX) {
                w->n_settings_more++;
                return;
        }
        w->setting = pv_realloc(w->setting, w->n_settings + 1, sizeof *w->setting);
        w->setting[w->n_settings++] = (struct pv_git_setting){ .key = pv_strdup(key),
                                                               .old = old ? pv_strdup(value) : NULL,
                                                               .now = now ? pv_strdup(value) : NULL };
}

void pv_words_compare_settings(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w)
{
        auto_pairs now_settings = { 0 }, old_settings = { 0 };
        read_settings(now, &now_settings);
        read_settings(old, &old_settings);
        difference(&now_settings, &old_settings, note_setting, w);
}
