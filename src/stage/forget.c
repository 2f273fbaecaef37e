/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking changes out of the stage
 *
 * What was applied or dropped must no longer be in the layers, else it would cover what the host has. Bottom up, each
 * selected path loses its entry in every layer that is this stage's alone; a directory that still holds others'
 * entries stays, and merges with the host's. Then the preimages are written anew without those paths.
 *
 * An opaque directory above a selected path hides the host's path, so first it is made to say the same in other words:
 * a whiteout for each entry that it hid, but not for those that are selected, and then it loses its mark. In this order
 * it may be interrupted anywhere and repeated.
 *
 * Layers that others stand on stay as they are. There an applied path stays with, for a preimage, just what was applied,
 * which makes it no change; a dropped one is covered in the top layer.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include "base/fd.h"
#include "stage/baseline.h"
#include "stage/change.h"
#include "stage/layers.h"
#include "stage/scan.h"

#define OPAQUE_XATTR "user.overlay.opaque"

struct forgetting {
        struct pv_stage *s;
        const struct pv_changes *c;
        const bool *selected;
        enum pv_changes_fate fate;
        bool *shared;  /* per layer */
        bool *remains; /* per item: some layer still has an entry of that path */
        struct pv_err *err;
        struct pv_opened opened; /* directories that were opened up for the while */
        char *parent_path;       /* the directory whose descriptors, one a layer, are in parent; NULL: none is */
        unsigned parent_root;
        int *parent; /* -1: not in that layer */
};

static int fail_at(struct forgetting *f, unsigned root, const char *path, const char *what)
{
        return pv_err_set(f->err, PV_ERR_SYS, errno, "%s %s in the stage of %s", what, *path ? path : ".",
                          f->s->roots[root].root.target);
}

static const struct pv_change *find_change(const struct forgetting *f, unsigned root, const char *path)
{
        return pv_changes_find((struct pv_changes *)(uintptr_t)f->c, root, path);
}

static bool is_selected(const struct forgetting *f, unsigned root, const char *path)
{
        const struct pv_change *x = find_change(f, root, path);
        return x && f->selected[x - f->c->item];
}

static const char *last_name(const char *path)
{
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
}

static int open_in_layer(struct forgetting *f, unsigned root, size_t k, const char *path)
{
        return pv_layer_open_dir(f->s, root, k, path, f->shared[k] ? NULL : &f->opened);
}

/* Opaque directories */

static int each_name(int dirfd, int (*each)(void *ctx, const char *name), void *ctx)
{
        pv_auto_fd fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_dir d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d)
                return -1;
        (void)pv_fd_steal(&fd);
        for (struct dirent *e; (e = readdir(d));)
                if (!pv_streq(e->d_name, ".") && !pv_streq(e->d_name, "..") && each(ctx, e->d_name) < 0)
                        return -1;
        return 0;
}

/* One directory that shall say in so many words what it hides. */
struct revealing {
        struct forgetting *f;
        unsigned root;
        const char *path;
        int dirfd;
        struct pv_strv *deeper;
};

