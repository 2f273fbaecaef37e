/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From changes to a plan: what each change needs, whether it may be moved or must be copied, and what stands against.
 */
#include "stage/build.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "base/fd.h"
#include "base/parallel.h"

#define ITEMS_AT_A_TIME 128

/* How many of a staged inode's names are in the selection. */
struct link_count {
        uint64_t ino;
        unsigned root, layer, selected;
        bool has_new_content; /* at one of its names at least */
        bool noted; /* its attributes are one item's concern: what was unescaped must not be taken for escaped again */
};

struct builder {
        struct pv_engine *e;
        const struct pv_changes *changes;
        const bool *selected;
        const struct pv_apply_options *options;
        void *links;      /* tsearch(3) tree of struct link_count */
        bool any_shared;  /* is there a layer that must stay as it is? */
        size_t *change;   /* of each item */
        bool *looked;     /* out and out_ctime of an item were read already */
        const char *tree; /* path of the directory that moves as one, or NULL */
        unsigned tree_root;
        bool tree_old, tree_copied;
        size_t obstacle; /* the change that kept a directory above it from going as one, and 1; 0: none yet */
        bool obstacle_is_layer;
};

static int compare_links(const void *a, const void *b)
{
        const struct link_count *x = a, *y = b;
        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        if (x->root != y->root)
                return x->root < y->root ? -1 : 1;
        return x->layer == y->layer ? 0 : x->layer < y->layer ? -1 : 1;
}

static bool has_links(const struct pv_change *c)
{
        return c->now.mode != 0 && !S_ISDIR(c->now.mode) && c->now.nlink > 1;
}

/* What the published file's time says: content that changed is new, a mode that changed is not. */
static bool has_new_content(const struct builder *b, const struct pv_change *c)
{
        return c->merged || (!b->options->keep_times && S_ISREG(c->now.mode) && c->kind != PV_CHANGE_METADATA);
}

static void count_links(struct builder *b)
{
        for (size_t i = 0; i < b->changes->n; i++) {
                const struct pv_change *c = &b->changes->item[i];
                if (!b->selected[i] || !has_links(c))
                        continue;
                struct link_count *n = pv_calloc(1, sizeof *n);
                *n = (struct link_count){ .ino = c->now.ino, .root = c->root, .layer = c->layer };
                struct link_count **found = tsearch(n, &b->links, compare_links);
                if (!found)
                        abort(); /* out of memory, as in the other small allocations */
                if (*found != n)
                        free(n);
                (*found)->selected++;
                (*found)->has_new_content |= has_new_content(b, c);
        }
}

/* Does every name of the staged inode go? Otherwise a host edit would show through in what is left staged. */
static bool links_are_complete(const struct builder *b, const struct pv_change *c)
{
        if (!has_links(c))
                return true;
        struct link_count key = { .ino = c->now.ino, .root = c->root, .layer = c->layer };
        struct link_count **found = tfind(&key, &b->links, compare_links);
        return found && (*found)->selected >= c->now.nlink;
}

/* True once for each staged inode. */
static bool is_first_name(struct builder *b, const struct pv_change *c)
{
        struct link_count key = { .ino = c->now.ino, .root = c->root, .layer = c->layer };
        struct link_count **found = has_links(c) ? tfind(&key, &b->links, compare_links) : NULL;
        bool first = !found || !(*found)->noted;
        if (found)
                (*found)->noted = true;
        return first;
}

static bool is_below(const char *path, const char *dir)
{
        size_t n = strlen(dir);
        return n == 0 ? *path != '\0' : strncmp(path, dir, n) == 0 && path[n] == '/';
}

/* Does a layer that must stay as it is decide on that path? Then what is staged above it must stay, too. */
static bool in_shared_layer(const struct builder *b, const struct pv_change *c)
{
        if (c->layer_shared || (c->now.mode != 0 && b->e->shared[c->layer]))
                return true;
        for (unsigned k = 0; b->any_shared && k < b->e->n_layers; k++)
                if (b->e->shared[k] && pv_layer_look(b->e->s, c->root, k, c->path) != PV_LAYER_NOTHING)
                        return true;
        return false;
}

/*
 * What keeps a directory from going as one keeps all those between the two from it as well, so that of a deep tree each
 * part is looked at once, not once for every directory above it.
 */
static bool met_before(const struct builder *b, size_t i, size_t end)
{
        size_t k = b->obstacle - 1;
        if (b->obstacle == 0 || k < i || k >= end)
                return false;
        return !b->obstacle_is_layer || b->changes->item[k].layer != b->changes->item[i].layer;
}

