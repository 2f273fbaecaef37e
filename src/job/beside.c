/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding beside a run, both sides. The verb `beside` keeps its connection; its packets:
 *
 *   {"do": "views", "from": k}   the mounted views of roots k, k + 1, ..., or the channels to their servers, as many
 *                                as an answer takes
 *   {"do": "freeze"}             answered when all stands still
 *   {"do": "thaw"}               as does the connection's end
 */
#include "job/beside.h"

#include <signal.h>
#include "base/clock.h"
#include "base/json.h"
#include "job/control.h"
#include "job/serve.h"
#include "job/verbs.h"

#define FREEZE_MS 5000
/* What the client waits longer than the job may take. */
#define ANSWER_MS 5000

/*
 * The supervisor's side.
 */

struct decider {
        bool freezes; /* what is frozen, or is about to be, is so for this one */
};

static void frozen(void *ctx, const struct pv_boundary_frozen *what, const struct pv_err *failure)
{
        struct pv_control_connection *c = ctx;
        if (!failure)
                pv_serve_write_back(pv_control_job_of(c)->serving);
        if (failure)
                pv_control_refuse(c, failure);
        else
                (void)pv_control_answer(c, json_pack("{s:I}", "threads", (json_int_t)what->threads), NULL, 0);
}

static int answer_views(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        const struct pv_control_job *job = pv_control_job_of(c);
        int fds[PV_CONTROL_FDS_MAX];
        int64_t from = 0;
        size_t n = 0;
        if (pv_json_get_int(request, "from", 0, INT32_MAX, &from, err) < 0)
                return -1;
        for (size_t i = (size_t)from; i < job->plan->n_roots && n < PV_CONTROL_FDS_MAX; i++) {
                int channel = pv_serve_channel(job->serving, i).fd;
                fds[n] = channel >= 0 ? channel : pv_boundary_view(job->boundary, i).fd;
                if (fds[n] < 0)
                        break;
                n++;
        }
        (void)pv_control_answer(c, NULL, fds, n);
        return 0;
}

static void thaw_for(struct pv_control_connection *c, struct decider *d)
{
        if (d->freezes)
                pv_boundary_thaw(pv_control_job_of(c)->boundary);
        d->freezes = false;
}

static int freeze_for(struct pv_control_connection *c, struct decider *d, struct pv_err *err)
{
        if (d->freezes) /* one that failed is over, and thawing it is silence */
                thaw_for(c, d);
        if (pv_boundary_freeze(pv_control_job_of(c)->boundary, FREEZE_MS, frozen, c, err) < 0)
                return -1;
        d->freezes = true;
        return 0;
}

static int packet(struct pv_control_connection *c, void *own, const json_t *request, struct pv_err *err)
{
        const char *what = NULL;
        if (pv_json_get_str(request, "do", &what, err) < 0)
                return -1;
        if (pv_streq(what, "views"))
                return answer_views(c, request, err);
        if (pv_streq(what, "freeze"))
                return freeze_for(c, own, err);
        if (!pv_streq(what, "thaw"))
                return pv_err_set(err, PV_ERR_USAGE, 0, "the job's supervisor does not know \"%.40s\"", what);
        thaw_for(c, own);
        (void)pv_control_answer(c, NULL, NULL, 0);
        return 0;
}

static void closed(struct pv_control_connection *c, void *own)
{
        thaw_for(c, own);
        free(own);
}

static int serve(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        static const struct pv_control_keeper keeper = { .packet = packet, .closed = closed };
        (void)request;
        (void)err;
        pv_control_keep(c, &keeper, pv_calloc(1, sizeof(struct decider)));
        (void)pv_control_answer(c, NULL, NULL, 0);
        return 0;
}

const struct pv_control_verb pv_control_beside = { "beside", serve };

/*
 * The decider's side.
 */

static int ask(struct pv_beside *b, json_t *request, json_t **answer, int *got, struct pv_err *err)
{
        if (pv_control_send(b->conn, request, NULL, 0, err) < 0 || pv_control_receive(b->conn, answer, got, err) < 0)
                return pv_err_wrap(err, "job %s", b->job->id);
        return 0;
}

