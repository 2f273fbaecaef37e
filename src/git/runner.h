/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How this module gets answers from git: never in this process and never on the host over staged data, whose
 * configuration, hooks, filters and alternates are the agent's. job/ implements the callback with the
 * mechanism of `inspect`: the command runs inside the job's own boundary, without network, over a layer that
 * is thrown away.
 *
 * Two runners exist for a job: one whose view holds all layers of the stage (what the command left), and one
 * over the lowest layer alone (what the host has). What comes back is hostile in both: bounded, parsed
 * strictly, shown only through pv_str_put_safe().
 */
#ifndef PV_GIT_RUNNER_H
#define PV_GIT_RUNNER_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct pv_git_runner {
        /*
         * Runs argv (argv[0] is looked up in the view's own system PATH) at the workspace's path in the view,
         * with in (in_len bytes, may be NULL and 0) on its standard input and its standard error thrown away.
         * *out is its standard output with a NUL behind it (not counted), the caller's to free(). A command
         * that ran to its end is success, whatever *exit_code says (128+N after a signal). PV_ERR_NOT_FOUND:
         * no such program in the view; PV_ERR_INPUT: more than max_out bytes came, or the time limit passed,
         * and it was killed; else the view could not be made.
         */
        int (*run)(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
                   size_t *out_len, int *exit_code, struct pv_err *err);
        void *ctx; /* the implementer's; must outlive the runner's use */
        /*
         * The same for more than memory should hold: standard output is written to out_fd, at most max_out bytes,
         * within so many seconds. NULL where the implementer has no need of it.
         */
        int (*run_to)(void *ctx, char *const argv[], const void *in, size_t in_len, int out_fd, uint64_t max_out,
                      unsigned seconds, int *exit_code, struct pv_err *err);
};

#endif
