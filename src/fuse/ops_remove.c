/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing and renaming: what the layers below would show has to be hidden, and a directory that moves taken along
 * whole.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include "fuse/ops.h"

/* ---- removing ---- */

/* Something of the layers below would show if the upper said nothing. */
static int shows_below(struct pv_fuse_place *p, const char *name)
{
        struct pv_fuse_found f;
        return p->dir->bottom == 0 ? 0 : pv_fuse_find(p, name, 1, &f);
}

/* A name goes; what it names stays for those who have it open. */
static int part(struct pv_fuse_place *p, const char *name)
{
        struct pv_fuse_node *n = pv_fuse_name_find(p->fs, p->dir, name);
        if (!n || S_ISDIR(n->type) || n->names->next_alias || n->lookups == 0)
                return 0;
        return pv_fuse_hold(p->fs, n);
}

static void forget_shown(struct pv_fuse_fs *fs, const struct pv_fuse_found *f)
{
        if (f->upper && (S_ISDIR(f->st.st_mode) || f->st.st_nlink == 1))
                if (pv_fuse_table_get(&fs->shown, f->st.st_ino))
                        pv_fuse_table_put(&fs->shown, f->st.st_ino, 0); /* the number may come again */
}

static int find_victim(struct pv_fuse_place *p, const char *name, struct pv_fuse_found *f)
{
        int r = pv_fuse_find(p, name, 0, f);
        if (r == 0)
                errno = ENOENT;
        if (r <= 0)
                return -1;
        if ((!f->upper && pv_fuse_is_mount_point(f->dirfd, name)) ||
            (S_ISDIR(f->st.st_mode) && f->low_layer != f->layer && pv_fuse_is_live(p->fs, f->low_layer) &&
             pv_fuse_is_mount_point(pv_fuse_place_fd(p, f->low_layer), name))) {
                errno = EBUSY;
                return -1;
        }
        return pv_fuse_may_change_dir(p, &f->st);
}

static int remove_file(struct pv_fuse_place *p, const char *name)
{
        struct pv_fuse_found f;
        if (find_victim(p, name, &f) < 0)
                return -1;
        int upper = pv_fuse_place_raise(p);
        int below = upper < 0 ? -1 : shows_below(p, name);
        if (below < 0 || part(p, name) < 0)
                return -1;
        if ((below ? pv_fuse_whiteout(p->fs, upper, name) : unlinkat(upper, name, 0)) < 0)
                return -1;
        forget_shown(p->fs, &f);
        pv_fuse_name_remove(p->fs, p->dir, name);
        return 0;
}

void pv_fuse_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)pthread_mutex_lock(&fs->lock);
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        int r = pv_fuse_place_open(fs, pv_fuse_node_of(fs, parent), &p);
        if (r == 0)
                r = remove_file(&p, name);
        pv_fuse_done(req, fs, r);
}

static int found_one(void *ctx, const char *name, ino_t ino, unsigned char type)
{
        (void)ctx;
        (void)name;
        (void)ino;
        (void)type;
        errno = ENOTEMPTY;
        return -1;
}

/* A directory may go when nothing in it is to be seen. */
static int check_empty(struct pv_fuse_place *p, const char *name, const struct pv_fuse_found *f)
{
        pv_auto_place in = PV_FUSE_PLACE_INIT;
        struct pv_fuse_node *n = pv_fuse_enter(p, name, f);
        if (pv_fuse_place_open(p->fs, n, &in) < 0)
                return -1;
        return pv_fuse_list(&in, found_one, NULL);
}

static int remove_dir(struct pv_fuse_place *p, const char *name)
{
        struct pv_fuse_fs *fs = p->fs;
        struct pv_fuse_found f;
        char aside[32] = "";
        if (find_victim(p, name, &f) < 0 || check_empty(p, name, &f) < 0)
                return -1;
        int upper = pv_fuse_place_raise(p);
        int below = upper < 0 ? -1 : shows_below(p, name);
        if (below < 0)
                return -1;
        int r;
        if (below)
                r = pv_fuse_whiteout(fs, upper, name);
        else if ((r = unlinkat(upper, name, AT_REMOVEDIR)) < 0 && (errno == ENOTEMPTY || errno == EEXIST)) {
                r = pv_fuse_set_aside(fs, upper, name, aside); /* whiteouts are in it */
                if (r == 0)
                        pv_fuse_discard(fs, aside);
        }
        if (r < 0)
                return -1;
        forget_shown(fs, &f);
        pv_fuse_name_remove(fs, p->dir, name);
        return 0;
}

void pv_fuse_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)pthread_mutex_lock(&fs->lock);
        pv_auto_place p = PV_FUSE_PLACE_INIT;
        int r = pv_fuse_place_open(fs, pv_fuse_node_of(fs, parent), &p);
        if (r == 0)
                r = remove_dir(&p, name);
        pv_fuse_done(req, fs, r);
}

/* ---- renaming ---- */

struct side {
        struct pv_fuse_place place;
        const char *name;
        struct pv_fuse_found f;
        int found;
        int upper;
        int below;
};

static void side_fini(struct side *s)
{
        pv_fuse_place_close(&s->place);
}
#define auto_side __attribute__((cleanup(side_fini))) struct side

static int open_side(struct pv_fuse_fs *fs, fuse_ino_t dir, const char *name, struct side *s)
{
        s->name = name;
        if (pv_fuse_place_open(fs, pv_fuse_node_of(fs, dir), &s->place) < 0)
                return -1;
        s->found = pv_fuse_find(&s->place, name, 0, &s->f);
        if (s->found > 0 && find_victim(&s->place, name, &s->f) < 0)
                return -1;
        return s->found < 0 ? -1 : pv_fuse_may_change_dir(&s->place, NULL);
}

