/* SPDX-License-Identifier: Apache-2.0 */
/* Making a job and ending it: the supervisor's side of the store. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/json.h"
#include "job/store_internal.h"

/* How often another id is tried: ids differ by 16 random bits within one second. */
#define ID_TRIES 64

bool pv_job_is_id(const char *text)
{
        static const char shape[] = "run-dddddddd-dddddd-xxxx";
        for (size_t i = 0; i < sizeof shape; i++) {
                unsigned char c = (unsigned char)text[i];
                bool fits = shape[i] == 'd'   ? isdigit(c)
                            : shape[i] == 'x' ? isdigit(c) || (c >= 'a' && c <= 'f')
                                              : c == (unsigned char)shape[i];
                if (!fits)
                        return false;
        }
        return true;
}

int pv_job_check_name(const char *name, struct pv_err *err)
{
        size_t n = strlen(name);
        size_t good = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
        if (n == 0 || n > PV_JOB_NAME_MAX || good != n || !isalnum((unsigned char)name[0]))
                return pv_err_set(err, PV_ERR_USAGE, 0,
                                  "name \"%.80s\": must be 1 to %d of letters, digits, '.', '_', '-', and start with a "
                                  "letter or digit",
                                  name, PV_JOB_NAME_MAX);
        if (pv_streq(name, "last") || pv_str_has_prefix(name, "run-"))
                return pv_err_set(err, PV_ERR_USAGE, 0, "name \"%s\": would be taken for a job's id", name);
        return 0;
}

static unsigned random_bits(void)
{
        unsigned r = 0;
        if (getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r)
                r = (unsigned)getpid() ^ (unsigned)pv_clock_monotonic_ms();
        return r;
}

static void make_id(const struct timespec *now, char id[PV_JOB_ID_TEXT])
{
        struct tm tm;
        char when[24];
        (void)gmtime_r(&now->tv_sec, &tm);
        (void)strftime(when, sizeof when, "%Y%m%d-%H%M%S", &tm);
        (void)snprintf(id, PV_JOB_ID_TEXT, "run-%s-%04x", when, random_bits() & 0xffff);
}

static const char *origin_name(enum pv_job_origin o)
{
        static const char *const name[] = {
                [PV_JOB_NEW] = "new", [PV_JOB_CONTINUES] = "continues", [PV_JOB_FORKED] = "forked"
        };
        return name[o];
}

/* The stage's path is null when it is the job's own stage/, so that a store that was moved still finds it. */
static json_t *request_json(const struct pv_job_birth *b, const struct timespec *now)
{
        char text[PV_CLOCK_TEXT];
        pv_clock_format(now, text);
        return json_pack("{s:i, s:s, s:s, s:o, s:s?, s:o, s:b, s:o, s:{s:s, s:s?, s:s?}, s:o}", "format", PV_JOB_FORMAT,
                         "version", PV_VERSION, "created_at", text, "created_ns", pv_job_time_json(now), "name",
                         b->name, "workspace", pv_json_bytes(b->plan->workspace), "staged", b->plan->staged,
                         "stage_dir", pv_json_bytes(b->stage_dir), "origin", "kind", origin_name(b->origin), "parent",
                         b->parent, "checkpoint", b->checkpoint, "plan", pv_job_plan_json(b->plan));
}

/* The new directory's contents, and *lock. */
static int fill(int dirfd, json_t *request, pid_t init, int *lock, struct pv_err *err)
{
        pv_auto_free char *text = json_dumps(request, JSON_COMPACT);
        if (!text)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write %s", PV_JOB_REQUEST);
        if (pv_job_lock_take(dirfd, init, lock, err) < 0)
                return -1;
        /* Nobody sees the directory yet: no temporary name is needed. */
        pv_auto_fd fd = openat(dirfd, PV_JOB_REQUEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "create %s", PV_JOB_REQUEST);
        return pv_fd_write_all(fd, text, strlen(text), PV_JOB_REQUEST, err);
}

/* Gives the finished directory an id that no other job has: a rename onto a directory with something in it fails. */
static int settle(int jobs, const char *tmp, const struct timespec *now, char id[PV_JOB_ID_TEXT], struct pv_err *err)
{
        for (int i = 0; i < ID_TRIES; i++) {
                make_id(now, id);
                if (renameat(jobs, tmp, jobs, id) == 0)
                        return 0;
                if (errno != ENOTEMPTY && errno != EEXIST)
                        break;
        }
        return pv_err_set(err, PV_ERR_SYS, errno, "name the job's directory");
}

