/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. What the changes touched is asked in one run in each of the two views, and the two answers are
 * compared: references as sorted lists (words_refs.c), index entries and settings as sets (words_state.c). Then the
 * commits of the references that moved are counted in one more run in the staged view, which has the objects of both
 * sides. Nothing that git answers is trusted: answers are bounded in bytes, each record is checked for its form, each
 * list bounded in length, and what cannot be read is left out, with the reason kept in `why`.
 */
#include "git/words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "git/side.h"

enum {
        SIDE_BYTES_MAX = 64 << 20,
        LOG_BYTES_MAX = 16 << 20,
        DESCRIBED_REFS_MAX = 8,
        KNOWN_TIPS_MAX = 1000,
};

#define LOG_OPTIONS "-z", "--no-color", "--no-decorate", "--no-show-signature", "--no-notes"

/* clang-format off */
static const char *const topic_words[PV_TOPICS][16] = {
        [PV_TOPIC_BRANCH] = { "symbolic-ref", "-q", "HEAD" },
        [PV_TOPIC_HEAD] = { "rev-parse", "-q", "--verify", "HEAD" },
        [PV_TOPIC_REFS] = { "for-each-ref", "--format=%(objectname)%00%(refname)%00%(symref)" },
        [PV_TOPIC_STASH] = { "log", "-g", "--format=%gs", LOG_OPTIONS, "--max-count=1000", "refs/stash", "--" },
        [PV_TOPIC_INDEX] = { "diff", "--cached", "--raw", "-z", "--no-abbrev", "--no-renames", "--no-ext-diff",
                             "--no-color", "--ignore-submodules=none" },
        [PV_TOPIC_CONFIG] = { "config", "--list", "-z", "--show-scope" },
};
/* clang-format on */

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

static void side_finip(struct pv_side *s)
{
        for (size_t i = 0; i < PV_TOPICS; i++)
                pv_git_answer_fini(&s->answer[i]);
}
#define auto_side __attribute__((cleanup(side_finip))) struct pv_side

bool pv_side_get(const struct pv_side *s, enum pv_topic t, char **text, size_t *len)
{
        *text = s->answer[t].text;
        *len = s->answer[t].len;
        return *text && s->answer[t].exit_code == 0;
}

/* The first reason wins. */
static void keep_reason(struct pv_git_words *w, const struct pv_err *err)
{
        if (!w->why[0])
                (void)snprintf(w->why, sizeof w->why, "%.199s",
                               err->kind == PV_ERR_NOT_FOUND ? "there is no git in the view" : err->msg);
}

static void ask_side(const struct pv_git_runner *runner, const char *worktree, const bool wanted[PV_TOPICS],
                     struct pv_side *out, struct pv_git_words *w)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_git_answer answer[PV_TOPICS] = { 0 };
        struct pv_git_questions q = { .max_out = SIDE_BYTES_MAX };
        for (size_t i = 0; i < PV_TOPICS; i++)
                if (wanted[i])
                        q.item[q.n++] = (struct pv_git_question){ .worktree = worktree,
                                                                  .exact_repo = true,
                                                                  .words = topic_words[i] };
        if (q.n == 0)
                return;
        if (pv_git_ask(runner, &q, answer, &err) < 0) {
                keep_reason(w, &err);
                return;
        }
        for (size_t i = 0, k = 0; i < PV_TOPICS; i++)
                if (wanted[i])
                        out->answer[i] = answer[k++];
}

/* --- commits --- */

struct log_words {
        char max[32], range[140];
        const char *words[16];
};

/* A moved reference: both sides of its range, marked. A new one: what no reference of the host leads to. */
static void make_log_words(const struct pv_git_ref *r, struct log_words *out)
{
        static const char *const moved[] = { "log", "--left-right", "--format=%m%s", LOG_OPTIONS };
        static const char *const added[] = { "log", "--ignore-missing", "--format=>%s", LOG_OPTIONS };
        bool both = r->kind == PV_GIT_REF_MOVED;
        size_t n = 0, fixed = sizeof moved / sizeof *moved;
        _Static_assert(sizeof moved == sizeof added, "one length serves both");
        for (; n < fixed; n++)
                out->words[n] = both ? moved[n] : added[n];
        (void)snprintf(out->max, sizeof out->max, "--max-count=%d", 2 * PV_GIT_COUNT_MAX);
        (void)snprintf(out->range, sizeof out->range, "%s%s%s", both ? r->old_id : "", both ? "..." : "", r->new_id);
        out->words[n++] = out->max;
        out->words[n++] = out->range;
        out->words[n] = NULL;
}

