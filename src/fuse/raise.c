/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying up. A file is made whole in the work directory and then moved to its place, so that the upper layer never
 * holds half of one; a directory is put in place empty, for its mode may forbid what is left to do. Times of the
 * directory that gets it are given back: a copy is no change.
 *
 * The layers are ours, but the modes in them are the command's: where one of our own directories forbids what has to
 * be done, its mode is changed for the while.
 */
#include "fuse/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include "base/copy.h"
#include "base/dir.h"
#include "base/path.h"
#include "base/syscall.h"
#include "base/whiteout.h"
#include "fuse/keeper.h"
#include "fuse/marks.h"

static void next_temp(struct pv_fuse_fs *fs, char temp[32])
{
        (void)snprintf(temp, 32, "t%lu", fs->n_temps++);
}

void pv_fuse_discard(struct pv_fuse_fs *fs, const char *temp)
{
        struct pv_err ignored = PV_ERR_INIT;
        int e = errno;
        (void)pv_path_remove_tree(fs->work, temp, &ignored); /* else it goes with the stage */
        errno = e;
}

/* ---- our own modes ---- */

struct opened {
        int fd;
        mode_t mode;
        bool changed;
};

/* Opens one of our directories up when the last call failed for want of these bits. False: it was not for them. */
static bool open_up(int dir, mode_t bits, struct opened *o)
{
        struct stat st;
        if (errno != EACCES || fstat(dir, &st) < 0 || (st.st_mode & bits) == bits)
                return false;
        *o = (struct opened){ .fd = dir, .mode = st.st_mode & 07777 };
        o->changed = chmod(pv_fuse_proc(dir, "").s, o->mode | bits) == 0;
        if (!o->changed)
                errno = EACCES;
        return o->changed;
}

static void close_up(struct opened *o)
{
        int e = errno;
        if (o->changed)
                (void)chmod(pv_fuse_proc(o->fd, "").s, o->mode);
        errno = e;
}

static int move(int from, const char *name, int to, const char *new, unsigned flags)
{
        struct opened o = { 0 };
        int r = renameat2(from, name, to, new, flags);
        if (r < 0 && open_up(to, 0300, &o)) {
                r = renameat2(from, name, to, new, flags);
                close_up(&o);
        }
        return r;
}

/* The same, and the directory that gets it keeps its times. */
static int install(struct pv_fuse_fs *fs, const char *temp, int upper, const char *name)
{
        struct stat st;
        if (fstat(upper, &st) < 0 || move(fs->work, temp, upper, name, RENAME_NOREPLACE) < 0)
                return -1;
        const struct timespec t[2] = { st.st_atim, st.st_mtim };
        (void)utimensat(AT_FDCWD, pv_fuse_proc(upper, "").s, t, 0);
        return 0;
}

/* ---- what an entry is ---- */

