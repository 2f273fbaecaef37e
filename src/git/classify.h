/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each change of a stage is: part of the working tree or of a git directory (and of which part), ignored
 * by git's rules, and whether it deserves a person's attention. Knows nothing of stages: cmd/ fills struct
 * pv_path_change from the stage's changes (cmd/verdicts.h) and everything here is pure but for the two
 * questions put to git by a runner.
 */
#ifndef PV_GIT_CLASSIFY_H
#define PV_GIT_CLASSIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/str.h"
#include "git/attention.h"
#include "git/runner.h"
#include "policy/plan.h"

enum pv_path_kind { PV_PATH_ADDED, PV_PATH_MODIFIED, PV_PATH_DELETED, PV_PATH_TYPE, PV_PATH_METADATA };

/* One change, as this module needs it. All strings are borrowed. */
struct pv_path_change {
        unsigned root;
        enum pv_root_kind root_kind;
        const char *root_view; /* absolute path of the root as the command saw it */
        const char *path;      /* relative to the root; "" is the root itself */
        enum pv_path_kind kind;
        mode_t old_mode, new_mode; /* with the type; 0: there is nothing */
        uint64_t size;             /* of the new file */
        const char *link;          /* new target of a symbolic link, else NULL */
        bool implied;              /* goes with a deleted or replaced directory above it */
        bool times_only;           /* nothing but times differ */
        bool split;                /* the host's file has more links than this one */
        bool filled;               /* the host's file has holes that this one has not */
        bool capable;              /* a file with capabilities, capabilities(7) */
        bool metadata_lost;        /* owner or attributes that applying cannot keep */
};

enum pv_place {
        PV_PLACE_TREE, /* the working tree */
        PV_PLACE_GIT,  /* inside a git directory, or the `.git` itself */
};

/* Parts of a git directory (gitrepository-layout(5)). Only some are ever shown as files. */
enum pv_git_part {
        PV_GIT_NONE,       /* not in a git directory */
        PV_GIT_DIR,        /* the git directory (or the `.git` file or link) itself */
        PV_GIT_OBJECTS,    /* objects/, without info/alternates */
        PV_GIT_ALTERNATES, /* objects/info/alternates */
        PV_GIT_REFS,       /* refs/, reftable/ */
        PV_GIT_PACKED_REFS,
        PV_GIT_HEAD,
        PV_GIT_INDEX,
        PV_GIT_LOGS,
        PV_GIT_LOCK,      /* *.lock anywhere */
        PV_GIT_CONFIG,    /* config, config.worktree */
        PV_GIT_HOOKS,     /* hooks/ */
        PV_GIT_INFO,      /* info/ */
        PV_GIT_WORKTREES, /* worktrees/, the pointers of linked worktrees (their HEAD, index, logs are those
                             parts) */
        PV_GIT_MODULES,   /* modules/, what is not one of the other parts of the submodule's own git directory
                           */
        PV_GIT_OPERATION, /* state of a merge, rebase, bisect, cherry-pick; FETCH_HEAD, ORIG_HEAD,
                             COMMIT_EDITMSG */
        PV_GIT_OTHER,
        PV_GIT_PARTS
};

struct pv_verdict {
        enum pv_place place;
        enum pv_git_part part;
        size_t gitdir_len; /* with PV_PLACE_GIT: this many bytes of the path name the git directory; 0: the
                              root does */
        bool ignored;
        size_t ignored_len; /* with ignored: this many bytes of the path name the fold it is counted in */
        uint64_t reasons;   /* PV_ATTENTION_BIT()s */
        size_t anchor_len;  /* this many bytes name the file or directory that runs on the host by itself; 0:
                               none */
};

/* What git's configuration names in the workspace, relative to it, sorted. Empty when nothing is, or nobody asked. */
struct pv_configured {
        struct pv_strv hooks;    /* core.hooksPath: changes at or below one are hooks */
        struct pv_strv programs; /* files that git runs, or may: fsmonitor, filters, drivers, aliases */
        struct pv_strv files;    /* included configuration */
};
void pv_configured_fini(struct pv_configured *c);
/* Is the path in one of its lists? */
bool pv_configured_has(const struct pv_strv *list, const char *path);

struct pv_classify_context {
        const struct pv_configured *configured; /* or NULL */
        /*
         * Contents for the rules that look inside (package.json's scripts): fills *out (caller's) with at
         * most max bytes of the change's old or new file. -1: not readable, the rule then assumes the worst.
         * NULL: never read.
         */
        int (*read)(void *ctx, size_t index, bool old, size_t max, char **out, size_t *len);
        /*
         * Has the host a HEAD in the directory that the first len bytes of the change's path name: a git directory by
         * any name, whose configuration and hooks git runs for whoever stands in it. NULL: never.
         */
        bool (*has_head)(void *ctx, size_t index, size_t len);
        void *ctx;
};

/*
 * Fills verdict[0..n), but for ignored and ignored_len, which the caller zeroes and pv_ignore_ask() sets: may be called
 * again when more is known.
 */
void pv_classify(const struct pv_path_change *change, size_t n, const struct pv_classify_context *context,
                 struct pv_verdict *verdict);

/*
 * Asks git in the view which of the working tree's changes its rules ignore (tracked files never are) and sets ignored
 * and ignored_len; in the same run, unless configured is NULL, adds to it what the configuration names in the
 * workspace. workspace_view is root 0's path in the view. One or two runs however many changes there are.
 * Not a repository: nothing is ignored and *asked is false.
 */
int pv_ignore_ask(const struct pv_git_runner *view, const char *workspace_view, const struct pv_path_change *change,
                  size_t n, struct pv_verdict *verdict, struct pv_configured *configured, bool *asked,
                  struct pv_err *err);

/* The latter alone, of whichever view. */
int pv_configured_ask(const struct pv_git_runner *runner, const char *workspace_view, struct pv_configured *out,
                      struct pv_err *err);

/* The part's name for people: "objects", "references", ... */
const char *pv_git_part_name(enum pv_git_part part);
/* Objects, index bytes, logs, locks, references: what git's own words tell, never listed as files. */
bool pv_git_part_is_noise(enum pv_git_part part);

/* Folds: the ignored changes of each top directory as one line. */
struct pv_fold {
        unsigned root;
        const char *path; /* borrowed from the change; its first len bytes name the directory (or the lone
                             file) */
        size_t len;
        size_t n, n_deleted; /* changes that are folded here; deletions are listed all the same */
        uint64_t size;
};
/* Sorted as the changes are. *out is the caller's to free(). */
void pv_fold_ignored(const struct pv_path_change *change, const struct pv_verdict *verdict, size_t n,
                     struct pv_fold **out, size_t *n_out);

#endif
