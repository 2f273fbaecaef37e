/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run from request to end: joins policy, store, stage, boundary and evidence. The theory of operation heads run.c.
 */
#ifndef PV_JOB_RUN_H
#define PV_JOB_RUN_H

#include "base/err.h"
#include "job/store.h"
#include "policy/request.h"

struct pv_detached;

struct pv_run {
        const struct pv_request *request;
        char *const *argv;              /* NULL-terminated; NULL: none was given */
        char *const *environment;       /* the person's */
        const struct pv_job *continued; /* of --continue; or NULL */
        int summary;                    /* descriptor for the JSON summary, or -1; borrowed */
        struct pv_detached *detached;   /* of a process that pv_detach() made; or NULL */
};

/* What was decided before anything is made. */
struct pv_run_plan {
        struct pv_plan *plan;
        char *stage_dir; /* --stage DIR or the continued stage, absolute; NULL: in the job's directory */
        enum pv_job_origin origin;
        char *parent;         /* id of the job that is continued, when it is known, or forked; or NULL */
        char *parent_stage;   /* when FORKED: the stage to stand on, absolute */
        char *checkpoint;     /* when FORKED: of that stage; NULL: as it is now */
        struct pv_strv notes; /* what the person should read */
};
void pv_run_plan_fini(struct pv_run_plan *p);
#define pv_auto_run_plan __attribute__((cleanup(pv_run_plan_fini))) struct pv_run_plan

/* Finds the stage and admits the request. Nothing is made. Errors as pv_admit(). */
int pv_run_decide(const struct pv_run *run, struct pv_run_plan *out, struct pv_err *err);

/* How the program that ran the command has to end. */
struct pv_run_end {
        int code;   /* what `run` returns */
        int signal; /* not 0: of this signal instead, since a key of the terminal sent it to the command */
};

/*
 * Makes the job and runs the command to its end. 0: the command was started and *end is filled; what went wrong
 * afterwards was said on stderr. -1: it was not started; where a job was made already it is marked FAILED
 * with the reason.
 */
int pv_run_execute(const struct pv_run *run, const struct pv_run_plan *decided, struct pv_run_end *end,
                   struct pv_err *err);

/* The exit code of `run` for an error before the command was started: 125 for what is pVisor's own or the machine's. */
int pv_run_exit_code(const struct pv_err *err);

#endif
