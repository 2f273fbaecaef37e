/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits that a job made, on their way into the host's repository. One struct pv_carry is one repository: the
 * workspace's own, or a submodule's. The theory of operation heads carry.c.
 */
#ifndef PV_GIT_CARRY_H
#define PV_GIT_CARRY_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "base/err.h"
#include "base/str.h"
#include "git/host.h"
#include "git/runner.h"
#include "git/start.h"

enum {
        PV_CARRY_REFS_MAX = 500,     /* that one apply looks at; more are refused */
        PV_CARRY_PATHS_MAX = 500000, /* that the commits of the checked-out branch touch */
};

/* A reference that the job has and the host has not, or has elsewhere. */
struct pv_carry_ref {
        char *name;                  /* in the job: "refs/heads/main"; "HEAD" when that is detached */
        char *dest;                  /* on the host; NULL: it is left where it is, see why */
        char old_id[65], new_id[65]; /* of dest on the host; "" is none */
        bool here;                   /* dest is what the host's work tree has checked out */
        bool aside;                  /* dest is not name: see why */
        bool rewritten;              /* new_id does not descend from old_id */
        bool landed;                 /* it was moved already, before a crash */
        size_t commits;              /* new to the host, and not counted with a reference before */
        const char *why;             /* static, a clause for people; or NULL */
};

/* Marks of an index entry that are the person's own: git update-index --assume-unchanged, --skip-worktree. */
enum pv_carry_marks { PV_CARRY_ASSUMED = 1 << 0, PV_CARRY_SKIPPED = 1 << 1, PV_CARRY_MARKS = 3 };

/* A path that the commits of the checked-out branch change, and its index entry. Modes are octal text, "0" is none. */
struct pv_carry_path {
        char *path; /* relative to the repository's work tree */
        char old_mode[7], new_mode[7];
        char old_id[65], new_id[65];
        char now_mode[7], now_id[65]; /* the host's index entry, as it was read last */
        char was_mode[7], was_id[65]; /* the same before anything landed */
        unsigned now_marks, was_marks;
        bool stays; /* the host's entry is that of the new commit already */
};

struct pv_carry {
        char *path;     /* of the work tree, relative to the workspace; "" is the workspace */
        char *worktree; /* the same, absolute on the host */
        char *view;     /* and in the job's view */
        struct pv_git_host host;
        struct pv_tips host_tips, job_tips; /* branches and tags */
        struct pv_git_answer host_text, job_text;
        char *host_head, *job_head; /* reference that HEAD names; NULL: detached */
        char host_head_id[65], job_head_id[65];
        struct pv_strv elsewhere; /* branches that other work trees of the host have checked out */
        struct pv_strv held;      /* branches that a rebase or bisect under way on the host will end on */
        char *known;              /* revisions that both sides have: lines "^id" */
        size_t other_refs;        /* of the job, of kinds that are never carried (stash, notes, remotes): changed */
        struct pv_carry_ref *ref;
        size_t n_refs;
        struct pv_carry_path *changed; /* sorted by path */
        size_t n_changed;
        char *quarantine; /* name below the repository's objects/, and below refs/pvisor/ of what pins the objects */
        char pack[65];    /* the pack's name there; "": nothing new was needed */
        bool pinned;      /* or may be */
        bool locked;      /* the index is */
        struct stat seen; /* of the index, when now_mode and now_id were read from it; st_ino 0: not yet */
        struct pv_git_running looking; /* for objects that are missing */
};
void pv_carry_fini(struct pv_carry *c);

struct pv_carry_options {
        const char *job;    /* id, for names of branches and reflogs */
        const char *branch; /* --branch NAME: short name; or NULL */
        bool rewritten;     /* branches whose history the job rewrote move, too */
};

/* --- looking (carry_look.c) --- */

/*
 * Opens the host's repository at worktree and asks both sides for their references. PV_ERR_STATE: the host has no
 * repository there. Nothing is made, but the quarantine has its name, for the caller's record.
 */
