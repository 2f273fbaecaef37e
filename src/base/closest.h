/* SPDX-License-Identifier: Apache-2.0 */
/* What a person may have meant by a mistyped word. */
#ifndef PV_BASE_CLOSEST_H
#define PV_BASE_CLOSEST_H

/*
 * The candidate that is closest to a mistyped word, or NULL when none is close enough. Walk candidates with
 * pv_closest_offer().
 */
struct pv_closest {
        const char *word, *best;
        unsigned distance;
};
void pv_closest_offer(struct pv_closest *c, const char *candidate);

#endif
