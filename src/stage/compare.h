/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path that the layers have and that the host had: is it a change, and of what? Nothing here is shared but what is
 * handed in, so that many paths may be compared at a time. Inside src/stage only.
 */
#ifndef PV_STAGE_COMPARE_H
#define PV_STAGE_COMPARE_H

#include "stage/change.h"

/* Where both sides are: name in these directories, of which either may be -1: then there is nothing to look at. */
struct pv_pair {
        int staged_dir, host_dir;
        const char *name;
        bool host_is_pre; /* the host's is still the one of the preimage */
};

/* One thread's means. */
struct pv_comparing {
        struct pv_stage *s;
        void *known;   /* contents that were compared before: of pv_compare_note(), or NULL */
        bool may_open; /* a staged file that its owner closed to themselves gets the right to be read for the while */
        char *buf;
};
void pv_comparing_fini(struct pv_comparing *m);
#define pv_auto_comparing __attribute__((cleanup(pv_comparing_fini))) struct pv_comparing

/*
 * Completes a change of which kind, flags of its own and the staged attributes are not known yet. 1: it is one; 0:
 * there is no net effect; -1 with errno: that cannot be told (EACCES: or only by who may open).
 */
int pv_compare(struct pv_comparing *m, const struct pv_pair *p, struct pv_change *c);

/* Adds to a tree (tdestroy(3) with free) whether the two contents of a compared file are the same. */
void pv_compare_note(void **known, const struct pv_change *c);

#endif
