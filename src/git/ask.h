/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to a contained git. Private to git/. */
#ifndef PV_GIT_ASK_H
#define PV_GIT_ASK_H

#include <signal.h>
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
        bool with_known;          /* followed by the words of pv_git_questions.known */
        unsigned cpu_seconds;     /* of the processor at most; 0: PV_GIT_CPU_SECONDS */
};

enum { PV_GIT_QUESTIONS_MAX = 16, PV_GIT_CPU_SECONDS = 10 };

/* Its answer's exit code when the processor's time was up. What makes one question dear is not asked for another. */
enum { PV_GIT_TOO_DEAR = 128 + SIGXCPU };

/* Questions that are put in one run, one after the other: starting the view costs more than most answers. */
struct pv_git_questions {
        struct pv_git_question item[PV_GIT_QUESTIONS_MAX];
        size_t n;
        const void *in; /* standard input of the last; the others get none */
        size_t in_len;
        const char *known; /* words of [0-9a-f^] separated by spaces; or NULL */
        size_t max_out;    /* of all answers together */
};

/*
 * Runs them with what makes git's answers depend on the data alone: no optional locks, no replacements, no fsmonitor,
 * whoever owns the directory. One answer for each question; one that is missing has exit code 128. Errors: as the
 * runner's.
 */
int pv_git_ask(const struct pv_git_runner *runner, const struct pv_git_questions *q, struct pv_git_answer *answers,
               struct pv_err *err);

/* The next NUL-terminated field at *p within end, advancing; NULL when there is no whole one. */
const char *pv_git_next_field(const char **p, const char *end);

#endif
