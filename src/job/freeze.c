/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verb `freeze`: all processes of the sandbox stand still until the connection ends, so that a client that dies
 * lets the job go on. How: boundary/freeze.c.
 */
#include "base/json.h"
#include "job/verbs.h"

#define TIMEOUT_MS     5000
#define TIMEOUT_MS_MAX 60000

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
