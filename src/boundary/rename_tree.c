/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory renamed by hand. Its copy is built beside the destination out of new directories and hard links, which
 * leaves the original whole; one rename(2) puts the copy in place; then the original's names are taken away.
 *
 *   build    links every file, makes every directory anew with owner, mode, attributes and times. A failure (no space
 *            to copy a file up, a directory that may not be written) unlinks the copy: nothing has happened.
 *   rename   the step that shows, with the caller's flags.
 *   settle   takes the original away. What another process put there meanwhile goes along, as it would have with a
 *            real rename. A failure here (no space for whiteouts) settles the other way: back into the original.
 *
 * Hard links keep the inode: files that are open for writing, and links among them, go on working.
 */
#include "boundary/rename_helper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include "base/dir.h"
#include "base/fd.h"
#include "base/names.h"
#include "base/syscall.h"

/* Two descriptors a level. */
#define DEPTH_MAX 200

/* Opens directory name in parent, no link and no mount point, readable for us if need be by changing its mode. */
static int open_dir(int parent, const char *name, mode_t *old_mode)
{
        struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                                .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };
        struct stat st;

        if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -1;
        *old_mode = st.st_mode & 07777;
        if ((st.st_mode & 0700) != 0700 && st.st_uid == geteuid() &&
            fchmodat(parent, name, (st.st_mode & 07777) | 0700, 0) < 0)
                return -1;
        return pv_sys_openat2(parent, name, &how);
}