/* What is to be moved is all in the upper layer; a directory hides what it may come to lie on. */
static int complete(struct side *s, const struct side *other)
{
        struct pv_fuse_fs *fs = s->place.fs;
        struct pv_fuse_node *n = pv_fuse_enter(&s->place, s->name, &s->f);
        if (!S_ISDIR(s->f.st.st_mode))
                return pv_fuse_raise(fs, n, 0);
        if (n->bottom > 0 || !n->upper) {
                n->lookups++;
                int r = pv_fuse_raise_tree(fs, n), e = errno;
                n->lookups--;
                if (r == 0)
                        pv_fuse_nodes_complete(fs, n);
                errno = e;
                return r;
        }
        int upper = pv_fuse_place_raise(&s->place);
        if (upper < 0)
                return -1;
        return other->place.dir->bottom > 0 ? pv_fuse_make_opaque(upper, s->name) : 0;
}

static int raise_sides(struct side *from, struct side *to)
{
        from->upper = pv_fuse_place_raise(&from->place);
        to->upper = from->upper < 0 ? -1 : pv_fuse_place_raise(&to->place);
        if (to->upper < 0)
                return -1;
        from->below = shows_below(&from->place, from->name);
        to->below = shows_below(&to->place, to->name);
        return from->below < 0 || to->below < 0 ? -1 : 0;
}

/* Moves it over whatever the upper has at the destination, and leaves a whiteout where it was when one is needed. */
static int move_over(struct side *from, struct side *to)
{
        struct pv_fuse_fs *fs = from->place.fs;
        struct stat st;
        bool there = fstatat(to->upper, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        bool swap = there && (S_ISDIR(from->f.st.st_mode) || S_ISDIR(st.st_mode));
        if (renameat2(from->upper, from->name, to->upper, to->name, swap ? RENAME_EXCHANGE : 0) < 0)
                return -1;
        if (from->below)
                return pv_fuse_whiteout(fs, from->upper, from->name);
        if (!swap)
                return 0;
        char aside[32];
        if (pv_fuse_set_aside(fs, from->upper, from->name, aside) < 0)
                return -1;
        pv_fuse_discard(fs, aside);
        return 0;
}

static void rename_nodes(struct side *from, struct side *to)
{
        struct pv_fuse_fs *fs = from->place.fs;
        struct pv_fuse_node *n = pv_fuse_name_find(fs, from->place.dir, from->name);
        pv_fuse_name_remove(fs, to->place.dir, to->name);
        if (!n)
                return;
        n->lookups++;
        pv_fuse_name_remove(fs, from->place.dir, from->name);
        pv_fuse_name_add(fs, to->place.dir, to->name, n);
        pv_fuse_node_forget(fs, n, 1);
}

static void exchange_nodes(struct side *a, struct side *b)
{
        struct pv_fuse_fs *fs = a->place.fs;
        struct pv_fuse_node *x = pv_fuse_name_find(fs, a->place.dir, a->name);
        struct pv_fuse_node *y = pv_fuse_name_find(fs, b->place.dir, b->name);
        x->lookups++;
        y->lookups++;
        pv_fuse_name_remove(fs, a->place.dir, a->name);
        pv_fuse_name_remove(fs, b->place.dir, b->name);
        pv_fuse_name_add(fs, a->place.dir, a->name, y);
        pv_fuse_name_add(fs, b->place.dir, b->name, x);
        pv_fuse_node_forget(fs, x, 1);
        pv_fuse_node_forget(fs, y, 1);
}

static int exchange(struct side *a, struct side *b)
{
        if (b->found == 0) {
                errno = ENOENT;
                return -1;
        }
        if (complete(a, b) < 0 || complete(b, a) < 0 || raise_sides(a, b) < 0)
                return -1;
        if (renameat2(a->upper, a->name, b->upper, b->name, RENAME_EXCHANGE) < 0)
                return -1;
        exchange_nodes(a, b);
        return 0;
}

static int rename_to(struct side *from, struct side *to)
{
        if (to->found && S_ISDIR(to->f.st.st_mode) && check_empty(&to->place, to->name, &to->f) < 0)
                return -1;
        if (complete(from, to) < 0 || raise_sides(from, to) < 0)
                return -1;
        if (to->found && part(&to->place, to->name) < 0)
                return -1;
        if (move_over(from, to) < 0)
                return -1;
        if (to->found)
                forget_shown(from->place.fs, &to->f);
        rename_nodes(from, to);
        return 0;
}

static int rename_sides(struct side *from, struct side *to, unsigned flags)
{
        if (from->found == 0) {
                errno = ENOENT;
                return -1;
        }
        if (flags & RENAME_NOREPLACE && to->found) {
                errno = EEXIST;
                return -1;
        }
        return flags & RENAME_EXCHANGE ? exchange(from, to) : rename_to(from, to);
}

void pv_fuse_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
                       unsigned flags)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
                (void)fuse_reply_err(req, EINVAL);
                return;
        }
        (void)pthread_mutex_lock(&fs->lock);
        auto_side from = { .place = PV_FUSE_PLACE_INIT }, to = { .place = PV_FUSE_PLACE_INIT };
        int r = open_side(fs, parent, name, &from);
        if (r == 0)
                r = open_side(fs, newparent, newname, &to);
        if (r == 0)
                r = rename_sides(&from, &to, flags);
        pv_fuse_done(req, fs, r);
}
