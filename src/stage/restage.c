/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After an undo: what came out of the target goes back into the stage's top layer, so that the changes are staged
 * again, and the baseline becomes what the target holds now. What the job staged at the same path since the apply is
 * newer and stays; the older version then remains in the backup.
 */
#include "stage/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "base/syscall.h"
#include "base/whiteout.h"
#include "stage/bases.h"
#include "stage/facts.h"
#include "stage/layers.h"
#include "stage/settle.h"
#include "stage/unsettled.h"

/* Published inodes by number, to find the names of one file again when they are copied to another filesystem. */
struct name_of {
        uint64_t ino;
        size_t item;
};

struct restage {
        struct pv_engine *e;
        const struct pv_plan_list *record; /* of the apply; its items are those of the undo, one for one */
        struct name_of *name;              /* sorted; only for copies */
        size_t n_names;
};

static int failed(const char *path, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_SYS, errno, "stage %s again", path);
}

/* What the view has at the directory's path: the newest layer below the top that has it, else the target. */
static int place_directory(struct pv_engine *e, uint32_t root, const char *path, struct pv_place *from, unsigned *flags)
{
        struct stat st;
        for (unsigned k = e->n_layers - 1; k-- > 0;) {
                *flags = PV_COPY_FROM_LAYER | PV_COPY_SHALLOW;
                if (pv_place_layer(e, root, k, path, from) == 0 &&
                    fstatat(from->dirfd, from->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                        return 0;
        }
        struct pv_item it = { .root = root, .path = path };
        *flags = PV_COPY_TO_LAYER | PV_COPY_SHALLOW;
        return pv_place_target(e, &it, from);
}

/* What is being copied into a layer has this name until it is whole; a repeat begins by removing it. */
#define PART_NAME 64
static void part_name(const struct pv_engine *e, char out[PART_NAME])
{
        (void)snprintf(out, PART_NAME, PV_BESIDE_PREFIX "%s-part", e->plan->head.id);
}

/*
 * Copies it into the top layer, whole or not at all: a repeat after a crash finds either nothing or all of it. It stays
 * open for what goes in; the access list closes it.
 */
static int copy_directory(struct pv_engine *e, uint32_t root, const char *path, struct pv_err *err)
{
        struct pv_place to, from;
        struct stat st;
        char part[PART_NAME];
        unsigned flags;
        part_name(e, part);
        if (place_directory(e, root, path, &from, &flags) < 0 ||
            pv_place_layer(e, root, e->n_layers - 1, path, &to) < 0)
                return failed(path, err);
        if (pv_path_remove_tree(to.dirfd, part, err) < 0 ||
            pv_copy_entry(from.dirfd, from.name, to.dirfd, part, flags, err) < 0)
                return pv_err_wrap(err, "stage %s again", path);
        pv_layer_mark_merged(to.dirfd, part);
        if (fstatat(to.dirfd, part, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            (!e->by_root && (st.st_mode & S_IRWXU) != S_IRWXU &&
             fchmodat(to.dirfd, part, (st.st_mode & 07777) | S_IRWXU, 0) < 0) ||
            renameat2(to.dirfd, part, to.dirfd, to.name, RENAME_NOREPLACE) < 0)
                return failed(path, err);
        return 0;
}

/* Makes the directories above path in the top layer. 1: they are there; 0: something newer is in the way. */
static int make_parents(struct pv_engine *e, uint32_t root, const char *path, struct pv_err *err)
{
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                pv_auto_free char *dir = pv_strndup(path, (size_t)(slash - path));
                struct pv_place at;
                struct stat st;
                if (pv_place_layer(e, root, e->n_layers - 1, dir, &at) < 0)
                        return failed(dir, err);
                if (fstatat(at.dirfd, at.name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                        if (!S_ISDIR(st.st_mode))
                                return 0;
                        continue;
                }
                if (errno != ENOENT)
                        return failed(dir, err);
                if (copy_directory(e, root, dir, err) < 0)
                        return pv_err_wrap(err, "stage %s again", path);
        }
        return 1;
}

/*
 * A new directory of which a part was applied: the rest is staged in the layer that it came from, and shows through.
 * What else layers had below it went when it was applied.
 */
static bool hides_nothing(struct pv_engine *e, const struct pv_item *was)
{
        return pv_layers_show_below(e->s, was->root, e->n_layers - 1, was->path);
}

/* Its time in the stage, the escapes of its attributes, the mark of a directory that hides what lies below. */
static int dress(struct restage *r, size_t i, const struct pv_place *at, bool copied, struct pv_err *err)
{
        const struct pv_item *was = &r->record->item[i];
        struct pv_item it = *was;
        it.state = PV_ITEM_DONE;
        if (copied)
                it.flags &= ~(uint32_t)PV_ITEM_ESCAPES;
        if (was->in.mode == 0)
                return 0;
        if (hides_nothing(r->e, was))
                it.flags &= ~(uint32_t)PV_ITEM_OPAQUE;
        return pv_item_restore(r->e, &it, at, err);
}

static int dress_tree(struct restage *r, size_t i, const struct pv_place *at, bool copied, struct pv_err *err)
{
        const struct pv_plan_list *p = r->record;
        if (dress(r, i, at, copied, err) < 0)
                return -1;
        if (!S_ISDIR(p->item[i].in.mode))
                return 0;
        size_t end = pv_plan_list_end(p, i), skip = strlen(p->item[i].path) + 1;
        struct pv_pathfd dir = { openat(at->dirfd, at->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) };
        pv_auto_fd dir_owner = dir.fd;
        if (dir.fd < 0)
                return failed(p->item[i].path, err);
        pv_auto_walk walk;
        pv_walk_init(&walk, dir);
        for (size_t k = i + 1; k < end; k++) {
                struct pv_place here;
                if (p->item[k].in.mode == 0)
                        continue;
                if ((here.dirfd = pv_walk_parent(&walk, p->item[k].path + skip, &here.name)) < 0)
                        return failed(p->item[k].path, err);
                struct pv_item below = p->item[k];
                below.flags &= ~(uint32_t)PV_ITEM_OPAQUE; /* in a new directory there is nothing to hide */
                below.state = PV_ITEM_DONE;
                if (copied)
                        below.flags &= ~(uint32_t)PV_ITEM_ESCAPES;
                if (pv_item_restore(r->e, &below, &here, err) < 0)
                        return -1;
        }
        return 0;
}

static int compare_names(const void *a, const void *b)
{
        const struct name_of *x = a, *y = b;
        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->item == y->item ? 0 : x->item < y->item ? -1 : 1;
}

static void collect_names(struct restage *r)
{
        const struct pv_plan_list *p = r->record;
        r->name = pv_calloc(p->n + 1, sizeof *r->name);
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].in.mode != 0 && !S_ISDIR(p->item[i].in.mode))
                        r->name[r->n_names++] = (struct name_of){ .ino = p->item[i].in.ino, .item = i };
        qsort(r->name, r->n_names, sizeof *r->name, compare_names);
}

/* The first item that published the same inode in the same root: item i itself, when there is none before it. */
static size_t first_name(const struct restage *r, size_t i)
{
        struct name_of key = { .ino = r->record->item[i].in.ino, .item = i };
        const struct name_of *n = bsearch(&key, r->name, r->n_names, sizeof *n, compare_names);
        size_t first = i;
        for (; n && n->ino == key.ino; n = n > r->name ? n - 1 : NULL)
                if (r->record->item[n->item].root == r->record->item[i].root)
                        first = n->item;
        return first;
}

/* Makes the place another name of the copy that was made for an earlier item. */
static int link_to(struct restage *r, size_t first, const struct pv_place *to, struct pv_err *err)
{
        const struct pv_item *was = &r->record->item[first];
        struct pv_place at;
        pv_auto_fd dir = openat(to->dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        pv_auto_free char *name = pv_strdup(to->name);
        if (dir < 0 || pv_place_layer(r->e, was->root, r->e->n_layers - 1, was->path, &at) < 0 ||
            (unlinkat(dir, name, 0) < 0 && errno != ENOENT) || linkat(at.dirfd, at.name, dir, name, 0) < 0)
                return failed(was->path, err);
        return 0;
}

/* Files of a copied directory that are other names of what was copied before. */
static int link_within(struct restage *r, size_t i, struct pv_err *err)
{
        const struct pv_plan_list *p = r->record;
        size_t end = pv_plan_list_end(p, i);
        for (size_t k = i + 1; k < end; k++) {
                struct pv_place to;
                if (p->item[k].in.mode == 0 || S_ISDIR(p->item[k].in.mode) || first_name(r, k) >= i)
                        continue;
                if (pv_place_layer(r->e, p->item[k].root, r->e->n_layers - 1, p->item[k].path, &to) < 0)
                        return failed(p->item[k].path, err);
                if (link_to(r, first_name(r, k), &to, err) < 0)
                        return -1;
        }
        return 0;
}

/* Copies an entry into a layer, whole or not at all. With item SIZE_MAX it is dressed already. */
static int copy_whole(struct restage *r, size_t i, const struct pv_place *from, const struct pv_place *to,
                      struct pv_err *err)
{
        char part[PART_NAME];
        struct pv_place at = { .dirfd = to->dirfd, .name = part };
        part_name(r->e, part);
        if (pv_path_remove_tree(to->dirfd, part, err) < 0 ||
            pv_copy_entry(from->dirfd, from->name, to->dirfd, part, PV_COPY_TO_LAYER, err) < 0 ||
            (i != SIZE_MAX && dress_tree(r, i, &at, true, err) < 0))
                return -1;
        if (renameat2(to->dirfd, part, to->dirfd, to->name, RENAME_NOREPLACE) < 0)
                return failed(to->name, err);
        return 0;
}

/* Copies from beside the target into the layer; what lay beside it goes. */
static int copy_back(struct restage *r, size_t i, const struct pv_place *from, const struct pv_place *to,
                     struct pv_err *err)
{
        const struct pv_item *was = &r->record->item[i];
        struct stat st;
        bool there = fstatat(to->dirfd, to->name, &st, AT_SYMLINK_NOFOLLOW) == 0; /* by an earlier try */
        if (!r->name)
                collect_names(r);
        size_t first = S_ISDIR(was->in.mode) ? i : first_name(r, i);
        if (first < i ? link_to(r, first, to, err) < 0 : !there && copy_whole(r, i, from, to, err) < 0)
                return pv_err_wrap(err, "stage %s again", was->path);
        if (S_ISDIR(was->in.mode) && link_within(r, i, err) < 0)
                return -1;
        return pv_path_remove_tree(from->dirfd, from->name, err) < 0 ? -1 : 1;
}

/* Moves (or, from another filesystem, copies) what came out of the target to its place in the layer, which is free. */
static int bring(struct restage *r, size_t i, const struct pv_place *from, const struct pv_place *to,
                 struct pv_err *err)
{
        const struct pv_item *undo = &r->e->plan->item[i];
        if (undo->at == PV_AT_BESIDE)
                return copy_back(r, i, from, to, err) < 0 ? -1 : 0;
        if (dress_tree(r, i, from, false, err) < 0)
                return -1;
        bool open_up = !r->e->by_root && S_ISDIR(undo->out.mode) && (undo->out.mode & 0300) != 0300;
        if (open_up && fchmodat(from->dirfd, from->name, (undo->out.mode & 07777) | S_IRWXU, 0) < 0)
                return failed(undo->path, err);
        if (renameat2(from->dirfd, from->name, to->dirfd, to->name, RENAME_NOREPLACE) < 0)
                return failed(undo->path, err);
        if (open_up && fchmodat(to->dirfd, to->name, undo->out.mode & 07777, 0) < 0)
                return failed(undo->path, err);
        return 0;
}

/*
 * A new directory of which a part stayed staged: its applied entries join it; what is newer there stays. Each step
 * brings one name whole, so a repeat goes on where the last try ended.
 */
static int merge(struct restage *r, int from, int to, bool copy, struct pv_err *err)
{
        pv_auto_dir d = pv_dir_open(from, ".");
        struct dirent *e;
        int more = -1;
        while (d && (more = pv_dir_next(d, &e)) > 0) {
                struct pv_place a = { .dirfd = from, .name = e->d_name }, b = { .dirfd = to, .name = e->d_name };
                struct stat st;
                if (fstatat(to, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        int moved = copy ? copy_whole(r, SIZE_MAX, &a, &b, err)
                                         : renameat2(from, e->d_name, to, e->d_name, RENAME_NOREPLACE);
                        if (moved < 0)
                                return copy ? -1 : failed(e->d_name, err);
                        continue;
                }
                pv_auto_fd x = openat(from, e->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                pv_auto_fd y = openat(to, e->d_name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (x >= 0 && y >= 0 && merge(r, x, y, copy, err) < 0)
                        return -1;
        }
        return more < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "read a directory of the backup") : 0;
}

static int merge_directory(struct restage *r, size_t i, const struct pv_place *from, const struct pv_place *to,
                           struct pv_err *err)
{
        const struct pv_item *was = &r->record->item[i];
        bool copy = r->e->plan->item[i].at == PV_AT_BESIDE;
        pv_auto_fd a = openat(from->dirfd, from->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_fd b = openat(to->dirfd, to->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (a < 0 || b < 0 || !S_ISDIR(was->in.mode))
                return 0;
        if ((!copy && dress_tree(r, i, from, false, err) < 0) || merge(r, a, b, copy, err) < 0)
                return pv_err_wrap(err, "stage %s again", was->path);
        if (was->flags & PV_ITEM_OPAQUE && !hides_nothing(r->e, was) &&
            pv_xattr_set(to->dirfd, to->name, PV_OVERLAY_OPAQUE, "y", 1) < 0)
                return failed(was->path, err);
        if (!copy)
                (void)unlinkat(from->dirfd, from->name, AT_REMOVEDIR); /* what did not fit stays in the backup */
        return 0;
}

/* The stage has something newer there. The older version stays in the backup, but for what fits beside the newer. */
static int give_way(struct restage *r, size_t i, const struct pv_place *from, const struct pv_place *to,
                    struct pv_err *err)
{
        const struct pv_item *undo = &r->e->plan->item[i];
        struct pv_ident there;
        char name[32];
        if (merge_directory(r, i, from, to, err) < 0)
                return -1;
        if (undo->at != PV_AT_BESIDE)
                return 0;
        (void)snprintf(name, sizeof name, "%x.older", undo->slot);
        if (pv_ident_read(r->e->slots.fd, name, &there, NULL) < 0)
                return failed(undo->path, err);
        if (there.mode != 0 && pv_path_remove_tree(r->e->slots.fd, name, err) < 0)
                return -1;
        if (pv_copy_entry(from->dirfd, from->name, r->e->slots.fd, name, PV_COPY_PLAIN, err) < 0)
                return pv_err_wrap(err, "keep %s", undo->path);
        return pv_path_remove_tree(from->dirfd, from->name, err);
}

/* A try that ended between bringing a directory without write permission and taking that from it again. */
static int close_restaged(struct restage *r, const struct pv_item *was, struct pv_err *err)
{
        struct pv_place at;
        struct stat st;
        if (r->e->by_root || !S_ISDIR(was->in.mode) || (was->in.mode & 0300) == 0300 || was->flags & PV_ITEM_KEEP ||
            pv_place_layer(r->e, was->root, r->e->n_layers - 1, was->path, &at) < 0 ||
            fstatat(at.dirfd, at.name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino != was->in.ino)
                return 0;
        return fchmodat(at.dirfd, at.name, was->in.mode & 07777, 0) < 0 ? failed(was->path, err) : 0;
}

/*
 * What was published was put together from both sides: the job's own version is staged again, the merged one goes.
 * Where the stage has something newer, the job's stays in the backup.
 */
static int restage_merged(struct restage *r, size_t i, struct pv_err *err)
{
        struct pv_engine *e = r->e;
        const struct pv_item *was = &r->record->item[i], *undo = &e->plan->item[i];
        struct pv_place merged, from, to;
        int parents = was->flags & PV_ITEM_KEEP ? 0 : make_parents(e, was->root, was->path, err);
        if (parents < 0)
                return -1;
        if (parents > 0 && !(undo->flags & PV_ITEM_NEWER)) {
                if (pv_place_job(e, was, &from) < 0 ||
                    pv_place_layer(e, was->root, e->n_layers - 1, was->path, &to) < 0)
                        return failed(was->path, err);
                if (renameat2(from.dirfd, from.name, to.dirfd, to.name, RENAME_NOREPLACE) < 0 && errno != ENOENT)
                        return failed(was->path, err);
        }
        if (pv_place_counterpart(e, undo, &merged) < 0)
                return failed(was->path, err);
        return pv_path_remove_tree(merged.dirfd, merged.name, err);
}

static int restage_entry(struct restage *r, size_t i, struct pv_err *err)
{
        struct pv_engine *e = r->e;
        const struct pv_item *was = &r->record->item[i], *undo = &e->plan->item[i];
        struct pv_place from, to;
        struct pv_ident there;
        if (pv_place_counterpart(e, undo, &from) < 0 || pv_ident_read(from.dirfd, from.name, &there, NULL) < 0)
                return failed(was->path, err);
        if (there.mode == 0)
                return close_restaged(r, was, err); /* brought by an earlier try */
        if (was->flags & PV_ITEM_KEEP)
                return pv_path_remove_tree(from.dirfd, from.name, err);
        int parents = make_parents(e, was->root, was->path, err);
        if (parents <= 0)
                return parents;
        if (pv_place_counterpart(e, undo, &from) < 0 ||
            pv_place_layer(e, was->root, e->n_layers - 1, was->path, &to) < 0)
                return failed(was->path, err);
        return undo->flags & PV_ITEM_NEWER ? give_way(r, i, &from, &to, err) : bring(r, i, &from, &to, err);
}

static int restage_whiteout(struct restage *r, const struct pv_item *was, struct pv_err *err)
{
        struct pv_place to;
        if (was->flags & (PV_ITEM_KEEP | PV_ITEM_IMPLIED))
                return 0;
        int parents = make_parents(r->e, was->root, was->path, err);
        if (parents <= 0)
                return parents;
        if (pv_place_layer(r->e, was->root, r->e->n_layers - 1, was->path, &to) < 0)
                return failed(was->path, err);
        if (pv_whiteout_make(to.dirfd, to.name) < 0 && errno != EEXIST)
                return failed(was->path, err);
        return 0;
}

static int set_attributes(const struct pv_place *to, const struct pv_meta *m)
{
        for (size_t k = 0; k < m->xattrs[1].n; k++) {
                const struct pv_xattr *x = &m->xattrs[1].item[k];
                pv_auto_free char *name = pv_xattr_name_in_layer(x->name);
                if (pv_xattr_set(to->dirfd, to->name, name, x->value, x->size) < 0)
                        return -1;
        }
        for (size_t k = 0; k < m->xattrs[0].n; k++) {
                pv_auto_free char *name = pv_xattr_name_in_layer(m->xattrs[0].item[k].name);
                if (!pv_xattrs_find(&m->xattrs[1], m->xattrs[0].item[k].name) &&
                    pv_xattr_set(to->dirfd, to->name, name, NULL, 0) < 0)
                        return -1;
        }
        return 0;
}

static int restage_metadata(struct restage *r, const struct pv_item *was, struct pv_err *err)
{
        struct pv_place to;
        struct stat st;
        const struct pv_meta *m = was->meta;
        if (was->flags & PV_ITEM_KEEP)
                return 0;
        int parents = make_parents(r->e, was->root, was->path, err);
        if (parents <= 0)
                return parents;
        if (pv_place_layer(r->e, was->root, r->e->n_layers - 1, was->path, &to) < 0)
                return failed(was->path, err);
        bool there = fstatat(to.dirfd, to.name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && !S_ISDIR(st.st_mode))
                return 0;
        if (!there && copy_directory(r->e, was->root, was->path, err) < 0)
                return pv_err_wrap(err, "stage %s again", was->path);
        if (pv_place_layer(r->e, was->root, r->e->n_layers - 1, was->path, &to) < 0 ||
            fchownat(to.dirfd, to.name, m->uid[1], m->gid[1], AT_SYMLINK_NOFOLLOW) < 0)
                return failed(was->path, err);
        if (set_attributes(&to, m) < 0)
                return failed(was->path, err);
        return fchmodat(to.dirfd, to.name, m->mode[1] & 07777, 0) < 0 ? failed(was->path, err) : 0;
}

static int restage_item(struct restage *r, size_t i, struct pv_err *err)
{
        const struct pv_item *was = &r->record->item[i], *undo = &r->e->plan->item[i];
        if (was->op == PV_OP_META)
                return restage_metadata(r, was, err);
        if (undo->op == PV_OP_WITHIN)
                return 0; /* with the directory that it is in */
        if (was->op == PV_OP_REMOVE)
                return restage_whiteout(r, was, err);
        if (was->flags & PV_ITEM_MERGED)
                return restage_merged(r, i, err);
        return restage_entry(r, i, err);
}

/* What the undo put there, where the host has changed it since: a preimage that nothing passes for. */
static void facts_of_original(const struct pv_item *undo, struct pv_facts *f)
{
        *f = (struct pv_facts){ .mode = undo->in.mode,
                                .uid = undo->in.uid,
                                .gid = undo->in.gid,
                                .size = undo->in.size,
                                .rdev = undo->in.rdev,
                                .nlink = 1,
                                .mtime = { .tv_sec = undo->in.mtime_s, .tv_nsec = undo->in.mtime_ns } };
}

/* The preimage of one path: what the target has again, if it is still what the undo put there. */
static int read_preimage(struct restage *r, size_t i, struct pv_arena *text, struct pv_facts *f, struct pv_err *err)
{
        const struct pv_item *was = &r->record->item[i], *undo = &r->e->plan->item[i];
        struct pv_place at;
        struct pv_ident have = { 0 };
        facts_of_original(undo, f);
        if (pv_place_target(r->e, was, &at) < 0 || pv_ident_read(at.dirfd, at.name, &have, NULL) < 0 ||
            (was->op != PV_OP_META && !pv_item_is_in(r->e->plan, undo, &have)))
                return 0;
        if (pv_facts_get(at.dirfd, at.name, text, f) < 0 ||
            pv_facts_get_xattrs(at.dirfd, at.name, PV_FACTS_HOST, &f->xattrs) < 0) {
                if (errno != ENOENT && errno != ENOTDIR)
                        return failed(was->path, err);
                facts_of_original(undo, f);
        }
        return 0;
}

/* What is there again is what a later conflict starts from. Only a help: what cannot be kept has no text. */
static void keep_text(struct restage *r, const struct pv_item *it)
{
        struct pv_place at;
        struct pv_facts unused = { 0 };
        if (!S_ISREG(it->out.mode) || pv_place_target(r->e, it, &at) < 0)
                return;
        struct pv_bases *bases = pv_bases_new(r->e->s, it->root);
        (void)pv_bases_hash_and_keep(bases, at.dirfd, at.name, &unused);
        pv_bases_free(bases);
}

static int rebase(struct restage *r, struct pv_err *err)
{
        const struct pv_plan_list *p = r->record;
        pv_auto_arena text = { 0 };
        pv_auto_free struct pv_rebase *list = pv_calloc(p->n + 1, sizeof *list);
        pv_auto_free struct pv_facts *facts = pv_calloc(p->n + 1, sizeof *facts);
        pv_engine_reset_walks(r->e);
        for (size_t i = 0; i < p->n; i++) {
                const struct pv_item *it = &p->item[i];
                list[i] = (struct pv_rebase){ .root = it->root, .path = it->path };
                if (it->out.mode == 0)
                        continue;
                if (read_preimage(r, i, &text, &facts[i], err) < 0)
                        return -1;
                if (it->flags & PV_ITEM_HASHED) {
                        facts[i].hashed = true;
                        memcpy(facts[i].sha256, it->sha256, PV_SHA256_SIZE);
                        keep_text(r, it);
                }
                list[i].facts = &facts[i];
        }
        /* Where a person had decided a conflict, it is one again. */
        if (pv_unsettled_load(r->e, list, p->n, &text, err) < 0)
                return -1;
        return pv_stage_rebase(r->e->s, list, p->n, err);
}

static int restage_all(struct restage *r, struct pv_err *err)
{
        for (size_t i = 0; i < r->record->n; i++)
                if (restage_item(r, i, err) < 0)
                        return -1;
        return 0;
}

int pv_settle_undo(struct pv_engine *e, const struct pv_plan_list *record, struct pv_err *err)
{
        struct restage r = { .e = e, .record = record };
        struct pv_err ignored, *about = err;
        pv_engine_reset_walks(e);
        int failed_at = pv_access_open(e, PV_ACCESS_AFTER, err);
        if (failed_at == 0)
                failed_at = restage_all(&r, err);
        free(r.name);
        if (failed_at < 0)
                about = &ignored;
        if (pv_access_restore(e, PV_ACCESS_AFTER, about) < 0 || failed_at < 0)
                return -1;
        return rebase(&r, err);
}
