/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of file-system entries with everything that makes them up: content (shared by reflink where the filesystem
 * can, holes kept), extended attributes, ACLs, owner, mode, times, and hard links within a copied tree. And the
 * difference between an entry in an overlay layer and the same entry outside: overlayfs keeps its own marks in
 * `user.overlay.*` and stores what a program set under that name as `user.overlay.overlay.*` (Documentation/
 * filesystems/overlayfs.rst, "Nesting overlayfs mounts").
 */
#ifndef PV_BASE_COPY_H
#define PV_BASE_COPY_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/str.h"

enum pv_copy_flags {
        PV_COPY_PLAIN = 0,           /* names of attributes as they are */
        PV_COPY_FROM_LAYER = 1 << 0, /* the source lies in a layer, the copy outside: marks go, escapes are undone */
        PV_COPY_TO_LAYER = 1 << 1,   /* the other way: `user.overlay.*` is escaped */
        PV_COPY_SHALLOW = 1 << 2,    /* of a directory, the directory alone */
};

/*
 * Copies sdir/sname (no link is followed) to ddir/dname, which must not exist (EEXIST in err->sys). Whatever cannot
 * be kept (an owner that the caller may not give, an attribute that the filesystem refuses) is an error, and nothing
 * stays behind. Sockets are made anew, unbound.
 */
int pv_copy_entry(int sdir, const char *sname, int ddir, const char *dname, unsigned flags, struct pv_err *err);

/*
 * The same of a regular file, but with the bytes that `content` is open on in place of its own; they are read from the
 * beginning.
 */
int pv_copy_entry_with(int content, int sdir, const char *sname, int ddir, const char *dname, unsigned flags,
                       struct pv_err *err);

/* Copies the first size bytes of in to the empty file out: shared where that can be, holes kept. -1 with errno. */
int pv_copy_content(int in, int out, off_t size);

/* One extended attribute of an entry, by its name in the entry itself. */
struct pv_xattr {
        char *name;
        void *value;
        size_t size;
};
struct pv_xattrs {
        struct pv_xattr *item; /* sorted by name */
        size_t n;
};
void pv_xattrs_fini(struct pv_xattrs *x);
#define pv_auto_xattrs __attribute__((cleanup(pv_xattrs_fini))) struct pv_xattrs

/*
 * Reads the attributes that belong to an entry's content: user.*, POSIX ACLs, file capabilities. Names are translated
 * as the flags say. A filesystem without attributes has none. name "" means dirfd itself.
 */
int pv_xattrs_read(int dirfd, const char *name, unsigned flags, struct pv_xattrs *out, struct pv_err *err);
const struct pv_xattr *pv_xattrs_find(const struct pv_xattrs *x, const char *name);
/* value NULL removes. -1 with errno. */
int pv_xattr_set(int dirfd, const char *name, const char *attr, const void *value, size_t size);

/* The name under which a layer stores a program's attribute. The caller's. */
char *pv_xattr_name_in_layer(const char *name);

/* What an entry of a layer carries that pv_xattrs_leave_layer() must change. */
enum pv_overlay_attrs {
        PV_OVERLAY_MARKS = 1 << 0,   /* overlayfs's own, but for the next */
        PV_OVERLAY_ESCAPES = 1 << 1, /* a program's, escaped */
        PV_OVERLAY_ORIGIN = 1 << 2,  /* the mark of what was copied up: most entries have it alone */
};
int pv_xattrs_find_overlay(int dirfd, const char *name, unsigned *which, struct pv_err *err);
/* The same of one attribute; 0: it is not the overlay's. */
unsigned pv_xattr_overlay_kind(const char *name);
/* The same for one that has PV_OVERLAY_ORIGIN and nothing else. */
int pv_xattrs_remove_origin(int dirfd, const char *name, struct pv_err *err);
/* Takes the marks off an entry that leaves its layer and undoes the escapes. */
int pv_xattrs_leave_layer(int dirfd, const char *name, struct pv_err *err);
/*
 * Escapes what an entry that goes into a layer has of its own under `user.overlay.`. A repeat, after a crash or without
 * one, changes nothing more: until the entry leaves the layer it is noted on it.
 */
int pv_xattrs_enter_layer(int dirfd, const char *name, struct pv_err *err);

/* pVisor's own attributes on a target begin so; they are nobody's content. */
#define PV_XATTR_OWN "user.pvisor."
/* The mark that makes a layer's directory hide what lies below it. */
#define PV_OVERLAY_OPAQUE "user.overlay.opaque"

#endif
