/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the job store share; nobody else includes this. */
#ifndef PV_JOB_STORE_INTERNAL_H
#define PV_JOB_STORE_INTERNAL_H

#include "base/process.h"
#include "job/store.h"

/* Files of the store are ours, but may be damaged or huge. An argument vector alone may have 2 MiB, each byte six. */
#define PV_JOB_REQUEST_MAX (16U << 20)
#define PV_JOB_STATE_MAX   (64U << 10)

enum pv_store_open_flags {
        PV_STORE_MAKE = 1 << 0, /* make the directories that are missing */
};

/*
 * Opens the store's jobs/ directory. Without MAKE a missing store is *jobs = -1 and success. A store that belongs to
 * somebody else, or that others may write, is refused: whoever owns it chooses what apply publishes.
 */
int pv_store_open_jobs(const char *store, unsigned flags, int *jobs, struct pv_err *err);

/*
 * The same, to be listed with pv_store_next(). The caller's: pv_auto_dir. A missing store is *jobs = NULL and
 * success.
 */
int pv_store_list(const char *store, DIR **jobs, struct pv_err *err);

/* The next name, valid until the next call: 1; 0: there is none (nor in NULL); -1: it cannot be read any further. */
int pv_store_next(DIR *jobs, const char **name, struct pv_err *err);

/* "workspaces/<hash>" of a workspace, relative to the store. The caller's. */
char *pv_store_workspace_dir(const char *workspace);
/* Points workspaces/<hash>/last at jobs/<id>. */
int pv_store_set_last(const char *store, const char *workspace, const char *id, struct pv_err *err);
/* The id that `last` names, or NULL when there is none. The caller's. */
char *pv_store_get_last(const char *store, const char *workspace);

/* True when text looks like an id: "run-", 8 digits, '-', 6 digits, '-', 4 hexadecimal digits. */
bool pv_job_is_id(const char *text);

/*
 * The lock file: takes it for this process and writes who we are, and who the sandbox's first process is (0: there is
 * none yet), since a job is not lost before that is dead, too.
 */
int pv_job_lock_take(int dirfd, pid_t init, int *lock, struct pv_err *err);
/* True while somebody holds it. */
bool pv_job_lock_is_held(int dirfd);
/* Notes in the lock, which needs no room, how the job ended; read where there is no state.json. -1: not even that. */
int pv_job_lock_note_end(int lock, const struct pv_job *job);

/* Fills state, ended, exit_code, end, failure, changes, applied and dropped. */
int pv_job_state_read(int dirfd, struct pv_job *job, struct pv_err *err);
int pv_job_state_write(int dirfd, const struct pv_job *job, struct pv_err *err);

/* A time as integer nanoseconds since the epoch, and back. */
json_t *pv_job_time_json(const struct timespec *t);
struct timespec pv_job_time_parse(const json_t *value); /* 0 for what is none */

#endif
