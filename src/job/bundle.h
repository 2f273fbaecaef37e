/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Run Bundle: what is known of a run, in one JSON document (schema: evidence/schema/bundle.schema.json). What is
 * not known is null, never false or 0. Of the environment it holds names, never values.
 *
 * It joins the plan, the observations and the stage, and therefore lives here and not in evidence/, which knows
 * neither; what follows for safety is made there, from observations alone.
 */
#ifndef PV_JOB_BUNDLE_H
#define PV_JOB_BUNDLE_H

#include "boundary/boundary.h"
#include "job/store.h"
#include "stage/change.h"

#define PV_BUNDLE_SCHEMA_VERSION 1
/*
 * Changes that are listed by path; filesystem.truncated says when there are more. The counts are always of all:
 * the end of a run must not take longer with a hundred thousand changes than writing this many.
 */
#define PV_BUNDLE_CHANGES_MAX 1000

struct pv_bundle_facts {
        const struct pv_job *job;
        const struct pv_plan *plan;
        const struct pv_observations *observations; /* NULL: not known */
        json_t *observed; /* pv_record_observations() of them, made while there was nothing else to do; or NULL */
        bool output_kept; /* though it was not asked for: it is detached */
        bool started;     /* the command was started, so the observations are complete */
        const struct pv_exit *exit;       /* NULL: it still runs, was never started, or is not known */
        const struct pv_changes *changes; /* NULL: not known, or not staged */
        const json_t *network; /* what the data plane summed up (net/tally.h); NULL: not known, or there is none */
        const json_t *granted; /* what the person granted while it ran; NULL: nothing */
        const struct pv_err *failure; /* NULL: none */
};

/* A new reference; NULL only without memory. */
json_t *pv_bundle_make(const struct pv_bundle_facts *facts);

/* Writes bundle.json whole, 0600. May be called at the start and again at the end. */
int pv_bundle_write(const struct pv_bundle_facts *facts, struct pv_err *err);

/*
 * The bundle of a job: the one on disk; or, where there is none (it was lost before one was written), what its
 * request tells, with all else unknown. PV_ERR_INPUT: damaged, or of a newer schema.
 */
int pv_bundle_read(const struct pv_job *job, json_t **out, struct pv_err *err);

#endif