static int make_dir(int jobs, json_t *request, pid_t init, const struct timespec *now, char id[PV_JOB_ID_TEXT],
                    int *lock, struct pv_err *err)
{
        char tmp[32];
        pv_auto_fd held = -1;
        struct pv_err ignored = PV_ERR_INIT;
        (void)snprintf(tmp, sizeof tmp, ".new-%d-%08x", (int)getpid(), random_bits());
        if (mkdirat(jobs, tmp, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make the job's directory");
        pv_auto_fd dir = openat(jobs, tmp, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                pv_err_set(err, PV_ERR_SYS, errno, "open the job's directory");
        if (dir < 0 || fill(dir, request, init, &held, err) < 0 || settle(jobs, tmp, now, id, err) < 0) {
                (void)pv_path_remove_tree(jobs, tmp, &ignored);
                return -1;
        }
        *lock = pv_fd_steal(&held);
        return 0;
}

static struct pv_job *new_job(const struct pv_job_birth *b, const char *store, const char *id,
                              const struct timespec *now, json_t *request)
{
        struct pv_job *j = pv_calloc(1, sizeof *j);
        (void)snprintf(j->id, sizeof j->id, "%s", id);
        j->dir = pv_strf("%s/jobs/%s", store, id);
        j->name = b->name ? pv_strdup(b->name) : NULL;
        j->workspace = pv_strdup(b->plan->workspace);
        j->stage_dir = !b->plan->staged ? NULL
                       : b->stage_dir   ? pv_strdup(b->stage_dir)
                                        : pv_strf("%s/%s", j->dir, PV_JOB_STAGE);
        j->origin = b->origin;
        j->parent = b->parent ? pv_strdup(b->parent) : NULL;
        j->checkpoint = b->checkpoint ? pv_strdup(b->checkpoint) : NULL;
        j->state = PV_JOB_RUNNING;
        j->started = *now;
        j->exit_code = -1;
        j->changes = -1;
        j->pending = -1;
        j->request = json_incref(request);
        return j;
}

int pv_job_create(const struct pv_job_birth *birth, struct pv_live_job *out, struct pv_err *err)
{
        char id[PV_JOB_ID_TEXT];
        struct timespec now = pv_clock_now();
        pv_auto_free char *store = NULL;
        pv_auto_fd jobs = -1;
        pv_auto_fd lock = -1;
        if (birth->name && pv_job_check_name(birth->name, err) < 0)
                return -1;
        if (pv_store_path(&store, err) < 0 || pv_store_open_jobs(store, PV_STORE_MAKE, &jobs, err) < 0)
                return -1;
        pv_auto_json request = request_json(birth, &now);
        if (!request)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write %s", PV_JOB_REQUEST);
        if (make_dir(jobs, request, birth->init, &now, id, &lock, err) < 0) {
                pv_err_wrap(err, "job store %s", store);
                return pv_err_hint(err, "set PVISOR_HOME to a directory of yours that can be written");
        }
        pv_auto_job job = new_job(birth, store, id, &now, request);
        pv_job_event(job, "created", NULL);
        out->job = pv_steal(&job);
        out->lock = pv_fd_steal(&lock);
        return 0;
}

int pv_job_started(const struct pv_job *job, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        if (pv_store_path(&store, err) < 0)
                return -1;
        return pv_store_set_last(store, job->workspace, job->id, err);
}

void pv_job_conclude(struct pv_live_job *live, const struct pv_job_end *end)
{
        struct pv_job *job = live->job;
        job->state = end->state;
        job->end = end->end;
        job->exit_code = end->exit_code;
        job->changes = end->changes;
        job->pending = end->pending;
        job->stage_bytes = end->stage_bytes;
        job->ended = pv_clock_now();
        if (end->failure) {
                free(job->failure);
                job->failure = pv_strdup(end->failure->msg);
        }
}

int pv_job_end(struct pv_live_job *live, const struct pv_job_end *end, struct pv_err *err)
{
        struct pv_job *job = live->job;
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0)
                return -1;
        if (job->state == PV_JOB_RUNNING)
                pv_job_conclude(live, end);
        pv_job_event(job, pv_job_state_name(job->state),
                     json_pack("{s:s?, s:i, s:o}", "end", job->end, "exit_code", job->exit_code, "failure",
                               pv_json_bytes(job->failure)));
        if (pv_job_state_write(dir, job, err) == 0)
                return 0;
        (void)pv_job_lock_note_end(live->lock, job); /* else it would read as lost */
        return -1;
}

void pv_live_job_fini(struct pv_live_job *live)
{
        pv_job_freep(&live->job);
        pv_fd_closep(&live->lock);
}
