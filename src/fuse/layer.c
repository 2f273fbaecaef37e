/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/copy.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/syscall.h"
#include "base/whiteout.h"
#include "fuse/marks.h"

#define NOT_THERE    (-2)
#define DIRENTS_SIZE ((size_t)64 * 1024)

struct pv_fuse_proc pv_fuse_proc(int dirfd, const char *name)
{
        struct pv_fuse_proc p;
        (void)snprintf(p.s, sizeof p.s, *name ? "/proc/self/fd/%d/%s" : "/proc/self/fd/%d", dirfd, name);
        return p;
}

/* ---- places ---- */

static int open_beneath(int root, const char *path)
{
        struct pv_pathfd at = { root };
        return pv_path_openat(at, path, O_PATH | O_DIRECTORY, 0);
}

/* A path that is longer than the kernel takes at once. */
static int open_deep(int root, const char *path)
{
        pv_auto_fd at = -1;
        while (strlen(path) >= PATH_MAX) {
                size_t n = PATH_MAX - 1;
                while (n > 0 && path[n] != '/')
                        n--;
                pv_auto_free char *part = pv_strndup(path, n);
                int next = open_beneath(at >= 0 ? at : root, part);
                if (next < 0)
                        return -1;
                pv_fd_closep(&at);
                at = next;
                path += n + 1;
        }
        return open_beneath(at >= 0 ? at : root, path);
}

int pv_fuse_place_open(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, struct pv_fuse_place *p)
{
        p->fs = fs;
        p->dir = dir;
        for (size_t i = 0; i < fs->n_layers; i++)
                p->fd[i] = -1;
        return pv_fuse_node_path(fs, dir, &p->path);
}

void pv_fuse_place_close(struct pv_fuse_place *p)
{
        int e = errno;
        for (size_t i = 0; p->fs && i < p->fs->n_layers; i++)
                if (p->fd[i] >= 0)
                        (void)close(p->fd[i]);
        pv_str_fini(&p->path);
        p->fs = NULL;
        errno = e;
}

int pv_fuse_place_fd(struct pv_fuse_place *p, size_t layer)
{
        if (p->fd[layer] == -1) {
                int fd = open_deep(p->fs->layer[layer], p->path.s);
                if (fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
                        return -1;
                p->fd[layer] = fd < 0 ? NOT_THERE : fd;
        }
        if (p->fd[layer] >= 0)
                return p->fd[layer];
        errno = ENOENT;
        return -1;
}

/* ---- marks ---- */

bool pv_fuse_is_whiteout(const struct pv_fuse_fs *fs, size_t layer, int dirfd, const char *name, const struct stat *st)
{
        return !pv_fuse_is_live(fs, layer) && pv_whiteout_is(dirfd, name, st);
}

/* A directory of ours that we closed to ourselves keeps its mark to itself, too. */
static bool is_opaque(int dirfd, const char *name, const struct stat *st)
{
        char value = 0;
        ssize_t n = pv_xattr_read_at(dirfd, name, PV_OVERLAY_OPAQUE, &value, 1);
        if (n < 0 && errno == EACCES && fchmodat(dirfd, name, (st->st_mode & 07777) | S_IRUSR, 0) == 0) {
                n = pv_xattr_read_at(dirfd, name, PV_OVERLAY_OPAQUE, &value, 1);
                if (fchmodat(dirfd, name, st->st_mode & 07777, 0) < 0)
                        return true; /* it hides all: an error that shows */
        }
        return n == 1 && value == 'y';
}

bool pv_fuse_is_mount_point(int dirfd, const char *name)
{
        struct statx sx;
        return statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &sx) == 0 &&
               sx.stx_attributes & STATX_ATTR_MOUNT_ROOT;
}

/* ---- looking up ---- */

static bool is_absent(void)
{
        return errno == ENOENT || errno == ENOTDIR;
}

int pv_fuse_find(struct pv_fuse_place *p, const char *name, size_t from, struct pv_fuse_found *f)
{
        struct pv_fuse_fs *fs = p->fs;
        int found = 0;
        for (size_t i = from; i <= p->dir->bottom; i++) {
                struct stat st;
                if (pv_fuse_is_upper(fs, i) && !p->dir->upper)
                        continue;
                int fd = pv_fuse_place_fd(p, i);
                if (fd < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0) {
                        if (is_absent())
                                continue;
                        return -1;
                }
                bool dir = S_ISDIR(st.st_mode);
                if (!dir && (found || pv_fuse_is_whiteout(fs, i, fd, name, &st))) {
                        if (found)
                                f->bottom = i - 1;
                        return found;
                }
                if (!found) {
                        *f = (struct pv_fuse_found){ .layer = i,
                                                     .dirfd = fd,
                                                     .st = st,
                                                     .upper = pv_fuse_is_upper(fs, i),
                                                     .bottom = p->dir->bottom };
                        found = 1;
                }
                if (!dir)
                        return 1;
                f->low = st;
                f->low_layer = i;
                if (i < p->dir->bottom && !pv_fuse_is_live(fs, i) && is_opaque(fd, name, &st)) {
                        f->bottom = i;
                        return 1;
                }
        }
        return found;
}

