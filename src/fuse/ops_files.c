/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files. Content is moved without the lock: a handle's descriptor is read under it, and one that was replaced
 * (its file was copied up) is closed only with the handle.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/syscall.h"
#include "fuse/ops.h"

static struct pv_fuse_handle *handle_of(const struct fuse_file_info *fi)
{
        return (struct pv_fuse_handle *)(uintptr_t)fi->fh; /* ours, through the kernel */
}

struct pv_fuse_handle *pv_fuse_handle_new(struct pv_fuse_node *n, int fd, bool lower)
{
        struct pv_fuse_handle *h = pv_calloc(1, sizeof *h);
        *h = (struct pv_fuse_handle){ .node = n, .fd = fd, .lower = lower, .retired = -1, .next = n->handles };
        n->handles = h;
        return h;
}

static void free_handle(struct pv_fuse_fs *fs, struct pv_fuse_handle *h)
{
        (void)pthread_mutex_lock(&fs->lock);
        struct pv_fuse_handle **at = &h->node->handles;
        while (*at && *at != h)
                at = &(*at)->next;
        if (*at)
                *at = h->next;
        (void)pthread_mutex_unlock(&fs->lock);
        pv_fd_closep(&h->fd);
        pv_fd_closep(&h->retired);
        free(h);
}

/* What the backing file is opened with: the kernel has done the rest. */
static int backing_flags(int flags)
{
        int keep = O_ACCMODE | O_TRUNC;
        return (flags & keep) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
}

/* Locked. */
static int open_backing(struct pv_fuse_fs *fs, struct pv_fuse_node *n, int flags, struct stat *st, bool *lower)
{
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        struct pv_fuse_found f;
        const char *name;
        pv_auto_fd fd = -1;
        if (n->fd >= 0) {
                fd = open(pv_fuse_proc(n->fd, "").s, backing_flags(flags));
                *lower = !n->upper;
        } else {
                if (pv_fuse_locate(fs, n, &p, &name, &f) < 0)
                        return -1;
                fd = openat(f.dirfd, name, backing_flags(flags) | O_NOFOLLOW);
                *lower = !f.upper;
        }
        if (fd < 0 || fstat(fd, st) < 0)
                return -1;
        if (S_ISREG(st->st_mode) && (n->upper || st->st_ino == n->real_ino))
                return pv_fd_steal(&fd);
        errno = ESTALE; /* the host put something else there, just now */
        return -1;
}

static int prepare_writing(struct pv_fuse_fs *fs, struct pv_fuse_node *n, int flags)
{
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        struct pv_fuse_found f;
        const char *name;
        bool asks = fs->writable && !n->upper && n->fd < 0; /* else there is nothing to ask, or raising refuses it */
        if (asks && (pv_fuse_locate(fs, n, &p, &name, &f) < 0 || pv_fuse_may_write(fs, &f, name) < 0))
                return -1;
        return pv_fuse_raise(fs, n, flags & O_TRUNC ? PV_FUSE_EMPTY : 0);
}

/*
 * Pages that the kernel has may stay when the file is what it was at the last open: the ctime, which nobody can set,
 * and the size. What it believes of the status goes when that is not so.
 */
static void judge_cache(struct pv_fuse_fs *fs, struct pv_fuse_node *n, const struct stat *st, bool lower,
                        struct fuse_file_info *fi)
{
        bool same = n->opened && pv_clock_compare(&n->opened_ctime, &st->st_ctim) == 0 && n->opened_size == st->st_size;
        bool told = pv_clock_compare(&n->told_ctime, &st->st_ctim) == 0 && n->told_size == st->st_size;
        fi->keep_cache = !lower || same;
        n->opened = true;
        n->opened_ctime = st->st_ctim;
        n->opened_size = st->st_size;
        if (lower && !told)
                (void)fuse_lowlevel_notify_inval_inode(fs->session, pv_fuse_ino_of(fs, n), -1, 0);
}

void pv_fuse_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct pv_fuse_node *n = pv_fuse_node_of(fs, ino);
        struct stat st;
        bool lower = false;
        int fd = -1;
        (void)pthread_mutex_lock(&fs->lock);
        bool writes = (fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC;
        if (!writes || prepare_writing(fs, n, fi->flags) == 0)
                fd = open_backing(fs, n, fi->flags, &st, &lower);
        int e = fd < 0 ? errno : 0;
        if (fd >= 0) {
                judge_cache(fs, n, &st, lower, fi);
                fi->fh = (uint64_t)(uintptr_t)pv_fuse_handle_new(n, fd, lower);
        }
        (void)pthread_mutex_unlock(&fs->lock);
        if (e)
                (void)fuse_reply_err(req, e);
        else if (fuse_reply_open(req, fi) < 0) /* interrupted: it will not be released */
                free_handle(fs, handle_of(fi));
}

struct created {
        int flags;
        mode_t mode;
        int fd;
};

