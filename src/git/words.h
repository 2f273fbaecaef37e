/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job did to a repository, in git's words: commits per reference, HEAD, staged entries, stash, configuration.
 * Both sides are asked from git, each in its own contained view (git/runner.h); only what the changes touched is asked.
 * All text that comes back is the agent's.
 */
#ifndef PV_GIT_WORDS_H
#define PV_GIT_WORDS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"
#include "git/classify.h"
#include "git/runner.h"

/* One repository that has changes in its git directory, and which parts they touch. */
struct pv_git_repo {
        unsigned root;
        size_t first;     /* index of its first change */
        size_t path_len;  /* this many bytes of that change's path are its working tree; 0: the workspace itself */
        bool added, gone; /* the git directory is new, or was deleted or replaced */
        bool refs, head, index, config;
        const char *operation; /* that began: "merge", "rebase", ...; static, or NULL */
        size_t n_files;        /* changed files in the git directory, with their size */
        uint64_t size;
};
/* *out is the caller's to free(). At most max are told apart, *more says how many there are beyond. */
void pv_git_repos_find(const struct pv_path_change *change, const struct pv_verdict *verdict, size_t n, size_t max,
                       struct pv_git_repo **out, size_t *n_out, size_t *more);

enum pv_git_ref_kind { PV_GIT_REF_ADDED, PV_GIT_REF_MOVED, PV_GIT_REF_DELETED };

struct pv_git_ref {
        char *name; /* "refs/heads/main"; "HEAD" when it is detached */
        enum pv_git_ref_kind kind;
        char old_id[65], new_id[65]; /* object names in hex; "" when there is none */
        bool counted;                /* ahead, behind and subjects are known */
        size_t ahead, behind;        /* at most PV_GIT_COUNT_MAX each, which then means "or more" */
        struct pv_strv subjects;     /* of the newest of ahead */
};

struct pv_git_setting {
        char *key;       /* "core.hookspath" */
        char *old, *now; /* values; NULL: not set */
};

enum { PV_GIT_COUNT_MAX = 1000, PV_GIT_SUBJECTS_MAX = 3, PV_GIT_REFS_MAX = 200, PV_GIT_LIST_MAX = 20 };

struct pv_git_words {
        bool known;                /* git answered; else only the numbers of the repository are known */
        char why[200];             /* with !known */
        char *head_old, *head_now; /* branch (short name) or object name; NULL: not asked or not known */
        bool detached;             /* head_now is an object name */
        struct pv_git_ref *ref;    /* branches, tags and others, without remote-tracking ones */
        size_t n_refs, n_refs_more;
        size_t n_remote;             /* remote-tracking references that were added, moved or deleted */
        struct pv_strv staged;       /* "M path", the first PV_GIT_LIST_MAX */
        size_t n_staged, n_unstaged; /* entries that the host's index has not, and has no more */
        size_t stash_old, stash_now;
        struct pv_strv stash;           /* messages of the newest */
        struct pv_git_setting *setting; /* at most PV_GIT_LIST_MAX */
        size_t n_settings, n_settings_more;
};
void pv_git_words_fini(struct pv_git_words *w);
#define pv_auto_git_words __attribute__((cleanup(pv_git_words_fini))) struct pv_git_words

/* Fills *out for a repository whose working tree is at worktree_view in both views. Never fails: see known and why. */
void pv_git_words_make(const struct pv_git_runner *view, const struct pv_git_runner *base, const char *worktree_view,
                       const struct pv_git_repo *repo, struct pv_git_words *out);

#endif
