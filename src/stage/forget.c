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
 * Layers that others stand on stay as they are. There an applied path stays with, for a preimage, just what was
 * applied, which makes it no change; a dropped one is covered in the top layer.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include "base/fd.h"
#include "base/dir.h"
#include "base/whiteout.h"
#include "stage/bases.h"
#include "stage/change.h"
#include "stage/cover.h"
#include "stage/layers.h"
#include "stage/rebase.h"

struct forgetting {
        struct pv_stage *s;
        const struct pv_changes *c;
        const bool *selected;
        enum pv_changes_fate fate;
        bool *shared; /* per layer */
        struct outcome {
                bool remains;   /* some layer still has an entry of that path */
                bool in_shared; /* a layer that stays as it is */
        } * outcome;            /* per item */
        struct pv_err *err;
        struct pv_opened opened; /* directories that were opened up for the while */
        char *parent_path;       /* the directory whose descriptors, one a layer, are in parent; NULL: none is */
        unsigned parent_root;
        int *parent;             /* -1: not in that layer */
        struct pv_rebase *empty; /* directories that held nothing any more and are gone from the layers; paths owned */
        size_t n_empty;
        struct pv_bases *bases; /* texts of what landed, of one root: later versions start from them */
        unsigned bases_root;
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
        pv_auto_dir d = pv_dir_open(dirfd, ".");
        struct dirent *e;
        int more = -1;
        while (d && (more = pv_dir_next(d, &e)) > 0)
                if (each(ctx, e->d_name) < 0)
                        return -1;
        return more;
}

/* One directory that shall say in so many words what it hides. */
struct revealing {
        struct forgetting *f;
        unsigned root;
        const char *path;
        int dirfd;
        bool stays; /* what is hidden is in a layer that stays as it is */
        struct pv_strv *deeper;
};