int pv_fuse_locate(struct pv_fuse_fs *fs, struct pv_fuse_node *n, struct pv_fuse_place *p, const char **name,
                   struct pv_fuse_found *f)
{
        if (!n->names) {
                errno = ESTALE;
                return -1;
        }
        *name = n->names->text;
        *f = (struct pv_fuse_found){ 0 };
        int r = pv_fuse_place_open(fs, n->names->dir, p);
        if (r == 0)
                r = pv_fuse_find(p, *name, 0, f);
        if (r < 0)
                return -1;
        bool same = r == 1 && (f->st.st_mode & S_IFMT) == n->type &&
                    (S_ISDIR(n->type) || (f->st.st_ino == n->real_ino && (f->upper || f->st.st_dev == n->real_dev)));
        if (same)
                return 0;
        errno = ESTALE;
        return -1;
}

static int stat_root(struct pv_fuse_fs *fs, struct stat *st, size_t *layer)
{
        *layer = 0;
        return fstat(fs->layer[0], st);
}

int pv_fuse_stat(struct pv_fuse_fs *fs, struct pv_fuse_node *n, struct stat *st, size_t *layer)
{
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        struct pv_fuse_found f;
        const char *name;
        if (n == &fs->root_node)
                return stat_root(fs, st, layer);
        *layer = n->upper ? 0 : fs->n_layers - 1;
        if (n->fd >= 0)
                return fstat(n->fd, st);
        if (pv_fuse_locate(fs, n, &p, &name, &f) == 0) {
                *st = f.st;
                *layer = f.layer;
                return 0;
        }
        return n->handles ? fstat(n->handles->fd, st) : -1;
}

/* ---- listing ---- */

struct listing {
        char **slot;
        size_t n, cap;
};

static size_t hash_text(const char *s)
{
        size_t h = pv_hash_text(PV_HASH_START, s);
        return h ^ h >> 31;
}

/* True when it was there already. */
static bool note(struct listing *l, const char *name)
{
        if (2 * (l->n + 1) > l->cap) {
                struct listing old = *l;
                *l = (struct listing){ .cap = old.cap ? old.cap * 2 : 256 };
                l->slot = pv_calloc(l->cap, sizeof(char *));
                for (size_t i = 0; i < old.cap; i++) {
                        if (!old.slot[i])
                                continue;
                        size_t at = hash_text(old.slot[i]) & (l->cap - 1);
                        while (l->slot[at])
                                at = (at + 1) & (l->cap - 1);
                        l->slot[at] = old.slot[i];
                        l->n++;
                }
                free(old.slot);
        }
        size_t at = hash_text(name) & (l->cap - 1);
        for (; l->slot[at]; at = (at + 1) & (l->cap - 1))
                if (pv_streq(l->slot[at], name))
                        return true;
        l->slot[at] = pv_strdup(name);
        l->n++;
        return false;
}

static bool hides(const struct pv_fuse_fs *fs, size_t layer, int dirfd, const struct dirent64 *d)
{
        struct stat st;
        if (pv_fuse_is_live(fs, layer) || (d->d_type != DT_CHR && d->d_type != DT_REG && d->d_type != DT_UNKNOWN))
                return false;
        if (d->d_type == DT_REG && !fs->xattr_whiteouts)
                return false;
        return fstatat(dirfd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
               pv_fuse_is_whiteout(fs, layer, dirfd, d->d_name, &st);
}

static int list_layer(struct pv_fuse_place *p, size_t layer, bool alone, struct listing *seen, pv_fuse_add *add,
                      void *ctx)
{
        pv_auto_fd fd = openat(p->fd[layer], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_free char *buf = fd >= 0 ? malloc(DIRENTS_SIZE) : NULL;
        if (!buf)
                return -1;
        for (;;) {
                ssize_t n = getdents64(fd, buf, DIRENTS_SIZE);
                if (n <= 0)
                        return n == 0 || errno == ENOENT ? 0 : -1;
                for (ssize_t at = 0; at < n;) {
                        const struct dirent64 *d = (const struct dirent64 *)(const void *)(buf + at);
                        at += d->d_reclen;
                        if (pv_streq(d->d_name, ".") || pv_streq(d->d_name, ".."))
                                continue;
                        bool hidden = hides(p->fs, layer, fd, d);
                        if ((!alone && note(seen, d->d_name)) || hidden)
                                continue;
                        if (add(ctx, d->d_name, (ino_t)d->d_ino, d->d_type) < 0)
                                return -1;
                }
        }
}

int pv_fuse_list(struct pv_fuse_place *p, pv_fuse_add *add, void *ctx)
{
        struct listing seen = { 0 };
        size_t n = 0;
        int r = 0;
        for (size_t i = 0; i <= p->dir->bottom && r == 0; i++) {
                if (pv_fuse_is_upper(p->fs, i) && !p->dir->upper)
                        continue;
                if (pv_fuse_place_fd(p, i) >= 0)
                        n++;
                else if (!is_absent())
                        r = -1;
        }
        for (size_t i = 0; i <= p->dir->bottom && r == 0; i++)
                if (p->fd[i] >= 0)
                        r = list_layer(p, i, n == 1, &seen, add, ctx);
        for (size_t i = 0; i < seen.cap; i++)
                free(seen.slot[i]);
        free(seen.slot);
        return r;
}
