/* SPDX-License-Identifier: Apache-2.0 */
#include "job/remove.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "job/store_internal.h"
#include "stage/apply.h"
#include "stage/stage.h"

#define GONE         ".gone-"
#define LEFTOVER_AGE 3600

static bool is_in_own_dir(const struct pv_job *job)
{
        return pv_path_is_within(job->stage_dir, job->dir);
}

bool pv_job_only_borrows_stage(const struct pv_job *job)
{
        return job->state == PV_JOB_FAILED && job->origin == PV_JOB_CONTINUES;
}

const struct pv_job *pv_job_shares_stage(const struct pv_job *job, const struct pv_job_removal *how)
{
        for (size_t i = 0; i < how->n; i++) {
                const struct pv_job *other = how->jobs[i];
                if (other && !pv_job_only_borrows_stage(other) && other->stage_dir && job->stage_dir &&
                    !pv_streq(other->id, job->id) && pv_streq(other->stage_dir, job->stage_dir))
                        return other;
        }
        return NULL;
}

/*
 * Removes the stage directory, or finds out whether that could be done. The lock that open takes is what keeps a run
 * from starting in it meanwhile.
 */
static int remove_stage(const struct pv_job *job, bool dry_run, uint64_t *bytes, struct pv_err *err)
{
        const char *did = NULL;
        pv_auto_stage s = NULL;
        if (faccessat(AT_FDCWD, job->stage_dir, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
                return 0; /* dropped, or never made */
        if (pv_stage_open(job->stage_dir, PV_STAGE_DISCARD, &s, err) < 0 || pv_stage_size(s, bytes, err) < 0)
                return -1;
        if (dry_run)
                return 0;
        if (pv_apply_recover(s, &did, err) < 0)
                return -1;
        return pv_stage_remove(s, err);
}

/* The name goes first, so that nobody ever sees a part of a job. */
static int remove_dir(const char *id, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        pv_auto_free char *gone = pv_strf(GONE "%s", id);
        pv_auto_fd jobs = -1;
        if (pv_store_path(&store, err) < 0 || pv_store_open_jobs(store, 0, &jobs, err) < 0)
                return -1;
        if (jobs < 0 || renameat(jobs, id, jobs, gone) < 0)
                return pv_err_set(err, PV_ERR_SYS, jobs < 0 ? ENOENT : errno, "remove job %s", id);
        return pv_path_remove_tree(jobs, gone, err);
}

int pv_job_remove(const struct pv_job *job, const struct pv_job_removal *how, uint64_t *bytes, struct pv_err *err)
{
        *bytes = 0;
        if (job->state == PV_JOB_RUNNING)
                return pv_err_set(err, PV_ERR_BUSY, 0, "job %s runs", job->id);
        const struct pv_job *other = job->stage_dir ? pv_job_shares_stage(job, how) : NULL;
        if (other && is_in_own_dir(job))
                return pv_err_set(err, PV_ERR_BUSY, 0, "job %s works on its stage", other->id);
        if (job->stage_dir && !other && !pv_job_only_borrows_stage(job) &&
            remove_stage(job, how->dry_run, bytes, err) < 0)
                return -1;
        return how->dry_run ? 0 : remove_dir(job->id, err);
}

int pv_job_each_damaged(void (*each)(void *ctx, const char *id, const struct pv_err *reason), void *ctx,
                        struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        pv_auto_dir jobs = NULL;
        const char *name;
        int r;
        if (pv_store_path(&store, err) < 0 || pv_store_list(store, &jobs, err) < 0)
                return -1;
        while ((r = pv_store_next(jobs, &name, err)) > 0) {
                struct pv_err reason = PV_ERR_INIT;
                pv_auto_job job = NULL;
                if (pv_job_is_id(name) && pv_job_load(store, name, &job, &reason) < 0 && reason.kind != PV_ERR_NO_JOB)
                        each(ctx, name, &reason);
        }
        return r;
}

static bool is_locked(int dirfd, const char *name)
{
        pv_auto_fd fd = openat(dirfd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

int pv_job_remove_damaged(const char *id, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        pv_auto_fd jobs = -1;
        if (pv_store_path(&store, err) < 0 || pv_store_open_jobs(store, 0, &jobs, err) < 0)
                return -1;
        pv_auto_fd dir = jobs < 0 ? -1 : openat(jobs, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir >= 0 && (is_locked(dir, PV_JOB_LOCK) || is_locked(dir, PV_JOB_STAGE "/lock")))
                return pv_err_set(err, PV_ERR_BUSY, 0, "job %s is in use", id);
        return remove_dir(id, err);
}

int pv_store_sweep(struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        pv_auto_dir jobs = NULL;
        const char *name;
        int r;
        if (pv_store_path(&store, err) < 0 || pv_store_list(store, &jobs, err) < 0)
                return -1;
        time_t now = pv_clock_now().tv_sec;
        while ((r = pv_store_next(jobs, &name, err)) > 0) {
                struct stat st;
                bool ours = pv_str_has_prefix(name, ".new-") || pv_str_has_prefix(name, GONE);
                if (ours && fstatat(dirfd(jobs), name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    now - st.st_mtime > LEFTOVER_AGE && pv_path_remove_tree(dirfd(jobs), name, err) < 0)
                        return -1;
        }
        return r;
}
