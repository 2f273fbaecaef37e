/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that start a job (run, fork) do alike once it is decided: --json, --detach. */
#ifndef PV_CMD_RUN_START_H
#define PV_CMD_RUN_START_H

#include "job/run.h"

/* --json: stderr (""), a descriptor that is open, or a file that is made; *out is a new close-on-exec descriptor. */
int pv_cmd_open_summary(const char *where, int *out, struct pv_err *err);

/* Nothing was started, and nobody reported it yet: does so where --json asked for it. Returns -1. */
int pv_cmd_not_started(const struct pv_err *err, int summary);

/* What the person should read before it starts. */
void pv_cmd_say_notes(const struct pv_run_plan *decided);

enum pv_cmd_start { PV_CMD_FOREGROUND, PV_CMD_DETACHED };

/*
 * Runs the job: to its end, or in a process of its own of which the starter hears no more than that the command runs.
 * The exit code; -1: the command was not started, and the summary says so.
 */
int pv_cmd_start(struct pv_run *r, const struct pv_run_plan *decided, enum pv_cmd_start how, struct pv_err *err);

#endif
