/* SPDX-License-Identifier: Apache-2.0 */
/* Reading jobs back: one by its id, or all of them. What is damaged is named precisely and hides nothing else. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/json.h"
#include "job/store_internal.h"

void pv_job_free(struct pv_job *j)
{
        if (!j)
                return;
        free(j->dir);
        free(j->name);
        free(j->workspace);
        free(j->stage_dir);
        free(j->parent);
        free(j->checkpoint);
        free(j->failure);
        json_decref(j->request);
        free(j);
}

void pv_job_list_free(struct pv_job **jobs, size_t n)
{
        for (size_t i = 0; i < n; i++)
                pv_job_free(jobs[i]);
        free(jobs);
}

int pv_job_open_dir(const struct pv_job *job, struct pv_err *err)
{
        int fd = open(job->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd >= 0 ? fd : pv_err_set(err, PV_ERR_SYS, errno, "job %s", job->id);
}

static int get_path(const json_t *request, const char *key, char **out, struct pv_err *err)
{
        if (pv_json_get_bytes(json_object_get(request, key), out, err) < 0)
                return pv_err_wrap(err, "%s: \"%s\"", PV_JOB_REQUEST, key);
        if ((*out)[0] != '/')
                return pv_err_set(err, PV_ERR_INPUT, 0, "%s: \"%s\" is not an absolute path", PV_JOB_REQUEST, key);
        return 0;
}

/* A string, or NULL for null and absent. */
static char *optional(const json_t *object, const char *key)
{
        const char *s = json_string_value(json_object_get(object, key));
        return s ? pv_strdup(s) : NULL;
}

static void parse_origin(const json_t *origin, struct pv_job *job)
{
        const char *kind = json_string_value(json_object_get(origin, "kind"));
        job->origin = kind && pv_streq(kind, "continues") ? PV_JOB_CONTINUES
                      : kind && pv_streq(kind, "forked")  ? PV_JOB_FORKED
                                                          : PV_JOB_NEW;
        job->parent = optional(origin, "parent");
        job->checkpoint = optional(origin, "checkpoint");
}

static int parse_request(struct pv_job *job, struct pv_err *err)
{
        const json_t *r = job->request;
        int64_t format = 0, created = 0;
        if (!json_is_object(r))
                return pv_err_set(err, PV_ERR_INPUT, 0, "%s: not an object", PV_JOB_REQUEST);
        if (pv_json_get_int(r, "format", 1, INT64_MAX, &format, err) < 0)
                return pv_err_wrap(err, "%s", PV_JOB_REQUEST);
        if (format > PV_JOB_FORMAT)
                return pv_err_set(err, PV_ERR_INPUT, 0,
                                  "%s: written by a newer pvisor (format %lld, this one knows %d)", PV_JOB_REQUEST,
                                  (long long)format, PV_JOB_FORMAT);
        if (pv_json_get_int(r, "created_ns", 0, INT64_MAX, &created, err) < 0)
                return pv_err_wrap(err, "%s", PV_JOB_REQUEST);
        if (get_path(r, "workspace", &job->workspace, err) < 0)
                return -1;
        job->started = pv_job_time_parse(json_object_get(r, "created_ns"));
        job->name = optional(r, "name");
        if (job->name && pv_job_check_name(job->name, err) < 0) {
                err->kind = PV_ERR_INPUT;
                return pv_err_wrap(err, "%s", PV_JOB_REQUEST);
        }
        parse_origin(json_object_get(r, "origin"), job);
        if (!json_is_true(json_object_get(r, "staged")))
                return 0;
        if (!json_is_null(json_object_get(r, "stage_dir")))
                return get_path(r, "stage_dir", &job->stage_dir, err);
        job->stage_dir = pv_strf("%s/%s", job->dir, PV_JOB_STAGE);
        return 0;
}

static int load_from(int dirfd, struct pv_job *job, struct pv_err *err)
{
        if (pv_json_read_at(dirfd, PV_JOB_REQUEST, PV_JOB_REQUEST_MAX, &job->request, err) < 0) {
                if (err->kind == PV_ERR_SYS && err->sys == ENOENT)
                        err->kind = PV_ERR_INPUT; /* the directory is there: that is damage */
                return -1;
        }
        if (parse_request(job, err) < 0)
                return -1;
        return pv_job_state_read(dirfd, job, err);
}

int pv_job_load(const char *store, const char *id, struct pv_job **out, struct pv_err *err)
{
        pv_auto_job job = pv_calloc(1, sizeof *job);
        (void)snprintf(job->id, sizeof job->id, "%s", id);
        job->dir = pv_strf("%s/jobs/%s", store, id);
        pv_auto_fd dir = open(job->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return pv_err_set(err, errno == ENOENT ? PV_ERR_NO_JOB : PV_ERR_SYS, errno, "job %s", id);
        if (load_from(dir, job, err) < 0)
                return pv_err_wrap(err, "job %s is damaged", id);
        *out = pv_steal(&job);
        return 0;
}

static int newest_first(const void *a, const void *b)
{
        const struct pv_job *const *x = a, *const *y = b;
        int c = pv_clock_compare(&(*y)->started, &(*x)->started);
        return c ? c : strcmp((*y)->id, (*x)->id);
}

struct listing {
        struct pv_job **jobs;
        size_t n, cap, damaged;
};

static void add_one(struct listing *l, const char *store, const char *id)
{
        struct pv_err why = PV_ERR_INIT;
        struct pv_job *job = NULL;
        if (pv_job_load(store, id, &job, &why) < 0) {
                l->damaged += why.kind != PV_ERR_NO_JOB; /* it may be removed while we look */
                return;
        }
        if (l->n == l->cap)
                l->jobs = pv_realloc(l->jobs, l->cap = l->cap ? 2 * l->cap : 64, sizeof *l->jobs);
        l->jobs[l->n++] = job;
}

int pv_job_list(struct pv_job ***out, size_t *n, size_t *damaged, struct pv_err *err)
{
        struct listing l = { 0 };
        pv_auto_free char *store = NULL;
        pv_auto_dir jobs = NULL;
        const char *name;
        int r;
        if (pv_store_path(&store, err) < 0 || pv_store_list(store, &jobs, err) < 0)
                return -1;
        while ((r = pv_store_next(jobs, &name, err)) > 0)
                if (pv_job_is_id(name))
                        add_one(&l, store, name);
        if (r < 0) { /* a part of the list might make a stage look as if no other job worked on it */
                pv_job_list_free(l.jobs, l.n);
                return -1;
        }
        if (l.n)
                qsort(l.jobs, l.n, sizeof *l.jobs, newest_first);
        *out = l.jobs;
        *n = l.n;
        *damaged = l.damaged;
        return 0;
}
