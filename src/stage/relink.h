/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other names of an original. Across file systems the backup holds a copy; a file that had other names on the host is
 * to be one with them again after an undo, and not a second file. They are looked for by the inode number that it had.
 * Inside src/stage.
 */
#ifndef PV_STAGE_RELINK_H
#define PV_STAGE_RELINK_H

#include "stage/engine.h"

struct pv_relink {
        struct pv_engine *e;
        struct pv_other_name *name; /* sorted by root and inode number; owned */
        size_t n;
        bool looked;
};
void pv_relink_fini(struct pv_relink *r);

/*
 * Makes to/name (which does not exist) a link to another name of the item's original, if there is one and it still is
 * what copy/copy_name says: bytes, metadata, attributes. False: nothing was made, and a copy has to do.
 */
bool pv_relink(struct pv_relink *r, const struct pv_item *it, int copy, const char *copy_name, int to,
               const char *name);

#endif