/* Ctrl-Z must not stop who holds the job still; within a batch that is seen to already (run_batch.c). */
static void refuse_to_stop(struct pv_beside *b)
{
        sigset_t stop, before;
        sigemptyset(&stop);
        sigaddset(&stop, SIGTSTP);
        b->unstoppable |= sigprocmask(SIG_BLOCK, &stop, &before) == 0 && !sigismember(&before, SIGTSTP);
}

static void stop_again(struct pv_beside *b)
{
        sigset_t stop, now;
        if (!b->unstoppable || sigprocmask(SIG_BLOCK, NULL, &now) < 0 || sigismember(&now, SIGINT))
                return;
        sigemptyset(&stop);
        sigaddset(&stop, SIGTSTP);
        (void)sigprocmask(SIG_UNBLOCK, &stop, NULL);
        b->unstoppable = false;
}

static int freeze(void *ctx, struct pv_err *err)
{
        struct pv_beside *b = ctx;
        if (b->held)
                return 0;
        refuse_to_stop(b);
        uint64_t since = pv_clock_monotonic_us();
        if (ask(b, json_pack("{s:s}", "do", "freeze"), NULL, NULL, err) < 0)
                return -1;
        b->held = true;
        b->since_us = since;
        return 0;
}

static void thaw(void *ctx)
{
        struct pv_beside *b = ctx;
        struct pv_err ignored = PV_ERR_INIT;
        if (!b->held)
                return;
        if (ask(b, json_pack("{s:s}", "do", "thaw"), NULL, NULL, &ignored) < 0)
                pv_fd_closep(&b->conn); /* that thaws, too */
        b->held = false;
        b->held_us += pv_clock_monotonic_us() - b->since_us;
        stop_again(b);
}

/* Views from *have on; *have counts up. */
static int get_views(struct pv_beside *b, struct pv_pathfd *views, size_t n, size_t *have, struct pv_err *err)
{
        int got[PV_CONTROL_FDS_MAX];
        for (size_t k = 0; k < PV_CONTROL_FDS_MAX; k++)
                got[k] = -1;
        if (ask(b, json_pack("{s:s, s:I}", "do", "views", "from", (json_int_t)*have), NULL, got, err) < 0)
                return -1;
        for (size_t k = 0; k < PV_CONTROL_FDS_MAX; k++) {
                if (got[k] >= 0 && *have < n)
                        views[(*have)++].fd = got[k];
                else
                        pv_fd_closep(&got[k]);
        }
        return 0;
}

int pv_beside_give_views(struct pv_beside *b, struct pv_stage *s, struct pv_err *err)
{
        size_t n = pv_stage_n_roots(s), have = 0, before;
        struct pv_pathfd *views = pv_calloc(n + 1, sizeof *views);
        for (size_t i = 0; i < n; i++)
                views[i] = (struct pv_pathfd)PV_PATHFD_INIT;
        pv_stage_take_views(s, views);
        do {
                before = have;
                if (get_views(b, views, n, &have, err) < 0)
                        return -1;
        } while (have < n && have > before);
        return 0;
}

int pv_beside_open(const struct pv_job *job, struct pv_beside *b, struct pv_err *err)
{
        *b = (struct pv_beside){ .conn = -1 };
        pv_auto_fd job_dir = pv_job_open_dir(job, err);
        if (job_dir < 0)
                return -1;
        if (pv_control_begin(job_dir, pv_control_request("beside"), NULL, &b->conn, NULL, err) < 0)
                return pv_err_wrap(err, "job %s", job->id);
        pv_control_patience(b->conn, FREEZE_MS + ANSWER_MS);
        b->job = job;
        b->freezer = (struct pv_freezer){ .ctx = b, .freeze = freeze, .thaw = thaw };
        return 0;
}

int pv_beside_open_stage(struct pv_beside *b, struct pv_stage **out, struct pv_err *err)
{
        pv_auto_stage s = NULL;
        if (pv_stage_open(b->job->stage_dir, PV_STAGE_DECIDE, &s, err) < 0 || pv_beside_give_views(b, s, err) < 0)
                return -1;
        *out = pv_steal(&s);
        return 0;
}

void pv_beside_close(struct pv_beside *b, const char *what)
{
        if (!b->job)
                return;
        thaw(b);
        stop_again(b);
        pv_fd_closep(&b->conn);
        if (b->held_us)
                pv_job_event(b->job, "paused", json_pack("{s:s, s:f}", "for", what, "ms", (double)b->held_us / 1000));
        b->job = NULL;
}
