/* SPDX-License-Identifier: Apache-2.0 */
/* The counterparts that are copies: of staged entries that must stay, or for a target that no rename reaches. */
#include "stage/build.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "stage/relink.h"

/* The first copy of a staged inode with several names: the later ones become links to it. */
struct first_copy {
        uint64_t ino;
        uint32_t root, layer;
        size_t item, top;
};

struct copier {
        struct pv_engine *e;
        void *first;
        struct pv_relink relink;
};

static int compare_first(const void *a, const void *b)
{
        const struct first_copy *x = a, *y = b;
        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        if (x->root != y->root)
                return x->root < y->root ? -1 : 1;
        return x->layer == y->layer ? 0 : x->layer < y->layer ? -1 : 1;
}

static int copy_failed(const struct pv_item *it, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_SYS, errno, "copy %s", it->path);
}

/* Makes the copy a link to an earlier one of the same staged inode. 1: done, 0: this is the first, -1: error. */
static int link_to_first(struct copier *c, size_t i, size_t top, const struct pv_place *from, const struct pv_place *to,
                         struct pv_err *err)
{
        struct pv_plan_list *p = c->e->plan;
        const struct pv_item *it = &p->item[i];
        struct stat st;
        if (fstatat(from->dirfd, from->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return copy_failed(it, err);
        if (S_ISDIR(st.st_mode) || st.st_nlink < 2)
                return 0;
        struct first_copy *f = pv_calloc(1, sizeof *f);
        *f = (struct first_copy){ .ino = st.st_ino, .root = it->root, .item = i, .top = top };
        f->layer = c->e->plan->head.kind == PV_BATCH_APPLY ? it->layer : 0;
        struct first_copy **found = tsearch(f, &c->first, compare_first);
        if (found && *found == f)
                return 0;
        free(f);
        if (!found)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "copy %s", it->path);
        const struct pv_item *first_top = &p->item[(*found)->top], *first = &p->item[(*found)->item];
        struct pv_engine *e = c->e;
        struct pv_place top_at;
        /* Beside the target both share a walk: the first one's directory is opened anew. */
        pv_auto_fd dir = -1;
        if (pv_place_counterpart(e, first_top, &top_at) < 0)
                return copy_failed(it, err);
        pv_auto_free char *name = first == first_top
                                          ? pv_strdup(top_at.name)
                                          : pv_strf("%s/%s", top_at.name, first->path + strlen(first_top->path) + 1);
        if ((dir = openat(top_at.dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
                return copy_failed(it, err);
        struct pv_place again = *to;
        if (top == i && pv_place_counterpart(e, it, &again) < 0)
                return copy_failed(it, err);
        if (linkat(dir, name, again.dirfd, again.name, 0) < 0)
                return copy_failed(it, err);
        return 1;
}

static int finish_copy(struct copier *c, struct pv_item *it, const struct pv_place *to, struct pv_err *err)
{
        if (it->flags & PV_ITEM_TIMES && pv_item_prepare(c->e, it, to, err) < 0)
                return -1;
        if (pv_ident_read(to->dirfd, to->name, &it->in, NULL) < 0 || it->in.mode == 0)
                return copy_failed(it, err);
        /* Entries follow: open until they are in. */
        if (S_ISDIR(it->in.mode) && !c->e->by_root && (it->in.mode & S_IRWXU) != S_IRWXU &&
            fchmodat(to->dirfd, to->name, (it->in.mode & 07777) | S_IRWXU, 0) < 0)
                return copy_failed(it, err);
        return 0;
}

static int place_source(struct copier *c, const struct pv_item *it, struct pv_place *out)
{
        if (c->e->plan->head.kind == PV_BATCH_UNDO)
                return pv_place_slot(c->e, it, out);
        return pv_place_layer(c->e, it->root, it->layer, it->path, out);
}

/* What both sides came to, with the metadata of one. */
static int copy_merged(struct copier *c, struct pv_item *it, const struct pv_place *staged, const struct pv_place *to,
                       unsigned flags, struct pv_err *err)
{
        const struct pv_merged *m = it->merged;
        struct pv_place from = *staged, job;
        /* Beside a run the layer's stays, until another run lets go of it: for an undo after that. */
        if (c->e->freezer) {
                if (pv_place_job(c->e, it, &job) < 0)
                        return copy_failed(it, err);
                if (pv_copy_entry(staged->dirfd, staged->name, job.dirfd, job.name, PV_COPY_PLAIN, err) < 0)
                        return pv_err_wrap(err, "copy %s", it->path);
        }
        pv_auto_fd dir = -1; /* beside the target both places share a walk */
        if (m->host_metadata) {
                flags = PV_COPY_PLAIN;
                if (pv_place_target(c->e, it, &from) < 0 ||
                    (dir = openat(from.dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
                        return copy_failed(it, err);
                from.dirfd = dir;
        }
        struct pv_place again = *to;
        if (pv_place_counterpart(c->e, it, &again) < 0)
                return copy_failed(it, err);
        if (pv_copy_entry_with(m->fd, from.dirfd, from.name, again.dirfd, again.name, flags, err) < 0)
                return pv_err_wrap(err, "copy %s", it->path);
        return finish_copy(c, it, &again, err);
}

static int copy_one(struct copier *c, size_t i, size_t top, const struct pv_place *to, unsigned flags,
                    struct pv_err *err)
{
        struct pv_item *it = &c->e->plan->item[i];
        struct pv_place from;
        if (place_source(c, it, &from) < 0)
                return copy_failed(it, err);
        int linked = link_to_first(c, i, top, &from, to, err);
        if (linked < 0)
                return -1;
        struct pv_place again = *to;
        if (top == i && pv_place_counterpart(c->e, it, &again) < 0)
                return copy_failed(it, err);
        if (it->merged)
                return copy_merged(c, it, &from, &again, flags, err);
        if (linked == 0 && pv_relink(&c->relink, it, from.dirfd, from.name, again.dirfd, again.name))
                linked = 1;
        if (linked == 0 && pv_copy_entry(from.dirfd, from.name, again.dirfd, again.name, flags, err) < 0)
                return pv_err_wrap(err, "copy %s", it->path);
        return finish_copy(c, it, &again, err);
}

/* In a directory that was copied as a whole. */
static void relink_copy(struct copier *c, const struct pv_item *it, const struct pv_place *at)
{
        static const char link[] = PV_BESIDE_PREFIX "link";
        if (it->original && pv_relink(&c->relink, it, at->dirfd, at->name, at->dirfd, link) &&
            renameat(at->dirfd, link, at->dirfd, at->name) < 0)
                (void)unlinkat(at->dirfd, link, 0);
}

/* The entries of a copied directory: copied one by one, or, when all came at once, noted. */
static int copy_entries(struct copier *c, size_t i, const struct pv_place *at, unsigned flags, struct pv_err *err)
{
        struct pv_plan_list *p = c->e->plan;
        size_t end = pv_plan_list_end(p, i), skip = strlen(p->item[i].path) + 1;
        struct pv_pathfd dir = { openat(at->dirfd, at->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) };
        pv_auto_fd dir_owner = dir.fd;
        if (dir.fd < 0)
                return copy_failed(&p->item[i], err);
        pv_auto_walk walk;
        pv_walk_init(&walk, dir);
        for (size_t k = i + 1; k < end; k++) {
                struct pv_place to;
                if (p->item[k].flags & PV_ITEM_OLD_TREE)
                        continue;
                if ((to.dirfd = pv_walk_parent(&walk, p->item[k].path + skip, &to.name)) < 0)
                        return copy_failed(&p->item[k], err);
                if (!(p->item[i].flags & PV_ITEM_SHALLOW))
                        relink_copy(c, &p->item[k], &to);
                if (p->item[i].flags & PV_ITEM_SHALLOW ? copy_one(c, k, i, &to, flags, err) < 0
                                                       : finish_copy(c, &p->item[k], &to, err) < 0)
                        return -1;
        }
        for (size_t k = end; !c->e->by_root && k-- > i + 1;) {
                struct pv_place to;
                if (!S_ISDIR(p->item[k].in.mode) || p->item[k].flags & PV_ITEM_OLD_TREE)
                        continue;
                if ((to.dirfd = pv_walk_parent(&walk, p->item[k].path + skip, &to.name)) < 0 ||
                    fchmodat(to.dirfd, to.name, p->item[k].in.mode & 07777, 0) < 0)
                        return copy_failed(&p->item[k], err);
        }
        return 0;
}

static int copy_item(struct copier *c, size_t i, struct pv_err *err)
{
        struct pv_item *it = &c->e->plan->item[i];
        struct pv_place to;
        unsigned flags = c->e->plan->head.kind == PV_BATCH_APPLY ? PV_COPY_FROM_LAYER : PV_COPY_PLAIN;
        flags |= it->flags & PV_ITEM_SHALLOW ? PV_COPY_SHALLOW : 0;
        if (pv_place_counterpart(c->e, it, &to) < 0)
                return copy_failed(it, err);
        if (copy_one(c, i, i, &to, flags, err) < 0)
                return -1;
        if (!S_ISDIR(it->in.mode))
                return 0;
        if (pv_place_counterpart(c->e, it, &to) < 0)
                return copy_failed(it, err);
        if (it->flags & PV_ITEM_MOVED_TREE && copy_entries(c, i, &to, flags, err) < 0)
                return -1;
        if (c->e->by_root)
                return 0;
        /* Anew: links to earlier copies went through other directories of the same walk. */
        if (pv_place_counterpart(c->e, it, &to) < 0 || fchmodat(to.dirfd, to.name, it->in.mode & 07777, 0) < 0)
                return copy_failed(it, err);
        return 0;
}

int pv_build_copies(struct pv_engine *e, struct pv_err *err)
{
        struct copier c = { .e = e, .relink = { .e = e } };
        int r = 0;
        for (size_t i = 0; i < e->plan->n && r == 0; i++) {
                const struct pv_item *it = &e->plan->item[i];
                if (it->flags & PV_ITEM_COPY && (it->op == PV_OP_EXCHANGE || it->op == PV_OP_PLACE))
                        r = copy_item(&c, i, err);
        }
        tdestroy(c.first, free);
        pv_relink_fini(&c.relink);
        return r;
}

int pv_build_remove_copies(struct pv_engine *e, struct pv_err *err)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                struct pv_place at;
                /* A slot of an undo is not a copy, and those of an apply go with the whole directory. */
                if (!(it->flags & PV_ITEM_COPY) || it->at != PV_AT_BESIDE || it->state != PV_ITEM_PENDING ||
                    (it->op != PV_OP_EXCHANGE && it->op != PV_OP_PLACE) || pv_place_counterpart(e, it, &at) < 0)
                        continue;
                if (pv_path_remove_tree(at.dirfd, at.name, err) < 0)
                        return pv_err_wrap(err, "%s", it->path);
        }
        return 0;
}
