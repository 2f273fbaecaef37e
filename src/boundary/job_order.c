/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/job_order.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include "base/fd.h"
#include "base/str.h"
#include "boundary/report.h"

/* As many layers as overlayfs takes, each of the longest name. */
#define ORDER_MAX (4U << 20)

/* The descriptors that go with it, in this order, without those that are not there; the first always is. */
enum { ORDER, STDIN, STDERR = STDIN + 2, CANARY_DIR, SUPERVISOR, DESCRIPTORS };
static_assert((int)DESCRIPTORS <= PV_MESSAGE_FDS, "room for them");

/* The fixed part: plain data between two processes of one program. Strings follow it. */
struct head {
        struct pv_canary canary; /* its descriptors mean nothing */
        size_t n_overlays;
        bool caches;
        bool comes[DESCRIPTORS];
};

/* A string, or that there is none. */
static void put(struct pv_str *s, const char *text)
{
        pv_str_put_bytes(s, text ? "\1" : "", 1);
        if (text)
                pv_str_put_bytes(s, text, strlen(text) + 1);
}

static void put_overlay(struct pv_str *s, const struct pv_overlay *o)
{
        put(s, o->upper);
        put(s, o->work);
        put(s, o->by_fuse);
        pv_str_put_bytes(s, &o->n_frozen, sizeof o->n_frozen);
        for (size_t i = 0; i < o->n_frozen; i++)
                put(s, o->frozen[i]);
}

static int write_order(const struct pv_boundary_job *job, const struct head *head, int *out, struct pv_err *err)
{
        pv_auto_str s = { 0 };
        pv_auto_fd fd = memfd_create("pvisor-job", MFD_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "memory for the job's order");
        pv_str_put_bytes(&s, head, sizeof *head);
        put(&s, job->scratch);
        if (job->caches) {
                put(&s, job->caches->home);
                put(&s, job->caches->upper);
                put(&s, job->caches->work);
        }
        for (size_t i = 0; i < job->n_overlays; i++)
                put_overlay(&s, &job->overlays[i]);
        if (pv_fd_write_all(fd, s.s, s.len, "the job's order", err) < 0)
                return -1;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "the job's order");
        *out = pv_fd_steal(&fd);
        return 0;
}

int pv_job_order_send(int control, const struct pv_boundary_job *job, const struct pv_canary *canary,
                      struct pv_err *err)
{
        struct head head = { .canary = *canary, .n_overlays = job->n_overlays, .caches = job->caches };
        int fds[DESCRIPTORS] = {
                -1, job->stdio[0], job->stdio[1], job->stdio[2], canary->dir_fd, canary->supervisor_fd
        };
        int there[DESCRIPTORS];
        size_t n = 1;
        pv_auto_fd order = -1;
        for (size_t i = STDIN; i < DESCRIPTORS; i++) {
                head.comes[i] = fds[i] >= 0;
                if (head.comes[i])
                        there[n++] = fds[i];
        }
        if (write_order(job, &head, &order, err) < 0)
                return -1;
        there[0] = order;
        for (size_t i = 0; i < job->n_overlays; i++) {
                const struct pv_message m = { .kind = PV_MESSAGE_CHANNEL, .value = (int)i };
                if (job->overlays[i].channel >= 0 && job->overlays[i].by_fuse &&
                    pv_message_hand_over(control, &m, &job->overlays[i].channel, 1, err) < 0)
                        return -1;
        }
        return pv_message_hand_over(control, &(struct pv_message){ .kind = PV_MESSAGE_JOB }, there, n, err);
}

/* What is left of the order. */
struct rest {
        char *at, *end;
        bool broken;
};

static void take_bytes(struct rest *r, void *out, size_t n)
{
        r->broken |= (size_t)(r->end - r->at) < n;
        if (r->broken)
                return;
        memcpy(out, r->at, n);
        r->at += n;
}

static char *take(struct rest *r)
{
        char there = 0, *text = r->at + 1;
        take_bytes(r, &there, 1);
        if (!there)
                return NULL;
        size_t n = strnlen(r->at, (size_t)(r->end - r->at));
        r->broken |= r->at + n == r->end;
        r->at += r->broken ? 0 : n + 1;
        return text;
}

