/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probes: attempts at what the controls forbid, made by the launcher itself in the finished sandbox just before
 * exec, where nothing hostile runs yet. None waits, none sends a packet to anybody but the canaries, none leaves a
 * trace in the view when refused; all together take a fraction of a millisecond.
 */
#ifndef PV_BOUNDARY_PROBE_H
#define PV_BOUNDARY_PROBE_H

#include <stdbool.h>
#include <sys/types.h>
#include "boundary/canary.h"
#include "evidence/observation.h"
#include "policy/plan.h"

/*
 * The probe that finds a file given as stdin, which can be opened anew for writing where Landlock does not hold
 * files.
 */
#define PV_PROBE_REOPEN "write.reopen"

/* A host directory as the supervisor saw it (stat(2) before the fork): the view's must be another one. */
struct pv_probe_identity {
        dev_t dev;
        ino_t ino;
};

struct pv_probe_spec {
        const struct pv_plan *plan;
        const struct pv_canary *canary;
        const struct pv_probe_identity *roots; /* of plan->roots[i].target; plan->n_roots of them */
        const struct pv_strv *stores; /* absolute host paths of credential stores that exist: none may be seen */
        const char *share;            /* where the view shows the canary directory as a `read` mount; NULL: not */
        const char *read_only;        /* a directory that the view shows read-only ("/usr"); NULL: none */
        const char *cgroup;           /* the run's control group on the host; NULL or "": none */
        int share_fd;                 /* what share is looked up below, or -1: rightly open too */
        int keep_fd; /* the one descriptor besides stdio and the canary's two that is rightly open: the report pipe */
        bool skip;   /* record every probe as not run */
};

/*
 * Runs the probes of every installed control in obs and concludes each control's level, also of those that have no
 * probes. Cannot fail: a probe that could not be tried is recorded as not run.
 * Must: be in the finished sandbox, after close_range (which spares keep_fd and the canary's two).
 */
void pv_probe_run(const struct pv_probe_spec *spec, struct pv_observations *obs);

#endif
