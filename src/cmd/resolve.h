/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways out of conflicts, asked for with apply: --merge, --markers, --overwrite. Between the selection and the
 * publication: finds the conflicts among what is selected, decides each as far as it was asked to, and has the changes
 * computed anew as if the stage had been taken from what the host has there now (stage/change.h), so that one ordinary
 * batch publishes all and an undo takes all of it back. What the host changes after that is a conflict again.
 */
#ifndef PV_CMD_RESOLVE_H
#define PV_CMD_RESOLVE_H

#include "cmd/decide.h"
#include "cmd/standoff.h"

struct pv_ways_out {
        bool merge, markers;      /* markers: merge, and write both versions where they do not fit together */
        struct pv_strv overwrite; /* what is at or below is taken as the job has it */
};
static inline bool pv_ways_out_asked(const struct pv_ways_out *w)
{
        return w->merge || w->markers || w->overwrite.n;
}

enum pv_way_out { PV_WAY_MERGED, PV_WAY_MARKERS, PV_WAY_OVERWRITTEN, PV_WAY_SAME };
const char *pv_way_out_name(enum pv_way_out w);

struct pv_resolved {
        unsigned root;
        char *path;
        enum pv_way_out how;
        struct pv_facts host, job; /* what was looked at; MERGED and MARKERS */
        struct pv_merged merged;
};

struct pv_resolution {
        struct pv_resolved *item; /* in the order of the changes */
        size_t n;
        struct pv_changes *before; /* the list before, when it was computed anew; else NULL */
        bool *moot;                /* of it: what the host has done as well, and is no change any more */
        size_t n_moot;
};
void pv_resolution_fini(struct pv_resolution *r);

/*
 * Selects like pv_decision_select() and resolves. PV_ERR_CONFLICT: refused lists the conflicts that found no way out,
 * with why; nothing was changed. The decision's changes are then those of before.
 */
int pv_resolve(struct pv_decision *d, const struct pv_select *what, const struct pv_ways_out *ways,
               struct pv_resolution *out, struct pv_apply_result *refused, struct pv_err *err);

/* After the apply: what both sides did alike leaves the stage. */
int pv_resolution_settle_moot(struct pv_decision *d, const struct pv_resolution *r, struct pv_err *err);

json_t *pv_resolution_json(const struct pv_resolution *r);

#endif