int pv_carry_look(struct pv_carry *c, const char *path, const char *worktree, const char *view,
                  const struct pv_git_runner *job, struct pv_err *err);

/* --- deciding (carry.c, carry_decide.c) --- */

/*
 * Fills ref[] with what differs. Ancestry is not known yet: see pv_carry_decide(). start: what the host had when the
 * stage was taken; NULL where nobody noted it.
 */
int pv_carry_compare(struct pv_carry *c, const struct pv_git_start *start, const struct pv_carry_options *o,
                     struct pv_err *err);
/* After the import: which reference goes where, and the paths that the checked-out branch's commits change. */
int pv_carry_decide(struct pv_carry *c, const struct pv_git_start *start, const struct pv_carry_options *o,
                    struct pv_err *err);
/* Fills held, of all work trees of the repository (carry_busy.c). */
int pv_carry_read_held(struct pv_carry *c, struct pv_err *err);
bool pv_carry_any(const struct pv_carry *c); /* some reference is to move */
const struct pv_carry_ref *pv_carry_here(const struct pv_carry *c);

/* --- importing (carry_import.c) --- */

/*
 * A pack of what the host lacks is made inside the job's boundary, checked by the host's git and kept in a quarantine
 * of the repository. PV_ERR_POLICY: it does not pass the checks. Whether all that the new tips lead to is there is
 * still being looked for then: pv_carry_is_whole() waits for it, once, and is to be asked before anything is believed.
 */
int pv_carry_import(struct pv_carry *c, const struct pv_git_runner *job, struct pv_err *err);
int pv_carry_is_whole(struct pv_carry *c, struct pv_err *err);
/* The quarantine becomes part of the repository, kept from its garbage collection until pv_carry_unpin(). */
int pv_carry_admit(struct pv_carry *c, struct pv_err *err);
/* Takes away the quarantine and what pins the new objects. */
void pv_carry_unpin(struct pv_carry *c);

/* --- landing (carry_land.c) --- */

/* The host's index, locked as git locks it. PV_ERR_BUSY: somebody else works on it. A lock of this job's is its own. */
int pv_carry_lock(struct pv_carry *c, const char *job, struct pv_err *err);
void pv_carry_unlock(struct pv_carry *c, const char *job);

/*
 * With the lock: whether the index entries of the changed paths may be set. as_it_was: the index is that of the job's
 * start, so that what it holds was seen by the job. Each that may not calls refuse.
 */
typedef void pv_carry_refuse(void *ctx, const struct pv_carry *c, const char *path, const char *why);
int pv_carry_check_index(struct pv_carry *c, bool as_it_was, pv_carry_refuse *refuse, void *ctx, struct pv_err *err);

/* With the lock: the work tree is still on the branch, with nothing under way; *why is static. */
bool pv_carry_still_here(const struct pv_carry *c, const char **why);

/* Moves the references by compare-and-swap. What the host moved meanwhile goes aside. May be repeated after a crash. */
int pv_carry_move_refs(struct pv_carry *c, const char *job, struct pv_err *err);
/* And back again: first whether nobody moved them since, always, then the moves. */
int pv_carry_check_back(struct pv_carry *c, pv_carry_refuse *refuse, void *ctx, struct pv_err *err);
int pv_carry_move_back(struct pv_carry *c, const char *job, struct pv_err *err);
/* With the lock: whether the entries are still what landed. */
int pv_carry_check_index_back(struct pv_carry *c, pv_carry_refuse *refuse, void *ctx, struct pv_err *err);
/*
 * With the lock: sets the index entries of the changed paths, to the new commit's, or, with back, to what they were.
 * One that is neither any more is the host's, and stays. May be repeated.
 */
int pv_carry_set_index(struct pv_carry *c, bool back, struct pv_err *err);

/* --- the record (carry_record.c) --- */

json_t *pv_carry_json(const struct pv_carry *c);
/* Opens the host's repository again, too. */
int pv_carry_from_json(const json_t *j, const char *workspace, struct pv_carry *out, struct pv_err *err);

#endif
