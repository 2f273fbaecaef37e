/* SPDX-License-Identifier: Apache-2.0 */
/* What a person may call a job. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/closest.h"
#include "base/path.h"
#include "job/store_internal.h"

#define CANDIDATES_SHOWN 4

static int no_job(struct pv_err *err, const char *before, const char *what, const char *after)
{
        pv_err_set(err, PV_ERR_NO_JOB, 0, "no such job: %s%.200s%s", before, what, after);
        return pv_err_hint(err, "pvisor list --all shows every job");
}

/* A set of loaded jobs, narrowed until one is left. */
struct jobs {
        struct pv_job **v;
        size_t n;
};

static void jobs_fini(struct jobs *j)
{
        pv_job_list_free(j->v, j->n);
}

/* Gives jobs[i] away. */
static struct pv_job *take(struct jobs *j, size_t i)
{
        struct pv_job *job = j->v[i];
        j->v[i] = NULL;
        return job;
}

typedef bool matches(const struct pv_job *job, const char *text);

static bool has_name(const struct pv_job *job, const char *text)
{
        return job->name && pv_streq(job->name, text);
}

/* A prefix with or without "run-", or the four digits at the end. */
static bool has_part_of_id(const struct pv_job *job, const char *text)
{
        return pv_str_has_prefix(job->id, text) || pv_str_has_prefix(job->id + strlen("run-"), text) ||
               (strlen(text) == 4 && pv_str_has_suffix(job->id, text));
}

static bool has_stage(const struct pv_job *job, const char *real)
{
        pv_auto_free char *stage = job->stage_dir ? realpath(job->stage_dir, NULL) : NULL;
        pv_auto_free char *dir = realpath(job->dir, NULL);
        return (stage && pv_streq(stage, real)) || (dir && pv_streq(dir, real));
}

static bool has_workspace(const struct pv_job *job, const char *real)
{
        return pv_streq(job->workspace, real);
}

static int ambiguous(const struct jobs *all, matches *is, const char *text, struct pv_err *err)
{
        pv_auto_str ids = { 0 };
        size_t shown = 0;
        for (size_t i = 0; i < all->n && shown < CANDIDATES_SHOWN; i++)
                if (is(all->v[i], text))
                        pv_str_putf(&ids, "%s%s", shown++ ? ", " : "", all->v[i]->id);
        pv_err_set(err, PV_ERR_USAGE, 0, "job \"%.80s\" is ambiguous", text);
        return pv_err_hint(err, "one of %s%s", ids.s, shown == CANDIDATES_SHOWN ? ", ..." : "");
}

/* 1: *out is the one; 0: none; -1: several. */
static int pick_unique(struct jobs *all, matches *is, const char *text, struct pv_job **out, struct pv_err *err)
{
        size_t found = 0, at = 0;
        for (size_t i = 0; i < all->n; i++) {
                if (is(all->v[i], text)) {
                        at = i;
                        found++;
                }
        }
        if (found > 1)
                return ambiguous(all, is, text, err);
        if (found == 1)
                *out = take(all, at);
        return (int)found;
}

/*
 * The newest of this workspace that has the name, else the only one of another: a name must not reach elsewhere by
 * being newer there.
 */
static int pick_named(struct jobs *all, const char *name, const char *workspace, struct pv_job **out,
                      struct pv_err *err)
{
        for (size_t i = 0; workspace && i < all->n; i++) {
                if (has_name(all->v[i], name) && pv_streq(all->v[i]->workspace, workspace)) {
                        *out = take(all, i);
                        return 1;
                }
        }
        return pick_unique(all, has_name, name, out, err);
}

/* The newest job that works on the stage, of which one that was continued has several; or in the workspace. */
static int pick_by_directory(struct jobs *all, const char *path, struct pv_job **out, struct pv_err *err)
{
        pv_auto_free char *real = realpath(path, NULL);
        if (!real)
                return pv_err_set(err, errno == ENOENT || errno == ENOTDIR ? PV_ERR_NO_JOB : PV_ERR_SYS, errno,
                                  "job or stage %s", path);
        static matches *const ways[] = { has_stage, has_workspace };
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
                for (size_t i = 0; i < all->n; i++) {
                        if (ways[w](all->v[i], real)) {
                                *out = take(all, i);
                                return 0;
                        }
                }
        }
        return no_job(err, "", path, " is neither the stage nor the workspace of one");
}

