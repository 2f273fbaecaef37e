/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what git's configuration names in the working tree. Private to git/; the result is in classify.h. */
#ifndef PV_GIT_CONFIGURED_H
#define PV_GIT_CONFIGURED_H

#include "git/ask.h"
#include "git/classify.h"

enum {
        PV_CONFIGURED_QUESTIONS = 2,
        PV_CONFIGURED_MAX = 4 << 20, /* bytes of their answers */
};

/* Adds the questions; worktree is the view's absolute path. Must: they are the first. */
void pv_configured_put(struct pv_git_questions *ask, const char *worktree);
/* Reads their answers, and frees them. */
void pv_configured_take(struct pv_git_answer answers[PV_CONFIGURED_QUESTIONS], const char *worktree,
                        struct pv_configured *out);

#endif
