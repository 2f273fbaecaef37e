/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of an undo: the record of the apply turned round, item for item, checked against the target. */
#include "stage/beside.h"
#include "stage/build.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define CHANGED_SINCE "was changed on the host after it was applied"

struct inverse {
        struct pv_engine *e;
        const struct pv_plan_list *record;
        const char *tree; /* the directory that moves as one, or NULL */
        unsigned tree_root;
        bool tree_out; /* out of the target, else into it */
};

static bool is_below(const char *path, const char *dir)
{
        size_t n = strlen(dir);
        return strncmp(path, dir, n) == 0 && path[n] == '/';
}

static struct pv_meta *turn_meta(const struct pv_meta *m)
{
        struct pv_meta *r = pv_calloc(1, sizeof *r);
        for (int k = 0; k < 2; k++) {
                const struct pv_xattrs *x = &m->xattrs[1 - k];
                r->mode[k] = m->mode[1 - k];
                r->uid[k] = m->uid[1 - k];
                r->gid[k] = m->gid[1 - k];
                r->xattrs[k].item = pv_calloc(x->n + 1, sizeof *x->item);
                for (; r->xattrs[k].n < x->n; r->xattrs[k].n++) {
                        const struct pv_xattr *from = &x->item[r->xattrs[k].n];
                        r->xattrs[k].item[r->xattrs[k].n] = (struct pv_xattr){
                                .name = pv_strdup(from->name),
                                .value = memcpy(pv_calloc(1, from->size + 1), from->value, from->size),
                                .size = from->size,
                        };
                }
        }
        return r;
}

static void conflict(struct inverse *v, const struct pv_item *it, const char *why)
{
        pv_apply_result_add(v->e->result, it->root, it->path, why);
}

/* The target must hold what was published, and nothing where something was removed. */
static int check(struct inverse *v, const struct pv_item *was, struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        if (pv_place_target(v->e, it, &at) < 0) {
                if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
                        return pv_err_set(err, PV_ERR_SYS, errno, "check %s", it->path);
                conflict(v, it, "a directory above it was replaced on the host");
                return 0;
        }
        if (pv_ident_read(at.dirfd, at.name, &it->out, &it->out_ctime) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "check %s", it->path);
        if (was->op == PV_OP_META) {
                if (!S_ISDIR(it->out.mode) || it->out.ino != was->out.ino)
                        conflict(v, it, CHANGED_SINCE);
        } else if (was->in.mode == 0 && it->out.mode != 0) {
                conflict(v, it, "appeared on the host after it was removed");
        } else if (was->in.mode != 0 && it->out.mode == 0) {
                conflict(v, it, "was removed on the host after it was applied");
        } else if (was->in.mode != 0 && !pv_item_is_in(v->record, was, &it->out) && !pv_beside_is_landed(was, &at)) {
                conflict(v, it, CHANGED_SINCE);
        }
        return 0;
}

/* The backup must still hold the original. */
static int check_backup(struct inverse *v, const struct pv_item *was, struct pv_err *err)
{
        struct pv_place at;
        struct pv_ident have;
        if (was->out.mode == 0)
                return 0;
        if (pv_place_slot(v->e, was, &at) < 0 || pv_ident_read(at.dirfd, at.name, &have, NULL) < 0 || have.mode == 0)
                return pv_err_set(err, PV_ERR_INPUT, 0, "undo %s: its original is no longer in the backup", was->path);
        return 0;
}

static void note_original(const struct pv_item *was, struct pv_item *it)
{
        if (was->flags & PV_ITEM_OUT_LINKED)
                it->original = was->out.ino;
}

static void turn_within(struct inverse *v, const struct pv_item *was, struct pv_item *it)
{
        it->op = PV_OP_WITHIN;
        it->at = PV_AT_SLOT;
        if (v->tree_out) {
                it->flags |= PV_ITEM_OLD_TREE;
                it->in = (struct pv_ident){ 0 };
        } else {
                it->in = was->out;
                it->out = (struct pv_ident){ 0 };
                note_original(was, it);
        }
}

