/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include "base/names.h"
#include "base/syscall.h"
#include "base/whiteout.h"
#include "stage/layers.h"

#define OPAQUE_XATTR "user.overlay.opaque"
#define ORIGIN_XATTR "user.overlay.origin"
/* Directories held open along the way down, over all layers; those further up are opened again on the way back. */
#define OPEN_DIRS         256
#define OPEN_LEVELS_LEAST 2

/* A directory of one layer that takes part in a level. */
struct source {
        unsigned layer;
        int fd;
        bool xattr_whiteouts; /* opaque "x": whiteouts may be empty files with an attribute */
        int restore;          /* mode to give back; -1: it is as it was */
};

struct level {
        size_t path_len; /* of this directory in walk.path */
        struct source *staged;
        size_t n_staged;
        int host;       /* descriptor of the host's directory; -1: closed or there is none */
        bool has_host;  /* the host has this directory */
        bool host_list; /* ... and its entries count, for the layers hide them */
        bool implied;
        bool closed;    /* descriptors are given up for the while */
        unsigned layer; /* that decided on this directory */
        struct pv_str names;
        size_t *at; /* offsets into names, sorted, each once */
        size_t n_names, next;
};

struct walk {
        struct pv_stage *s;
        size_t root;
        const struct pv_scan_visitor *v;
        struct pv_err *err;
        struct pv_str path;
        struct level *level; /* a stack */
        size_t n_levels, cap;
        size_t open_levels;
        size_t n_restore; /* sources that have a mode to give back */
        char *dirents;
};

int pv_path_order(const char *a, const char *b)
{
        const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;
        while (*x && *x == *y)
                x++, y++;
        int p = *x == '/' ? 1 : *x ? *x + 1 : 0, q = *y == '/' ? 1 : *y ? *y + 1 : 0;
        return p - q;
}

static int walk_error(struct walk *w, const char *name, int sys)
{
        const char *dir = w->path.s;
        return pv_err_set(w->err, PV_ERR_SYS, sys, "look at %s%s%s of %s", dir, *dir && *name ? "/" : "", name,
                          w->s->roots[w->root].root.target);
}

bool pv_scan_has_origin(int dirfd, const char *name)
{
        return pv_xattr_read_at(dirfd, name, ORIGIN_XATTR, NULL, 0) >= 0;
}

static bool is_whiteout(const struct source *src, const char *name, const struct pv_facts *f)
{
        const struct stat st = { .st_mode = f->mode, .st_rdev = f->rdev, .st_size = (off_t)f->size };
        return (S_ISCHR(f->mode) || src->xattr_whiteouts) && pv_whiteout_is(src->fd, name, &st);
}

/* Levels */

static int reopen_source(struct walk *w, const struct level *l, struct source *src)
{
        pv_auto_free char *dir = pv_strndup(w->path.s, l->path_len);
        if (src->fd < 0)
                src->fd = pv_path_openat(pv_layer_fd(w->s, w->root, src->layer), dir, O_RDONLY | O_DIRECTORY, 0);
        return src->fd < 0 ? -1 : 0;
}

static void fini_level(struct walk *w, struct level *l)
{
        for (size_t i = 0; i < l->n_staged; i++) {
                struct source *src = &l->staged[i];
                if (src->restore >= 0 && reopen_source(w, l, src) == 0)
                        (void)fchmod(src->fd, (mode_t)src->restore);
                w->n_restore -= src->restore >= 0;
                pv_fd_closep(&src->fd);
        }
        free(l->staged);
        pv_fd_closep(&l->host);
        pv_str_fini(&l->names);
        free(l->at);
        *l = (struct level){ .host = -1 };
}

/* Gives a directory in a layer its owner's rights for the while; the owner alone can lack them. */
static int open_up(int dirfd, const char *name, mode_t mode, int *restore)
{
        pv_auto_fd path = openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (path < 0)
                return -1;
        if (pv_fd_chmod(path, (mode & 07777) | 0700) < 0)
                return -1;
        int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                (void)pv_fd_chmod(path, mode & 07777);
        else
                *restore = (int)(mode & 07777);
        return fd;
}