static int write_whiteout(void *ctx, const char *name)
{
        struct revealing *r = ctx;
        pv_auto_free char *path = pv_path_join(r->path, name);
        if (faccessat(r->dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        /* What was applied as deleted is gone from the host, but a layer that stays would show it. */
        if (is_selected(r->f, r->root, path) && !(r->stays && r->f->fate == PV_CHANGES_APPLIED))
                return 0;
        return pv_whiteout_make(r->dirfd, name) < 0 && errno != EEXIST ? -1 : 0;
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
        if (fd < 0) /* deeper than any path: nothing there could be named as a change, so nothing is hidden by one */
                return errno == ENAMETOOLONG ? 0 : fail_at(f, root, path, "open");
        if (!top && fgetxattr(fd, PV_LAYER_OPAQUE, &mark, 1) == 1 && mark == 'y')
                return 0;
        bool merges = true; /* in a directory that merges with nothing a whiteout would be listed as a name */
        for (size_t lower = k; lower-- > 0 && merges;) {
                pv_auto_fd below = pv_path_openat(pv_layer_fd(f->s, root, lower), path, O_PATH | O_DIRECTORY, 0);
                r.stays = f->shared[lower];
                if (below >= 0 && each_name(below, write_whiteout, &r) < 0)
                        return fail_at(f, root, path, "write whiteouts into");
                merges = below >= 0 ? !pv_layer_is_opaque(below, ".") : errno == ENOENT;
        }
        r.stays = false;
        pv_auto_fd host = merges && hid_the_host(f, root, path)
                                  ? pv_path_openat(f->s->roots[root].target, path, O_PATH | O_DIRECTORY, 0)
                                  : -1;
        if (host >= 0 && each_name(host, write_whiteout, &r) < 0)
                return fail_at(f, root, path, "write whiteouts into");
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
        if (fd < 0 || (fremovexattr(fd, PV_LAYER_OPAQUE) < 0 && errno != ENODATA))
                return fail_at(f, root, path, "take the opaque mark from");
        return 0;
}

static int reveal_if_opaque(struct forgetting *f, unsigned root, const char *path)
{
        for (size_t k = 0; k < f->s->n_layers; k++) {
                char mark = 0;
                pv_auto_fd fd = f->shared[k] ? -1 : open_in_layer(f, root, k, path);
                if (fd >= 0 && fgetxattr(fd, PV_LAYER_OPAQUE, &mark, 1) == 1 && mark == 'y' &&
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
        free(f->parent_path);
        f->parent_path = NULL;
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
        pv_layer_mark_merged(f->parent[k], name);
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

/*
 * What the layers have at a selected path without showing it: below something that is opaque or no directory. It would
 * show when what hides it is gone, and belongs to what was decided on.
 */
static int remove_hidden(struct forgetting *f, const struct pv_change *x)
{
        const char *name = last_name(x->path);
        size_t hidden = S_ISDIR(x->now.mode) ? 0 : f->s->n_layers; /* layers below this one */
        open_parents(f, x);
        for (size_t k = f->s->n_layers; k-- > 0 && hidden == 0;) {
                struct stat st;
                if (f->parent[k] >= 0 && fstatat(f->parent[k], name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    (!S_ISDIR(st.st_mode) || pv_layer_is_opaque(f->parent[k], name)))
                        hidden = k;
        }
        for (size_t k = 0; k < hidden; k++) {
                struct stat st;
                if (f->shared[k] || f->parent[k] < 0 || fstatat(f->parent[k], name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                if ((S_ISDIR(x->now.mode) || S_ISDIR(st.st_mode)) &&
                    pv_path_remove_tree(f->parent[k], name, f->err) < 0)
                        return pv_err_wrap(f->err, "%s in the stage of %s", x->path, f->s->roots[x->root].root.target);
        }
        return 0;
}

static int remove_all_hidden(struct forgetting *f)
{
        for (size_t i = 0; f->s->n_layers > 1 && i < f->c->n; i++)
                if (f->selected[i] && *f->c->item[i].path && remove_hidden(f, &f->c->item[i]) < 0)
                        return -1;
        close_parents(f);
        return 0;
}

/* Does a layer that stays as it is decide on that path, once the layers above it say nothing? */
static bool is_in_shared(const struct forgetting *f, const struct pv_change *x)
{
        for (size_t k = 0; k < f->s->n_layers; k++)
                if (f->shared[k] && pv_layer_look(f->s, x->root, k, x->path) != PV_LAYER_NOTHING)
                        return true;
        return false;
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
        struct outcome *o = &f->outcome[i];
        o->remains = !*x->path;
        if (!*x->path)
                return forget_root_dir(f, x);
        open_parents(f, x);
        o->in_shared = is_in_shared(f, x);
        /* What was applied stays above what a shared layer has, or hides: that would show instead of the host's. */
        bool all_stay = f->fate == PV_CHANGES_APPLIED && o->in_shared;
        o->remains = all_stay;
        for (size_t k = 0; k < f->s->n_layers && !all_stay; k++) {
                bool stays = false;
                if (f->parent[k] < 0)
                        continue;
                if (remove_in_layer(f, x, k, last_name(x->path), &stays) < 0)
                        return fail_at(f, x->root, x->path, "remove");
                o->remains = o->remains || stays;
        }
        return o->remains && S_ISDIR(x->now.mode) ? reveal_if_opaque(f, x->root, x->path) : 0;
}

/*
 * Directories that were in the layers for what is in them alone. Empty they would still stand for the host's own in
 * the view, whatever the host makes of that later. Those that look like the host's can go unseen.
 */

static bool looks_like_host(const struct forgetting *f, unsigned root, const char *path, int parent)
{
        const char *name = NULL;
        struct pv_facts staged, host;
        pv_auto_arena text = { 0 };
        pv_auto_pathfd at = PV_PATHFD_INIT;
        return pv_path_open_parent(f->s->roots[root].target, path, &at, &name) == 0 &&
               pv_facts_get(at.fd, name, &text, &host) == 0 && S_ISDIR(host.mode) &&
               pv_facts_get(parent, name, &text, &staged) == 0 && staged.mode == host.mode && staged.uid == host.uid &&
               staged.gid == host.gid && pv_facts_get_xattrs(at.fd, name, PV_FACTS_HOST, &host.xattrs) == 0 &&
               pv_facts_get_xattrs(parent, name, PV_FACTS_STAGED, &staged.xattrs) == 0 && staged.xattrs == host.xattrs;
}

/* 1: it went; 0: it is needed, or went with what was decided on, whose own turn leads further up; -1. */
static int remove_if_empty(struct forgetting *f, unsigned root, char *path)
{
        const struct pv_change *x = find_change(f, root, path);
        const char *name = last_name(path);
        int newest = -1;
        if (x && !f->selected[x - f->c->item])
                return 0;
        open_parents(f, &(struct pv_change){ .root = root, .path = path });
        for (size_t k = 0; k < f->s->n_layers; k++) {
                struct stat st;
                if (f->parent[k] < 0 || (fstatat(f->parent[k], name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT))
                        continue;
                if (f->shared[k] || !S_ISDIR(st.st_mode) || pv_layer_is_opaque(f->parent[k], name))
                        return 0;
                newest = f->parent[k];
        }
        if (newest < 0 || !looks_like_host(f, root, path, newest))
                return 0;
        for (size_t k = 0; k < f->s->n_layers; k++) /* the oldest first: the newest is the one that shows */
                if (f->parent[k] >= 0 && unlinkat(f->parent[k], name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                        return errno == ENOTEMPTY || errno == EEXIST ? 0 : fail_at(f, root, path, "remove");
        if (x)
                f->outcome[x - f->c->item] = (struct outcome){ 0 };
        f->empty = pv_realloc(f->empty, f->n_empty + 1, sizeof *f->empty);
        f->empty[f->n_empty++] = (struct pv_rebase){ .root = root, .path = pv_strdup(path) };
        return 1;
}

/* Upwards from one that was decided in, as long as they go. */
static int remove_empty_above(struct forgetting *f, unsigned root, char *dir)
{
        while (*dir) {
                int r = remove_if_empty(f, root, dir);
                if (r <= 0)
                        return r;
                char *slash = strrchr(dir, '/');
                *(slash ? slash : dir) = '\0';
        }
        return 0;
}

static int remove_empty(struct forgetting *f)
{
        const struct pv_change *last = NULL; /* its directory was looked at */
        for (size_t i = f->c->n; i-- > 0;) {
                const struct pv_change *x = &f->c->item[i];
                const char *name = last_name(x->path);
                size_t len = (size_t)(name - x->path);
                if (!f->selected[i] || len == 0 ||
                    (last && last->root == x->root && last_name(last->path) == last->path + len &&
                     memcmp(last->path, x->path, len) == 0))
                        continue;
                last = x;
                pv_auto_free char *dir = pv_strndup(x->path, len - 1);
                if (remove_empty_above(f, x->root, dir) < 0)
                        return -1;
        }
        return 0;
}

/* Preimages */

/* What was applied is what the host has; its inode and ctime there are not known here, so content decides. */
static void find_applied(struct forgetting *f, const struct pv_change *x, struct pv_facts *out)
{
        *out = x->now;
        out->ino = 0;
        out->nlink = 1;
        out->ctime = (struct timespec){ 0 };
        if (!pv_facts_exist(&x->now))
                return;
        const char *name = last_name(x->path);
        pv_auto_free char *dir = pv_strndup(x->path, name > x->path ? (size_t)(name - x->path) - 1 : 0);
        pv_auto_fd parent = pv_layer_open_dir(f->s, x->root, x->layer, dir, f->shared[x->layer] ? NULL : &f->opened);
        if (parent < 0)
                return; /* without a hash whatever the host has is a conflict */
        (void)pv_facts_get_xattrs(parent, *name ? name : ".", PV_FACTS_STAGED, &out->xattrs);
        if (!S_ISREG(x->now.mode))
                return;
        if (!f->bases || f->bases_root != x->root) {
                pv_bases_free(f->bases);
                f->bases = pv_bases_new(f->s, x->root);
                f->bases_root = x->root;
        }
        (void)pv_bases_hash_and_keep(f->bases, parent, name, out);
}

/* What is dropped though a shared layer has it, or hides the host's by what it has above. */
static bool must_cover(const struct forgetting *f, size_t i)
{
        const struct pv_change *x = &f->c->item[i];
        bool hidden = x->flags & (PV_CHANGE_HIDDEN | PV_CHANGE_IMPLIED) && f->shared[x->layer];
        return f->selected[i] && f->fate == PV_CHANGES_DROPPED && *x->path && (f->outcome[i].in_shared || hidden);
}

/* The new preimage of a selected path. Returns false when the old one stays; *none: there is none any more. */
static bool find_preimage(struct forgetting *f, size_t i, struct pv_facts *facts, bool *none)
{
        *none = !f->outcome[i].remains && !must_cover(f, i);
        if (!*none && f->fate == PV_CHANGES_APPLIED)
                find_applied(f, &f->c->item[i], facts);
        return *none || f->fate == PV_CHANGES_APPLIED || must_cover(f, i);
}

/* Covers what is dropped and cannot go; facts[i] is then what the host has. */
static int cover_dropped(struct forgetting *f, struct pv_facts *facts, struct pv_arena *text)
{
        for (size_t i = 0; i < f->c->n; i++) {
                const struct pv_change *x = &f->c->item[i];
                if (!must_cover(f, i))
                        continue;
                if (pv_layer_cover(f->s, x->root, x->path, text, &facts[i], f->err) < 0)
                        return -1;
                /* Below what was no directory nothing showed, and nothing of it is a change. */
                if (!S_ISDIR(x->now.mode) && S_ISDIR(facts[i].mode) &&
                    pv_layer_cover_entries(f->s, x->root, x->path, f->err) < 0)
                        return -1;
        }
        return 0;
}

static int forget_preimages(struct forgetting *f)
{
        size_t n = 0;
        pv_auto_arena text = { 0 };
        pv_auto_free struct pv_rebase *list = pv_calloc(f->c->n + f->n_empty, sizeof *list);
        pv_auto_free struct pv_facts *facts = pv_calloc(f->c->n, sizeof *facts);
        if (cover_dropped(f, facts, &text) < 0)
                return -1;
        for (size_t i = 0; i < f->c->n; i++) {
                bool none = false;
                if (!f->selected[i] || !find_preimage(f, i, &facts[i], &none))
                        continue;
                list[n++] = (struct pv_rebase){ .root = f->c->item[i].root,
                                                .path = f->c->item[i].path,
                                                .facts = none ? NULL : &facts[i] };
        }
        for (size_t i = 0; i < f->n_empty; i++)
                if (!is_selected(f, f->empty[i].root, f->empty[i].path))
                        list[n++] = f->empty[i];
        if (f->n_empty)
                pv_rebase_sort(list, n);
        for (unsigned root = 0; root < f->s->n_roots; root++)
                if (pv_rebase_root(f->s, root, list, n, PV_PREIMAGE_CACHED, f->err) < 0)
                        return -1;
        return 0;
}

static int forget(struct forgetting *f)
{
        if (remove_all_hidden(f) < 0 || reveal_selected(f) < 0)
                return -1;
        for (size_t i = f->c->n; i-- > 0;)
                if (f->selected[i] && forget_entry(f, i) < 0)
                        return -1;
        if (remove_empty(f) < 0)
                return -1;
        close_parents(f);
        return forget_preimages(f);
}

int pv_changes_forget(struct pv_stage *s, const struct pv_changes *c, const bool *selected, enum pv_changes_fate fate,
                      struct pv_err *err)
{
        struct forgetting f = { .s = s, .c = c, .selected = selected, .fate = fate, .err = err };
        if (pv_layers_find_shared(s, &f.shared, err) < 0)
                return -1;
        f.outcome = pv_calloc(c->n, sizeof *f.outcome);
        f.parent = pv_calloc(s->n_layers, sizeof *f.parent);
        for (size_t k = 0; k < s->n_layers; k++)
                f.parent[k] = -1;
        int r = forget(&f);
        close_parents(&f);
        pv_bases_free(f.bases);
        pv_layers_close_up(s, &f.opened);
        for (size_t i = 0; i < f.n_empty; i++)
                free((char *)(uintptr_t)f.empty[i].path);
        free(f.empty);
        free(f.parent);
        free(f.outcome);
        free(f.shared);
        return r;
}
