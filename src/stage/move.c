/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two moves that everything is made of, and what stands for them on filesystems without RENAME_EXCHANGE and
 * RENAME_NOREPLACE (NFS, 9p, eCryptfs): link(2) and plain rename(2). The weaker form never loses what was there when
 * it began; what the host puts at the name between the two calls is lost, and the result says so (`weaker`).
 */
#include "stage/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include "base/syscall.h"

static bool is_weak(const struct pv_engine *e, const struct pv_item *it)
{
        return e->plan->head.root_mode[it->root] & PV_ROOT_WEAK;
}

/* The name that keeps the original while the new one is renamed over it. */
static void aside_name(const struct pv_place *beside, char out[NAME_MAX + 82])
{
        (void)snprintf(out, NAME_MAX + 82, "%s~", beside->name);
}

static bool is_directory(const struct pv_place *at)
{
        struct stat st;
        return fstatat(at->dirfd, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static bool has_no_links(int error)
{
        return error == EPERM || error == EMLINK || error == EOPNOTSUPP;
}

/* Gives the original a second name; where it can have none, for a moment there is nothing at its own. */
static int put_aside(const struct pv_place *beside, const struct pv_place *target, const char *aside)
{
        /* Nor can a directory be renamed over a file. */
        if (!is_directory(beside) && !is_directory(target)) {
                if (linkat(target->dirfd, target->name, beside->dirfd, aside, 0) == 0)
                        return 0;
                if (!has_no_links(errno))
                        return -1;
        }
        return renameat(target->dirfd, target->name, beside->dirfd, aside);
}

/* What was put aside is the target again, unless something else is there by now: then it stays where it is. */
static void put_back(const struct pv_place *beside, const struct pv_place *target, const char *aside)
{
        struct pv_ident kept, there;
        if (pv_ident_read(beside->dirfd, aside, &kept, NULL) < 0 || kept.mode == 0 ||
            pv_ident_read(target->dirfd, target->name, &there, NULL) < 0)
                return;
        if (there.mode == 0)
                (void)renameat(beside->dirfd, aside, target->dirfd, target->name);
        else if (there.ino == kept.ino && !S_ISDIR(kept.mode))
                (void)unlinkat(beside->dirfd, aside, 0);
}

static int swap_by_hand(const struct pv_place *beside, const struct pv_place *target)
{
        char aside[NAME_MAX + 82];
        aside_name(beside, aside);
        if (put_aside(beside, target, aside) < 0)
                return -1;
        if (renameat(beside->dirfd, beside->name, target->dirfd, target->name) < 0) {
                int e = errno;
                put_back(beside, target, aside);
                errno = e;
                return -1;
        }
        if (renameat(beside->dirfd, aside, beside->dirfd, beside->name) < 0) {
                int e = errno;
                if (renameat(target->dirfd, target->name, beside->dirfd, beside->name) == 0)
                        put_back(beside, target, aside);
                errno = e;
                return -1;
        }
        return 0;
}

/* Two names of what moves by link and unlink: the move is taken for not begun. */
static int mend_new(const struct pv_item *it, const struct pv_place *beside, const struct pv_place *target)
{
        struct pv_ident a, b;
        if (pv_ident_read(beside->dirfd, beside->name, &a, NULL) < 0 ||
            pv_ident_read(target->dirfd, target->name, &b, NULL) < 0)
                return -1;
        if (a.mode == 0 || b.mode == 0 || a.ino != b.ino || S_ISDIR(a.mode))
                return 0;
        const struct pv_place *extra = it->op == PV_OP_PLACE ? target : beside;
        return unlinkat(extra->dirfd, extra->name, 0);
}

int pv_move_mend(struct pv_engine *e, const struct pv_item *it, const struct pv_place *beside,
                 const struct pv_place *target)
{
        char aside[NAME_MAX + 82];
        struct pv_ident kept, new;
        if (!is_weak(e, it))
                return 0;
        if (it->op == PV_OP_PLACE || it->op == PV_OP_REMOVE)
                return mend_new(it, beside, target);
        aside_name(beside, aside);
        if (pv_ident_read(beside->dirfd, aside, &kept, NULL) < 0 || kept.mode == 0)
                return 0;
        if (pv_ident_read(beside->dirfd, beside->name, &new, NULL) < 0)
                return -1;
        if (new.mode == 0) /* the second rename was done */
                return renameat(beside->dirfd, aside, beside->dirfd, beside->name);
        put_back(beside, target, aside);
        return 0;
}

int pv_move_swap(struct pv_engine *e, const struct pv_item *it, const struct pv_place *a, const struct pv_place *b)
{
        if (is_weak(e, it))
                return swap_by_hand(a, b);
        return renameat2(a->dirfd, a->name, b->dirfd, b->name, RENAME_EXCHANGE);
}

int pv_move_new(struct pv_engine *e, const struct pv_item *it, const struct pv_place *from, const struct pv_place *to)
{
        if (!is_weak(e, it))
                return renameat2(from->dirfd, from->name, to->dirfd, to->name, RENAME_NOREPLACE);
        struct pv_ident there;
        if (linkat(from->dirfd, from->name, to->dirfd, to->name, 0) == 0) {
                if (unlinkat(from->dirfd, from->name, 0) == 0)
                        return 0;
                int error = errno;
                (void)unlinkat(to->dirfd, to->name, 0);
                errno = error;
                return -1;
        }
        if (!has_no_links(errno))
                return -1;
        if (pv_ident_read(to->dirfd, to->name, &there, NULL) < 0)
                return -1;
        if (there.mode != 0) {
                errno = EEXIST;
                return -1;
        }
        return renameat(from->dirfd, from->name, to->dirfd, to->name);
}
