/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths. A path from outside is resolved once, by openat2(2), beneath the descriptor of a root; later operations use
 * the descriptor. A confined descriptor has a type of its own, so that a raw int does not compile in its place.
 */
#ifndef PV_BASE_PATH_H
#define PV_BASE_PATH_H

#include <stdbool.h>
#include <sys/stat.h>
#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"

struct pv_pathfd {
        int fd;
};

static inline void pv_pathfd_closep(struct pv_pathfd *p)
{
        pv_fd_closep(&p->fd);
}
#define pv_auto_pathfd __attribute__((cleanup(pv_pathfd_closep))) struct pv_pathfd
#define PV_PATHFD_INIT \
        {              \
                -1     \
        }

/* Opens a directory that the person named (links are followed) as the root of later confined look-ups. */
int pv_path_open_root(const char *path, struct pv_pathfd *out, struct pv_err *err);

/*
 * Opens rel beneath root with the open(2) flags given (O_CLOEXEC is added) and RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
 * RESOLVE_NO_MAGICLINKS: a component that is or becomes a link fails with ELOOP, a ".." above the root with EXDEV.
 * rel "" or "." is the root itself. Returns the descriptor or -1 with errno only: callers word the error.
 */
int pv_path_openat(struct pv_pathfd root, const char *rel, int flags, mode_t mode);

/*
 * Opens the parent directory of rel beneath root (same rules, O_RDONLY | O_DIRECTORY) and points *name at the last
 * component within rel. rel must not be empty or end in '/'. 0, or -1 with errno.
 */
int pv_path_open_parent(struct pv_pathfd root, const char *rel, struct pv_pathfd *parent, const char **name);

/* True when path is base or lies below it. Both are absolute and normalised. */
bool pv_path_is_within(const char *path, const char *base);

/* Lexical clean-up of an absolute path: "//", "/./", trailing "/" go; ".." is applied. The caller's to free(). */
char *pv_path_normalise(const char *absolute);

/* base + "/" + name, with exactly one slash; "" as base gives name. The caller's. */
char *pv_path_join(const char *base, const char *name);

/* realpath(3) with an error. The caller's. */
int pv_path_real(const char *path, char **out, struct pv_err *err);
/* What exists of a normalised absolute path resolved, the rest as it is. The caller's. */
char *pv_path_real_existing(const char *absolute);

/*
 * Is dir path, or does it hold it, by whatever name it is mounted? Not by "/", which holds all. What is not there is
 * held by what it would lie in.
 */
bool pv_path_is_or_holds(const struct stat *dir, const char *path);

/* mkdir -p with mode for what is made; existing directories are left alone. */
int pv_path_make_dirs(const char *path, mode_t mode, struct pv_err *err);

/*
 * Removes what name is in dirfd, all below it too; never follows a link, never leaves the directory, never empties
 * what is mounted below it (EBUSY). Unreadable directories (overlayfs makes work/work with mode 000) are made
 * accessible first. Not existing is success.
 */
int pv_path_remove_tree(int dirfd, const char *name, struct pv_err *err);

#endif
