/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job store: directories are the database. $PVISOR_HOME, else $XDG_STATE_HOME/pvisor, else ~/.local/state/pvisor.
 * Directories are 0700, files 0600. The theory of operation heads store.c.
 *
 *   jobs/<id>/request.json   what was asked and planned (names of variables, never values); written once
 *   jobs/<id>/lock           flock(2)ed as long as the supervisor lives; names it and the sandbox's first process
 *   jobs/<id>/state.json     how it ended and what was decided since; absent until then; rewritten whole
 *   jobs/<id>/bundle.json    the Run Bundle
 *   jobs/<id>/events.jsonl   append-only
 *   jobs/<id>/control        while it runs: the socket of its supervisor (control.h)
 *   jobs/<id>/stdout.log, stderr.log   with --stdio capture, or detached
 *   jobs/<id>/closing.log    detached: what pVisor itself would have said to the person who started it
 *   jobs/<id>/stage/         unless --stage DIR: request.json says where it is
 *   jobs/.new-*              a job that is being made, or whose making was interrupted
 *   workspaces/<hash>/last   symbolic link to the newest job of that workspace
 */
#ifndef PV_JOB_STORE_H
#define PV_JOB_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <time.h>
#include "base/err.h"
#include "base/path.h"
#include "policy/plan.h"

#define PV_JOB_ID_TEXT  40 /* "run-20260131-120000-1a2b" and a NUL */
#define PV_JOB_NAME_MAX 64
#define PV_JOB_FORMAT   1 /* of request.json and state.json; a higher one is refused by name */

#define PV_JOB_REQUEST "request.json"
#define PV_JOB_STATE   "state.json"
#define PV_JOB_BUNDLE  "bundle.json"
#define PV_JOB_EVENTS  "events.jsonl"
#define PV_JOB_STDOUT  "stdout.log"
#define PV_JOB_STDERR  "stderr.log"
#define PV_JOB_CLOSING "closing.log"
#define PV_JOB_LOCK    "lock"
#define PV_JOB_STAGE   "stage"
#define PV_JOB_SIZE    "size" /* of a running job's stage, in bytes, as last measured */

enum pv_job_state {
        PV_JOB_RUNNING,
        PV_JOB_ENDED,
        PV_JOB_LOST,   /* its supervisor was killed and wrote no end; nothing of it lives or writes any more */
        PV_JOB_FAILED, /* pVisor failed before the command started */
};
const char *pv_job_state_name(enum pv_job_state s); /* "running", ... */

struct pv_job;
/* PV_ERR_STATE, saying so, when the job's stage was dropped and its directory went with it. */
int pv_job_check_stage_left(const struct pv_job *job, const char *verb, struct pv_err *err);

/* Where a job's stage comes from, other than being new. */
enum pv_job_origin { PV_JOB_NEW, PV_JOB_CONTINUES, PV_JOB_FORKED };

struct pv_job {
        char id[PV_JOB_ID_TEXT];
        char *dir;  /* absolute */
        char *name; /* or NULL */
        char *workspace;
        char *stage_dir; /* absolute, or NULL when not staged */
        enum pv_job_origin origin;
        char *parent;     /* id of the job that this one continues or was forked from; or NULL */
        char *checkpoint; /* of the parent, where the fork stands; or NULL */
        enum pv_job_state state;
        struct timespec started, ended; /* 0 when not known */
        int exit_code;                  /* as `run` returned it; -1 when not known */
        const char *end;   /* static: "exited", "signaled", "timeout", "killed", "stage-size"; NULL when not known */
        char *failure;     /* with FAILED: the reason; or NULL */
        long long changes; /* paths still staged when last counted; -1 when not known */
        long long pending; /* of changes: what a person has yet to decide on, as they count; -1 when not
                                           known */
        long long stage_bytes; /* that the stage takes on disk, when last measured; -1 when not known */
        long long applied;     /* paths applied and not undone; 0 when none */
        bool dropped;          /* its changes were thrown away: nothing is left to apply */
        json_t *request;       /* owned */
};
void pv_job_free(struct pv_job *j);
static inline void pv_job_freep(struct pv_job **j)
{
        pv_job_free(*j);
        *j = NULL;
}
#define pv_auto_job __attribute__((cleanup(pv_job_freep))) struct pv_job *

/* The store's absolute path, not made yet. The caller's. */
int pv_store_path(char **out, struct pv_err *err);

/*
 * Making and ending a job: the supervisor's side.
 */

/* PV_ERR_USAGE unless name is 1-64 of [A-Za-z0-9._-], starts with a letter or digit and cannot be taken for an id. */
int pv_job_check_name(const char *name, struct pv_err *err);