static char *known_words(const struct pv_tips *known)
{
        pv_auto_str b = { 0 };
        for (size_t i = 0; i < known->n && i < KNOWN_TIPS_MAX; i++)
                pv_str_putf(&b, "^%s ", known->item[i].id);
        return pv_str_steal(&b);
}

/* Counts and subjects from "<subject" and ">subject" records, newest first. */
static void read_log(struct pv_git_ref *r, const struct pv_git_answer *a)
{
        const char *p = a->text, *end = a->text + a->len, *record;
        if (a->exit_code != 0)
                return;
        r->counted = true;
        while ((record = pv_git_next_field(&p, end))) {
                if (*record == '<' && r->behind < PV_GIT_COUNT_MAX) {
                        r->behind++;
                } else if (*record == '>' && r->ahead < PV_GIT_COUNT_MAX) {
                        if (r->ahead++ < PV_GIT_SUBJECTS_MAX)
                                pv_strv_add(&r->subjects, record + 1);
                }
        }
}

static void describe_refs(const struct pv_git_runner *view, const char *worktree, const struct pv_tips *known,
                          struct pv_git_words *w)
{
        struct pv_err err = PV_ERR_INIT;
        struct log_words words[DESCRIBED_REFS_MAX];
        struct pv_git_ref *ref[DESCRIBED_REFS_MAX] = { 0 };
        struct pv_git_answer answer[DESCRIBED_REFS_MAX] = { 0 };
        pv_auto_free char *all_known = known_words(known);
        struct pv_git_questions q = { .known = all_known, .max_out = LOG_BYTES_MAX };
        for (size_t i = 0; i < w->n_refs && q.n < DESCRIBED_REFS_MAX; i++) {
                if (w->ref[i].kind == PV_GIT_REF_DELETED)
                        continue;
                ref[q.n] = &w->ref[i];
                make_log_words(ref[q.n], &words[q.n]);
                q.item[q.n] = (struct pv_git_question){ .worktree = worktree,
                                                        .exact_repo = true,
                                                        .words = words[q.n].words,
                                                        .with_known = ref[q.n]->kind == PV_GIT_REF_ADDED };
                q.n++;
        }
        if (q.n == 0)
                return;
        if (pv_git_ask(view, &q, answer, &err) < 0) {
                keep_reason(w, &err);
                return;
        }
        for (size_t i = 0; i < q.n && ref[i]; i++) {
                read_log(ref[i], &answer[i]);
                pv_git_answer_fini(&answer[i]);
        }
}

void pv_git_words_make(const struct pv_git_runner *view, const struct pv_git_runner *base, const char *worktree_view,
                       const struct pv_git_repo *repo, struct pv_git_words *out)
{
        bool head = repo->head || repo->added, refs = repo->refs || repo->added;
        const bool wanted[PV_TOPICS] = { [PV_TOPIC_BRANCH] = head,
                                         [PV_TOPIC_HEAD] = head,
                                         [PV_TOPIC_REFS] = refs,
                                         [PV_TOPIC_STASH] = refs,
                                         [PV_TOPIC_INDEX] = repo->index && !repo->added,
                                         [PV_TOPIC_CONFIG] = repo->config };
        auto_side now = { 0 }, old = { 0 };
        pv_auto_tips old_tips = { 0 }, new_tips = { 0 };
        *out = (struct pv_git_words){ 0 };
        ask_side(view, worktree_view, wanted, &now, out);
        ask_side(base, worktree_view, wanted, &old, out);
        if (!out->why[0]) {
                pv_tips_read(&old, &old_tips);
                pv_tips_read(&now, &new_tips);
                pv_words_compare_heads(&now, &old, out);
                pv_words_compare_tips(&new_tips, &old_tips, out);
                pv_words_compare_stashes(&now, &old, out);
                pv_words_compare_index(&now, &old, out);
                pv_words_compare_settings(&now, &old, out);
                describe_refs(view, worktree_view, &old_tips, out);
        }
        out->known = !out->why[0];
}
