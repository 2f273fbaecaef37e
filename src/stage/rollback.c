/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a batch back, and finding out after a crash how far it came. Both go by what lies where, never by what was
 * planned next. The one rule: what the host wrote after our move stays where the host put it; an item around which
 * that happened becomes KEPT, and whatever came out of the target for it stays in the backup.
 */
#include "stage/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#define HOST_WINS "the host changed it while the batch was taken back: its version stays"

static int keep(struct pv_engine *e, struct pv_item *it)
{
        it->state = PV_ITEM_KEPT;
        pv_apply_result_add(e->result, it->root, it->path, HOST_WINS);
        return 0;
}

static int failed(const struct pv_item *it, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_SYS, errno, "take back %s", it->path);
}

/* Is what lies at `at` what item i published, with all below it? */
static bool holds_ours(struct pv_engine *e, size_t i, const struct pv_place *at, enum pv_look look)
{
        const struct pv_item *it = &e->plan->item[i];
        struct pv_ident have;
        size_t culprit;
        const char *why;
        bool writer = false;
        int r = look == PV_LOOK_FOR_WRITERS && S_ISREG(it->in.mode)
                        ? pv_ident_read_unwritten(at->dirfd, at->name, &have, &writer)
                        : pv_ident_read(at->dirfd, at->name, &have, NULL);
        if (r < 0 || writer || !pv_item_is_in(e->plan, it, &have))
                return false;
        if (!S_ISDIR(it->in.mode))
                return true;
        if (it->flags & PV_ITEM_SHALLOW && !(it->flags & PV_ITEM_MOVED_TREE)) {
                size_t n;
                return pv_tree_count_entries(at->dirfd, at->name, &n) == 0 && n == 0;
        }
        return pv_tree_is_exact(e, i, at, look, &culprit, &why);
}

static int open_up(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, uint32_t mode,
                   unsigned flag)
{
        return it->flags & flag && !e->by_root ? fchmodat(at->dirfd, at->name, (mode & 07777) | S_IRWXU, 0) : 0;
}

static int close_down(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, uint32_t mode,
                      unsigned flag)
{
        return it->flags & flag && !e->by_root ? fchmodat(at->dirfd, at->name, mode & 07777, 0) : 0;
}

/* Out of the target, or, `back`, into it again. */
static int move(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, const struct pv_place *target,
                bool back)
{
        if (it->op == PV_OP_EXCHANGE)
                return pv_move_swap(e, it, at, target);
        return back ? pv_move_new(e, it, at, target) : pv_move_new(e, it, target, at);
}

static int rollback_published(struct pv_engine *e, size_t i, struct pv_err *err)
{
        struct pv_item *it = &e->plan->item[i];
        struct pv_place at, target;
        struct pv_ident there;
        if (pv_place_target(e, it, &target) < 0)
                return keep(e, it);
        if (pv_place_counterpart(e, it, &at) < 0 || pv_ident_read(at.dirfd, at.name, &there, NULL) < 0)
                return failed(it, err);
        if ((it->op == PV_OP_EXCHANGE && there.mode == 0) || !holds_ours(e, i, &target, PV_LOOK_AT_ENTRIES))
                return keep(e, it);
        if (open_up(e, it, &target, it->in.mode, PV_ITEM_OPEN_IN) < 0 ||
            open_up(e, it, &at, there.mode, PV_ITEM_OPEN_OUT) < 0)
                return failed(it, err);
        if (move(e, it, &at, &target, false) < 0)
                return errno == ENOENT ? keep(e, it) : failed(it, err);
        if (!holds_ours(e, i, &at, PV_LOOK_FOR_WRITERS)) {
                /*
                 * Between the look and the move the host put something newer there, or writes: it goes back. Where its
                 * name was taken again meanwhile, the host's two versions stay apart: one in the backup.
                 */
                if (move(e, it, &at, &target, true) < 0 && (it->op == PV_OP_EXCHANGE || errno != EEXIST))
                        return failed(it, err);
                return keep(e, it);
        }
        it->state = PV_ITEM_DONE; /* for the restoration: it had left its layer */
        if (close_down(e, it, &target, there.mode, PV_ITEM_OPEN_OUT) < 0)
                return failed(it, err);
        if (!(it->flags & PV_ITEM_COPY) && pv_tree_restore(e, i, &at, err) < 0)
                return -1;
        it->state = PV_ITEM_PENDING;
        return 0;
}

static int rollback_remove(struct pv_engine *e, size_t i, struct pv_err *err)
{
        struct pv_item *it = &e->plan->item[i];
        struct pv_place at, target;
        struct pv_ident there;
        if (pv_place_target(e, it, &target) < 0)
                return keep(e, it);
        if (pv_place_counterpart(e, it, &at) < 0 || pv_ident_read(at.dirfd, at.name, &there, NULL) < 0)
                return failed(it, err);
        if (open_up(e, it, &at, there.mode, PV_ITEM_OPEN_OUT) < 0)
                return failed(it, err);
        if (pv_move_new(e, it, &at, &target) < 0)
                return errno == EEXIST || errno == ENOENT ? keep(e, it) : failed(it, err);
        if (close_down(e, it, &target, there.mode, PV_ITEM_OPEN_OUT) < 0)
                return failed(it, err);
        it->state = PV_ITEM_PENDING;
        return 0;
}

