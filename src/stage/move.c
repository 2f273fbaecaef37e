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

static int swap_by_hand(const struct pv_place *beside, const struct pv_place *target)
{
        char aside[NAME_MAX + 82];
        aside_name(beside, aside);
        if (linkat(target->dirfd, target->name, beside->dirfd, aside, 0) < 0) {
                if (errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP)
                        return -1;
                /* A directory has no second name: for a moment there is nothing at its own. */
                if (renameat(target->dirfd, target->name, beside->dirfd, aside) < 0)
                        return -1;
        }
        if (renameat(beside->dirfd, beside->name, target->dirfd, target->name) < 0) {
                int e = errno;
                if (linkat(beside->dirfd, aside, target->dirfd, target->name, 0) == 0 || errno == EEXIST)
                        (void)unlinkat(beside->dirfd, aside, 0);
                else
                        (void)renameat(beside->dirfd, aside, target->dirfd, target->name);
                errno = e;
                return -1;
        }
        return renameat(beside->dirfd, aside, beside->dirfd, beside->name);
}

int pv_move_mend(struct pv_engine *e, const struct pv_item *it, const struct pv_place *beside,
                 const struct pv_place *target)
{
        char aside[NAME_MAX + 82];
        struct pv_ident kept, new, old;
        if (!is_weak(e, it) || it->op != PV_OP_EXCHANGE)
                return 0;
        aside_name(beside, aside);
        if (pv_ident_read(beside->dirfd, aside, &kept, NULL) < 0 || kept.mode == 0)
                return 0;
        if (pv_ident_read(beside->dirfd, beside->name, &new, NULL) < 0 ||
            pv_ident_read(target->dirfd, target->name, &old, NULL) < 0)
                return -1;
        if (new.mode == 0) /* the second rename was done */
                return renameat(beside->dirfd, aside, beside->dirfd, beside->name);
        if (old.mode == 0)
                return renameat(beside->dirfd, aside, target->dirfd, target->name);
        return unlinkat(beside->dirfd, aside, 0);
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
        if (linkat(from->dirfd, from->name, to->dirfd, to->name, 0) == 0)
                return unlinkat(from->dirfd, from->name, 0);
        if (errno != EPERM && errno != EMLINK && errno != EOPNOTSUPP)
                return -1;
        if (pv_ident_read(to->dirfd, to->name, &there, NULL) < 0)
                return -1;
        if (there.mode != 0) {
                errno = EEXIST;
                return -1;
        }
        return renameat(from->dirfd, from->name, to->dirfd, to->name);
}
