/* SPDX-License-Identifier: Apache-2.0 */
#include "job/fork.h"

#include <unistd.h>
#include "policy/admit.h"
#include "stage/stage.h"

/* Where the person stands, when the view has that; else where the parent started. */
static void set_cwd(struct pv_plan *p)
{
        pv_auto_free char *cwd = getcwd(NULL, 0);
        if (!cwd || !pv_path_is_within(cwd, p->workspace))
                return;
        free(p->cwd);
        p->cwd = pv_steal(&cwd);
}

int pv_fork_decide(const struct pv_job *parent, const char *checkpoint, const struct pv_run *run,
                   struct pv_run_plan *out, struct pv_err *err)
{
        pv_auto_run_plan p = { 0 };
        pv_auto_free char *store = NULL;
        if (!parent->stage_dir)
                return pv_err_set(err, PV_ERR_STATE, 0, "fork: job %s was not staged: there is nothing to stand on",
                                  parent->id);
        if (pv_job_check_stage_left(parent, "fork", err) < 0)
                return -1;
        if (run->request->name && pv_job_check_name(run->request->name, err) < 0)
                return -1;
        if (pv_store_path(&store, err) < 0 || pv_job_plan(parent, &p.plan, err) < 0)
                return -1;
        set_cwd(p.plan);
        p.origin = PV_JOB_FORKED;
        p.parent = pv_strdup(parent->id);
        /* A checkpoint that was made while it ran is a stage of its own. */
        p.parent_stage = checkpoint ? pv_stage_snapshot_dir(parent->stage_dir, checkpoint) : NULL;
        if (!p.parent_stage && parent->state == PV_JOB_RUNNING) {
                pv_err_set(err, PV_ERR_BUSY, 0, "fork: job %s still runs on what it has staged%s", parent->id,
                           checkpoint ? ", and has no checkpoint of that name that was made since" : "");
                return pv_err_hint(err, "pvisor checkpoint %s, then fork JOB@NAME", parent->id);
        }
        if (!p.parent_stage)
                p.parent_stage = pv_strdup(parent->stage_dir);
        p.checkpoint = checkpoint ? pv_strdup(checkpoint) : NULL;
        const struct pv_surroundings around = { .environment = run->environment,
                                                .store = store,
                                                .stage_dir = p.parent_stage };
        if (pv_admit_again(p.plan, run->argv && run->argv[0] ? run->argv : NULL, &around, &p.notes, err) < 0)
                return pv_err_wrap(err, "fork");
        *out = p;
        p = (struct pv_run_plan){ 0 };
        return 0;
}
