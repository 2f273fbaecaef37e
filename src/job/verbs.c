/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that a running job's supervisor knows, and the two plainest of them. */
#include "job/verbs.h"

#include <signal.h>
#include "base/json.h"

static int serve_state(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        const struct pv_control_job *j = pv_control_job_of(c);
        (void)request;
        (void)pv_control_answer(c,
                                json_pack("{s:s, s:s, s:i, s:i}", "id", j->job->id, "state",
                                          pv_job_state_name(j->job->state), "supervisor_pid", (int)getpid(), "init_pid",
                                          (int)pv_boundary_init_pid(j->boundary)),
                                NULL, 0);
        return 0;
}

/* {"signal": N}: to the command; SIGKILL ends the whole job at once. */
static int serve_kill(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        int64_t sig = SIGTERM;
        if (json_object_get(request, "signal") && pv_json_get_int(request, "signal", 1, NSIG - 1, &sig, err) < 0)
                return -1;
        pv_boundary_signal(pv_control_job_of(c)->boundary, (int)sig);
        (void)pv_control_answer(c, NULL, NULL, 0);
        return 0;
}

static const struct pv_control_verb verb_state = { "state", serve_state };
static const struct pv_control_verb verb_kill = { "kill", serve_kill };

/* A row a line. */
/* clang-format off */
const struct pv_control_verb *const pv_control_verbs[] = {
        &verb_state,
        &verb_kill,
        &pv_control_freeze,
        &pv_control_beside,
        &pv_control_exec,
        &pv_control_allow,
        &pv_control_publish,
        &pv_control_attach,
        NULL,
};
/* clang-format on */
