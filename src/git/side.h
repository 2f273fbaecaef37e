/* SPDX-License-Identifier: Apache-2.0 */
/* What git says of one side of a comparison, and the comparing of its parts. Private to git/: see words.c. */
#ifndef PV_GIT_SIDE_H
#define PV_GIT_SIDE_H

#include "git/ask.h"
#include "git/words.h"

enum pv_topic {
        PV_TOPIC_BRANCH,
        PV_TOPIC_HEAD,
        PV_TOPIC_REFS,
        PV_TOPIC_STASH,
        PV_TOPIC_INDEX,
        PV_TOPIC_CONFIG,
        PV_TOPICS
};

struct pv_side {
        struct pv_git_answer answer[PV_TOPICS]; /* text NULL: not asked */
};

/* True when git answered and had something to say; *text is then len writable bytes and a NUL. */
bool pv_side_get(const struct pv_side *s, enum pv_topic t, char **text, size_t *len);

/* References of one side, sorted by name. What they point to lies in the answer. */
struct pv_tip {
        const char *id, *name;
};
struct pv_tips {
        struct pv_tip *item;
        size_t n;
};
void pv_tips_read(const struct pv_side *s, struct pv_tips *out);
/* The id of that reference; NULL: there is none. */
const char *pv_tips_find(const struct pv_tips *t, const char *name);
static inline void pv_tips_fini(struct pv_tips *t)
{
        pv_freep(&t->item);
}
#define pv_auto_tips __attribute__((cleanup(pv_tips_fini))) struct pv_tips

bool pv_is_object_name(const char *s);

void pv_words_compare_tips(const struct pv_tips *now, const struct pv_tips *old, struct pv_git_words *w);
void pv_words_compare_heads(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w);
void pv_words_compare_index(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w);
void pv_words_compare_stashes(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w);
void pv_words_compare_settings(const struct pv_side *now, const struct pv_side *old, struct pv_git_words *w);

#endif
