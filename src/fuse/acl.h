/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access lists (acl(5)) as extended attributes. The kernel refuses one that names an id which the mount's user
 * namespace has not, so that no program could read or copy it. Such entries are not shown: they are about people that
 * are not inside; and are kept when a program writes the list, which cannot have meant them.
 */
#ifndef PV_FUSE_ACL_H
#define PV_FUSE_ACL_H

#include "fuse/fs.h"

bool pv_fuse_is_acl(const char *attr);

/* The list as it is shown, in place; the new length. What is no list stays as it is. */
size_t pv_fuse_acl_show(const struct pv_fuse_fs *fs, char *value, size_t len);

/*
 * What is to be written where `old` is and a program wrote `value`, into out of room bytes; the length. A list without
 * a mask has no named entries, and gets none.
 */
size_t pv_fuse_acl_keep(const struct pv_fuse_fs *fs, const char *old, size_t old_len, const char *value, size_t len,
                        char *out, size_t room);

#endif