/* The newest of the workspace; else, where the person stands below one, of the nearest above. */
static int select_last(const char *store, const char *workspace, struct pv_job **out, struct pv_err *err)
{
        __attribute__((cleanup(jobs_fini))) struct jobs all = { 0 };
        size_t damaged = 0;
        pv_auto_free char *id = pv_store_get_last(store, workspace);
        if (id && (pv_job_load(store, id, out, err) == 0 || err->kind != PV_ERR_NO_JOB))
                return err->kind == PV_ERR_NONE ? 0 : -1;
        pv_err_clear(err); /* the newest was pruned: the newest of the others */
        if (pv_job_list(&all.v, &all.n, &damaged, err) < 0)
                return -1;
        size_t best = all.n;
        for (size_t i = 0; i < all.n; i++)
                if (all.v[i]->state != PV_JOB_FAILED && pv_path_is_within(workspace, all.v[i]->workspace) &&
                    (best == all.n || strlen(all.v[i]->workspace) > strlen(all.v[best]->workspace)))
                        best = i;
        if (best < all.n) {
                *out = take(&all, best);
                return 0;
        }
        return no_job(err, "none was run in ", workspace, " yet");
}

/* The name of a job that was meant, of this workspace first; NULL: none is close. */
static const char *closest_name(const struct jobs *all, const char *text, const char *workspace)
{
        struct pv_closest closest = { .word = text };
        for (int here = 1; here >= 0 && !closest.best; here--)
                for (size_t i = 0; i < all->n; i++)
                        if (all->v[i]->name && (!here || (workspace && pv_streq(all->v[i]->workspace, workspace))))
                                pv_closest_offer(&closest, all->v[i]->name);
        return closest.best;
}

/* A damaged job is in no list, but must be named when it is meant. */
static int damaged_or_none(const char *store, const char *selector, size_t damaged, struct pv_err *err)
{
        struct pv_job *job = NULL;
        pv_auto_dir jobs = NULL;
        const char *name;
        int r;
        if (damaged && pv_store_list(store, &jobs, err) < 0)
                return -1;
        while ((r = pv_store_next(jobs, &name, err)) > 0) {
                struct pv_job only_id = { 0 };
                if (!pv_job_is_id(name))
                        continue;
                (void)snprintf(only_id.id, sizeof only_id.id, "%.*s", PV_JOB_ID_TEXT - 1, name);
                if (has_part_of_id(&only_id, selector) && pv_job_load(store, name, &job, err) < 0)
                        return -1;
                pv_job_freep(&job);
        }
        return r < 0 ? -1 : no_job(err, "", selector, "");
}

static int select_listed(const char *store, const char *selector, const char *workspace, struct pv_job **out,
                         struct pv_err *err)
{
        __attribute__((cleanup(jobs_fini))) struct jobs all = { 0 };
        size_t damaged = 0;
        if (pv_job_list(&all.v, &all.n, &damaged, err) < 0)
                return -1;
        if (strchr(selector, '/') || pv_streq(selector, "."))
                return pick_by_directory(&all, selector, out, err);
        int got = pick_named(&all, selector, workspace, out, err);
        if (got == 0 && *selector)
                got = pick_unique(&all, has_part_of_id, selector, out, err);
        if (got != 0)
                return got < 0 ? -1 : 0;
        (void)damaged_or_none(store, selector, damaged, err);
        const char *meant = err->kind == PV_ERR_NO_JOB ? closest_name(&all, selector, workspace) : NULL;
        return meant ? pv_err_hint(err, "did you mean %s?", meant) : -1;
}

int pv_job_select(const char *selector, const char *workspace, struct pv_job **out, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        pv_auto_fd jobs = -1; /* opened for its checks: nothing is believed of a store that others may write */
        if (pv_store_path(&store, err) < 0 || pv_store_open_jobs(store, 0, &jobs, err) < 0)
                return -1;
        if (selector && !*selector)
                return pv_err_set(err, PV_ERR_USAGE, 0, "JOB is an empty word: name one, or leave it out for the last");
        if (!selector || pv_streq(selector, "last"))
                return select_last(store, workspace, out, err);
        if (pv_job_is_id(selector)) {
                if (pv_job_load(store, selector, out, err) == 0)
                        return 0;
                return err->kind == PV_ERR_NO_JOB ? no_job(err, "", selector, "") : -1;
        }
        return select_listed(store, selector, workspace, out, err);
}
