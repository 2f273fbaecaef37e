/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `freeze` and its client. */
#include "job/freeze.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "job/verbs.h"

#define TIMEOUT_MS     5000
#define TIMEOUT_MS_MAX 60000
/* What the client waits longer than the job may take. */
#define ANSWER_MS 5000

static void frozen(void *ctx, const struct pv_boundary_frozen *what, const struct pv_err *failure)
{
        struct pv_control_connection *c = ctx;
        if (failure) {
                pv_control_refuse(c, failure);
                pv_control_end(c);
                return;
        }
        (void)pv_control_answer(
                c, json_pack("{s:I, s:I}", "threads", (json_int_t)what->threads, "us", (json_int_t)what->us), NULL, 0);
}

static void let_go(struct pv_control_connection *c, void *own)
{
        (void)own;
        pv_boundary_thaw(pv_control_job_of(c)->boundary);
}

/* {"timeout_ms": N} */
static int serve(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        static const struct pv_control_keeper keeper = { .closed = let_go };
        int64_t timeout = TIMEOUT_MS;
        if (json_object_get(request, "timeout_ms") &&
            pv_json_get_int(request, "timeout_ms", 1, TIMEOUT_MS_MAX, &timeout, err) < 0)
                return -1;
        if (pv_boundary_freeze(pv_control_job_of(c)->boundary, (unsigned)timeout, frozen, c, err) < 0)
                return -1;
        pv_control_keep(c, &keeper, NULL);
        return 0;
}

const struct pv_control_verb pv_control_freeze = { "freeze", serve };

int pv_freeze(const struct pv_job *job, unsigned timeout_ms, struct pv_frozen *out, struct pv_err *err)
{
        unsigned timeout = timeout_ms ? timeout_ms : TIMEOUT_MS;
        const struct pv_control_call call = { .patience_ms = timeout + ANSWER_MS };
        json_t *request = pv_control_request("freeze");
        pv_auto_fd conn = -1;
        pv_auto_json answer = NULL;
        int64_t threads = 0;
        pv_auto_fd dir = pv_job_open_dir(job, err);
        (void)json_object_set_new(request, "timeout_ms", json_integer((json_int_t)timeout));
        if (dir < 0) {
                json_decref(request);
                return -1;
        }
        if (pv_control_begin(dir, request, &call, &conn, &answer, err) < 0)
                return pv_err_wrap(err, "job %s", job->id);
        if (pv_json_get_int(answer, "threads", 0, UINT32_MAX, &threads, err) < 0)
                return -1;
        out->connection = pv_fd_steal(&conn);
        out->threads = (unsigned)threads;
        out->since_us = pv_clock_monotonic_us();
        return 0;
}

void pv_thaw(struct pv_frozen *f)
{
        pv_fd_closep(&f->connection);
}
