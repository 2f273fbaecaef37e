/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One conflict, looked at from both sides: what the host did to the path, what the job did, and whether the two can be
 * put together. Reads files of both sides; changes nothing.
 *
 * Content merges three ways when it is known what the file was before: the preimage's text, kept when it was taken
 * (stage/bases.h) and proved by the preimage's hash; or, where the host changed it while the job ran, what was noted
 * when the run began (stage/notes.h). Mode, owner and attributes go with the side that changed them. Everything but two
 * regular files of one name has no merge.
 */
#ifndef PV_CMD_STANDOFF_H
#define PV_CMD_STANDOFF_H

#include "stage/change.h"

enum pv_host_act {
        PV_HOST_MODIFIED,
        PV_HOST_METADATA, /* mode, owner or attributes alone */
        PV_HOST_ADDED,
        PV_HOST_DELETED,
        PV_HOST_TYPE,
        PV_HOST_UNKNOWN, /* it may have been changed, or not: see the change's why */
};
const char *pv_host_act_name(enum pv_host_act a); /* "modified", ... as in JSON */

enum pv_merge_verdict {
        PV_MERGE_CLEAN,
        PV_MERGE_SAME,    /* nothing has to be published: both sides are alike, or it is the host's alone */
        PV_MERGE_MARKERS, /* both changed the same lines */
        PV_MERGE_NONE,    /* see why */
};
const char *pv_merge_verdict_name(enum pv_merge_verdict v);

struct pv_standoff {
        struct pv_facts host; /* now; mode 0: there is nothing. Its link text is not kept */
        struct pv_facts job;  /* what was read of the staged file, where both were read */
        enum pv_host_act act;
        bool base_known;
        bool counted; /* the lines below are known: against what it was before, else of the job against the host */
        size_t job_added, job_deleted, host_added, host_deleted;
        enum pv_merge_verdict verdict;
        const char *why;         /* static, with NONE and MARKERS */
        struct pv_merged merged; /* with CLEAN and MARKERS; fd -1 otherwise */
};
void pv_standoff_fini(struct pv_standoff *s);
#define pv_auto_standoff __attribute__((cleanup(pv_standoff_fini))) struct pv_standoff

struct pv_standoff_context {
        struct pv_stage *stage;
        const char *label; /* what markers call the job's side */
};
int pv_standoff_look(const struct pv_standoff_context *x, const struct pv_change *c, struct pv_standoff *out,
                     struct pv_err *err);

#endif
