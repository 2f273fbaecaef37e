/* SPDX-License-Identifier: Apache-2.0 */
/* After an apply: the displaced originals go into the backup, the applied changes out of the stage. */
#include "stage/beside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/syscall.h"

static int keep_failed(const struct pv_item *it, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_SYS, errno, "keep the original of %s", it->path);
}

/* Into the slot, or, should that be taken (two versions of the host's came out), into a second one. */
static int move_to_slot(struct pv_engine *e, const struct pv_item *it, const struct pv_place *from, struct pv_err *err)
{
        struct pv_place slot;
        if (pv_place_slot(e, it, &slot) < 0)
                return keep_failed(it, err);
        bool open_up = it->flags & PV_ITEM_OPEN_OUT;
        if (open_up && fchmodat(from->dirfd, from->name, (it->out.mode & 07777) | S_IRWXU, 0) < 0)
                return keep_failed(it, err);
        int r = renameat2(from->dirfd, from->name, slot.dirfd, slot.name, RENAME_NOREPLACE);
        if (r < 0 && errno == ENOENT && it->flags & PV_ITEM_GROUPED)
                return 0; /* came with its directory */
        if (r < 0 && errno == EEXIST) {
                (void)snprintf(slot.buf, sizeof slot.buf, "%x.host", it->slot);
                r = renameat2(from->dirfd, from->name, slot.dirfd, slot.name, RENAME_NOREPLACE);
        }
        if (r < 0 || (open_up && fchmodat(slot.dirfd, slot.name, it->out.mode & 07777, 0) < 0))
                return keep_failed(it, err);
        return 0;
}

/* An original that was copied already under another of its names: the slot becomes a link to that copy. */
static int link_in_slots(struct pv_engine *e, const struct pv_item *it, const struct pv_place *slot)
{
        for (size_t i = 0; i < e->plan->n && &e->plan->item[i] != it; i++) {
                const struct pv_item *other = &e->plan->item[i];
                struct pv_place first;
                if (other->op != PV_OP_WITHIN && other->root == it->root && other->out.mode != 0 &&
                    other->out.ino == it->out.ino && pv_place_slot(e, other, &first) == 0 &&
                    linkat(first.dirfd, first.name, slot->dirfd, slot->name, 0) == 0)
                        return 1;
        }
        return 0;
}

static int copy_to_slot(struct pv_engine *e, const struct pv_item *it, const struct pv_place *from, struct pv_err *err)
{
        struct pv_place slot;
        char part[NAME_MAX + 90];
        struct pv_ident there;
        if (pv_place_slot(e, it, &slot) < 0 || pv_ident_read(slot.dirfd, slot.name, &there, NULL) < 0)
                return keep_failed(it, err);
        if (there.mode != 0 || (it->flags & PV_ITEM_OUT_LINKED && link_in_slots(e, it, &slot)))
                return 0;
        (void)snprintf(part, sizeof part, "%s.part", slot.name);
        if (pv_path_remove_tree(slot.dirfd, part, err) < 0 ||
            pv_copy_entry(from->dirfd, from->name, slot.dirfd, part, PV_COPY_PLAIN, err) < 0)
                return pv_err_wrap(err, "keep the original of %s", it->path);
        return renameat(slot.dirfd, part, slot.dirfd, slot.name) < 0 ? keep_failed(it, err) : 0;
}

static int copy_and_remove(struct pv_engine *e, const struct pv_item *it, const struct pv_place *from,
                           struct pv_err *err)
{
        struct pv_place slot;
        /* What was copied before the publication is not what came out, if the host wrote meanwhile. */
        if (e->plan->marks & PV_MARK_PARTLY &&
            (pv_place_slot(e, it, &slot) < 0 || pv_path_remove_tree(slot.dirfd, slot.name, err) < 0))
                return keep_failed(it, err);
        if (copy_to_slot(e, it, from, err) < 0)
                return -1;
        if (pv_path_remove_tree(from->dirfd, from->name, err) < 0)
                return pv_err_wrap(err, "%s", it->path);
        return 0;
}

static bool is_copied_to_slot(const struct pv_plan_list *p, size_t i)
{
        const struct pv_item *it = &p->item[i];
        return it->at == PV_AT_BESIDE && it->out.mode != 0 && (it->op == PV_OP_EXCHANGE || it->op == PV_OP_REMOVE);
}

bool pv_keep_has_copies(const struct pv_plan_list *p)
{
        for (size_t i = 0; p->head.kind == PV_BATCH_APPLY && i < p->n; i++)
                if (is_copied_to_slot(p, i))
                        return true;
        return false;
}

