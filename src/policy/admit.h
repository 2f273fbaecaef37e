/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: judges a request and turns it into the plan of the run. Options that contradict each other are refused,
 * what this version cannot do is refused, nothing is ignored. Nothing is made and nothing is started here.
 */
#ifndef PV_POLICY_ADMIT_H
#define PV_POLICY_ADMIT_H

#include "base/err.h"
#include "policy/plan.h"
#include "policy/request.h"

struct pv_surroundings {
        char *const *environment; /* the person's, NULL-terminated */
        const char *store;        /* the job store's absolute path; hidden in every view, and so are the usual ones */
        const char *stage_dir;    /* of --stage DIR or of the stage that is continued, absolute; or NULL */
};

/*
 * argv is copied; NULL or empty is PV_ERR_USAGE. notes receives sentences that the person should read. *out is the
 * caller's. PV_ERR_USAGE: contradictory or wrong options; PV_ERR_UNSUPPORTED: not in this version, or a limit that
 * cannot hold here.
 */
int pv_admit(const struct pv_request *request, const struct pv_surroundings *around, char *const *argv,
             struct pv_plan **out, struct pv_strv *notes, struct pv_err *err);

/*
 * Another command (argv; NULL: the same again) in the boundary of a run that was: plan is that run's, read from its
 * record, with the directory where the command starts. What the agent's profile adds is decided anew, as for a run of
 * that command: the profile that was named, else that of the program, else the one that the run had; variables are
 * those of around. around->stage_dir: the stage that the command will stand on. Hosts that the run could reach stay.
 */
int pv_admit_again(struct pv_plan *plan, char *const *argv, const struct pv_surroundings *around, struct pv_strv *notes,
                   struct pv_err *err);

#endif