/* Opens a directory of a layer for reading and searching. While others work with the stage, modes are left alone. */
static int open_staged_dir(struct walk *w, int dirfd, const char *name, mode_t mode, int *restore)
{
        *restore = -1;
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno != EACCES)
                return -1;
        if (fd >= 0 && (mode & 0100 || faccessat(fd, ".", X_OK, AT_EACCESS) == 0))
                return pv_fd_steal(&fd);
        errno = EACCES;
        if (!pv_stage_borrow(w->s)) {
                errno = EACCES;
                return -1;
        }
        return open_up(dirfd, name, mode, restore);
}

/* Fails with EACCES too where entries can be listed but not looked at. */
static int open_host_dir(int dirfd, const char *name)
{
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || faccessat(fd, ".", X_OK, AT_EACCESS) < 0)
                return -1;
        return pv_fd_steal(&fd);
}

static void close_level(struct level *l)
{
        for (size_t i = 0; i < l->n_staged; i++)
                pv_fd_closep(&l->staged[i].fd);
        pv_fd_closep(&l->host);
        l->closed = true;
}

static int reopen_level(struct walk *w, struct level *l)
{
        pv_auto_free char *dir = pv_strndup(w->path.s, l->path_len);
        for (size_t i = 0; i < l->n_staged; i++)
                if (reopen_source(w, l, &l->staged[i]) < 0)
                        return walk_error(w, "", errno);
        if (l->has_host) {
                /* The host may have taken it away meanwhile: then it has nothing there, which is the truth. */
                l->host = pv_path_openat(w->s->roots[w->root].target, dir, O_RDONLY | O_DIRECTORY, 0);
                l->has_host = l->host >= 0;
        }
        l->closed = false;
        return 0;
}

/* Names of a level */

static int add_names_of(struct walk *w, struct level *l, int fd)
{
        enum { SIZE = 64 * 1024 };
        if (!w->dirents)
                w->dirents = pv_realloc(NULL, SIZE, 1);
        if (lseek(fd, 0, SEEK_SET) < 0)
                return -1;
        for (;;) {
                ssize_t n = getdents64(fd, w->dirents, SIZE);
                if (n <= 0)
                        return n == 0 || errno == ENOENT ? 0 : -1; /* ENOENT: removed meanwhile */
                for (ssize_t at = 0; at < n;) {
                        const struct dirent64 *d = (const struct dirent64 *)(const void *)(w->dirents + at);
                        at += d->d_reclen;
                        if (!pv_streq(d->d_name, ".") && !pv_streq(d->d_name, ".."))
                                pv_str_put_bytes(&l->names, d->d_name, strlen(d->d_name) + 1);
                }
        }
}

static int by_name(const void *a, const void *b, void *names)
{
        return strcmp((const char *)names + *(const size_t *)a, (const char *)names + *(const size_t *)b);
}

static int read_names(struct walk *w, struct level *l)
{
        for (size_t i = 0; i < l->n_staged; i++)
                if (add_names_of(w, l, l->staged[i].fd) < 0)
                        return walk_error(w, "", errno);
        if (l->host_list && l->has_host && add_names_of(w, l, l->host) < 0)
                return walk_error(w, "", errno);
        size_t n = 0;
        for (size_t at = 0; at < l->names.len; at += strlen(l->names.s + at) + 1)
                n++;
        l->at = pv_calloc(n, sizeof *l->at);
        n = 0;
        for (size_t at = 0; at < l->names.len; at += strlen(l->names.s + at) + 1)
                l->at[n++] = at;
        qsort_r(l->at, n, sizeof *l->at, by_name, l->names.s);
        for (size_t i = 0; i < n; i++)
                if (i == 0 || !pv_streq(l->names.s + l->at[i], l->names.s + l->at[i - 1]))
                        l->at[l->n_names++] = l->at[i];
        return 0;
}

static struct level *push_level(struct walk *w, struct level *l)
{
        if (w->n_levels == w->cap) {
                w->cap = w->cap ? w->cap * 2 : 16;
                w->level = pv_realloc(w->level, w->cap, sizeof *w->level);
        }
        w->level[w->n_levels++] = *l;
        *l = (struct level){ .host = -1 };
        if (w->n_levels > w->open_levels)
                close_level(&w->level[w->n_levels - 1 - w->open_levels]);
        return &w->level[w->n_levels - 1];
}

static void pop_level(struct walk *w)
{
        fini_level(w, &w->level[--w->n_levels]);
}

/* Entries */

