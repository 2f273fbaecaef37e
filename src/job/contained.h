/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking is contained too: runs a command over what a job left, in the job's own boundary, without network, with
 * every layer on top thrown away. What is staged (git's configuration, hooks, scripts, binaries) is the agent's, and
 * is only ever run or read by other programs this way. `inspect` and the questions put to git (git/runner.h) use it.
 *
 * The boundary is the job's, made tighter: always the sandboxed filesystem, no network, shares read-only, no HOME of
 * the person's but a copy-on-write view. Its controls are installed or the command does not start; its probes are not
 * run again.
 */
#ifndef PV_JOB_CONTAINED_H
#define PV_JOB_CONTAINED_H

#include "boundary/boundary.h"
#include "git/runner.h"
#include "job/store.h"
#include "stage/stage.h"

enum pv_contained_view {
        PV_CONTAINED_RESULT, /* all layers: what the command left */
        PV_CONTAINED_HOST,   /* the lowest alone: what the host has, read-only */
};

struct pv_contained; /* opaque */

/*
 * The stage must be open (a PV_STAGE_LOOK is enough) and outlive *out, as must the job. Nothing is started yet.
 * PV_ERR_STATE: the job was not staged.
 */
int pv_contained_open(const struct pv_job *job, struct pv_stage *stage, enum pv_contained_view view,
                      struct pv_contained **out, struct pv_err *err);
/*
 * Of a stage that was opened with PV_STAGE_DECIDE: the next run sees a copy of what is staged when it begins, made
 * while the job stands still. The freezer is borrowed.
 */
void pv_contained_hold_still(struct pv_contained *c, const struct pv_freezer *freezer);
void pv_contained_free(struct pv_contained *c);
static inline void pv_contained_freep(struct pv_contained **c)
{
        pv_contained_free(*c);
        *c = NULL;
}
#define pv_auto_contained __attribute__((cleanup(pv_contained_freep))) struct pv_contained *

/* The workspace's path in the view. Borrowed. */
const char *pv_contained_workspace(const struct pv_contained *c);

/*
 * The callback for git/: bounded output, a time limit, standard error thrown away. Each run has a layer of its own.
 * *out borrows c.
 */
void pv_contained_git(struct pv_contained *c, struct pv_git_runner *out);

/*
 * Runs argv on these descriptors until it ends; *code is what a shell would say (128+N after a signal). terminal: it
 * is the person's, hand over its foreground. cwd: of the view; NULL: the workspace.
 */
struct pv_contained_command {
        char *const *argv;
        const char *cwd;
        int stdio[3];
        bool terminal;
};
int pv_contained_run(struct pv_contained *c, const struct pv_contained_command *command, int *code, struct pv_err *err);

#endif
