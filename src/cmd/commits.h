/* SPDX-License-Identifier: Apache-2.0 */
/* apply --commits: which repositories and files it means, and what it tells. */
#ifndef PV_CMD_COMMITS_H
#define PV_CMD_COMMITS_H

#include "cmd/decide.h"
#include "job/commits.h"

struct pv_cmd_commits {
        struct pv_commits commits;
        bool *also;      /* one a change: a file that goes with the checked-out branch */
        bool *as_it_was; /* one a repository: its index is that of the job's start */
};
void pv_cmd_commits_fini(struct pv_cmd_commits *c);
#define pv_auto_cmd_commits __attribute__((cleanup(pv_cmd_commits_fini))) struct pv_cmd_commits

/* Finds the repositories, asks, imports into quarantine and decides. */
int pv_cmd_commits_prepare(struct pv_decision *d, const struct pv_carry_options *o, struct pv_cmd_commits *out,
                           struct pv_err *err);

/* Whether something is there that has to be told; and the telling. */
void pv_cmd_commits_report(const struct pv_cmd_commits *c, bool dry_run, struct pv_str *out);
/* The lines behind "next:". */
void pv_cmd_commits_next(const struct pv_cmd_commits *c, struct pv_str *out);
json_t *pv_cmd_commits_json(const struct pv_cmd_commits *c);
/* What stays in the job though it was asked for: nothing else was carried, so that the command has failed. */
int pv_cmd_commits_refused(const struct pv_cmd_commits *c, struct pv_err *err);

#endif