static int rollback_item(struct pv_engine *e, size_t i, struct pv_err *err)
{
        switch ((enum pv_op)e->plan->item[i].op) {
        case PV_OP_EXCHANGE:
        case PV_OP_PLACE:
                return rollback_published(e, i, err);
        case PV_OP_REMOVE:
                return rollback_remove(e, i, err);
        case PV_OP_META:
        case PV_OP_WITHIN:
                return 0;
        }
        return 0;
}

/* An item that was being prepared when it ended: its time, mode and marks. */
static int restore_pending(struct pv_engine *e, size_t i, struct pv_err *err)
{
        struct pv_item *it = &e->plan->item[i];
        struct pv_place at, target;
        struct pv_ident have;
        if (it->op == PV_OP_REMOVE || it->op == PV_OP_EXCHANGE) {
                if (it->flags & PV_ITEM_OPEN_OUT && pv_place_target(e, it, &target) == 0 &&
                    pv_ident_read(target.dirfd, target.name, &have, NULL) == 0 && pv_item_is_out(it, &have) &&
                    close_down(e, it, &target, it->out.mode, PV_ITEM_OPEN_OUT) < 0)
                        return failed(it, err);
        }
        if ((it->op != PV_OP_EXCHANGE && it->op != PV_OP_PLACE) || it->flags & PV_ITEM_COPY ||
            pv_place_counterpart(e, it, &at) < 0 || pv_ident_read(at.dirfd, at.name, &have, NULL) < 0 ||
            !pv_item_is_in(e->plan, it, &have))
                return 0;
        return pv_tree_restore(e, i, &at, err);
}

int pv_rollback(struct pv_engine *e, struct pv_err *err)
{
        struct pv_plan_list *p = e->plan;
        struct pv_err first = PV_ERR_INIT, now;
        int r = 0;
        pv_engine_reset_walks(e);
        if (pv_access_restore(e, PV_ACCESS_BEFORE, &now) < 0)
                r = -1, first = now;
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].op == PV_OP_META && p->item[i].state == PV_ITEM_DONE &&
                    pv_meta_rollback(e, &p->item[i], &now) < 0 && r == 0)
                        r = -1, first = now;
        if (pv_access_open(e, PV_ACCESS_BEFORE, &now) < 0 && r == 0)
                r = -1, first = now;
        /* One that cannot be moved back does not keep the others from it. */
        for (size_t i = p->n; i-- > 0;)
                if (p->item[i].state == PV_ITEM_DONE && rollback_item(e, i, &now) < 0 && r == 0)
                        r = -1, first = now;
        pv_engine_reset_walks(e);
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].state == PV_ITEM_PENDING && restore_pending(e, i, &now) < 0 && r == 0)
                        r = -1, first = now;
        if (pv_access_restore(e, PV_ACCESS_BEFORE, &now) < 0 && r == 0)
                r = -1, first = now;
        if (r < 0)
                *err = first;
        return r;
}

/*
 * Before the commit, a copy that is not at its place was published, or taken away (in part: a directory) because the
 * batch was. What was published lies in the target, and what it displaced where the copy was. The staged entry is
 * where it was in both cases.
 */
static bool was_published(struct pv_engine *e, const struct pv_item *it, const struct pv_ident *counterpart)
{
        struct pv_place target;
        struct pv_ident have;
        if (it->op == PV_OP_EXCHANGE)
                return counterpart->mode != 0 && counterpart->ino != it->in.ino;
        return pv_place_target(e, it, &target) == 0 && pv_ident_read(target.dirfd, target.name, &have, NULL) == 0 &&
               pv_item_is_in(e->plan, it, &have);
}

static enum pv_item_state classify(struct pv_engine *e, const struct pv_item *it)
{
        struct pv_place at, target;
        struct pv_ident have = { 0 };
        bool reached = pv_place_target(e, it, &target) == 0;
        if (it->op == PV_OP_REMOVE) {
                if (reached && pv_place_counterpart(e, it, &at) == 0)
                        (void)pv_move_mend(e, it, &at, &target);
                /* By where it still is, not by the slot: after the commit of an undo that may be empty again. */
                return reached && pv_ident_read(target.dirfd, target.name, &have, NULL) == 0 &&
                                       pv_item_is_out(it, &have)
                               ? PV_ITEM_PENDING
                               : PV_ITEM_DONE;
        }
        if (pv_place_counterpart(e, it, &at) < 0)
                return PV_ITEM_DONE;
        if (reached)
                (void)pv_move_mend(e, it, &at, &target);
        (void)pv_ident_read(at.dirfd, at.name, &have, NULL);
        if (it->flags & PV_ITEM_COPY && !(e->plan->marks & PV_MARK_COMMITTED))
                return was_published(e, it, &have) ? PV_ITEM_DONE : PV_ITEM_PENDING;
        return pv_item_is_in(e->plan, it, &have) ? PV_ITEM_PENDING : PV_ITEM_DONE;
}

void pv_find_states(struct pv_engine *e, bool *all_done)
{
        struct pv_plan_list *p = e->plan;
        *all_done = true;
        for (size_t i = 0; i < p->n; i++) {
                struct pv_item *it = &p->item[i];
                if (it->op == PV_OP_WITHIN)
                        continue;
                /* Metadata is compared value by value when it is taken back. */
                it->state = it->op == PV_OP_META ? PV_ITEM_DONE : classify(e, it);
                if (it->op == PV_OP_META)
                        continue;
                *all_done &= it->state == PV_ITEM_DONE;
        }
}