/*
 * Adds the directory of one layer to the level that is being made. Sets *hides when nothing below that layer shows.
 * Returns 1, or 0 when it cannot be read.
 */
static int add_source(struct walk *w, struct level *child, unsigned layer, int dirfd, const char *name, mode_t mode,
                      bool *hides)
{
        struct source src = { .layer = layer };
        char mark = 0;
        src.fd = open_staged_dir(w, dirfd, name, mode, &src.restore);
        if (src.fd < 0)
                return 0;
        if (fgetxattr(src.fd, OPAQUE_XATTR, &mark, 1) == 1) {
                *hides = mark == 'y';
                src.xattr_whiteouts = mark == 'x';
        }
        child->staged = pv_realloc(child->staged, child->n_staged + 1, sizeof *child->staged);
        child->staged[child->n_staged++] = src;
        w->n_restore += src.restore >= 0;
        return 1;
}

/*
 * What the layers say of name: fills e->now, e->layer, e->staged_dir, and the sources of child when it is a directory.
 * Returns 0 when no layer says anything, 1, or -1. *hides: what the host has there (or in it) does not show.
 */
static int look_up_staged(struct walk *w, struct level *l, struct pv_scan_entry *e, struct level *child, bool *hides)
{
        int found = 0;
        for (size_t i = 0; i < l->n_staged && !*hides; i++) {
                struct source *src = &l->staged[i];
                struct pv_facts f;
                if (pv_facts_get(src->fd, e->name, w->v->text, &f) < 0)
                        return walk_error(w, e->name, errno);
                if (!pv_facts_exist(&f))
                        continue;
                bool whiteout = is_whiteout(src, e->name, &f);
                if (!found) {
                        found = 1;
                        e->layer = src->layer;
                        if (!whiteout) {
                                e->now = f;
                                e->staged_dir = src->fd;
                        }
                }
                if (whiteout || !S_ISDIR(f.mode)) {
                        *hides = true;
                        break;
                }
                if (!add_source(w, child, src->layer, src->fd, e->name, f.mode, hides)) {
                        e->flags |= PV_SCAN_UNREADABLE;
                        break;
                }
        }
        return found;
}

