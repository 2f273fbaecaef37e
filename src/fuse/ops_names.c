/* SPDX-License-Identifier: Apache-2.0 */
/* Looking up, making and linking. */
#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include "base/copy.h"
#include "fuse/ops.h"

struct pv_fuse_fs *pv_fuse_of(fuse_req_t req)
{
        return fuse_req_userdata(req);
}

struct pv_fuse_node *pv_fuse_node_of(struct pv_fuse_fs *fs, fuse_ino_t ino)
{
        return ino == FUSE_ROOT_ID ? &fs->root_node : (struct pv_fuse_node *)(uintptr_t)ino; /* the kernel's word */
}

double pv_fuse_timeout(const struct pv_fuse_fs *fs, const struct pv_fuse_node *dir, size_t layer)
{
        if (!pv_fuse_is_live(fs, layer))
                return fs->long_s;
        return dir && dir->wd > 0 ? fs->watched_s : fs->short_s;
}

void pv_fuse_done(fuse_req_t req, struct pv_fuse_fs *fs, int r)
{
        int e = r < 0 ? errno : 0;
        (void)pthread_mutex_unlock(&fs->lock);
        (void)fuse_reply_err(req, e);
}

/* ---- nodes of what was found ---- */

static struct pv_fuse_node *known_node(struct pv_fuse_place *p, const char *name, const struct pv_fuse_found *f)
{
        struct pv_fuse_fs *fs = p->fs;
        struct pv_fuse_node *n = pv_fuse_name_find(fs, p->dir, name);
        if (S_ISDIR(f->st.st_mode)) {
                if (n && S_ISDIR(n->type))
                        return n;
        } else if (f->upper) { /* one node for all names of a file */
                struct pv_fuse_node *u = pv_fuse_upper_find(fs, f->st.st_ino);
                if (u && n == u)
                        return n;
                if (n)
                        pv_fuse_name_remove(fs, p->dir, name);
                if (u)
                        pv_fuse_name_add(fs, p->dir, name, u);
                return u;
        } else if (n && n->type == (f->st.st_mode & S_IFMT) && n->real_ino == f->st.st_ino &&
                   n->real_dev == f->st.st_dev && !n->upper) {
                return n;
        }
        if (n) /* the host has another one there now */
                pv_fuse_name_remove(fs, p->dir, name);
        return NULL;
}

static void witness(struct pv_fuse_place *p, const char *name, const struct pv_fuse_found *f)
{
        pv_auto_str path = { 0 };
        if (!pv_fuse_is_live(p->fs, f->low_layer))
                return;
        pv_str_putf(&path, "%s%s%s", p->path.s, *p->path.s ? "/" : "", name);
        pv_fuse_witness(p->fs, path.s, f->low.st_ino);
}

struct pv_fuse_node *pv_fuse_enter(struct pv_fuse_place *p, const char *name, const struct pv_fuse_found *f)
{
        struct pv_fuse_fs *fs = p->fs;
        bool dir = S_ISDIR(f->st.st_mode);
        struct pv_fuse_node *n = known_node(p, name, f);
        if (!n) {
                n = pv_fuse_node_new(f->st.st_mode);
                pv_fuse_name_add(fs, p->dir, name, n);
                n->ino = dir && !f->upper           ? pv_fuse_shown_ino(fs, &f->low, false)
                         : dir && f->low_layer != 0 ? pv_fuse_shown_ino(fs, &f->low, false)
                                                    : pv_fuse_shown_ino(fs, &f->st, f->upper);
                if (!dir && f->upper)
                        pv_fuse_upper_add(fs, n, f->st.st_ino);
        }
        if (dir) {
                n->upper = f->upper;
                n->bottom = f->bottom;
                witness(p, name, f);
        } else if (!f->upper) {
                n->real_ino = f->st.st_ino;
                n->real_dev = f->st.st_dev;
        }
        return n;
}

void pv_fuse_tell(struct pv_fuse_fs *fs, const struct pv_fuse_node *dir, struct pv_fuse_node *n,
                  const struct pv_fuse_found *f, struct fuse_entry_param *e)
{
        *e = (struct fuse_entry_param){ .ino = pv_fuse_ino_of(fs, n), .attr = f->st };
        n->lookups++;
        n->told_ctime = f->st.st_ctim;
        n->told_size = f->st.st_size;
        pv_fuse_show(fs, n, &e->attr);
        /* A directory that the host's is merged into may lose that; what is in it has times of its own. */
        e->attr_timeout = e->entry_timeout = pv_fuse_timeout(fs, dir, f->layer);
}

