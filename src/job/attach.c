/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `attach` and its client. */
#include "job/attach.h"

#include "job/verbs.h"

static int serve(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        const struct pv_control_job *j = pv_control_job_of(c);
        (void)request;
        if (j->terminal < 0) {
                (void)pv_err_set(err, PV_ERR_STATE, 0, "job %s has no terminal of its own", j->job->id);
                return pv_err_hint(err, "pvisor run --detach, started from a terminal, gives it one; pvisor logs -f "
                                        "follows what is captured");
        }
        pv_job_event(j->job, "attach", NULL);
        (void)pv_control_answer(c, NULL, &j->terminal, 1);
        return 0;
}

const struct pv_control_verb pv_control_attach = { "attach", serve };

int pv_attach(const struct pv_job *job, int *terminal, struct pv_err *err)
{
        int got[PV_CONTROL_FDS_MAX];
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0)
                return -1;
        for (size_t i = 0; i < PV_CONTROL_FDS_MAX; i++)
                got[i] = -1;
        const struct pv_control_call with = { .got = got };
        if (pv_control_call(dir, pv_control_request("attach"), &with, NULL, err) < 0)
                return -1;
        for (size_t i = 1; i < PV_CONTROL_FDS_MAX; i++)
                pv_fd_closep(&got[i]);
        if (got[0] < 0)
                return pv_err_set(err, PV_ERR_INPUT, 0, "attach: no terminal came");
        *terminal = got[0];
        return 0;
}
