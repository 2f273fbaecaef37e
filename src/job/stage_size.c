/* SPDX-License-Identifier: Apache-2.0 */
#include "job/stage_size.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/vfs.h>
#include "base/clock.h"
#include "base/container.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/log.h"
#include "job/background.h"
#include "job/store_internal.h"

enum {
        TICK_S = 1,             /* between looks at the file system's use, a system call each */
        LEAST_PAUSE_MS = 10000, /* between measurements that nothing calls for */
        COST = 100,             /* a measurement of 1 s is followed by a pause of 100 s */
};

struct pv_stage_size {
        struct pv_stage_size_job job;
        struct pv_boundary_watch timer, result;
        pid_t child;                   /* that measures; not above 0: none does */
        uint64_t started_ms, ended_ms; /* of the last measurement */
        uint64_t bytes;                /* it found */
        uint64_t used, used_before;    /* bytes of the file system in use: at its start; at the last look */
        bool measured, told;
};

static uint64_t used_now(const struct pv_stage_size *w)
{
        struct statfs fs;
        if (fstatfs(pv_stage_dirfd(w->job.stage).fd, &fs) < 0)
                return 0;
        return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

static _Noreturn void measure(const struct pv_stage_size *w, int out)
{
        struct pv_err err = PV_ERR_INIT;
        uint64_t bytes = 0;
        bool done = pv_stage_size(w->job.stage, &bytes, &err) == 0 && write(out, &bytes, sizeof bytes) == sizeof bytes;
        _exit(done ? 0 : 1);
}

static void start_measuring(struct pv_stage_size *w)
{
        int ends[2];
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
                return;
        const int keep[] = { ends[1], pv_stage_dirfd(w->job.stage).fd, w->job.lock };
        pv_auto_fd ended = -1; /* the end of the pipe tells as well */
        int forked = pv_background_fork(keep, sizeof keep / sizeof *keep, &w->child, &ended);
        if (forked == 0)
                measure(w, ends[1]);
        (void)close(ends[1]);
        if (forked < 0) {
                (void)close(ends[0]);
                return;
        }
        w->result.fd = ends[0];
        w->started_ms = pv_clock_monotonic_ms();
        w->used = used_now(w);
}

static void tell(struct pv_stage_size *w)
{
        const struct pv_plan *p = w->job.plan;
        pv_auto_str have = { 0 }, most = { 0 };
        pv_str_put_size(&have, w->bytes);
        pv_str_put_size(&most, p->stage_max_bytes);
        w->told = true;
        pv_job_event(w->job.job, "stage-size",
                     json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t)w->bytes, "limit",
                               (json_int_t)p->stage_max_bytes, "action", p->stage_max_stop ? "stop" : "warn"));
        pv_log_warn("%s: the stage has grown to %s, more than %s%s", w->job.job->id, have.s, most.s,
                    p->stage_max_stop ? ": the job is ended" : " (--stage-max-size)");
        if (p->stage_max_stop)
                pv_boundary_end(w->job.boundary, PV_END_STAGE_SIZE);
}

/* What others read of a running job; without it they know nothing, and nothing else is lost. */
static void keep(const struct pv_stage_size *w)
{
        char text[32];
        struct pv_err ignored = PV_ERR_INIT;
        int n = snprintf(text, sizeof text, "%" PRIu64 "\n", w->bytes);
        (void)pv_file_write_at(w->job.job_dir, PV_JOB_SIZE, text, (size_t)n, 0600, PV_FILE_REPLACE, &ignored);
}

static void take_result(struct pv_boundary_watch *watch, short revents)
{
        struct pv_stage_size *w = PV_CONTAINER_OF(watch, struct pv_stage_size, result);
        uint64_t bytes = 0;
        ssize_t n = read(w->result.fd, &bytes, sizeof bytes);
        (void)revents;
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        pv_fd_closep(&w->result.fd);
        pv_pid_killp(&w->child);
        w->ended_ms = pv_clock_monotonic_ms();
        if (n != sizeof bytes)
                return;
        w->bytes = bytes;
        w->measured = true;
        keep(w);
        uint64_t most = w->job.plan->stage_max_bytes;
        if (most && bytes > most && !w->told)
                tell(w);
}

/* The use of the file system is everybody's: it calls for a look, and decides nothing. */
static bool is_due(const struct pv_stage_size *w)
{
        uint64_t now = pv_clock_monotonic_ms(), used = used_now(w), most = w->job.plan->stage_max_bytes;
        uint64_t took = w->ended_ms - w->started_ms, pause = took * COST;
        if (!w->measured)
                return true;
        if (most && !w->told && used > w->used && w->bytes + (used - w->used) > most)
                return now - w->ended_ms >= took; /* never busy for more than half of the time */
        return used != w->used && now - w->ended_ms >= (pause > LEAST_PAUSE_MS ? pause : LEAST_PAUSE_MS);
}

static void tick(struct pv_boundary_watch *watch, short revents)
{
        struct pv_stage_size *w = PV_CONTAINER_OF(watch, struct pv_stage_size, timer);
        uint64_t n;
        (void)revents;
        if (read(w->timer.fd, &n, sizeof n) == sizeof n && w->child <= 0 && is_due(w))
                start_measuring(w);
}

int pv_stage_size_watch(const struct pv_stage_size_job *job, struct pv_stage_size **out, struct pv_err *err)
{
        const struct itimerspec every = { .it_value = { .tv_sec = TICK_S }, .it_interval = { .tv_sec = TICK_S } };
        struct pv_stage_size *w = pv_calloc(1, sizeof *w);
        *w = (struct pv_stage_size){ .job = *job,
                                     .timer = { .events = POLLIN, .ready = tick },
                                     .result = { .fd = -1, .events = POLLIN, .ready = take_result } };
        w->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (w->timer.fd < 0 || timerfd_settime(w->timer.fd, 0, &every, NULL) < 0 ||
            pv_boundary_watch_add(job->boundary, &w->timer) < 0 ||
            pv_boundary_watch_add(job->boundary, &w->result) < 0) {
                int sys = errno;
                pv_stage_size_end(w);
                return pv_err_set(err, PV_ERR_SYS, sys, "watch the size of the stage");
        }
        *out = w;
        return 0;
}

void pv_stage_size_end(struct pv_stage_size *w)
{
        if (!w)
                return;
        pv_boundary_watch_remove(w->job.boundary, &w->timer);
        pv_boundary_watch_remove(w->job.boundary, &w->result);
        pv_pid_killp(&w->child);
        pv_fd_closep(&w->timer.fd);
        pv_fd_closep(&w->result.fd);
        free(w);
}
