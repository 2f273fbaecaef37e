/* SPDX-License-Identifier: Apache-2.0 */
/* References and HEAD of the two sides. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "git/side.h"

bool pv_is_object_name(const char *s)
{
        size_t n = strlen(s);
        return (n == 40 || n == 64) && strspn(s, "0123456789abcdef") == n;
}

static int by_name(const void *a, const void *b)
{
        const struct pv_tip *x = a, *y = b;
        return strcmp(x->name, y->name);
}

/*
 * "id NUL name NUL symref newline" a reference. Symbolic ones follow others and are left out; a repository that is not
 * there has none.
 */
void pv_tips_read(const struct pv_side *s, struct pv_tips *t)
{
        char *p;
        size_t len, cap = 0;
        if (!pv_side_get(s, PV_TOPIC_REFS, &p, &len))
                return;
        for (char *end = p + len, *nl; p < end && (nl = memchr(p, '\n', (size_t)(end - p))); p = nl + 1) {
                *nl = '\0';
                const char *at = p, *line_end = nl + 1;
                const char *id = pv_git_next_field(&at, line_end), *name = pv_git_next_field(&at, line_end);
                const char *symbolic = pv_git_next_field(&at, line_end);
                if (!symbolic || *symbolic || !pv_is_object_name(id) || !pv_str_has_prefix(name, "refs/"))
                        continue;
                if (t->n == cap) {
                        cap = cap ? cap * 2 : 64;
                        t->item = pv_realloc(t->item, cap, sizeof *t->item);
                }
                t->item[t->n++] = (struct pv_tip){ id, name };
        }
        if (t->n)
                qsort(t->item, t->n, sizeof *t->item, by_name);
}

const char *pv_tips_find(const struct pv_tips *t, const char *name)
{
        const struct pv_tip key = { .name = name };
        const struct pv_tip *found = t->n ? bsearch(&key, t->item, t->n, sizeof key, by_name) : NULL;
        return found ? found->id : NULL;
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

void pv_words_compare_tips(const struct pv_tips *now, const struct pv_tips *old, struct pv_git_words *w)
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

/* The branch's short name, or the object name of a detached HEAD. NULL: neither. */
static char *read_head(const struct pv_side *s, bool *detached)
{
        char *text;
        size_t len;
        *detached = false;
        if (pv_side_get(s, PV_TOPIC_BRANCH, &text, &len) && len > 1) {
                text[len - 1] = '\0'; /* the newline */
                return pv_strdup(pv_str_has_prefix(text, "refs/heads/") ? text + strlen("refs/heads/") : text);
        }
        if (!pv_side_get(s, PV_TOPIC_HEAD, &text, &len) || len < 2)
                return NULL;
        text[len - 1] = '\0';
        *detached = pv_is_object_name(text);
        return *detached ? pv_strdup(text) : NULL;
}

void pv_words_compare_heads(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w)
{
        bool was_detached = false;
        w->head_now = read_head(now, &w->detached);
        w->head_old = read_head(old, &was_detached);
        if (w->detached && was_detached && w->head_now && w->head_old && !pv_streq(w->head_now, w->head_old))
                add_ref(w, "HEAD", w->head_old, w->head_now);
}
