/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that take a JOB share: finding it, opening its stage, speaking of it. */
#ifndef PV_CMD_JOBS_H
#define PV_CMD_JOBS_H

#include <jansson.h>
#include "cmd/command.h"
#include "job/beside.h"
#include "job/store.h"
#include "job/tally.h"
#include "stage/apply.h"
#include "stage/stage.h"

/* The job that words[0] names, or the newest of the current directory's workspace. */
int pv_cmd_job(const struct pv_args *args, struct pv_job **out, struct pv_err *err);
/* The same by text; NULL is `last`. */
int pv_cmd_job_named(const char *selector, struct pv_job **out, struct pv_err *err);
/* The real path of the workspace that the person stands in. The caller's. */
int pv_cmd_workspace(char **out, struct pv_err *err);

/* Whether the job's stage was removed or moved by hand, or lies on a disk that is not there. */
bool pv_cmd_stage_is_gone(const struct pv_job *job);

/*
 * Opens the job's stage to decide on it: takes its lock, finishes what a crash left and says so in one line. verb is
 * for errors ("apply"). PV_ERR_STATE: not staged, or dropped; PV_ERR_BUSY: it runs, or somebody else decides.
 */
int pv_cmd_stage_take(struct pv_job *job, const char *verb, struct pv_stage **out, struct pv_err *err);
/*
 * Finds the job and opens its stage to decide on it, whether it runs or has ended. Beside a run b->job is set; b must
 * stay where it is, and be closed after the stage. Errors as above.
 */
int pv_cmd_stage_decide(const struct pv_args *args, const char *verb, struct pv_job **job, struct pv_beside *b,
                        struct pv_stage **out, struct pv_err *err);
/* " (paused for 6 ms)" of a decision beside a run; "" of another. The caller's. */
char *pv_cmd_pause_text(const struct pv_beside *b);
/* Its milliseconds, or null. */
json_t *pv_cmd_pause_json(const struct pv_beside *b);
/* Opens it for looking. What a crash left is finished before, as far as that can be done. */
int pv_cmd_stage_look(struct pv_job *job, struct pv_stage **out, struct pv_err *err);

/* The changes as a person counts them. */
void pv_cmd_tally(const struct pv_stage *stage, const struct pv_changes *changes, struct pv_tally *out);
/* Counts anew what is staged and what was applied, and notes it (and the end of a lost job) in the store. */
int pv_cmd_recount(struct pv_job *job, struct pv_stage *stage, struct pv_err *err);

/* Notes in job how much its stage takes on disk now. */
void pv_cmd_measure(struct pv_job *job, const struct pv_stage *stage);

/* To stdout, whole. 0 or -1. The text is emptied, the reference taken. */
int pv_cmd_print(struct pv_str *text, struct pv_err *err);
int pv_cmd_print_json(json_t *value, struct pv_err *err);

/* "1 change", "12 changes" */
void pv_cmd_put_count(struct pv_str *b, size_t n, const char *one, const char *many);
/* The job that the first word names (*n_used: 1), or, where it names none, the newest of this workspace (0). */
int pv_cmd_job_or_last(const struct pv_args *args, struct pv_job **out, size_t *n_used, struct pv_err *err);
/* PV_ERR_STATE, with what became of it, where the job does not run. */
int pv_cmd_need_running(const struct pv_job *job, const char *verb, struct pv_err *err);
/* "5s", "3m", "2h", "4d" since then. */
void pv_cmd_put_age(struct pv_str *b, const struct timespec *then);
/* argv as a shell would take it, safe for a terminal. */
void pv_cmd_put_argv(struct pv_str *b, const json_t *argv);
enum pv_cmd_closing {
        PV_CMD_CLOSING_ALL,
        PV_CMD_CLOSING_UNRECORDED, /* without what the record tells: refusals, how much was staged */
};
/* What pVisor itself had to say of a detached job, each line after `indent`; nothing where there is none. */
void pv_cmd_put_closing(struct pv_str *b, const struct pv_job *job, const char *indent, enum pv_cmd_closing which);
/* The same: an array of lines, or null. */
json_t *pv_cmd_closing_json(const struct pv_job *job);
/* RFC 3339, or null. */
json_t *pv_cmd_time(const struct timespec *t);
/* What list and status tell of a job. */
json_t *pv_cmd_job_json(const struct pv_job *job);
/* A staged path for people: relative to the workspace, absolute in another root; safe for a terminal. */
void pv_cmd_put_path(struct pv_str *b, const struct pv_stage *s, unsigned root, const char *path);

/* The conflicts of a refused batch: as JSON; and to stderr, one line each, whatever -q says. */
json_t *pv_cmd_conflicts_json(const struct pv_stage *s, const struct pv_apply_result *r);
void pv_cmd_say_conflicts(const struct pv_stage *s, const struct pv_apply_result *r);

#endif