/* To a group of one's own it can be given, as an ordinary user; what cannot be kept, review tells. */
static int copy_owner(struct pv_fuse_fs *fs, const struct pv_fuse_found *f, const char *name, int dirfd,
                      const char *new)
{
        const struct stat *st = &f->st;
        bool foreign = pv_fuse_gid_is_foreign(fs, st->st_gid);
        if (fs->root)
                return fchownat(dirfd, new, pv_fuse_uid_is_foreign(fs, st->st_uid) ? (uid_t)-1 : st->st_uid,
                                foreign ? (gid_t)-1 : st->st_gid, AT_SYMLINK_NOFOLLOW);
        if (!foreign || fs->keeper < 0)
                return 0;
        pv_auto_fd from = openat(f->dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_fd to = openat(dirfd, new, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        return from < 0 || to < 0 ? -1 : pv_fuse_keeper_copy_group(fs->keeper, from, to);
}

static bool is_of_layer(const char *attr)
{
        return pv_str_has_prefix(attr, PV_FUSE_MARK) && !pv_str_has_prefix(attr, PV_FUSE_ESCAPE);
}

static int copy_attributes(const struct pv_xattrs *x, bool user, bool live, int dirfd, const char *name)
{
        for (size_t i = 0; i < x->n; i++) {
                const struct pv_xattr *a = &x->item[i];
                if (pv_str_has_prefix(a->name, "user.") != user || (!live && is_of_layer(a->name)))
                        continue;
                if (pv_xattr_set(dirfd, name, a->name, a->value, a->size) < 0 &&
                    (user || (errno != EOPNOTSUPP && errno != EPERM)))
                        return -1;
        }
        return 0;
}

/* Everything but content and name. */
static int copy_metadata(struct pv_fuse_fs *fs, const struct pv_fuse_found *f, const char *name, int to,
                         const char *new)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_xattrs x = { 0 };
        bool live = pv_fuse_is_live(fs, f->layer), link = S_ISLNK(f->st.st_mode);
        const struct timespec t[2] = { f->st.st_atim, f->st.st_mtim };
        if (pv_xattrs_read(f->dirfd, name, live ? PV_COPY_TO_LAYER : PV_COPY_PLAIN, &x, &err) < 0) {
                errno = err.sys ? err.sys : EIO;
                return -1;
        }
        if (copy_owner(fs, f, name, to, new) < 0 || copy_attributes(&x, true, live, to, new) < 0)
                return -1;
        if (!link && !S_ISFIFO(f->st.st_mode) && !S_ISSOCK(f->st.st_mode)) /* user attributes: files and directories */
                (void)lsetxattr(pv_fuse_proc(to, new).s, PV_FUSE_ORIGIN, "", 0, 0);
        if (!link && fchmodat(to, new, f->st.st_mode & 07777, 0) < 0)
                return -1;
        if (copy_attributes(&x, false, live, to, new) < 0)
                return -1;
        return utimensat(to, new, t, AT_SYMLINK_NOFOLLOW);
}

static int copy_content(const struct pv_fuse_found *f, const char *name, int to, const char *new, unsigned flags)
{
        struct stat st;
        pv_auto_fd in = openat(f->dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (in < 0 && !(flags & PV_FUSE_EMPTY))
                return -1;
        pv_auto_fd out = openat(to, new, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0)
                return -1;
        if (flags & PV_FUSE_EMPTY)
                return 0;
        if (fstat(in, &st) < 0)
                return -1;
        if (!S_ISREG(st.st_mode) || st.st_ino != f->st.st_ino) { /* the host replaced it just now */
                errno = ESTALE;
                return -1;
        }
        return pv_copy_content(in, out, st.st_size);
}

static int copy_link(const struct pv_fuse_found *f, const char *name, int to, const char *new)
{
        char text[PATH_MAX + 1];
        ssize_t n = readlinkat(f->dirfd, name, text, sizeof text - 1);
        if (n < 0)
                return -1;
        text[n] = '\0';
        return symlinkat(text, to, new);
}

/* The entry under a name in the work directory; of a directory, an empty one that is open to us. */
static int copy_entry(struct pv_fuse_fs *fs, const struct pv_fuse_found *f, const char *name, const char *temp,
                      unsigned flags)
{
        int r = -1;
        switch (f->st.st_mode & S_IFMT) {
        case S_IFDIR:
                return mkdirat(fs->work, temp, 0700);
        case S_IFREG:
                r = copy_content(f, name, fs->work, temp, flags);
                break;
        case S_IFLNK:
                r = copy_link(f, name, fs->work, temp);
                break;
        case S_IFIFO:
        case S_IFSOCK:
                r = mknodat(fs->work, temp, (f->st.st_mode & S_IFMT) | 0600, 0);
                break;
        default:
                errno = EPERM; /* a device cannot be made, and one of 0:0 would be a whiteout */
                return -1;
        }
        return r < 0 ? -1 : copy_metadata(fs, f, name, fs->work, temp);
}

/* ---- nodes ---- */

static int raise_found(struct pv_fuse_place *p, const char *name, const struct pv_fuse_found *f, unsigned flags,
                       struct stat *st)
{
        struct pv_fuse_fs *fs = p->fs;
        char temp[32];
        next_temp(fs, temp);
        int upper = pv_fuse_place_raise(p);
        if (upper < 0)
                return -1;
        int r = copy_entry(fs, f, name, temp, flags);
        if (r == 0)
                r = install(fs, temp, upper, name);
        if (r == 0 && S_ISDIR(f->st.st_mode))
                r = copy_metadata(fs, f, name, upper, name);
        if (r < 0) {
                pv_fuse_discard(fs, temp);
                return -1;
        }
        return fstatat(upper, name, st, AT_SYMLINK_NOFOLLOW);
}

/* A node that was copied up: known by its inode in the upper from now on, shown by the one that it had. */
static void note_raised(struct pv_fuse_fs *fs, struct pv_fuse_node *n, const struct stat *st)
{
        pv_fuse_table_put(&fs->shown, st->st_ino, n->ino);
        if (S_ISDIR(n->type))
                n->upper = true;
        else
                pv_fuse_upper_add(fs, n, st->st_ino);
}

/* What lost its last name while in a lower layer gets a nameless copy. */
static int raise_nameless(struct pv_fuse_fs *fs, struct pv_fuse_node *n)
{
        pv_auto_free char *path = pv_strdup(pv_fuse_proc(n->fd, "").s);
        struct stat st;
        if (fstat(n->fd, &st) < 0)
                return -1;
        if (!S_ISREG(st.st_mode)) {
                errno = ESTALE;
                return -1;
        }
        pv_auto_fd in = open(path, O_RDONLY | O_CLOEXEC);
        char temp[32];
        next_temp(fs, temp);
        pv_auto_fd out = in < 0 ? -1 : openat(fs->work, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (out < 0)
                return -1;
        int r = pv_copy_content(in, out, st.st_size);
        if (r == 0)
                r = fchmod(out, st.st_mode & 07777);
        pv_auto_fd held = r == 0 ? openat(fs->work, temp, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
        (void)unlinkat(fs->work, temp, 0);
        if (held < 0 || fstat(held, &st) < 0)
                return -1;
        (void)close(n->fd);
        n->fd = pv_fd_steal(&held);
        note_raised(fs, n, &st);
        return 0;
}

int pv_fuse_raise(struct pv_fuse_fs *fs, struct pv_fuse_node *n, unsigned flags)
{
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        struct pv_fuse_found f;
        struct stat st;
        const char *name;
        if (!fs->writable) {
                errno = EROFS;
                return -1;
        }
        if (n->upper)
                return 0;
        if (n->fd >= 0)
                return raise_nameless(fs, n);
        if (pv_fuse_locate(fs, n, &p, &name, &f) < 0 || raise_found(&p, name, &f, flags, &st) < 0)
                return -1;
        note_raised(fs, n, &st);
        return 0;
}

int pv_fuse_place_raise(struct pv_fuse_place *p)
{
        if (!p->fs->writable) {
                errno = EROFS;
                return -1;
        }
        if (!p->dir->upper) {
                if (pv_fuse_raise(p->fs, p->dir, 0) < 0)
                        return -1;
                p->fd[0] = -1;
        }
        return pv_fuse_place_fd(p, 0);
}

int pv_fuse_hold(struct pv_fuse_fs *fs, struct pv_fuse_node *n)
{
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        struct pv_fuse_found f;
        const char *name;
        if (n->fd >= 0)
                return 0;
        if (pv_fuse_locate(fs, n, &p, &name, &f) < 0)
                return -1;
        n->fd = openat(f.dirfd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        return n->fd < 0 ? -1 : 0;
}

/* ---- whiteouts and opaque directories ---- */

int pv_fuse_whiteout(struct pv_fuse_fs *fs, int upper, const char *name)
{
        char temp[32];
        struct stat st;
        next_temp(fs, temp);
        if (pv_whiteout_make(fs->work, temp) < 0 || (fs->xattr_whiteouts && pv_whiteout_allow(upper) < 0)) {
                pv_fuse_discard(fs, temp);
                return -1;
        }
        bool dir = fstatat(upper, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
        int r = move(fs->work, temp, upper, name, dir ? RENAME_EXCHANGE : 0);
        if (r < 0 || dir)
                pv_fuse_discard(fs, temp);
        return r;
}

int pv_fuse_set_aside(struct pv_fuse_fs *fs, int upper, const char *name, char temp[32])
{
        struct opened o = { 0 };
        next_temp(fs, temp);
        int r = renameat2(upper, name, fs->work, temp, RENAME_NOREPLACE);
        if (r == 0 || errno != EACCES)
                return r;
        /* A directory that changes its parent is written to. */
        pv_auto_fd dir = openat(upper, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0 || !open_up(dir, 0200, &o))
                return -1;
        r = renameat2(upper, name, fs->work, temp, RENAME_NOREPLACE);
        if (r < 0)
                close_up(&o);
        return r;
}

int pv_fuse_make_opaque(int dirfd, const char *name)
{
        struct pv_fuse_proc path = pv_fuse_proc(dirfd, *name ? name : "."); /* "." is not a link to be followed */
        struct opened o = { 0 };
        int r = lsetxattr(path.s, PV_OVERLAY_OPAQUE, "y", 1, 0);
        if (r == 0 || errno != EACCES)
                return r;
        pv_auto_fd dir = openat(dirfd, *name ? name : ".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0 || !open_up(dir, 0600, &o))
                return -1;
        r = lsetxattr(path.s, PV_OVERLAY_OPAQUE, "y", 1, 0);
        close_up(&o);
        return r;
}

int pv_fuse_probe_upper(struct pv_fuse_fs *fs)
{
        char temp[32];
        struct stat st;
        next_temp(fs, temp);
        int r = pv_whiteout_make(fs->work, temp);
        if (r == 0)
                r = fstatat(fs->work, temp, &st, AT_SYMLINK_NOFOLLOW);
        fs->xattr_whiteouts = r == 0 && !S_ISCHR(st.st_mode);
        pv_fuse_discard(fs, temp);
        return r;
}

/* ---- whole trees ---- */

static int add_name(void *ctx, const char *name, ino_t ino, unsigned char type)
{
        (void)ino;
        (void)type;
        pv_strv_add(ctx, name);
        return 0;
}

static int drop_whiteouts(struct pv_fuse_fs *fs, struct pv_fuse_place *p)
{
        pv_auto_strv all = { 0 };
        struct stat st;
        int fd = pv_fuse_place_fd(p, 0), r = 0;
        pv_auto_dir d = fd < 0 ? NULL : pv_dir_open(fd, ".");
        struct dirent *e;
        int more = -1;
        while (d && (more = pv_dir_next(d, &e)) > 0)
                pv_strv_add(&all, e->d_name);
        if (more < 0)
                return -1;
        for (size_t i = 0; i < all.n && r == 0; i++)
                if (fstatat(fd, all.v[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    pv_fuse_is_whiteout(fs, 0, fd, all.v[i], &st))
                        r = unlinkat(fd, all.v[i], 0);
        return r;
}

static struct pv_fuse_node *raised_node(struct pv_fuse_fs *fs, struct pv_fuse_place *p, const char *name,
                                        const struct pv_fuse_found *f)
{
        struct pv_fuse_node *n = pv_fuse_name_find(fs, p->dir, name);
        if (n)
                return n;
        n = pv_fuse_node_new(f->st.st_mode);
        n->ino = pv_fuse_shown_ino(fs, S_ISDIR(f->st.st_mode) ? &f->low : &f->st, false);
        n->upper = f->upper;
        n->bottom = f->bottom;
        pv_fuse_name_add(fs, p->dir, name, n);
        return n;
}

static int raise_child(struct pv_fuse_fs *fs, struct pv_fuse_place *p, const char *name)
{
        struct pv_fuse_found f;
        struct stat st;
        int r = pv_fuse_find(p, name, 0, &f);
        if (r <= 0)
                return r;
        if (!f.upper && pv_fuse_is_mount_point(f.dirfd, name)) {
                errno = EBUSY;
                return -1;
        }
        if (!S_ISDIR(f.st.st_mode)) {
                if (f.upper)
                        return 0;
                struct pv_fuse_node *n = pv_fuse_name_find(fs, p->dir, name);
                if (raise_found(p, name, &f, 0, &st) < 0)
                        return -1;
                if (n && !n->upper)
                        note_raised(fs, n, &st);
                else if (!n)
                        pv_fuse_table_put(&fs->shown, st.st_ino, pv_fuse_shown_ino(fs, &f.st, false));
                return 0;
        }
        if (f.upper && f.bottom == 0)
                return 0;
        struct pv_fuse_node *n = raised_node(fs, p, name, &f);
        n->lookups++; /* kept while we are in it */
        n->upper = f.upper;
        n->bottom = f.bottom;
        r = pv_fuse_raise_tree(fs, n);
        int e = errno;
        pv_fuse_node_forget(fs, n, 1);
        errno = e;
        return r;
}

int pv_fuse_raise_tree(struct pv_fuse_fs *fs, struct pv_fuse_node *dir)
{
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        pv_auto_strv all = { 0 };
        if (dir->upper && dir->bottom == 0)
                return 0;
        if (pv_fuse_raise(fs, dir, 0) < 0 || pv_fuse_place_open(fs, dir, &p) < 0)
                return -1;
        int r = pv_fuse_list(&p, add_name, &all);
        for (size_t i = 0; i < all.n && r == 0; i++)
                r = raise_child(fs, &p, all.v[i]);
        int fd = r == 0 ? pv_fuse_place_fd(&p, 0) : -1;
        if (fd < 0 || drop_whiteouts(fs, &p) < 0 || pv_fuse_make_opaque(fd, "") < 0)
                return -1;
        dir->bottom = 0;
        return 0;
}