static void enter(struct inverse *v, const struct pv_item *it, bool out)
{
        v->tree = it->path;
        v->tree_root = it->root;
        v->tree_out = out;
}

/* Did the job stage something at that path since? */
static void note_newer(struct inverse *v, struct pv_item *it)
{
        struct pv_place at;
        struct stat st;
        if (pv_place_layer(v->e, it->root, v->e->n_layers - 1, it->path, &at) == 0 &&
            fstatat(at.dirfd, at.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                it->flags |= PV_ITEM_NEWER;
}

/* The slot may hold a copy (the batch went beside the target), with an inode number of its own. */
static int read_original(struct inverse *v, const struct pv_item *was, struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        it->in = (struct pv_ident){ 0 };
        if (was->out.mode == 0)
                return 0;
        if (pv_place_slot(v->e, was, &at) < 0 || pv_ident_read(at.dirfd, at.name, &it->in, NULL) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read the original of %s", it->path);
        return 0;
}

static int turn(struct inverse *v, const struct pv_item *was, struct pv_err *err)
{
        struct pv_item *it = pv_plan_list_add(v->e->plan);
        bool beside = v->e->plan->head.root_mode[was->root] & PV_ROOT_BESIDE;
        it->path = was->path;
        it->root = was->root;
        it->layer = was->layer;
        it->slot = was->slot;
        it->flags |= was->flags & PV_ITEM_GROUPED;
        if (v->tree && v->tree_root == was->root && is_below(was->path, v->tree)) {
                turn_within(v, was, it);
                if (v->tree_out)
                        return was->in.mode ? check(v, was, it, err) : 0;
                return 0;
        }
        v->tree = NULL;
        if (check(v, was, it, err) < 0)
                return -1;
        if (was->op == PV_OP_META) {
                it->op = PV_OP_META;
                it->at = PV_AT_SLOT;
                it->in = was->out;
                it->meta = turn_meta(was->meta);
                return 0;
        }
        if (check_backup(v, was, err) < 0 || read_original(v, was, it, err) < 0)
                return -1;
        note_original(was, it);
        note_newer(v, it);
        it->op = was->in.mode == 0 ? PV_OP_PLACE : was->out.mode == 0 ? PV_OP_REMOVE : PV_OP_EXCHANGE;
        it->at = beside ? PV_AT_BESIDE : PV_AT_SLOT;
        if (beside && it->op != PV_OP_REMOVE)
                it->flags |= PV_ITEM_COPY;
        if (S_ISDIR(was->in.mode))
                enter(v, it, true);
        if (S_ISDIR(was->out.mode)) {
                it->flags |= PV_ITEM_MOVED_TREE;
                enter(v, it, false);
        }
        return 0;
}

/* What the host made in a directory that goes again stands against it. */
static void check_trees(struct pv_engine *e)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                struct pv_place at;
                size_t culprit;
                const char *why;
                if ((it->op != PV_OP_REMOVE && it->op != PV_OP_EXCHANGE) || !S_ISDIR(it->out.mode) ||
                    pv_place_target(e, it, &at) < 0)
                        continue;
                if (!pv_tree_is_exact(e, i, &at, PV_LOOK_FOR_WRITERS, &culprit, &why))
                        pv_apply_result_add(e->result, it->root, e->plan->item[culprit].path, why);
        }
}

int pv_build_undo(struct pv_engine *e, const struct pv_plan_list *record, struct pv_err *err)
{
        struct inverse v = { .e = e, .record = record };
        for (size_t i = 0; i < record->n; i++)
                if (turn(&v, &record->item[i], err) < 0)
                        return -1;
        if (e->result->n_conflicts == 0)
                check_trees(e);
        return 0;
}
