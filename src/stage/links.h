/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that are one file, found when the list is complete. */
#ifndef PV_STAGE_LINKS_H
#define PV_STAGE_LINKS_H

#include "stage/change.h"

/*
 * Numbers the link groups. A file that only became one with others (LINKED) stays in the list when one of the others
 * is a change.
 */
void pv_changes_find_links(struct pv_changes *c);

#endif