static int look_up(struct pv_fuse_place *p, const char *name, struct fuse_entry_param *e)
{
        struct pv_fuse_found f;
        pv_fuse_watch(p);
        int r = pv_fuse_find(p, name, 0, &f);
        if (r > 0)
                pv_fuse_tell(p->fs, p->dir, pv_fuse_enter(p, name, &f), &f, e);
        else if (r == 0) /* known not to be there */
                *e = (struct fuse_entry_param){ .entry_timeout = pv_fuse_timeout(p->fs, p->dir, p->dir->bottom) };
        return r < 0 ? -1 : 0;
}

static void reply_entry(fuse_req_t req, struct pv_fuse_fs *fs, int r, const struct fuse_entry_param *e)
{
        if (r < 0) {
                pv_fuse_done(req, fs, r);
                return;
        }
        (void)pthread_mutex_unlock(&fs->lock);
        if (fuse_reply_entry(req, e) < 0 && e->ino) { /* it was interrupted: the kernel does not know of it */
                (void)pthread_mutex_lock(&fs->lock);
                pv_fuse_node_forget(fs, pv_fuse_node_of(fs, e->ino), 1);
                (void)pthread_mutex_unlock(&fs->lock);
        }
}

void pv_fuse_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct fuse_entry_param e = { 0 };
        (void)pthread_mutex_lock(&fs->lock);
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        int r = pv_fuse_place_open(fs, pv_fuse_node_of(fs, parent), &p);
        if (r == 0)
                r = look_up(&p, name, &e);
        reply_entry(req, fs, r, &e);
}

void pv_fuse_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)pthread_mutex_lock(&fs->lock);
        pv_fuse_node_forget(fs, pv_fuse_node_of(fs, ino), n);
        (void)pthread_mutex_unlock(&fs->lock);
        fuse_reply_none(req);
}

void pv_fuse_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)pthread_mutex_lock(&fs->lock);
        for (size_t i = 0; i < count; i++)
                pv_fuse_node_forget(fs, pv_fuse_node_of(fs, forgets[i].ino), forgets[i].nlookup);
        (void)pthread_mutex_unlock(&fs->lock);
        fuse_reply_none(req);
}

/* ---- making ---- */

mode_t pv_fuse_masked(fuse_req_t req, struct pv_fuse_place *p, mode_t mode)
{
        int fd = pv_fuse_place_fd(p, 0);
        bool by_acl = fd >= 0 && getxattr(pv_fuse_proc(fd, "").s, "system.posix_acl_default", NULL, 0) > 0;
        return by_acl ? mode : mode & ~fuse_req_ctx(req)->umask;
}