static int create_file(int dirfd, const char *name, void *ctx)
{
        struct created *c = ctx;
        c->fd = openat(dirfd, name, backing_flags(c->flags) | O_CREAT | O_EXCL | O_NOFOLLOW, c->mode & 07777);
        return c->fd < 0 ? -1 : 0;
}

static int create(fuse_req_t req, struct pv_fuse_place *p, const char *name, struct created *c,
                  struct fuse_entry_param *e, struct fuse_file_info *fi)
{
        struct pv_fuse_fs *fs = p->fs;
        struct pv_fuse_found f;
        if (pv_fuse_place_raise(p) < 0)
                return -1;
        c->mode = pv_fuse_masked(req, p, c->mode);
        if (pv_fuse_make_new(req, p, name, S_IFREG | c->mode, create_file, c) < 0)
                return -1;
        if (pv_fuse_find(p, name, 0, &f) <= 0)
                return -1;
        struct pv_fuse_node *n = pv_fuse_enter(p, name, &f);
        pv_fuse_tell(fs, p->dir, n, &f, e);
        fi->keep_cache = 1;
        fi->fh = (uint64_t)(uintptr_t)pv_fuse_handle_new(n, c->fd, false);
        c->fd = -1;
        return 0;
}

void pv_fuse_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct fuse_entry_param entry = { 0 };
        struct created c = { .flags = fi->flags & ~O_TRUNC, .mode = mode, .fd = -1 };
        (void)pthread_mutex_lock(&fs->lock);
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        int r = pv_fuse_place_open(fs, pv_fuse_node_of(fs, parent), &p);
        if (r == 0)
                r = create(req, &p, name, &c, &entry, fi);
        int e = r < 0 ? errno : 0;
        (void)pthread_mutex_unlock(&fs->lock);
        pv_fd_closep(&c.fd);
        if (e) {
                (void)fuse_reply_err(req, e);
        } else if (fuse_reply_create(req, &entry, fi) < 0) {
                struct pv_fuse_node *n = handle_of(fi)->node;
                free_handle(fs, handle_of(fi));
                (void)pthread_mutex_lock(&fs->lock);
                pv_fuse_node_forget(fs, n, 1);
                (void)pthread_mutex_unlock(&fs->lock);
        }
}

void pv_fuse_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
        (void)ino;
        free_handle(pv_fuse_of(req), handle_of(fi));
        (void)fuse_reply_err(req, 0);
}

/* The descriptor to read from: of what the file is now. */
static int reading_fd(struct pv_fuse_fs *fs, struct pv_fuse_handle *h)
{
        (void)pthread_mutex_lock(&fs->lock);
        if (h->lower && h->node->upper) {
                struct stat st;
                bool lower;
                int fd = open_backing(fs, h->node, O_RDONLY, &st, &lower);
                if (fd >= 0) {
                        h->retired = h->fd;
                        h->fd = fd;
                        h->lower = false;
                }
        }
        int fd = h->fd;
        (void)pthread_mutex_unlock(&fs->lock);
        return fd;
}

void pv_fuse_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
        struct fuse_bufvec out = FUSE_BUFVEC_INIT(size);
        (void)ino;
        out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
        out.buf[0].fd = reading_fd(pv_fuse_of(req), handle_of(fi));
        out.buf[0].pos = off;
        (void)fuse_reply_data(req, &out, FUSE_BUF_SPLICE_MOVE);
}

void pv_fuse_op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *in, off_t off, struct fuse_file_info *fi)
{
        struct fuse_bufvec out = FUSE_BUFVEC_INIT(fuse_buf_size(in));
        (void)ino;
        out.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
        out.buf[0].fd = handle_of(fi)->fd; /* open for writing: it was the upper's from the first */
        out.buf[0].pos = off;
        ssize_t n = fuse_buf_copy(&out, in, 0);
        if (n < 0)
                (void)fuse_reply_err(req, (int)-n);
        else
                (void)fuse_reply_write(req, (size_t)n);
}

void pv_fuse_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
        (void)ino;
        (void)fuse_reply_err(req, fallocate(handle_of(fi)->fd, mode, off, len) < 0 ? errno : 0);
}

void pv_fuse_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
        (void)ino;
        off_t at = lseek(reading_fd(pv_fuse_of(req), handle_of(fi)), off, whence);
        if (at < 0)
                (void)fuse_reply_err(req, errno);
        else
                (void)fuse_reply_lseek(req, at);
}

void pv_fuse_op_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t off_in, struct fuse_file_info *fi_in,
                                fuse_ino_t out, off_t off_out, struct fuse_file_info *fi_out, size_t len, int flags)
{
        (void)in;
        (void)out;
        int from = reading_fd(pv_fuse_of(req), handle_of(fi_in));
        ssize_t n = copy_file_range(from, &off_in, handle_of(fi_out)->fd, &off_out, len, (unsigned)flags);
        if (n < 0)
                (void)fuse_reply_err(req, errno);
        else
                (void)fuse_reply_write(req, (size_t)n);
}