static bool is_kept_by(struct builder *b, size_t k, bool is_layer)
{
        b->obstacle = k + 1;
        b->obstacle_is_layer = is_layer;
        return false;
}

static bool all_can_go(struct builder *b, size_t i, size_t end)
{
        for (size_t k = i + 1; k < end; k++) {
                const struct pv_change *c = &b->changes->item[k];
                bool other_layer = c->layer != b->changes->item[i].layer;
                if (other_layer || !b->selected[k] || c->layer_shared || !links_are_complete(b, c))
                        return is_kept_by(b, k, other_layer);
        }
        return true;
}

/* A directory whose changes are being counted; those above it come before it. */
struct counted {
        size_t dir, entries;
};

struct counts {
        struct counted *v;
        size_t n, room;
};

static void count_from(struct counts *all, size_t dir)
{
        if (all->n == all->room)
                all->v = pv_realloc(all->v, all->room = all->room ? 2 * all->room : 64, sizeof *all->v);
        all->v[all->n++] = (struct counted){ .dir = dir };
}

/* Takes the innermost ones off until path lies below what remains (NULL: all), and compares each with its layer. */
static bool take_off(struct builder *b, struct counts *all, const char *path)
{
        while (all->n > 0 && !(path && is_below(path, b->changes->item[all->v[all->n - 1].dir].path))) {
                const struct counted *last = &all->v[--all->n];
                const struct pv_change *c = &b->changes->item[last->dir];
                struct pv_place at;
                size_t have;
                if (pv_place_layer(b->e, c->root, c->layer, c->path, &at) < 0 ||
                    pv_tree_count_entries(at.dirfd, at.name, &have) < 0 || have != last->entries)
                        return is_kept_by(b, last->dir, false);
        }
        return true;
}

/* Whiteouts and leftovers of older layers are entries without a change: counted directory by directory. */
static bool holds_nothing_else(struct builder *b, size_t i, size_t end)
{
        struct counts all = { 0 };
        bool same = true;
        for (size_t k = i; k < end && same; k++) {
                const struct pv_change *c = &b->changes->item[k];
                same = take_off(b, &all, c->path);
                if (same && all.n > 0) {
                        struct counted *above = &all.v[all.n - 1];
                        above->entries += !strchr(c->path + strlen(b->changes->item[above->dir].path) + 1, '/');
                }
                if (same && S_ISDIR(c->now.mode))
                        count_from(&all, k);
        }
        same = same && take_off(b, &all, NULL);
        free(all.v);
        return same;
}

/* Can the new directory i go as one rename: all of it selected, all in its own layer, nothing else in there? */
static bool goes_as_one(struct builder *b, size_t i, size_t end)
{
        return !met_before(b, i, end) && all_can_go(b, i, end) && holds_nothing_else(b, i, end);
}

/* The item's counterpart: the layer's own entry, or a copy where that one must stay, or where a rename cannot reach. */
static void choose_counterpart(struct builder *b, struct pv_item *it, const struct pv_change *c, bool keep)
{
        bool beside = b->e->plan->head.root_mode[c->root] & PV_ROOT_BESIDE;
        it->at = beside ? PV_AT_BESIDE : PV_AT_SLOT;
        if (keep)
                it->flags |= PV_ITEM_KEEP;
        if (it->op == PV_OP_REMOVE)
                return;
        if (keep || beside || c->merged || !links_are_complete(b, c))
                it->flags |= PV_ITEM_COPY;
        else
                it->at = PV_AT_LAYER;
}