struct pv_job_birth {
        const struct pv_plan *plan;
        const char *name;      /* checked here too; or NULL */
        const char *stage_dir; /* --stage DIR or the continued stage, absolute; NULL: stage/ in the job's directory,
                                  should the plan be staged */
        enum pv_job_origin origin;
        const char *parent, *checkpoint; /* or NULL */
        pid_t init;                      /* of its sandbox, which the lock names from the beginning; 0: none yet */
};

/* A job whose supervisor this process is. */
struct pv_live_job {
        struct pv_job *job; /* owned */
        int lock;           /* close-on-exec; its closing by the last holder ends the job, by whatever death */
};
#define PV_LIVE_JOB_INIT \
        {                \
                NULL, -1 \
        }

/*
 * Makes the job's directory with its request and lock. Nothing is synced: see store.c. The stage's directory is named
 * in job->stage_dir but not made. A full or read-only or foreign store is PV_ERR_SYS with a hint.
 */
int pv_job_create(const struct pv_job_birth *birth, struct pv_live_job *out, struct pv_err *err);

/* Events, each one line and one write; fields (an object, or NULL) are taken. A failure is silent: events are
 * never a reason to lose a run. "at" and "event" are added. */
void pv_job_event(const struct pv_job *job, const char *event, json_t *fields);

struct pv_job_end {
        enum pv_job_state state;      /* ENDED or FAILED */
        const char *end;              /* "exited", "signaled", "timeout", "killed", "stage-size"; NULL with FAILED */
        int exit_code;                /* what `run` returns */
        long long changes, pending;   /* as in struct pv_job; -1: not known */
        long long stage_bytes;        /* likewise */
        const struct pv_err *failure; /* with FAILED */
};
/* The command has started: the job is the newest of its workspace from now on, which one that fails before never is. */
int pv_job_started(const struct pv_job *job, struct pv_err *err);

/*
 * The end in two steps, so that the bundle between them tells it: fills live->job (state, ended, ...); then writes
 * state.json and the event, which makes it so for others.
 */
void pv_job_conclude(struct pv_live_job *live, const struct pv_job_end *end);
/* Concludes if that was not done yet. The lock stays held until pv_live_job_fini(), the process's last act. */
int pv_job_end(struct pv_live_job *live, const struct pv_job_end *end, struct pv_err *err);

void pv_live_job_fini(struct pv_live_job *live);
#define pv_auto_live_job __attribute__((cleanup(pv_live_job_fini))) struct pv_live_job

/*
 * Finding jobs: the side of every other command.
 */

/*
 * Resolves NULL or `last` (newest of this workspace), an id, a --name (of this workspace before others), a unique
 * prefix of an id or its last four digits, or a stage directory (anything with a slash, or "."). PV_ERR_NO_JOB when
 * there is none; PV_ERR_USAGE when ambiguous; PV_ERR_INPUT when it is there but damaged, or of a newer pVisor.
 */
int pv_job_select(const char *selector, const char *workspace, struct pv_job **out, struct pv_err *err);

/* One job by its exact id. */
int pv_job_load(const char *store, const char *id, struct pv_job **out, struct pv_err *err);

/* All jobs, newest first (free with pv_job_list_free); damaged ones are counted in *damaged. No store: none. */
int pv_job_list(struct pv_job ***out, size_t *n, size_t *damaged, struct pv_err *err);
void pv_job_list_free(struct pv_job **jobs, size_t n);

/*
 * Notes in the stage, which is not (only) the job's own, that the job works on it: what is decided on the stage is then
 * told of each such job, whatever number of others there is.
 */
int pv_job_join_stage(const struct pv_job *job, struct pv_err *err);

/*
 * Rewrites state.json from job's changes, pending, applied, dropped (and how it ended, as it was read); the same for
 * the jobs whose stage is this one's: those that it continues, and those that continue it.
 */
int pv_job_save_decisions(const struct pv_job *job, struct pv_err *err);

/* The job's directory (O_RDONLY | O_DIRECTORY); the descriptor is the caller's. */
int pv_job_open_dir(const struct pv_job *job, struct pv_err *err);

/* The version of the pvisor that made the job; NULL: one from before that was noted. */
const char *pv_job_version(const struct pv_job *job);

/*
 * The supervisor of a running job as a pidfd, verified by its start time. PV_ERR_NO_JOB: it has ended meanwhile;
 * PV_ERR_STATE: another version's, which says in its own way who it is.
 */
int pv_job_open_supervisor(const struct pv_job *job, pid_t *pid, int *pidfd, struct pv_err *err);

/*
 * The plan that request.json holds: what `inspect` and `fork` start from. env holds names without values.
 */
int pv_job_plan(const struct pv_job *job, struct pv_plan **out, struct pv_err *err);

/* The plan as request.json holds it. A new reference; NULL only without memory. */
json_t *pv_job_plan_json(const struct pv_plan *plan);

#endif
