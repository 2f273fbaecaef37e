/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job store: directories are the database. $PVISOR_HOME, else $XDG_STATE_HOME/pvisor, else ~/.local/state/pvisor.
 *
 *   jobs/<id>/request.json   what was asked (names of variables, never values)
 *   jobs/<id>/state.json     pid and start time of the supervisor, exit when ended; rewritten whole
 *   jobs/<id>/bundle.json    the Run Bundle
 *   jobs/<id>/events.jsonl   append-only
 *   jobs/<id>/stage/         unless --stage DIR: request.json says where it is
 *   workspaces/<hash>/last   symbolic link to the newest job of that workspace
 */
#ifndef PV_JOB_STORE_H
#define PV_JOB_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <time.h>
#include "base/err.h"
#include "base/path.h"

#define PV_JOB_ID_TEXT 40 /* "run-20260131-120000-1a2b" and a NUL */

enum pv_job_state {
        PV_JOB_RUNNING,
        PV_JOB_ENDED,
        PV_JOB_LOST,   /* its supervisor was killed: nobody wrote an end */
        PV_JOB_FAILED, /* pVisor failed before the command started */
};

struct pv_job {
        char id[PV_JOB_ID_TEXT];
        char *dir;  /* absolute */
        char *name; /* or NULL */
        char *workspace;
        char *stage_dir; /* absolute, or NULL when not staged */
        enum pv_job_state state;
        struct timespec started, ended; /* 0 when not known */
        int exit_code;                  /* -1 when not known */
        json_t *request;                /* owned */
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
 * Resolves `last` (newest of this workspace), an id or unique prefix, a --name or a stage directory. PV_ERR_NO_JOB;
 * PV_ERR_USAGE when ambiguous.
 */
int pv_job_select(const char *selector, const char *workspace, struct pv_job **out, struct pv_err *err);

/* All jobs, newest first; damaged ones are skipped and counted in *damaged. */
int pv_job_list(struct pv_job ***out, size_t *n, size_t *damaged, struct pv_err *err);

#endif
