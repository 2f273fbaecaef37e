/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes whose values name ids. A POSIX ACL names users and groups, a file's capabilities the root of the namespace
 * that they count in. The kernel translates both into the reader's user namespace: in that of base/own_files.h every id
 * but one's own reads as -1, or not at all, and what was read cannot be written again. So before a process moves there
 * it leaves another of itself outside, which reads and writes these attributes on its behalf, with the same rights.
 */
#ifndef PV_BASE_OUTER_IDS_H
#define PV_BASE_OUTER_IDS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Leaves a process outside that ends with the caller. Must: single-threaded, in the namespace whose ids are meant;
 * once. Where none can be had, or without this, values are as the kernel shows them here. Any thread may ask.
 */
void pv_outer_ids_start(void);

/* Whether that process is to be asked for the attribute of this name. */
bool pv_outer_ids_has(const char *attr);

/*
 * As lgetxattr(2) and lsetxattr(2) of dirfd/name, of dirfd itself where name is "". value NULL removes. -1 with
 * errno.
 */
ssize_t pv_outer_ids_get(int dirfd, const char *name, const char *attr, void *value, size_t size);
int pv_outer_ids_set(int dirfd, const char *name, const char *attr, const void *value, size_t size);

#endif