int pv_keep_copies_first(struct pv_engine *e, struct pv_err *err)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                struct pv_place at;
                if (!is_copied_to_slot(e->plan, i) || pv_place_target(e, &e->plan->item[i], &at) < 0)
                        continue; /* gone meanwhile: that is a conflict, and found out when it is published */
                if (copy_to_slot(e, &e->plan->item[i], &at, err) == 0)
                        continue;
                if (err->sys == ENOENT || err->sys == EAGAIN) { /* so is what was replaced under the copy */
                        pv_err_clear(err);
                        continue;
                }
                return err->sys != ENOSPC && err->sys != EDQUOT
                               ? -1
                               : pv_err_hint(err, "make room where the job is stored, or apply fewer paths at a time");
        }
        return 0;
}

/*
 * A layer's directory that holds nothing but originals now moves as a whole: one rename instead of one a file. Where
 * it cannot (another's directory above), its slots get a new directory and the originals move one by one. *moved says
 * that nothing of it is left in the layer.
 */
static int keep_group(struct pv_engine *e, const struct pv_item *it, bool whole, bool *moved, struct pv_err *err)
{
        struct pv_place group, dir;
        struct pv_ident there, left = { 0 };
        const char *slash = strrchr(it->path, '/');
        pv_auto_free char *path = pv_strndup(it->path, slash ? (size_t)(slash - it->path) : 0);
        if (pv_place_group(e, it, &group) < 0 || pv_ident_read(group.dirfd, group.name, &there, NULL) < 0)
                return keep_failed(it, err);
        bool reached = pv_place_layer(e, it->root, it->layer, path, &dir) == 0 &&
                       pv_ident_read(dir.dirfd, dir.name, &left, NULL) == 0;
        if (there.mode != 0) {
                *moved = reached && left.mode == 0; /* by an earlier try */
                return 0;
        }
        *moved = whole && reached && renameat2(dir.dirfd, dir.name, group.dirfd, group.name, RENAME_NOREPLACE) == 0;
        if (*moved)
                pv_walk_reset(&e->dirs.layer[it->root][it->layer]);
        else if (mkdirat(group.dirfd, group.name, 0700) < 0)
                return keep_failed(it, err);
        return 0;
}

/* moved[i] for the first item i of each group. */
static int keep_groups(struct pv_engine *e, bool *moved, struct pv_err *err)
{
        bool whole = !(e->plan->marks & PV_MARK_PARTLY);
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                if (it->flags & PV_ITEM_GROUPED && it->slot == i && keep_group(e, it, whole, &moved[i], err) < 0)
                        return -1;
        }
        return 0;
}

static int keep_original(struct pv_engine *e, const struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        struct pv_ident there;
        if (it->op == PV_OP_META || it->op == PV_OP_WITHIN || it->at == PV_AT_SLOT)
                return 0;
        if (pv_place_counterpart(e, it, &at) < 0)
                return errno == ENOENT || errno == ENOTDIR ? 0 : keep_failed(it, err);
        /* Published by this process: what lies in the layer is what came out. After a crash it is looked at. */
        if (it->at == PV_AT_LAYER && it->op == PV_OP_EXCHANGE && it->state == PV_ITEM_DONE && !e->recovering)
                return move_to_slot(e, it, &at, err);
        if (pv_ident_read(at.dirfd, at.name, &there, NULL) < 0)
                return keep_failed(it, err);
        if (there.mode == 0 || pv_item_is_in(e->plan, it, &there))
                return 0;
        return it->at == PV_AT_LAYER ? move_to_slot(e, it, &at, err) : copy_and_remove(e, it, &at, err);
}

/* The staged version of what was merged: an undo stages it again. In a layer that must stay it stays. */
static int keep_staged(struct pv_engine *e, const struct pv_item *it, struct pv_err *err)
{
        struct pv_place from, to;
        if (!(it->flags & PV_ITEM_MERGED) || it->flags & PV_ITEM_KEEP)
                return 0;
        if (pv_place_layer(e, it->root, it->layer, it->path, &from) < 0)
                return errno == ENOENT || errno == ENOTDIR ? 0 : keep_failed(it, err);
        if (pv_place_job(e, it, &to) < 0)
                return keep_failed(it, err);
        if (renameat2(from.dirfd, from.name, to.dirfd, to.name, RENAME_NOREPLACE) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "keep the staged %s", it->path);
        return 0;
}

/* Of a batch that was rolled back around the host, the items that stayed; else all. */
static bool counts(const struct pv_plan_list *p, size_t i)
{
        return !(p->marks & PV_MARK_PARTLY) || p->item[i].state == PV_ITEM_KEPT;
}

static enum pv_change_kind kind_of(const struct pv_item *it)
{
        if (it->in.mode == 0)
                return PV_CHANGE_DELETED;
        if (it->out.mode == 0)
                return PV_CHANGE_ADDED;
        if ((it->in.mode & S_IFMT) != (it->out.mode & S_IFMT))
                return PV_CHANGE_TYPE;
        return it->op == PV_OP_META ? PV_CHANGE_METADATA : PV_CHANGE_MODIFIED;
}

