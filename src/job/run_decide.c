/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided of a run before anything is made: which stage it has, and, by policy/admit.h, the plan. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "base/path.h"
#include "job/run.h"
#include "job/store_internal.h"
#include "policy/admit.h"

void pv_run_plan_fini(struct pv_run_plan *p)
{
        pv_plan_freep(&p->plan);
        free(p->stage_dir);
        free(p->parent);
        free(p->parent_stage);
        free(p->checkpoint);
        pv_strv_fini(&p->notes);
        *p = (struct pv_run_plan){ 0 };
}

/* A path that may not exist yet as an absolute one. */
static int absolute(const char *path, char **out, struct pv_err *err)
{
        pv_auto_free char *real = realpath(path, NULL);
        if (real) {
                *out = pv_steal(&real);
                return 0;
        }
        pv_auto_free char *cwd = path[0] == '/' ? pv_strdup("/") : getcwd(NULL, 0);
        if (!cwd)
                return pv_err_set(err, PV_ERR_SYS, errno, "current directory");
        pv_auto_free char *joined = pv_path_join(cwd, path);
        pv_auto_free char *normal = pv_path_normalise(joined);
        *out = pv_path_real_existing(normal);
        return 0;
}

static bool has_stage(const char *dir)
{
        struct stat st;
        pv_auto_free char *path = pv_path_join(dir, "stage.json");
        return stat(path, &st) == 0;
}

/* A directory of the job store is pVisor's own, but for the stage of a job, in which one may go on. */
static int check_outside_store(const char *dir, const char *store, struct pv_err *err)
{
        pv_auto_free char *real = NULL;
        if (absolute(store, &real, err) < 0)
                return -1;
        if (!pv_path_is_within(dir, real))
                return 0;
        pv_auto_free char *jobs = pv_path_join(real, "jobs/");
        if (pv_str_has_prefix(dir, jobs) && has_stage(dir)) {
                pv_auto_free char *id = pv_strdup(dir + strlen(jobs));
                char *slash = strchr(id, '/');
                if (slash && pv_streq(slash, "/" PV_JOB_STAGE)) {
                        *slash = '\0';
                        if (pv_job_is_id(id))
                                return 0;
                }
        }
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "--stage %s: lies in the job store %s", dir, real);
        return pv_err_hint(err, "--stage DIR with a directory elsewhere, or --continue JOB");
}

static int find_stage(const struct pv_run *run, const char *store, struct pv_run_plan *out, struct pv_err *err)
{
        const char *named = run->request->stage;
        if (run->continued) {
                if (!run->continued->stage_dir)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--continue: %s was not staged", run->continued->id);
                out->origin = PV_JOB_CONTINUES;
                out->parent = pv_strdup(run->continued->id);
                out->stage_dir = pv_strdup(run->continued->stage_dir);
        } else if (named && *named) {
                if (absolute(named, &out->stage_dir, err) < 0 || check_outside_store(out->stage_dir, store, err) < 0)
                        return -1;
                if (has_stage(out->stage_dir))
                        out->origin = PV_JOB_CONTINUES;
        }
        return 0;
}

/*
 * Who goes on with what a confined command left confines theirs alike, without saying it again: --stage or --filesystem
 * says otherwise. *plan is that job's, to which the request points then.
 */
static int inherit_boundary(const struct pv_job *job, struct pv_request *r, struct pv_plan **plan,
                            struct pv_strv *notes, struct pv_err *err)
{
        if (!job || r->stage || r->filesystem)
                return 0;
        if (pv_job_plan(job, plan, err) < 0)
                return -1;
        if ((*plan)->safe && !r->safe) {
                r->safe = true;
                pv_strv_take(notes, pv_strf("--safe, as %s was (--stage for no more than a stage)", job->id));
        }
        if (!r->profile)
                r->profile = (*plan)->profile.asked;
        return 0;
}

int pv_run_decide(const struct pv_run *run, struct pv_run_plan *out, struct pv_err *err)
{
        pv_auto_run_plan p = { 0 };
        pv_auto_free char *store = NULL;
        pv_auto_plan continued = NULL;
        struct pv_request request = *run->request; /* a view: what it points to stays the caller's */
        if (request.name && pv_job_check_name(request.name, err) < 0)
                return -1;
        if (pv_store_path(&store, err) < 0 || find_stage(run, store, &p, err) < 0 ||
            inherit_boundary(run->continued, &request, &continued, &p.notes, err) < 0)
                return -1;
        if (run->continued && !request.workspace)
                request.workspace = run->continued->workspace;
        const struct pv_surroundings around = {
                .environment = run->environment,
                .store = store,
                .stage_dir = p.stage_dir,
        };
        if (pv_admit(&request, &around, run->argv, &p.plan, &p.notes, err) < 0)
                return -1;
        *out = p;
        p = (struct pv_run_plan){ 0 };
        return 0;
}
