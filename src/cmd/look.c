/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/look.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "cmd/jobs.h"

/* Without the views git is not asked: the list is longer then, and says why, but it is there. */
static void open_views(struct pv_look *l, char *why, size_t why_size)
{
        struct pv_err err = PV_ERR_INIT;
        if (pv_contained_open(l->job, l->stage, PV_CONTAINED_RESULT, &l->result, &err) < 0 ||
            pv_contained_open(l->job, l->stage, PV_CONTAINED_HOST, &l->host, &err) < 0) {
                (void)snprintf(why, why_size, "%.*s", (int)why_size - 1, err.msg);
                pv_contained_freep(&l->result);
                return;
        }
        pv_contained_git(l->result, &l->view);
        pv_contained_git(l->host, &l->base);
}

/*
 * The stage of a running job is looked at without holding it still: what is being written meanwhile is seen or not.
 * With the views of its roots fewer of the host's own edits stand in doubt; without, should it be about to end, more.
 */
static int look_beside(struct pv_look *l, struct pv_err *err)
{
        struct pv_beside b = { .conn = -1 };
        struct pv_err ignored = PV_ERR_INIT;
        if (l->job->state == PV_JOB_RUNNING)
                (void)pv_beside_open(l->job, &b, &ignored);
        int r = pv_cmd_stage_look(l->job, &l->stage, err);
        if (r == 0 && b.job)
                (void)pv_beside_give_views(&b, l->stage, &ignored);
        pv_beside_close(&b, "look");
        return r;
}

static int open_stage(struct pv_look *l, struct pv_err *err)
{
        if (!l->job->stage_dir || l->job->dropped)
                return 0;
        if (look_beside(l, err) < 0) {
                if (l->job->state != PV_JOB_FAILED || access(l->job->stage_dir, F_OK) == 0 || errno != ENOENT)
                        return -1;
                pv_err_clear(err); /* it failed before there was a stage */
                return 0;
        }
        if (l->job->state == PV_JOB_RUNNING) /* counted at its end */
                l->job->applied = (long long)pv_batches_count_standing(l->stage);
        return pv_changes_compute(l->stage, &l->changes, err);
}

int pv_look_open(struct pv_job *job, struct pv_look *out, struct pv_err *err)
{
        char why[sizeof out->verdicts.no_git] = "";
        *out = (struct pv_look){ .job = job };
        if (open_stage(out, err) < 0) {
                pv_look_close(out);
                return -1;
        }
        if (!out->stage)
                return 0;
        open_views(out, why, sizeof why);
        if (pv_verdicts_make(out->stage, out->changes, out->result ? &out->view : NULL, out->host ? &out->base : NULL,
                             &out->verdicts, err) < 0) {
                pv_look_close(out);
                return -1;
        }
        if (out->verdicts.git_refused)
                pv_contained_freep(&out->result);
        else if (!out->result)
                memcpy(out->verdicts.no_git, why, sizeof why);
        return 0;
}

void pv_look_close(struct pv_look *l)
{
        pv_verdicts_fini(&l->verdicts);
        pv_contained_freep(&l->result);
        pv_contained_freep(&l->host);
        pv_changes_freep(&l->changes);
        pv_stage_closep(&l->stage);
        pv_job_freep(&l->job);
}
