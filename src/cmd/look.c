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

static int open_stage(struct pv_look *l, struct pv_err *err)
{
        if (!l->job->stage_dir || l->job->dropped)
                return 0;
        if (pv_cmd_stage_look(l->job, &l->stage, err) < 0) {
                if (l->job->state != PV_JOB_FAILED || access(l->job->stage_dir, F_OK) == 0 || errno != ENOENT)
                        return -1;
                pv_err_clear(err); /* it failed before there was a stage */
                return 0;
        }
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