static bool is_dir(int parent, const struct dirent *e)
{
        struct stat st;

        if (e->d_type != DT_UNKNOWN)
                return e->d_type == DT_DIR;
        return fstatat(parent, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Attributes that only the kernel or a privileged one sets stay behind, as with cp(1). */
static int copy_xattrs(int from, int to)
{
        char names[65536], value[65536];
        ssize_t len = flistxattr(from, names, sizeof names);

        if (len < 0)
                return errno == ENOTSUP ? 0 : -1;
        for (char *name = names; name < names + len; name += strlen(name) + 1) {
                ssize_t n = fgetxattr(from, name, value, sizeof value);

                if (n < 0 || fsetxattr(to, name, value, (size_t)n, 0) < 0) {
                        if (errno != ENOTSUP && errno != EPERM && errno != ENODATA)
                                return -1;
                }
        }
        return 0;
}

static int copy_metadata(int from, int to, mode_t mode)
{
        struct stat st;

        if (fstat(from, &st) < 0)
                return -1;
        const struct timespec times[2] = { st.st_atim, st.st_mtim };
        if ((st.st_uid != geteuid() || st.st_gid != getegid()) && fchown(to, st.st_uid, st.st_gid) < 0)
                return -1;
        return copy_xattrs(from, to) < 0 || fchmod(to, mode) < 0 || futimens(to, times) < 0 ? -1 : 0;
}

/* A file of somebody else's cannot be linked (protected_hardlinks) but moved it can be; settling moves it back. */
static int link_or_move(int from, int to, const char *name)
{
        if (linkat(from, name, to, name, 0) == 0)
                return 0;
        return errno == EPERM || errno == EMLINK ? renameat(from, name, to, name) : -1;
}

static int build(int old_parent, const char *old_name, int new_parent, const char *new_name, unsigned depth);

static int build_entries(int from, int to, unsigned depth)
{
        pv_auto_dir d = pv_dir_open(from, ".");
        struct dirent *e;
        int more;

        if (!d)
                return -1;
        while ((more = pv_dir_next(d, &e)) > 0) {
                int r = is_dir(from, e) ? build(from, e->d_name, to, e->d_name, depth + 1)
                                        : link_or_move(from, to, e->d_name);
                if (r < 0 && errno != ENOENT) /* gone meanwhile */
                        return -1;
        }
        return more;
}

static int build(int old_parent, const char *old_name, int new_parent, const char *new_name, unsigned depth)
{
        mode_t mode = 0;
        pv_auto_fd from = -1, to = -1;
        int r = -1;

        if (depth > DEPTH_MAX) {
                errno = ELOOP;
                return -1;
        }
        from = open_dir(old_parent, old_name, &mode);
        if (from < 0)
                return -1;
        /* What cannot be taken away afterwards is not begun. */
        if (faccessat(from, ".", W_OK | X_OK, AT_EACCESS) == 0 && mkdirat(new_parent, new_name, 0700) == 0) {
                to = openat(new_parent, new_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (to >= 0 && build_entries(from, to, depth) == 0)
                        r = copy_metadata(from, to, mode);
        }
        int error = errno;
        struct stat st;
        if (fstat(from, &st) == 0 && (st.st_mode & 07777) != mode)
                (void)fchmod(from, mode);
        errno = error;
        return r;
}

/* Which of two different files of one name stays. */
enum winner { NEWER_WINS, INTO_WINS };

static int settle(int from_parent, const char *from_name, int into_parent, const char *into_name, enum winner winner,
                  unsigned depth);

static int compare_times(const struct timespec *a, const struct timespec *b)
{
        return a->tv_sec != b->tv_sec ? (a->tv_sec < b->tv_sec ? -1 : 1)
                                      : (a->tv_nsec > b->tv_nsec) - (a->tv_nsec < b->tv_nsec);
}

/*
 * Two links to one file? Not by st_ino: overlayfs shows the lower file's number at the old name and the upper one's at
 * the new. What both take from the upper file is enough, since linking set its ctime and count.
 */
static bool is_same_file(const struct stat *a, const struct stat *b)
{
        return a->st_nlink > 1 && a->st_nlink == b->st_nlink && a->st_size == b->st_size && a->st_mode == b->st_mode &&
               a->st_uid == b->st_uid && compare_times(&a->st_ctim, &b->st_ctim) == 0 &&
               compare_times(&a->st_mtim, &b->st_mtim) == 0;
}

static int settle_file(int from, int into, const char *name, enum winner winner)
{
        struct stat a, b;

        if (fstatat(from, name, &a, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -1;
        if (fstatat(into, name, &b, AT_SYMLINK_NOFOLLOW) < 0)
                return renameat(from, name, into, name);
        if (winner == INTO_WINS || is_same_file(&a, &b) || compare_times(&a.st_ctim, &b.st_ctim) < 0)
                return unlinkat(from, name, 0);
        return renameat(from, name, into, name);
}

static int settle_entries(int from, int into, enum winner winner, unsigned depth)
{
        pv_auto_dir d = pv_dir_open(from, ".");
        struct dirent *e;
        int more;

        if (!d)
                return -1;
        while ((more = pv_dir_next(d, &e)) > 0) {
                int r = is_dir(from, e) ? settle(from, e->d_name, into, e->d_name, winner, depth + 1)
                                        : settle_file(from, into, e->d_name, winner);
                if (r < 0)
                        return -1;
        }
        return more;
}

/* Takes directory from away, moving into `into` what is not there yet. */
static int settle(int from_parent, const char *from_name, int into_parent, const char *into_name, enum winner winner,
                  unsigned depth)
{
        mode_t from_mode, into_mode = 0;
        pv_auto_fd into = -1, from = -1;
        int r = -1;

        into = depth > DEPTH_MAX ? -1 : open_dir(into_parent, into_name, &into_mode);
        if (into < 0)
                return errno == ENOENT ? renameat(from_parent, from_name, into_parent, into_name) : -1;
        from = open_dir(from_parent, from_name, &from_mode);
        /* Another process may go on filling it while it is emptied. */
        for (int i = 0; from >= 0 && r < 0 && i < 3; i++) {
                if (settle_entries(from, into, winner, depth) < 0)
                        break;
                r = unlinkat(from_parent, from_name, AT_REMOVEDIR);
                if (r < 0 && errno != ENOTEMPTY)
                        break;
        }
        int error = errno;
        struct stat st;
        if (fstat(into, &st) == 0 && (st.st_mode & 07777) != into_mode)
                (void)fchmod(into, into_mode);
        errno = error;
        return r;
}

/* A copy under a name of its own in parent. On failure the original is whole and the copy gone. */
static int build_beside(int old_parent, const char *old_name, int parent, char temporary[64])
{
        static unsigned count;

        (void)snprintf(temporary, 64, PV_NAME_RENAMING "%d-%u", (int)getpid(), count++);
        if (build(old_parent, old_name, parent, temporary, 0) == 0)
                return 0;
        int error = errno;
        (void)settle(parent, temporary, old_parent, old_name, INTO_WINS, 0);
        errno = error;
        return -1;
}

/* What cannot be looked into is left to rename(2). */
static bool is_not_empty(int parent, const char *name)
{
        pv_auto_dir d = pv_dir_open(parent, name);
        struct dirent *e;

        return d && pv_dir_next(d, &e) > 0;
}

static int move(const struct pv_rename_move *m)
{
        char temporary[64];

        if (is_not_empty(m->new_parent, m->new_name))
                return ENOTEMPTY;
        if (build_beside(m->old_parent, m->old_name, m->new_parent, temporary) < 0)
                return errno;
        int error = m->wanted(m->ctx) ? 0 : EINTR;
        if (!error && renameat2(m->new_parent, temporary, m->new_parent, m->new_name, m->flags) < 0)
                error = errno;
        if (error) {
                (void)settle(m->new_parent, temporary, m->old_parent, m->old_name, INTO_WINS, 0);
                return error;
        }
        if (settle(m->old_parent, m->old_name, m->new_parent, m->new_name, NEWER_WINS, 0) == 0)
                return 0;
        error = errno;
        (void)settle(m->new_parent, m->new_name, m->old_parent, m->old_name, INTO_WINS, 0);
        return error;
}

/* Makes a directory one of the upper layer alone, under its own name: then the kernel can rename it. */
static int raise_in_place(int parent, const char *name)
{
        char temporary[64];
        struct stat st;

        if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno;
        if (!S_ISDIR(st.st_mode))
                return 0;
        if (build_beside(parent, name, parent, temporary) < 0)
                return errno;
        if (settle(parent, name, parent, temporary, NEWER_WINS, 0) < 0) {
                int error = errno;
                (void)settle(parent, temporary, parent, name, INTO_WINS, 0);
                return error;
        }
        return renameat2(parent, temporary, parent, name, RENAME_NOREPLACE) < 0 ? errno : 0;
}

static int exchange(const struct pv_rename_move *m)
{
        int error = raise_in_place(m->old_parent, m->old_name);

        if (!error)
                error = raise_in_place(m->new_parent, m->new_name);
        if (!error && !m->wanted(m->ctx))
                error = EINTR;
        if (!error && renameat2(m->old_parent, m->old_name, m->new_parent, m->new_name, RENAME_EXCHANGE) < 0)
                error = errno;
        return error;
}

int pv_rename_tree(const struct pv_rename_move *m)
{
        return m->flags & RENAME_EXCHANGE ? exchange(m) : move(m);
}
