/* SPDX-License-Identifier: Apache-2.0 */
/* Both halves of renames, matched up among the changes. */
#ifndef PV_CMD_RENAMES_H
#define PV_CMD_RENAMES_H

#include "stage/change.h"

#define PV_NO_CHANGE ((size_t)-1)

struct pv_renames {
        size_t n;    /* as many as there are changes */
        size_t *old; /* old[i]: the deleted change whose content i continues; PV_NO_CHANGE */
        size_t *now; /* the reverse */
};
/*
 * A renamed directory renames what is in it: entries below are matched by their place. A pair counts only when both
 * halves are among the selected (NULL: all).
 */
void pv_renames_find(const struct pv_changes *c, const bool *selected, struct pv_renames *out);
void pv_renames_fini(struct pv_renames *r);

#endif