static void take_overlay(struct rest *r, struct pv_overlay *o)
{
        o->channel = -1;
        o->upper = take(r);
        o->work = take(r);
        o->by_fuse = take(r);
        take_bytes(r, &o->n_frozen, sizeof o->n_frozen);
        r->broken |= o->n_frozen > (size_t)(r->end - r->at);
        o->frozen = r->broken ? NULL : pv_calloc(o->n_frozen + 1, sizeof *o->frozen);
        for (size_t i = 0; !r->broken && i < o->n_frozen; i++)
                o->frozen[i] = take(r);
}

static int read_order(int fd, const struct pv_plan *plan, struct head *head, struct pv_boundary_job *job,
                      struct pv_err *err)
{
        static struct pv_cache_layer caches;
        char *text = NULL;
        size_t len = 0;
        if (pv_fd_read_all(fd, ORDER_MAX, "the job's order", &text, &len, err) < 0)
                return -1;
        struct rest r = { .at = text, .end = text + len };
        take_bytes(&r, head, sizeof *head);
        r.broken |= head->n_overlays > plan->n_roots;
        struct pv_overlay *overlays = pv_calloc(plan->n_roots + 1, sizeof *overlays);
        job->scratch = take(&r);
        if (!r.broken && head->caches) {
                caches.home = take(&r);
                caches.upper = take(&r);
                caches.work = take(&r);
                job->caches = &caches;
        }
        for (size_t i = 0; !r.broken && i < head->n_overlays; i++) {
                overlays[i].root = &plan->roots[i];
                take_overlay(&r, &overlays[i]);
        }
        job->overlays = overlays;
        job->n_overlays = r.broken ? 0 : head->n_overlays;
        return r.broken ? pv_err_set(err, PV_ERR_INPUT, 0, "half an order of the job") : 0;
}

/* The next message; those that bring channels to programs are put aside. */
static int receive(int control, int *channels, size_t n_channels, int got[PV_MESSAGE_FDS], struct pv_err *err)
{
        struct pv_message m;
        for (;;) {
                if (pv_message_receive_fds(control, &m, got, 0) <= 0)
                        return pv_err_set(err, PV_ERR_SYS, 0, "no supervisor");
                if (m.kind == PV_MESSAGE_JOB)
                        return 0;
                if (m.kind == PV_MESSAGE_CHANNEL && (size_t)m.value < n_channels)
                        channels[m.value] = pv_fd_steal(&got[0]);
                for (size_t i = 0; i < PV_MESSAGE_FDS; i++)
                        pv_fd_closep(&got[i]);
        }
}

int pv_job_order_receive(int control, const struct pv_boundary_spec *spec, struct pv_boundary_job *job,
                         struct pv_canary *canary, struct pv_err *err)
{
        const struct pv_plan *plan = spec->plan;
        pv_auto_free int *channels = pv_calloc(plan->n_roots + 1, sizeof *channels);
        struct head head = { .n_overlays = 0 };
        int got[PV_MESSAGE_FDS], at[DESCRIPTORS];
        size_t n = 0;
        for (size_t i = 0; i < plan->n_roots; i++)
                channels[i] = -1;
        if (receive(control, channels, plan->n_roots, got, err) < 0 ||
            read_order(got[ORDER], plan, &head, job, err) < 0)
                return -1;
        pv_fd_closep(&got[ORDER]);
        head.comes[ORDER] = true;
        for (size_t i = 0; i < DESCRIPTORS; i++)
                at[i] = head.comes[i] ? got[n++] : -1;
        for (size_t i = 0; i < job->n_overlays; i++)
                ((struct pv_overlay *)job->overlays)[i].channel = channels[i];
        for (int i = 0; i < 3; i++)
                job->stdio[i] = at[STDIN + i];
        *canary = head.canary;
        pv_canary_clear(canary);
        canary->dir_fd = at[CANARY_DIR];
        canary->supervisor_fd = at[SUPERVISOR];
        return 0;
}
