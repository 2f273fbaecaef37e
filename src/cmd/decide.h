/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A decision on a job's changes, up to the point where apply and drop differ: the stage, what changed, what is meant.
 */
#ifndef PV_CMD_DECIDE_H
#define PV_CMD_DECIDE_H

#include "cmd/jobs.h"
#include "cmd/select.h"
#include "job/contained.h"

struct pv_decision {
        const char *verb;        /* static */
        struct pv_job *job;      /* owned */
        struct pv_beside beside; /* beside.job is set: the job runs */
        struct pv_stage *stage;  /* owned, its lock taken */
        struct pv_changes *changes;
        struct pv_contained *result, *host; /* git over what the command left, and over what the host has */
        struct pv_git_runner ask_result, ask_host;
        struct pv_verdicts verdicts;
        enum pv_left *left; /* one a change, after pv_decision_select() */
        bool drops;         /* what is selected is thrown away, not applied */
        bool *selected;
        size_t n_selected;
        size_t n_along; /* of those: not asked for themselves, but they belong together with what was */
};
void pv_decision_fini(struct pv_decision *d);
#define pv_auto_decision __attribute__((cleanup(pv_decision_fini))) struct pv_decision

enum pv_decision_when {
        PV_DECISION_ENDED, /* on a job that has ended: PV_ERR_BUSY else */
        PV_DECISION_ANY_TIME,
};
/*
 * Finds the job, takes its stage, computes the changes and what git says of them. verb is for errors. out must stay
 * where it is.
 */
int pv_decision_open(const struct pv_args *args, const char *verb, enum pv_decision_when when, struct pv_decision *out,
                     struct pv_err *err);

/* Looks again at what is staged, beside a run that went on; what was selected is forgotten. */
int pv_decision_look(struct pv_decision *d, struct pv_err *err);

/*
 * Selects, and closes the selection over what belongs together. Never over what was excluded or would run on the host
 * by itself: of a rename the other half is then taken alone, or left (PV_LEFT_TOGETHER) where that would lose the
 * file; a deleted directory is left whole; for all else PV_ERR_USAGE names it.
 */
int pv_decision_select(struct pv_decision *d, const char *verb, const struct pv_select *what, struct pv_err *err);

/*
 * After the changes were computed anew: what was selected by its path still is, and what now belongs together with it.
 * before and left: the list and the reasons of then.
 */
int pv_decision_select_again(struct pv_decision *d, const char *verb, const struct pv_changes *before,
                             const enum pv_left *left, struct pv_err *err);

/* Notes in the store how much is left: all of it, and what a person has yet to decide on. */
void pv_decision_note_left(struct pv_decision *d);

/* {"reason": {"count": n, "paths": [...]}} of what was left; paths are bounded, counts are not. */
json_t *pv_decision_left_json(const struct pv_decision *d);
json_t *pv_decision_selected_json(const struct pv_decision *d);

#endif