/* Opens the host's side of a directory that is to be entered. */
static void add_host(const struct pv_scan_entry *e, struct level *child, unsigned *flags)
{
        if (!S_ISDIR(e->host.mode))
                return;
        child->host = open_host_dir(e->host_dir, e->name);
        child->has_host = child->host >= 0;
        if (!child->has_host && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
                *flags |= PV_SCAN_UNREADABLE;
}

/* Puts name behind the level's directory in w->path and names e by it. */
static void name_entry(struct walk *w, const struct level *l, const char *name, struct pv_scan_entry *e)
{
        w->path.len = l->path_len;
        if (l->path_len)
                pv_str_putc(&w->path, '/');
        size_t start = w->path.len;
        pv_str_put(&w->path, name);
        e->path = w->path.s;
        e->len = w->path.len;
        e->name = w->path.s + start;
}

/* Fills e and child from the layers and the host. Returns whether there is anything to tell, or -1. */
static int look_up(struct walk *w, struct level *l, struct pv_scan_entry *e, struct level *child)
{
        bool hides = false;
        int found = look_up_staged(w, l, e, child, &hides);
        if (found < 0)
                return -1;
        if (l->has_host && pv_facts_get(l->host, e->name, w->v->text, &e->host) < 0)
                return walk_error(w, "", errno);
        hides = hides || l->host_list;
        bool staged_dir = S_ISDIR(e->now.mode);
        if (!found)
                e->flags |= l->implied ? PV_SCAN_IMPLIED : PV_SCAN_HIDDEN;
        else if (staged_dir && hides)
                e->flags |= PV_SCAN_OPAQUE;
        if (e->len >= PATH_MAX)
                e->flags |= PV_SCAN_TOO_LONG;
        child->path_len = e->len;
        child->layer = e->layer;
        child->implied = !staged_dir;
        child->host_list = !staged_dir || hides;
        return pv_facts_exist(&e->now) || pv_facts_exist(&e->host); /* else a whiteout over nothing */
}

static bool is_unfinished(const struct pv_scan_entry *e)
{
        return S_ISDIR(e->now.mode) && !pv_facts_exist(&e->host) && pv_str_has_prefix(e->name, PV_NAME_RENAMING);
}

/* One name of the level on top of the stack; enters it when it is a directory that matters. */
static int scan_entry(struct walk *w, const char *name)
{
        struct level *l = &w->level[w->n_levels - 1];
        struct level child = { .host = -1 };
        struct pv_scan_entry e = { .staged_dir = -1, .host_dir = l->host, .layer = l->layer };
        name_entry(w, l, name, &e);
        int r = look_up(w, l, &e, &child);
        if (r > 0 && is_unfinished(&e)) {
                if (w->v->unfinished)
                        pv_strv_add(w->v->unfinished, e.path);
                fini_level(w, &child);
                return 0;
        }
        if (r > 0) {
                if (!(e.flags & PV_SCAN_TOO_LONG))
                        add_host(&e, &child, &e.flags);
                e.flags |= w->n_restore ? PV_SCAN_OPENED : 0;
                r = w->v->visit(w->v->ctx, &e, w->err);
        }
        bool enter = r == 0 && !(e.flags & PV_SCAN_TOO_LONG) && (child.n_staged > 0 || child.has_host) &&
                     (!w->v->enter || w->v->enter(w->v->ctx, e.path, e.len));
        if (enter)
                return read_names(w, push_level(w, &child));
        fini_level(w, &child);
        return r;
}

static int scan_root_dir(struct walk *w)
{
        struct level top = { .host = -1 };
        struct pv_scan_entry e = { .path = "", .name = "", .staged_dir = -1, .host_dir = -1 };
        bool hides = false;
        for (size_t k = w->s->n_layers; k-- > 0 && !hides;) {
                struct pv_pathfd layer = pv_layer_fd(w->s, w->root, k);
                struct pv_facts f;
                if (layer.fd < 0 || pv_facts_get(layer.fd, "", w->v->text, &f) < 0)
                        return walk_error(w, "", errno);
                if (k + 1 == w->s->n_layers) {
                        e.now = f;
                        e.layer = (unsigned)k;
                        e.staged_dir = layer.fd;
                }
                if (!add_source(w, &top, (unsigned)k, layer.fd, ".", f.mode, &hides)) {
                        fini_level(w, &top);
                        return walk_error(w, "", errno);
                }
        }
        e.host_dir = w->s->roots[w->root].target.fd;
        top.host = open_host_dir(e.host_dir, ".");
        top.has_host = top.host >= 0;
        top.host_list = hides;
        top.layer = e.layer;
        e.flags = (hides ? PV_SCAN_OPAQUE : 0) | (w->n_restore ? PV_SCAN_OPENED : 0);
        if (!top.has_host || pv_facts_get(e.host_dir, "", w->v->text, &e.host) < 0) {
                int sys = errno;
                fini_level(w, &top);
                return walk_error(w, "", sys);
        }
        if (w->v->visit(w->v->ctx, &e, w->err) < 0) {
                fini_level(w, &top);
                return -1;
        }
        return read_names(w, push_level(w, &top));
}

static int scan_levels(struct walk *w)
{
        while (w->n_levels > 0) {
                struct level *l = &w->level[w->n_levels - 1];
                w->path.len = l->path_len;
                w->path.s[w->path.len] = '\0';
                if (l->next == l->n_names) {
                        pop_level(w);
                        continue;
                }
                if (l->closed && reopen_level(w, l) < 0)
                        return -1;
                if (scan_entry(w, l->names.s + l->at[l->next++]) < 0)
                        return -1;
        }
        return 0;
}

int pv_scan_root(struct pv_stage *s, size_t root, const struct pv_scan_visitor *v, struct pv_err *err)
{
        struct walk w = { .s = s, .root = root, .v = v, .err = err };
        w.open_levels = OPEN_DIRS / (s->n_layers + 1);
        if (w.open_levels < OPEN_LEVELS_LEAST)
                w.open_levels = OPEN_LEVELS_LEAST;
        pv_str_put(&w.path, "");
        int r = scan_root_dir(&w);
        if (r == 0)
                r = scan_levels(&w);
        while (w.n_levels > 0) /* on failure: modes are given back */
                fini_level(&w, &w.level[--w.n_levels]);
        free(w.level);
        free(w.dirents);
        pv_str_fini(&w.path);
        return r;
}
