/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes that overlayfs keeps in its layers (Documentation/filesystems/overlayfs.rst), with `userxattr`. */
#ifndef PV_FUSE_MARKS_H
#define PV_FUSE_MARKS_H

#define PV_FUSE_MARK   "user.overlay."
#define PV_FUSE_ESCAPE "user.overlay.overlay."
#define PV_FUSE_ORIGIN "user.overlay.origin" /* was copied up */

#endif