static void choose_for_directory(struct builder *b, struct pv_item *it, const struct pv_change *c, size_t i, size_t end)
{
        bool keep = in_shared_layer(b, c);
        bool beside = b->e->plan->head.root_mode[c->root] & PV_ROOT_BESIDE;
        it->at = beside ? PV_AT_BESIDE : PV_AT_SLOT;
        it->flags |= keep ? PV_ITEM_KEEP : 0;
        if (!keep && !beside && goes_as_one(b, i, end)) {
                it->at = PV_AT_LAYER;
                it->flags |= PV_ITEM_MOVED_TREE;
        } else {
                /* A copied tree is put together entry by entry from wherever they are; a moved one keeps its pieces. */
                it->flags |= PV_ITEM_COPY | PV_ITEM_SHALLOW;
                if (keep || beside)
                        it->flags |= PV_ITEM_MOVED_TREE;
        }
        if (it->flags & PV_ITEM_MOVED_TREE) {
                b->tree = c->path;
                b->tree_root = c->root;
                b->tree_old = false;
                b->tree_copied = it->flags & PV_ITEM_COPY;
        }
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
        return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The cheap half of the check: one and the same inode in the same state. */
static bool is_preimage(const struct pv_facts *pre, const struct pv_ident *have, const struct timespec *ctime)
{
        if (pre->mode == 0 || have->mode == 0)
                return pre->mode == have->mode;
        if (pre->mode != have->mode || pre->ino != have->ino || pre->uid != have->uid || pre->gid != have->gid)
                return false;
        return S_ISDIR(pre->mode) ||
               (pre->size == have->size && pre->rdev == have->rdev && pre->mtime.tv_sec == have->mtime_s &&
                (uint32_t)pre->mtime.tv_nsec == have->mtime_ns && same_time(&pre->ctime, ctime));
}

/*
 * Does this batch make a directory above this path, where there is none or a file or a link? Its check answers for
 * both.
 */
static bool makes_above(struct builder *b, const struct pv_change *c)
{
        const struct pv_change *maker = pv_changes_find_maker(b->changes, c);
        return maker && b->selected[maker - b->changes->item];
}

/* Reads what the target has and compares it with the preimage; a difference that matters is a conflict. */
static int check(struct builder *b, const struct pv_change *c, struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        const char *why = pv_change_no_directory;
        const bool looked = b->looked[it - b->e->plan->item];
        if (!looked && pv_place_target(b->e, it, &at) < 0) {
                if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
                        return pv_err_set(err, PV_ERR_SYS, errno, "check %s", c->path);
                /* Below a directory that this batch makes there is nothing to look at. */
                if (c->pre.mode == 0 && makes_above(b, c))
                        return 0;
                pv_apply_result_add(b->e->result, c->root, c->path, why);
                return 0;
        }
        if (!looked && pv_ident_read(at.dirfd, at.name, &it->out, &it->out_ctime) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "check %s", c->path);
        if (it->out.mode != 0 && !S_ISDIR(it->out.mode) && it->out_ctime.tv_sec == 0)
                it->flags |= PV_ITEM_OUT_LINKED;
        if (!(c->flags & (PV_CHANGE_SUSPECT | PV_CHANGE_BLOCKED)) && is_preimage(&c->pre, &it->out, &it->out_ctime))
                return 0;
        if (!pv_change_check(b->e->s, c, &why))
                pv_apply_result_add(b->e->result, c->root, c->path, why);
        else if ((it->out.mode == 0) != (c->pre.mode == 0))
                pv_apply_result_add(b->e->result, c->root, c->path, "changed on the host while it was checked");
        return 0;
}

static const char *below(const char *path, const char *dir)
{
        return path + strlen(dir) + (*dir != '\0');
}

/* Did the stage know of this entry of a directory that goes? */
static bool is_known_entry(struct builder *b, size_t i, const char *name)
{
        const struct pv_change *top = &b->changes->item[i];
        for (size_t k = i + 1; k < b->changes->n && b->changes->item[k].root == top->root &&
                               is_below(b->changes->item[k].path, top->path);
             k++)
                if (pv_streq(below(b->changes->item[k].path, top->path), name))
                        return true;
        return false;
}

static int find_unknown_entries(struct builder *b, size_t i, const struct pv_place *at, struct pv_err *err)
{
        const struct pv_change *top = &b->changes->item[i];
        pv_auto_dir d = pv_dir_open(at->dirfd, at->name);
        struct dirent *e;
        int more = -1;
        while (d && (more = pv_dir_next(d, &e)) > 0) {
                if (is_known_entry(b, i, e->d_name))
                        continue;
                pv_auto_free char *path = pv_path_join(top->path, e->d_name);
                pv_apply_result_add(b->e->result, top->root, path, "made on the host after the stage was taken");
        }
        return more < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "read directory %s", top->path) : 0;
}

/* A directory that goes must hold nothing that the stage never saw. */
static int check_content(struct builder *b, size_t i, struct pv_err *err)
{
        const struct pv_change *top = &b->changes->item[i];
        struct pv_item it = { .root = top->root, .path = top->path };
        struct pv_place at;
        size_t have, want = 0;
        for (size_t k = i + 1; k < b->changes->n && b->changes->item[k].root == top->root &&
                               is_below(b->changes->item[k].path, top->path);
             k++)
                want += b->changes->item[k].pre.mode != 0 && !strchr(below(b->changes->item[k].path, top->path), '/');
        if (pv_place_target(b->e, &it, &at) < 0)
                return 0; /* reported by check() */
        if (pv_tree_count_entries(at.dirfd, at.name, &have) < 0) {
                if (errno == ENOENT || errno == ENOTDIR)
                        return 0;
                return pv_err_set(err, PV_ERR_SYS, errno, "read directory %s", top->path);
        }
        return have > want ? find_unknown_entries(b, i, &at, err) : 0;
}