static void facts_of(const struct pv_ident *i, struct pv_facts *f)
{
        *f = (struct pv_facts){ .mode = i->mode,
                                .uid = i->uid,
                                .gid = i->gid,
                                .size = i->size,
                                .ino = i->ino,
                                .rdev = i->rdev,
                                .nlink = 1,
                                .mtime = { .tv_sec = i->mtime_s, .tv_nsec = i->mtime_ns } };
}

/* The changes that a plan was made from, as far as forgetting them needs it. Paths stay the plan's. */
static void changes_of(const struct pv_plan_list *p, struct pv_changes *out, bool **selected)
{
        *out = (struct pv_changes){ .item = pv_calloc(p->n + 1, sizeof *out->item), .n = p->n };
        *selected = pv_calloc(p->n + 1, sizeof **selected);
        for (size_t i = 0; i < p->n; i++) {
                const struct pv_item *it = &p->item[i];
                struct pv_change *c = &out->item[i];
                *c = (struct pv_change){ .root = it->root,
                                         .path = (char *)it->path,
                                         .kind = kind_of(it),
                                         .layer = it->layer,
                                         .layer_shared = it->flags & PV_ITEM_KEEP };
                c->flags = it->flags & PV_ITEM_IMPLIED ? PV_CHANGE_IMPLIED : 0;
                facts_of(&it->out, &c->pre);
                facts_of(&it->in, &c->now);
                (*selected)[i] = counts(p, i);
        }
}

/* What moves with a kept directory is kept with it. */
static void keep_what_is_within(struct pv_plan_list *p)
{
        for (size_t i = 0; i < p->n; i++) {
                if (p->item[i].op == PV_OP_WITHIN ||
                    !(p->item[i].flags & PV_ITEM_MOVED_TREE || S_ISDIR(p->item[i].out.mode)))
                        continue;
                size_t end = pv_plan_list_end(p, i);
                for (size_t k = i + 1; k < end; k++)
                        if (p->item[k].op == PV_OP_WITHIN)
                                p->item[k].state = p->item[i].state;
        }
}

/*
 * A new directory that moved as one held all that showed at its path; what older layers have there was hidden by it,
 * and would show now.
 */
static int remove_hidden(struct pv_engine *e, const struct pv_item *it, struct pv_err *err)
{
        for (uint32_t k = it->layer; k-- > 0;) {
                struct pv_place at;
                if (e->shared[k] || pv_place_layer(e, it->root, k, it->path, &at) < 0)
                        continue;
                if (pv_path_remove_tree(at.dirfd, at.name, err) < 0)
                        return pv_err_wrap(err, "%s in the stage", it->path);
        }
        return 0;
}

static bool moved_as_one(const struct pv_item *it)
{
        return it->flags & PV_ITEM_MOVED_TREE && it->at == PV_AT_LAYER;
}

static int settle(struct pv_engine *e, const struct pv_changes *changes, const bool *selected, struct pv_err *err)
{
        struct pv_plan_list *p = e->plan;
        struct pv_changes made = { 0 };
        pv_auto_free bool *made_selected = NULL;
        pv_auto_free bool *moved = pv_calloc(p->n + 1, sizeof *moved);
        if (keep_groups(e, moved, err) < 0)
                return -1;
        for (size_t i = 0; i < p->n; i++) {
                bool came_along = p->item[i].flags & PV_ITEM_GROUPED && moved[p->item[i].slot];
                if (counts(p, i) && !came_along &&
                    (keep_original(e, &p->item[i], err) < 0 || keep_staged(e, &p->item[i], err) < 0))
                        return -1;
                if (counts(p, i) && moved_as_one(&p->item[i]) && remove_hidden(e, &p->item[i], err) < 0)
                        return -1;
        }
        if (pv_beside_made(p))
                return pv_beside_settle(e, err);
        if (!changes || p->marks & PV_MARK_PARTLY) {
                changes_of(p, &made, &made_selected);
                changes = &made;
                selected = made_selected;
        }
        pv_engine_reset_walks(e);
        int r = pv_changes_forget(e->s, changes, selected, PV_CHANGES_APPLIED, err);
        free(made.item);
        return r;
}

int pv_settle_apply(struct pv_engine *e, const struct pv_changes *changes, const bool *selected, struct pv_err *err)
{
        struct pv_err ignored, *about = err;
        pv_engine_reset_walks(e);
        if (e->plan->marks & PV_MARK_PARTLY)
                keep_what_is_within(e->plan);
        int r = pv_access_open(e, PV_ACCESS_AFTER, err);
        if (r == 0)
                r = settle(e, changes, selected, err);
        if (r < 0)
                about = &ignored;
        return pv_access_restore(e, PV_ACCESS_AFTER, about) < 0 ? -1 : r;
}
