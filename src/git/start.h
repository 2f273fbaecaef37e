/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which references the host's repository had when a stage was taken: what tells a branch that the host moved
 * meanwhile from one that the job rewrote. Copied as files when a run starts, read when a person decides.
 *
 * The file `refs` of the stage: lines "id name", the first of a name counts; loose references, then packed ones.
 * Before them, newest first, what landed later or was taken back: "+id name", or "- name" where there is none now.
 */
#ifndef PV_GIT_START_H
#define PV_GIT_START_H

#include "base/str.h"
#include "git/side.h"

/*
 * Copies the references of the repository with this work tree (and this git directory, where that is not its `.git`;
 * else NULL) to dirfd/refs, unless that is there. Bounded; never an error: without it, less is known.
 */
void pv_git_start_note(int dirfd, const char *worktree, const char *git_dir);
/* For a fork: what its parent knew. */
void pv_git_start_inherit(int dirfd, int parent_dirfd);

struct pv_git_start {
        char *text;
        struct pv_tips tips;    /* sorted, borrows from text */
        struct pv_tips learned; /* those of them that landed later or were taken back */
        bool known;
};
void pv_git_start_fini(struct pv_git_start *s);
#define pv_auto_git_start __attribute__((cleanup(pv_git_start_fini))) struct pv_git_start
void pv_git_start_read(int dirfd, struct pv_git_start *out);

/* References that landed or were taken back: from now on the job counts as having seen id. */
struct pv_git_seen {
        const char *name, *id; /* "" is none */
};
int pv_git_start_renew(int dirfd, const struct pv_git_seen *seen, size_t n, struct pv_err *err);

#endif