/* The same for the directories inside one that goes. */
static int check_within(struct builder *b, size_t i, struct pv_item *it, struct pv_err *err)
{
        const struct pv_change *c = &b->changes->item[i];
        if (check(b, c, it, err) < 0)
                return -1;
        return S_ISDIR(c->pre.mode) ? check_content(b, i, err) : 0;
}

static int note_metadata(struct builder *b, const struct pv_change *c, struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        it->meta = pv_calloc(1, sizeof *it->meta);
        it->meta->mode[0] = it->out.mode;
        it->meta->uid[0] = it->out.uid;
        it->meta->gid[0] = it->out.gid;
        it->meta->mode[1] = c->now.mode;
        it->meta->uid[1] = c->now.uid;
        it->meta->gid[1] = c->now.gid;
        if (!S_ISDIR(it->out.mode) || pv_place_target(b->e, it, &at) < 0)
                return 0; /* reported by check() */
        if (pv_xattrs_read(at.dirfd, at.name, PV_COPY_PLAIN, &it->meta->xattrs[0], err) < 0)
                return -1;
        if (pv_place_layer(b->e, c->root, c->layer, c->path, &at) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open the staged %s", c->path);
        return pv_xattrs_read(at.dirfd, at.name, PV_COPY_FROM_LAYER, &it->meta->xattrs[1], err);
}

/* What the staged entry carries of the overlay's own; only what moves needs it taken off. */
static int note_marks(struct builder *b, const struct pv_change *c, struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        unsigned which = c->overlay;
        if (S_ISDIR(c->now.mode) && (c->pre.mode == 0 || !S_ISDIR(c->pre.mode)))
                it->flags |= PV_ITEM_OPAQUE;
        if (it->flags & PV_ITEM_COPY || S_ISLNK(c->now.mode) || !is_first_name(b, c))
                return 0;
        if (!c->overlay_known && pv_place_layer(b->e, c->root, c->layer, c->path, &at) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open the staged %s", c->path);
        if (!c->overlay_known && pv_xattrs_find_overlay(at.dirfd, at.name, &which, err) < 0)
                return -1;
        it->flags |= which ? PV_ITEM_MARKS : 0;
        it->flags |= which & PV_OVERLAY_ESCAPES ? PV_ITEM_ESCAPES : 0;
        it->flags |= which == PV_OVERLAY_ORIGIN ? PV_ITEM_ORIGIN : 0;
        return 0;
}

static struct pv_ident ident_of_facts(const struct pv_facts *f)
{
        if (f->mode == 0)
                return (struct pv_ident){ 0 };
        return (struct pv_ident){ .ino = f->ino,
                                  .size = f->size,
                                  .rdev = f->rdev,
                                  .mtime_s = f->mtime.tv_sec,
                                  .mtime_ns = (uint32_t)f->mtime.tv_nsec,
                                  .mode = f->mode,
                                  .uid = f->uid,
                                  .gid = f->gid };
}

/*
 * Names of one file have one time: where one gets that of the batch, all do, or what landed would not be known again.
 */
static bool wants_time(const struct builder *b, const struct pv_change *c)
{
        struct link_count key = { .ino = c->now.ino, .root = c->root, .layer = c->layer };
        struct link_count **found = has_links(c) ? tfind(&key, &b->links, compare_links) : NULL;
        return found ? (*found)->has_new_content : has_new_content(b, c);
}

static bool inside_tree(struct builder *b, const struct pv_change *c)
{
        if (b->tree && c->root == b->tree_root && is_below(c->path, b->tree))
                return true;
        b->tree = NULL;
        return false;
}

static void enter_old_tree(struct builder *b, const struct pv_change *c)
{
        b->tree = c->path;
        b->tree_root = c->root;
        b->tree_old = true;
        b->tree_copied = false;
}

static void start_item(const struct pv_change *c, struct pv_item *it, size_t slot)
{
        it->slot = (uint32_t)slot;
        it->path = c->path;
        it->root = c->root;
        it->layer = c->layer;
        it->in = ident_of_facts(&c->now);
        it->staged_mtime = c->now.mtime;
        if (c->flags & PV_CHANGE_IMPLIED)
                it->flags |= PV_ITEM_IMPLIED;
        it->merged = c->merged;
        it->flags |= c->merged ? PV_ITEM_MERGED : 0;
        if (c->merged || c->pre.hashed) {
                it->flags |= PV_ITEM_HASHED;
                it->sha256 = memcpy(pv_calloc(1, PV_SHA256_SIZE), c->merged ? c->merged->host_sha256 : c->pre.sha256,
                                    PV_SHA256_SIZE);
        }
}

static int add_within(struct builder *b, size_t i, struct pv_item *it, struct pv_err *err)
{
        const struct pv_change *c = &b->changes->item[i];
        it->op = PV_OP_WITHIN;
        it->at = PV_AT_SLOT;
        if (b->tree_old) {
                it->flags |= PV_ITEM_OLD_TREE;
                it->in = (struct pv_ident){ 0 };
                return check_within(b, i, it, err);
        }
        it->flags |= b->tree_copied ? PV_ITEM_COPY : 0;
        it->flags |= wants_time(b, c) ? PV_ITEM_TIMES : 0;
        return note_marks(b, c, it, err);
}

static int complete_item(struct builder *b, struct pv_item *it, struct pv_err *err)
{
        const size_t i = b->change[it - b->e->plan->item];
        const struct pv_change *c = &b->changes->item[i];
        bool was_dir = S_ISDIR(c->pre.mode), is_dir = S_ISDIR(c->now.mode);
        if (c->flags &
            PV_CHANGE_BLOCKED) { /* also below a directory that is made now, where nothing is to be checked */
                pv_apply_result_add(b->e->result, c->root, c->path, c->why);
                b->e->result->n_blocked++;
                return 0;
        }
        if (inside_tree(b, c))
                return add_within(b, i, it, err);
        if (check(b, c, it, err) < 0)
                return -1;
        if (was_dir && !is_dir && check_content(b, i, err) < 0)
                return -1;
        if (was_dir && is_dir) {
                it->op = PV_OP_META;
                it->flags |= in_shared_layer(b, c) ? PV_ITEM_KEEP : 0;
                it->at = PV_AT_SLOT;
                return note_metadata(b, c, it, err);
        }
        it->op = c->now.mode == 0 ? PV_OP_REMOVE : c->pre.mode == 0 ? PV_OP_PLACE : PV_OP_EXCHANGE;
        size_t end = i + 1;
        while (end < b->changes->n && b->changes->item[end].root == c->root &&
               is_below(b->changes->item[end].path, c->path))
                end++;
        if (is_dir)
                choose_for_directory(b, it, c, i, end);
        else
                choose_counterpart(b, it, c, in_shared_layer(b, c));
        if (was_dir)
                enter_old_tree(b, c);
        if (it->op == PV_OP_REMOVE)
                return 0;
        it->flags |= wants_time(b, c) ? PV_ITEM_TIMES : 0;
        return note_marks(b, c, it, err);
}

static void start_items(struct builder *b)
{
        struct pv_plan_list *p = b->e->plan;
        b->change = pv_calloc(b->changes->n + 1, sizeof *b->change);
        b->looked = pv_calloc(b->changes->n + 1, sizeof *b->looked);
        for (size_t i = 0; i < b->changes->n; i++)
                if (b->selected[i]) {
                        size_t slot = p->n;
                        b->change[slot] = i;
                        start_item(&b->changes->item[i], pv_plan_list_add(p), slot);
                }
}

/*
 * What the target has where something was, read on many threads at a time. What cannot be is read again by the check,
 * which says why.
 */
static void look_at_range(void *ctx, size_t from, size_t end)
{
        struct builder *b = ctx;
        pv_auto_hand h;
        pv_hand_init(&h, b->e);
        for (size_t i = from; i < end; i++) {
                struct pv_item *it = &b->e->plan->item[i];
                struct pv_place at;
                b->looked[i] = b->changes->item[b->change[i]].pre.mode != 0 &&
                               pv_place_target(&h.engine, it, &at) == 0 &&
                               pv_ident_read(at.dirfd, at.name, &it->out, &it->out_ctime) == 0;
        }
}

int pv_build_apply(struct pv_engine *e, const struct pv_changes *changes, const bool *selected,
                   const struct pv_apply_options *options, struct pv_err *err)
{
        struct builder b = { .e = e, .changes = changes, .selected = selected, .options = options };
        for (unsigned k = 0; k < e->n_layers; k++)
                b.any_shared |= e->shared[k];
        count_links(&b);
        start_items(&b);
        pv_parallel_for(e->plan->n, ITEMS_AT_A_TIME, look_at_range, &b);
        int failed = 0;
        for (size_t i = 0; i < e->plan->n && failed == 0; i++)
                failed = complete_item(&b, &e->plan->item[i], err);
        tdestroy(b.links, free);
        free(b.change);
        free(b.looked);
        return failed;
}
