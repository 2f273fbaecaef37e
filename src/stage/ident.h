/* SPDX-License-Identifier: Apache-2.0 */
/* Is what lies there what was put there, and does nobody have it open for writing? */
#ifndef PV_STAGE_IDENT_H
#define PV_STAGE_IDENT_H

#include "stage/batch.h"

/*
 * Reads dirfd/name; a missing one gives mode 0 and success. -1 with errno. ctime (may be NULL) is 0 for a file with
 * several names: moving one of them moves it for all.
 */
int pv_ident_read(int dirfd, const char *name, struct pv_ident *out, struct timespec *ctime);

enum pv_ident_leeway {
        PV_IDENT_EXACT = 0,
        PV_IDENT_ANY_ACCESS = 1 << 0, /* owner's permission bits may differ: they were opened up for a move */
};
bool pv_ident_same(const struct pv_ident *want, const struct pv_ident *have, enum pv_ident_leeway leeway);

/* Is `have` what an item puts into the target: as it was staged, or with the batch's time already? */
bool pv_item_is_in(const struct pv_plan_list *p, const struct pv_item *it, const struct pv_ident *have);
/* Is `have` what the item's path held in the target when it was checked? */
bool pv_item_is_out(const struct pv_item *it, const struct pv_ident *have);

/*
 * Opens a regular file and asks the kernel (fcntl(2), F_SETLEASE with F_RDLCK) whether it is open for writing or mapped
 * shared and writable by anybody; then reads what it is, so that whoever wrote and closed before is seen by that.
 * Where a lease may not be asked for (another's file, no CAP_LEASE, a filesystem without leases) nobody is taken to
 * write. Whoever opens the file meanwhile makes the kernel send this process SIGURG, which does nothing by default. -1
 * with errno.
 */
int pv_ident_read_unwritten(int dirfd, const char *name, struct pv_ident *out, bool *has_writer);

#endif
