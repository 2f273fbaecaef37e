/* SPDX-License-Identifier: Apache-2.0 */
/* One question to a contained git. Private to git/. */
#ifndef PV_GIT_ASK_H
#define PV_GIT_ASK_H

#include <stdbool.h>
#include "base/str.h"
#include "git/runner.h"

/* An answer; fini frees it. */
struct pv_git_answer {
        char *text; /* len bytes and a NUL */
        size_t len;
        int exit_code;
};
static inline void pv_git_answer_fini(struct pv_git_answer *a)
{
        pv_freep(&a->text);
}
#define pv_auto_git_answer __attribute__((cleanup(pv_git_answer_fini))) struct pv_git_answer

struct pv_git_question {
        const char *worktree;     /* absolute, in the view */
        bool exact_repo;          /* worktree/.git is meant, not one that git finds further up */
        const char *const *words; /* of git's command line, NULL-terminated */
        const void *in;
        size_t in_len, max_out;
};

/*
 * Runs it with what makes git's answer depend on the data alone: no optional locks, no replacements, no fsmonitor,
 * whoever owns the directory. Errors: as the runner's.
 */
int pv_git_ask(const struct pv_git_runner *runner, const struct pv_git_question *q, struct pv_git_answer *out,
               struct pv_err *err);

/* The next NUL-terminated field at *p within end, advancing; NULL when there is no whole one. */
const char *pv_git_next_field(const char **p, const char *end);

#endif
