/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading directories. The merged names are taken together when a reader begins, so that an offset is an index into
 * them; what each name is, is looked up as it is handed out.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fuse/ops.h"

#define REPLY_MAX ((size_t)1 << 20)

struct entry {
        size_t name; /* offset into text */
        ino_t ino;
        unsigned char type;
};

struct dir {
        struct pv_str text;
        struct entry *entry;
        size_t n, cap;
};

static struct dir *dir_of(const struct fuse_file_info *fi)
{
        return (struct dir *)(uintptr_t)fi->fh;
}

static int add_entry(void *ctx, const char *name, ino_t ino, unsigned char type)
{
        struct dir *d = ctx;
        if (d->n == d->cap)
                d->entry = pv_realloc(d->entry, d->cap = d->cap ? d->cap * 2 : 32, sizeof *d->entry);
        d->entry[d->n++] = (struct entry){ .name = d->text.len, .ino = ino, .type = type };
        pv_str_put_bytes(&d->text, name, strlen(name) + 1);
        return 0;
}

static int fill(struct pv_fuse_fs *fs, struct pv_fuse_node *n, struct dir *d)
{
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        d->n = d->text.len = 0;
        (void)add_entry(d, ".", n->ino, DT_DIR);
        (void)add_entry(d, "..", n->names ? n->names->dir->ino : n->ino, DT_DIR);
        int r = pv_fuse_place_open(fs, n, &p);
        if (r == 0)
                r = pv_fuse_list(&p, add_entry, d);
        return r < 0 && errno == ENOENT ? 0 : r; /* removed while it was open: empty */
}

static void dir_free(struct dir *d)
{
        pv_str_fini(&d->text);
        free(d->entry);
        free(d);
}

/*
 * The names are read when they are asked for: the kernel may still have them, where it is told of every change, or
 * nothing can change but by it.
 */
void pv_fuse_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct pv_fuse_node *n = pv_fuse_node_of(fs, ino);
        (void)pthread_mutex_lock(&fs->lock);
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        int r = pv_fuse_place_open(fs, n, &p);
        if (r == 0)
                r = pv_fuse_may_list(&p);
        int e = errno;
        if (r == 0)
                pv_fuse_watch(&p);
        fi->cache_readdir = fi->keep_cache = n->wd > 0 || n->bottom < fs->n_layers - 1;
        (void)pthread_mutex_unlock(&fs->lock);
        struct dir *d = r == 0 ? pv_calloc(1, sizeof *d) : NULL;
        fi->fh = (uint64_t)(uintptr_t)d;
        if (!d)
                (void)fuse_reply_err(req, e);
        else if (fuse_reply_open(req, fi) < 0)
                dir_free(d);
}

void pv_fuse_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
        (void)ino;
        dir_free(dir_of(fi));
        (void)fuse_reply_err(req, 0);
}

struct reply {
        fuse_req_t req;
        char *buf;
        size_t size, used;
};

/* False: it is full. */
static bool put_plain(struct reply *r, const char *name, ino_t ino, unsigned char type, off_t next)
{
        const struct stat st = { .st_ino = ino, .st_mode = (mode_t)type << 12 };
        size_t n = fuse_add_direntry(r->req, r->buf + r->used, r->size - r->used, name, &st, next);
        if (n > r->size - r->used)
                return false;
        r->used += n;
        return true;
}

static bool put_plus(struct reply *r, const char *name, const struct fuse_entry_param *e, off_t next)
{
        size_t n = fuse_add_direntry_plus(r->req, r->buf + r->used, r->size - r->used, name, e, next);
        if (n > r->size - r->used)
                return false;
        r->used += n;
        return true;
}

/* Locked. One entry with all that is known of it; what has gone meanwhile is left out. */
static bool put_looked_up(struct reply *r, struct pv_fuse_place *p, const struct dir *d, size_t i)
{
        struct pv_fuse_fs *fs = p->fs;
        struct fuse_entry_param e = { 0 };
        struct pv_fuse_found f;
        const char *name = d->text.s + d->entry[i].name;
        int found = i < 2 ? -1 : pv_fuse_find(p, name, 0, &f);
        if (found == 0)
                return true;
        if (found < 0) { /* no more than its name: it may not be searched for, or is "." */
                e.attr = (struct stat){ .st_ino = d->entry[i].ino, .st_mode = (mode_t)d->entry[i].type << 12 };
                return put_plus(r, name, &e, (off_t)i + 1);
        }
        struct pv_fuse_node *n = pv_fuse_enter(p, name, &f);
        pv_fuse_tell(fs, p->dir, n, &f, &e);
        bool fits = put_plus(r, name, &e, (off_t)i + 1);
        if (!fits)
                pv_fuse_node_forget(fs, n, 1);
        return fits;
}

static bool put_known(struct reply *r, struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const struct dir *d, size_t i)
{
        const struct entry *e = &d->entry[i];
        const char *name = d->text.s + e->name;
        struct pv_fuse_node *n = i < 2 ? NULL : pv_fuse_name_find(fs, dir, name);
        return put_plain(r, name, n ? n->ino : e->ino, e->type, (off_t)i + 1);
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi, bool plus)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct pv_fuse_node *n = pv_fuse_node_of(fs, ino);
        struct dir *d = dir_of(fi);
        size_t room = size < REPLY_MAX ? size : REPLY_MAX;
        pv_auto_free char *buf = pv_realloc(NULL, room, 1);
        struct reply r = { .req = req, .buf = buf, .size = room };
        (void)pthread_mutex_lock(&fs->lock);
        /* A reader that comes back to the beginning wants to see what is there then. */
        if ((off == 0 || d->n == 0) && fill(fs, n, d) < 0) {
                int e = errno;
                (void)pthread_mutex_unlock(&fs->lock);
                (void)fuse_reply_err(req, e);
                return;
        }
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        bool more = true, here = !plus || pv_fuse_place_open(fs, n, &p) == 0;
        for (size_t i = off > 0 ? (size_t)off : 0; more && here && i < d->n; i++)
                more = plus ? put_looked_up(&r, &p, d, i) : put_known(&r, fs, n, d, i);
        (void)pthread_mutex_unlock(&fs->lock);
        (void)fuse_reply_buf(req, r.buf, r.used);
}

void pv_fuse_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
        read_dir(req, ino, size, off, fi, false);
}

void pv_fuse_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
        read_dir(req, ino, size, off, fi, true);
}