/* What root makes belongs to who asked for it. In a directory with the setgid bit the group is the directory's. */
static int give(fuse_req_t req, int dirfd, const char *name)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        const struct fuse_ctx *ctx = fuse_req_ctx(req);
        struct stat dir, st;
        if (!fs->root)
                return 0;
        if (fstat(dirfd, &dir) < 0 || fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -1;
        gid_t gid = dir.st_mode & S_ISGID ? (gid_t)-1 : ctx->gid;
        if (fchownat(dirfd, name, ctx->uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
                return -1;
        mode_t keep = st.st_mode & 07777; /* chown takes these bits */
        bool again = !S_ISLNK(st.st_mode) && keep & (S_ISUID | S_ISGID);
        return again ? fchmodat(dirfd, name, keep, 0) : 0;
}

static int make_in_place(fuse_req_t req, struct pv_fuse_place *p, int upper, const char *name, mode_t mode,
                         pv_fuse_make *make, void *ctx)
{
        if (make(upper, name, ctx) < 0)
                return -1;
        if (mode == PV_FUSE_IS_LINK)
                return 0;
        /* Of what lies below, nothing may show through a new directory, now or later. */
        if ((S_ISDIR(mode) && p->dir->bottom > 0 && pv_fuse_make_opaque(upper, name) < 0) ||
            give(req, upper, name) < 0) {
                int e = errno;
                (void)unlinkat(upper, name, S_ISDIR(mode) ? AT_REMOVEDIR : 0);
                errno = e;
                return -1;
        }
        return 0;
}

int pv_fuse_make_new(fuse_req_t req, struct pv_fuse_place *p, const char *name, mode_t mode, pv_fuse_make *make,
                     void *ctx)
{
        struct pv_fuse_fs *fs = p->fs;
        struct pv_fuse_found f;
        struct stat st;
        char aside[32] = "";
        int found = pv_fuse_find(p, name, 0, &f);
        if (found != 0) {
                errno = found > 0 ? EEXIST : errno;
                return -1;
        }
        int upper = pv_fuse_may_change_dir(p, NULL) < 0 ? -1 : pv_fuse_place_raise(p);
        if (upper < 0)
                return -1;
        if (fstatat(upper, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && pv_fuse_set_aside(fs, upper, name, aside) < 0)
                return -1; /* what is there and is not seen is a whiteout */
        int r = make_in_place(req, p, upper, name, mode, make, ctx), e = errno;
        if (*aside && r < 0)
                (void)renameat2(fs->work, aside, upper, name, RENAME_NOREPLACE);
        else if (*aside)
                pv_fuse_discard(fs, aside);
        errno = e;
        return r;
}

struct made {
        mode_t mode;
        const char *text;
};

static int make_node(int dirfd, const char *name, void *ctx)
{
        const struct made *m = ctx;
        return mknodat(dirfd, name, m->mode, 0);
}

static int make_dir(int dirfd, const char *name, void *ctx)
{
        const struct made *m = ctx;
        return mkdirat(dirfd, name, m->mode & 07777);
}

static int make_link(int dirfd, const char *name, void *ctx)
{
        const struct made *m = ctx;
        return symlinkat(m->text, dirfd, name);
}

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, pv_fuse_make *how, struct made *m)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct fuse_entry_param e = { 0 };
        (void)pthread_mutex_lock(&fs->lock);
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        int r = pv_fuse_place_open(fs, pv_fuse_node_of(fs, parent), &p);
        if (r == 0 && pv_fuse_place_raise(&p) < 0)
                r = -1;
        if (r == 0 && !S_ISLNK(m->mode))
                m->mode = pv_fuse_masked(req, &p, m->mode);
        if (r == 0)
                r = pv_fuse_make_new(req, &p, name, m->mode, how, m);
        if (r == 0)
                r = look_up(&p, name, &e);
        reply_entry(req, fs, r, &e);
}

void pv_fuse_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
        (void)rdev;
        /* Devices are nobody's to make, and 0:0 would be a whiteout. */
        if (!S_ISREG(mode) && !S_ISFIFO(mode) && !S_ISSOCK(mode)) {
                (void)fuse_reply_err(req, EPERM);
                return;
        }
        make(req, parent, name, make_node, &(struct made){ .mode = mode });
}

void pv_fuse_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
        make(req, parent, name, make_dir, &(struct made){ .mode = mode | S_IFDIR });
}

void pv_fuse_op_symlink(fuse_req_t req, const char *text, fuse_ino_t parent, const char *name)
{
        make(req, parent, name, make_link, &(struct made){ .mode = S_IFLNK, .text = text });
}

/* ---- another name ---- */

struct linked {
        int dirfd;
        const char *name;
};

static int make_hard_link(int dirfd, const char *name, void *ctx)
{
        const struct linked *l = ctx;
        return linkat(l->dirfd, l->name, dirfd, name, 0);
}

static int link_node(fuse_req_t req, struct pv_fuse_place *p, struct pv_fuse_node *n, const char *name,
                     struct fuse_entry_param *e)
{
        pv_auto_place from = PV_FUSE_PLACE_INIT;
        struct pv_fuse_found f;
        struct linked l = { 0 };
        if (pv_fuse_raise(p->fs, n, 0) < 0 || pv_fuse_locate(p->fs, n, &from, &l.name, &f) < 0)
                return -1;
        l.dirfd = f.dirfd;
        return pv_fuse_make_new(req, p, name, PV_FUSE_IS_LINK, make_hard_link, &l) < 0 ? -1 : look_up(p, name, e);
}

void pv_fuse_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct fuse_entry_param e = { 0 };
        (void)pthread_mutex_lock(&fs->lock);
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        int r = pv_fuse_place_open(fs, pv_fuse_node_of(fs, parent), &p);
        if (r == 0)
                r = link_node(req, &p, pv_fuse_node_of(fs, ino), name, &e);
        reply_entry(req, fs, r, &e);
}