static int write_whiteout(void *ctx, const char *name)
{
        struct revealing *r = ctx;
        pv_auto_free char *path = pv_path_join(r->path, name);
        if (faccessat(r->dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || is_selected(r->f, r->root, path))
                return 0;
        return mknodat(r->dirfd, name, S_IFCHR | 0600, makedev(0, 0)) < 0 && errno != EEXIST ? -1 : 0;
}

/* What a directory above hid, its directories hid in their turn, but those with a mark of their own go on to. */
static int queue_dir(void *ctx, const char *name)
{
        struct revealing *r = ctx;
        struct stat st;
        if (fstatat(r->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                pv_strv_take(r->deeper, pv_path_join(r->path, name));
        return 0;
}

/* Whether what the host has in this directory now was hidden: not when it was not there, or was no directory. */
static bool hid_the_host(const struct forgetting *f, unsigned root, const char *path)
{
        const struct pv_change *x = find_change(f, root, path);
        return !x || (x->kind != PV_CHANGE_ADDED && x->kind != PV_CHANGE_TYPE);
}

static int reveal_dir(struct forgetting *f, unsigned root, size_t k, const char *path, bool top, struct pv_strv *deeper)
{
        char mark = 0;
        pv_auto_fd fd = open_in_layer(f, root, k, path);
        struct revealing r = { .f = f, .root = root, .path = path, .dirfd = fd, .deeper = deeper };
        if (fd < 0)
                return fail_at(f, root, path, "open");
        if (!top && fgetxattr(fd, OPAQUE_XATTR, &mark, 1) == 1 && mark == 'y')
                return 0;
        for (size_t lower = 0; lower <= k; lower++) { /* the layers below, then the host */
                if (lower == k && !hid_the_host(f, root, path))
                        continue;
                struct pv_pathfd dir = lower == k ? f->s->roots[root].target : pv_layer_fd(f->s, root, lower);
                pv_auto_fd below = pv_path_openat(dir, path, O_PATH | O_DIRECTORY, 0);
                if (below >= 0 && each_name(below, write_whiteout, &r) < 0)
                        return fail_at(f, root, path, "write whiteouts into");
        }
        return each_name(fd, queue_dir, &r) < 0 ? fail_at(f, root, path, "read") : 0;
}

static int reveal(struct forgetting *f, unsigned root, size_t k, const char *path)
{
        pv_auto_strv queue = { 0 };
        pv_strv_add(&queue, path);
        for (size_t i = 0; i < queue.n; i++)
                if (reveal_dir(f, root, k, queue.v[i], i == 0, &queue) < 0)
                        return -1;
        pv_auto_fd fd = open_in_layer(f, root, k, path);
        if (fd < 0 || (fremovexattr(fd, OPAQUE_XATTR) < 0 && errno != ENODATA))
                return fail_at(f, root, path, "take the opaque mark from");
        return 0;
}

static int reveal_if_opaque(struct forgetting *f, unsigned root, const char *path)
{
        for (size_t k = 0; k < f->s->n_layers; k++) {
                char mark = 0;
                pv_auto_fd fd = f->shared[k] ? -1 : open_in_layer(f, root, k, path);
                if (fd >= 0 && fgetxattr(fd, OPAQUE_XATTR, &mark, 1) == 1 && mark == 'y' &&
                    reveal(f, root, k, path) < 0)
                        return -1;
        }
        return 0;
}

/* Every directory above a selected path; those above the path before are known already. */
static int reveal_above(struct forgetting *f, const struct pv_change *x, struct pv_str *last)
{
        size_t len = (size_t)(last_name(x->path) - x->path);
        for (size_t at = 0; at < len; at++) {
                at += strcspn(x->path + at, "/");
                bool known = last->len > at && memcmp(last->s, x->path, at + 1) == 0;
                pv_auto_free char *dir = pv_strndup(x->path, at);
                if (!known && reveal_if_opaque(f, x->root, dir) < 0)
                        return -1;
        }
        last->len = 0;
        pv_str_put_bytes(last, x->path, len); /* with the '/' */
        return 0;
}

static int reveal_selected(struct forgetting *f)
{
        pv_auto_str last = { 0 };
        for (size_t i = 0; i < f->c->n; i++) {
                if (i > 0 && f->c->item[i].root != f->c->item[i - 1].root)
                        last.len = 0;
                if (f->selected[i] && reveal_above(f, &f->c->item[i], &last) < 0)
                        return -1;
        }
        return 0;
}

/* Entries */

static void close_parents(struct forgetting *f)
{
        for (size_t k = 0; k < f->s->n_layers; k++)
                pv_fd_closep(&f->parent[k]);
        pv_freep(&f->parent_path);
}

/* Opens the directory that holds the path, in each layer. */
static void open_parents(struct forgetting *f, const struct pv_change *x)
{
        const char *name = last_name(x->path);
        pv_auto_free char *dir = pv_strndup(x->path, name > x->path ? (size_t)(name - x->path) - 1 : 0);
        if (f->parent_path && f->parent_root == x->root && pv_streq(f->parent_path, dir))
                return;
        close_parents(f);
        for (size_t k = 0; k < f->s->n_layers; k++)
                f->parent[k] = open_in_layer(f, x->root, k, dir);
        f->parent_root = x->root;
        f->parent_path = pv_steal(&dir);
}

static int make_like_host(struct forgetting *f, const struct pv_change *x, int parent, const char *name)
{
        pv_auto_fd like = pv_path_openat(f->s->roots[x->root].target, x->path, O_PATH | O_DIRECTORY, 0);
        if (like < 0)
                return errno == ENOENT ? 0 : -1;
        return pv_layer_make_like(parent, name, like);
}

/* A directory that other changes still need merges with the host's from now on. */
static int keep_dir(struct forgetting *f, const struct pv_change *x, size_t k, const char *name)
{
        if (f->fate == PV_CHANGES_DROPPED && x->kind == PV_CHANGE_METADATA &&
            make_like_host(f, x, f->parent[k], name) < 0)
                return -1;
        return 0;
}

static int remove_in_layer(struct forgetting *f, const struct pv_change *x, size_t k, const char *name, bool *stays)
{
        struct stat st;
        int dir = f->parent[k];
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -1;
        if (f->shared[k]) {
                *stays = true;
                return 0;
        }
        if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0 || errno == ENOENT)
                return 0;
        if (!S_ISDIR(st.st_mode) || (errno != ENOTEMPTY && errno != EEXIST))
                return -1;
        *stays = true;
        return keep_dir(f, x, k, name);
}

/* A dropped path that a shared layer has: something in the top layer must stand over it. */
static int cover(struct forgetting *f, const struct pv_change *x)
{
        int top = f->parent[f->s->n_layers - 1];
        if (x->kind == PV_CHANGE_ADDED && top >= 0)
                return mknodat(top, last_name(x->path), S_IFCHR | 0600, makedev(0, 0)) < 0 && errno != EEXIST
                               ? fail_at(f, x->root, x->path, "write a whiteout for")
                               : 0;
        (void)pv_err_set(f->err, PV_ERR_UNSUPPORTED, 0,
                         "%s comes from a checkpoint that another job shares: it cannot be dropped by itself", x->path);
        return pv_err_hint(f->err, "drop the whole job, or leave the path out of what you apply");
}

static int forget_root_dir(struct forgetting *f, const struct pv_change *x)
{
        if (f->fate == PV_CHANGES_APPLIED)
                return 0;
        pv_auto_free char *path = pv_layer_path(f->s, x->root, f->s->n_layers - 1);
        return make_like_host(f, x, AT_FDCWD, path) < 0 ? fail_at(f, x->root, "", "reset") : 0;
}

static int forget_entry(struct forgetting *f, size_t i)
{
        const struct pv_change *x = &f->c->item[i];
        bool in_shared = false;
        f->remains[i] = !*x->path;
        if (!*x->path)
                return forget_root_dir(f, x);
        open_parents(f, x);
        for (size_t k = 0; k < f->s->n_layers; k++) {
                bool stays = false;
                if (f->parent[k] < 0)
                        continue;
                if (remove_in_layer(f, x, k, last_name(x->path), &stays) < 0)
                        return fail_at(f, x->root, x->path, "remove");
                f->remains[i] = f->remains[i] || stays;
                in_shared = in_shared || (stays && f->shared[k]);
        }
        if (f->remains[i] && S_ISDIR(x->now.mode) && reveal_if_opaque(f, x->root, x->path) < 0)
                return -1;
        return in_shared && f->fate == PV_CHANGES_DROPPED ? cover(f, x) : 0;
}

/* Preimages */

/* What was applied is what the host has; its inode and ctime there are not known here, so content decides. */
static void to_applied(struct forgetting *f, const struct pv_change *x, struct pv_preimage *out)
{
        pv_auto_fd parent = -1;
        *out = (struct pv_preimage){ .host = x->now };
        out->host.ino = 0;
        out->host.nlink = 1;
        out->host.ctime = (struct timespec){ 0 };
        if (!pv_facts_exist(&x->now) || !*x->path)
                return;
        const char *name = last_name(x->path);
        pv_auto_free char *dir = pv_strndup(x->path, name > x->path ? (size_t)(name - x->path) - 1 : 0);
        parent = pv_layer_open_dir(f->s, x->root, x->layer, dir, NULL);
        if (parent < 0 || pv_facts_get_xattrs(parent, name, PV_FACTS_STAGED, &out->host.xattrs) < 0 ||
            (S_ISREG(x->now.mode) && pv_facts_hash(parent, name, &out->host) < 0))
                out->doubt = PV_DOUBT_UNREADABLE;
}

/* Copies the old records with those of the selected items left out or renewed. */
struct rewriting {
        struct forgetting *f;
        unsigned root;
        struct pv_preimage_reader *in;
        struct pv_preimage_writer *out;
        const char *path; /* of the next old record; NULL: there is none */
        struct pv_preimage old;
};

static int next_old(struct rewriting *r)
{
        struct pv_err *err = r->f->err;
        int k = pv_preimages_next(r->in, &r->path, &r->old, err);
        if (k <= 0)
                r->path = NULL;
        if (k < 0 && err->kind == PV_ERR_INPUT) { /* what a damaged file still has is kept */
                pv_err_clear(err);
                return 0;
        }
        return k < 0 ? -1 : 0;
}

static int copy_until(struct rewriting *r, const char *path)
{
        while (r->path && (!path || pv_path_order(r->path, path) < 0))
                if (pv_preimages_put(r->out, r->path, &r->old, r->f->err) < 0 || next_old(r) < 0)
                        return -1;
        return 0;
}

static int rewrite_item(struct rewriting *r, size_t i)
{
        const struct pv_change *x = &r->f->c->item[i];
        struct pv_preimage p;
        if (copy_until(r, x->path) < 0)
                return -1;
        bool had = r->path && pv_streq(r->path, x->path);
        if (r->f->remains[i] && r->f->fate == PV_CHANGES_APPLIED) {
                to_applied(r->f, x, &p);
                if (pv_preimages_put(r->out, x->path, &p, r->f->err) < 0)
                        return -1;
        } else if (r->f->remains[i] && had && pv_preimages_put(r->out, x->path, &r->old, r->f->err) < 0) {
                return -1;
        }
        return had ? next_old(r) : 0;
}

static int rewrite_all(struct rewriting *r)
{
        if (next_old(r) < 0)
                return -1;
        for (size_t i = 0; i < r->f->c->n; i++)
                if (r->f->c->item[i].root == r->root && r->f->selected[i] && rewrite_item(r, i) < 0)
                        return -1;
        return copy_until(r, NULL);
}

static int rewrite_preimages(struct forgetting *f, unsigned root, const char *file)
{
        struct rewriting r = { .f = f, .root = root };
        int result = -1;
        if (pv_preimages_open(f->s->fd.fd, file, &r.in, f->err) < 0 && f->err->kind == PV_ERR_INPUT)
                return 0; /* damaged: it stays so, and doubts all */
        if (r.in && pv_preimages_create(f->s->fd.fd, file, &r.out, f->err) == 0)
                result = rewrite_all(&r);
        if (result == 0)
                result = pv_preimages_finish(pv_steal(&r.out), f->err);
        pv_preimages_abandon(r.out);
        pv_preimages_close(r.in);
        return result;
}

/* Those of now, and those that forks of our checkpoints will start from. */
static int rewrite_all_preimages(struct forgetting *f)
{
        for (unsigned root = 0; root < f->s->n_roots; root++) {
                pv_auto_free char *now = pv_baseline_file(root);
                if (rewrite_preimages(f, root, now) < 0)
                        return -1;
                for (size_t k = 0; k + 1 < f->s->n_layers; k++) {
                        pv_auto_free char *kept = pv_baseline_snapshot(root, f->s->layers[k].number);
                        if (!f->s->layers[k].from && rewrite_preimages(f, root, kept) < 0)
                                return -1;
                }
        }
        return 0;
}

static int forget(struct forgetting *f)
{
        if (reveal_selected(f) < 0)
                return -1;
        for (size_t i = f->c->n; i-- > 0;)
                if (f->selected[i] && forget_entry(f, i) < 0)
                        return -1;
        close_parents(f);
        return rewrite_all_preimages(f);
}

int pv_changes_forget(struct pv_stage *s, const struct pv_changes *c, const bool *selected, enum pv_changes_fate fate,
                      struct pv_err *err)
{
        struct forgetting f = { .s = s, .c = c, .selected = selected, .fate = fate, .err = err };
        if (pv_layers_find_shared(s, &f.shared, err) < 0)
                return -1;
        f.remains = pv_calloc(c->n, sizeof *f.remains);
        f.parent = pv_calloc(s->n_layers, sizeof *f.parent);
        for (size_t k = 0; k < s->n_layers; k++)
                f.parent[k] = -1;
        int r = forget(&f);
        close_parents(&f);
        pv_layers_close_up(s, &f.opened);
        free(f.parent);
        free(f.remains);
        free(f.shared);
        return r;
}
