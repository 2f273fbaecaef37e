/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commits and files of one `apply --commits`, as one act: recorded in the stage, finished or taken back after a crash,
 * taken back by undo. What happens to each repository is git/carry.h's; the theory of operation heads its carry.c.
 *
 * Files in the stage: `commits` while it is under way, `commits-<id>` when it is done. id is that of the batch of
 * files; where no file had to be published, NNNNNN.K, which sorts behind batch NNNNNN.
 */
#ifndef PV_JOB_COMMITS_H
#define PV_JOB_COMMITS_H

#include "git/carry.h"
#include "stage/apply.h"
#include "stage/stage.h"

#define PV_COMMITS_ID 40

struct pv_commits {
        struct pv_stage *stage; /* borrowed, its lock taken */
        char job[40];           /* whose commits they are: its id */
        struct pv_carry *item;  /* repositories: the workspace's own first, then submodules */
        size_t n;
        struct pv_git_start start; /* of the first */
        char id[PV_COMMITS_ID];    /* "" until it is done */
        char batch[32];            /* of its files; "": none */
        char before[32];           /* the newest batch before it; "": there was none */
        size_t n_files;            /* that are to be published with it */
        bool admitted;             /* their objects are the host's */
        bool gave_up;              /* while recovering: references could not be moved */
        bool recorded;             /* prepared, and not landed: pv_commits_abandon() has something to take back */
};
void pv_commits_fini(struct pv_commits *c);
#define pv_auto_commits __attribute__((cleanup(pv_commits_fini))) struct pv_commits

void pv_commits_init(struct pv_commits *c, struct pv_stage *stage, const char *job);
/* Adds the repository at path (relative to the workspace), when both sides have one. */
int pv_commits_add(struct pv_commits *c, const char *path, const struct pv_git_runner *view, const char *view_path,
                   struct pv_err *err);
/* Compares, imports into quarantine, decides: nothing of the host changes that anybody could see. */
int pv_commits_prepare(struct pv_commits *c, const struct pv_git_runner *view, const struct pv_carry_options *o,
                       struct pv_err *err);
bool pv_commits_any(const struct pv_commits *c);

/*
 * Takes the locks of the indexes and looks at the entries. What stands in the way is added to result->conflicts, and
 * PV_ERR_CONFLICT says how many. as_it_was[i]: the index of item[i] is that of the job's start.
 */
int pv_commits_check(struct pv_commits *c, const bool *as_it_was, struct pv_apply_result *result, struct pv_err *err);
/* Lands all of it: objects, then the selected files (n_files of them, may be none), then references and indexes. */
int pv_commits_land(struct pv_commits *c, struct pv_changes *changes, const bool *selected,
                    const struct pv_apply_options *options, struct pv_apply_result *result, struct pv_err *err);
/* Takes back what was prepared and not landed; nothing after pv_commits_land(). */
void pv_commits_abandon(struct pv_commits *c);

/* Whether a crash left one. */
bool pv_commits_are_unfinished(const struct pv_stage *s);
/* After a crash, once pv_apply_recover() has done its part. *did as there. */
int pv_commits_recover(struct pv_stage *s, const char **did, struct pv_err *err);

/* Ids of those that are done and not undone, oldest first. */
int pv_commits_list(struct pv_stage *s, struct pv_strv *ids, struct pv_err *err);
/* Takes that one back, files too. Errors as pv_undo(); conflicts of references and index entries are in result. */
int pv_commits_undo(struct pv_stage *s, const char *id, struct pv_apply_result *result, size_t *n_refs,
                    struct pv_err *err);

#endif
