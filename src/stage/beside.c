/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to let a person take what a command has made so far while it goes on. The command's uppers are mounted; nothing
 * may be moved out of them, and what lies in the target below them may change only in ways that the mount bears.
 *
 * Actors. The command, hostile, which writes to the uppers through its mount at any time but when it is held still (the
 * caller's struct pv_freezer). The supervisor, which has the stage's lock and seals at the end. Whoever decides, one at
 * a time, by the lock `decide`. The host, as ever.
 *
 *   look     the changes are computed and the person's selection made while the command runs
 *   freeze   all that runs in the sandbox stands still between two system calls
 *            the changes again (no file is read twice), the selection mapped to them, the plan, the copies
 *   thaw     the command goes on; all that follows has the copies alone
 *   landing  each copy is hashed; the journal gets what it will be the baseline of; READY
 *   publish  as any batch (apply.c)
 *   settle   `landed` gets the baseline of what was published, and the batch its record
 *
 * The baseline. The seal reads what the host has when the command has ended, and doubts what changed since its start.
 * What we put there ourselves must not be doubted, and must not be listed again though the layer still has it. So each
 * path gets a record of what landed: the command's own mode, owner, times and attributes and the content's hash. The
 * layer's entry is a change again when it differs from that, and the host's is a conflict when it does.
 *
 * What the command sees. Its own files stay the layer's, so nothing moves under it: same inodes, same times, open files
 * go on. Of the target it may see what it has not looked at yet, as with any edit of the host's. Two things need care:
 *
 *  - A new directory of the command's now lies over one of the host's. The kernel looks no further below an upper that
 *    is pure as long as it remembers that; once it has forgotten (memory pressure), it would merge the two, and files
 *    that the command deleted there would come back. So the directory is marked opaque first, as overlayfs itself marks
 *    new directories when more of its features are in use. From then on what is missing in it was deleted if it landed,
 *    and is the host's own if not: that is what `landed` says of a record (struct pv_preimage).
 *  - A file that the command deletes after it landed: the kernel looks into the lower anew before it decides whether a
 *    whiteout is needed, and finds what landed. So the deletion shows.
 *
 * A directory of the host's in which something is published gets a new ctime, by which nobody can tell any more whether
 * the host put another one in its place. So which one it was is noted before, as long as that is known: by its ctime or
 * by the view. Of that directory, and of a file of the host's with several names, it is noted with which ctime our own
 * publishing left it (ours.c).
 *
 * Crashes. Who freezes holds a connection to the supervisor: with its death the command goes on. The journal says what
 * was published, and what it is the baseline of; whoever takes `decide` next finishes it or takes it back, and the
 * supervisor before it seals. The plan on disk before the copies are made is not synced, so as not to hold the command
 * for the disk: after a crash of the machine copies beside the target may be left.
 *
 * Limits: what is written by several system calls may be met between two of them; a store into a file mapped shared is
 * copied if it was made before the freeze.
 */
#include "stage/beside.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "stage/bases.h"
#include "stage/facts.h"
#include "stage/scan.h"
#include "stage/settle.h"
#include "stage/unsettled.h"

static bool is_copy(const struct pv_item *it)
{
        return it->flags & PV_ITEM_COPY && !(it->flags & PV_ITEM_OLD_TREE) && it->in.mode != 0;
}

/* Of the command's upper alone: what an older layer has below it must go on showing. */
static bool is_pure_upper(struct pv_engine *e, const struct pv_item *it)
{
        struct pv_place at;
        struct stat st;
        if (it->layer + 1 != e->n_layers)
                return false;
        for (unsigned k = 0; k + 1 < e->n_layers; k++)
                if (pv_place_layer(e, it->root, k, it->path, &at) == 0 &&
                    fstatat(at.dirfd, at.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                        return false;
        return true;
}

bool pv_beside_is_marked(struct pv_engine *e, const struct pv_item *it)
{
        return is_copy(it) && S_ISDIR(it->in.mode) && is_pure_upper(e, it);
}

int pv_beside_mark_directories(struct pv_engine *e, struct pv_err *err)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                struct pv_place at;
                if (!pv_beside_is_marked(e, it))
                        continue;
                if (pv_place_layer(e, it->root, it->layer, it->path, &at) < 0 ||
                    pv_xattr_set(at.dirfd, at.name, PV_OVERLAY_OPAQUE, "y", 1) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "mark the staged directory %s", it->path);
        }
        return 0;
}

/* Texts are kept, so that a later conflict with what landed can be merged. */
static int hash_copy(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, struct pv_facts *f)
{
        struct pv_bases *bases = pv_bases_new(e->s, it->root);
        int r = pv_bases_hash_and_keep(bases, at->dirfd, at->name, f);
        int sys = errno;
        pv_bases_free(bases);
        errno = sys;
        return r;
}

static int look_at_copy(struct pv_engine *e, struct pv_item *it, const struct pv_place *copy, struct pv_err *err)
{
        pv_auto_arena text = { 0 };
        struct pv_landing *l = it->landing;
        struct pv_facts f;
        struct pv_place at = *copy;
        bool merged =
                it->flags & PV_ITEM_MERGED; /* the command goes on from what it has, which did not land as it is */
        if ((merged && pv_place_layer(e, it->root, it->layer, it->path, &at) < 0) ||
            pv_facts_get(at.dirfd, at.name, &text, &f) < 0 || !pv_facts_exist(&f) ||
            pv_facts_get_xattrs(at.dirfd, at.name, merged ? PV_FACTS_STAGED : PV_FACTS_HOST, &l->xattrs) < 0 ||
            (S_ISREG(f.mode) && hash_copy(e, it, &at, &f) < 0))
                return pv_err_set(err, PV_ERR_SYS, errno, "look at the copy of %s", it->path);
        l->size = f.size;
        l->mode = f.mode;
        l->uid = f.uid;
        l->gid = f.gid;
        l->nlink = f.nlink;
        l->hashed = f.hashed;
        memcpy(l->sha256, f.sha256, sizeof l->sha256);
        l->link = f.link ? pv_strdup(f.link) : NULL;
        return 0;
}

/* The entries of the copied directory i. */
static int look_at_entries(struct pv_engine *e, size_t i, const struct pv_place *at, struct pv_err *err)
{
        struct pv_plan_list *p = e->plan;
        size_t end = pv_plan_list_end(p, i), skip = strlen(p->item[i].path) + 1;
        struct pv_pathfd dir = { openat(at->dirfd, at->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) };
        pv_auto_fd dir_owner = dir.fd;
        if (dir.fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "look at the copy of %s", p->item[i].path);
        pv_auto_walk walk;
        pv_walk_init(&walk, dir);
        for (size_t k = i + 1; k < end; k++) {
                struct pv_place here;
                if (!is_copy(&p->item[k]))
                        continue;
                if ((here.dirfd = pv_walk_parent(&walk, p->item[k].path + skip, &here.name)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "look at the copy of %s", p->item[k].path);
                if (look_at_copy(e, &p->item[k], &here, err) < 0)
                        return -1;
        }
        return 0;
}

int pv_beside_look_at_copies(struct pv_engine *e, const struct pv_changes *changes, struct pv_err *err)
{
        struct pv_plan_list *p = e->plan;
        for (size_t i = 0; i < p->n; i++) {
                p->item[i].landing = pv_calloc(1, sizeof *p->item[i].landing);
                p->item[i].flags |= PV_ITEM_LANDS;
        }
        for (size_t i = 0; i < p->n; i++) {
                struct pv_item *it = &p->item[i];
                struct pv_place at;
                if (it->op == PV_OP_META) {
                        const struct pv_change *c =
                                pv_changes_find((struct pv_changes *)(uintptr_t)changes, it->root, it->path);
                        it->landing->xattrs = c ? c->now.xattrs : 0;
                }
                if (!is_copy(it) || (it->op != PV_OP_EXCHANGE && it->op != PV_OP_PLACE))
                        continue;
                if (pv_place_counterpart(e, it, &at) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "look at the copy of %s", it->path);
                if (look_at_copy(e, it, &at, err) < 0 || (S_ISDIR(it->in.mode) && look_at_entries(e, i, &at, err) < 0))
                        return -1;
        }
        return 0;
}

static bool is_above(const struct pv_known_dir *dir, const struct pv_item *it)
{
        size_t n = strlen(dir->path);
        return dir->root == it->root &&
               (n == 0 ? *it->path != '\0' : strncmp(it->path, dir->path, n) == 0 && it->path[n] == '/');
}

/* Both lists have one order, in which what is below a directory follows it at once. */
static bool is_needed(const struct pv_plan_list *p, const struct pv_known_dir *dir, size_t *from)
{
        for (size_t i = *from; i < p->n; i++) {
                if (is_above(dir, &p->item[i]))
                        return true;
                if (p->item[i].root > dir->root ||
                    (p->item[i].root == dir->root && pv_path_order(p->item[i].path, dir->path) > 0))
                        return false;
                *from = i + 1;
        }
        return false;
}

int pv_beside_note_directories(struct pv_engine *e, const struct pv_changes *changes, struct pv_err *err)
{
        size_t n = 0, from = 0;
        pv_auto_free struct pv_rebase *list = pv_calloc(changes->n_known + 1, sizeof *list);
        for (size_t i = 0; i < changes->n_known; i++) {
                const struct pv_known_dir *dir = &changes->known[i];
                if (is_needed(e->plan, dir, &from))
                        list[n++] = (struct pv_rebase){ .root = dir->root, .path = dir->path, .facts = &dir->host };
        }
        return n ? pv_stage_rebase(e->s, list, n, err) : 0;
}

struct inode {
        uint64_t ino;
        uint32_t root;
};

static int compare_inodes(const void *a, const void *b)
{
        const struct inode *x = a, *y = b;
        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->root == y->root ? 0 : x->root < y->root ? -1 : 1;
}

int pv_beside_note_other_names(struct pv_engine *e, const struct pv_changes *looked_at, struct pv_err *err)
{
        const struct pv_plan_list *p = e->plan;
        size_t n_moved = 0, n = 0;
        pv_auto_free struct inode *moved = pv_calloc(p->n + 1, sizeof *moved);
        pv_auto_free struct pv_rebase *list = pv_calloc(looked_at->n + 1, sizeof *list);
        for (size_t i = 0; i < p->n; i++)
                if (p->item[i].flags & PV_ITEM_OUT_LINKED)
                        moved[n_moved++] = (struct inode){ .ino = p->item[i].out.ino, .root = p->item[i].root };
        if (n_moved == 0)
                return 0;
        qsort(moved, n_moved, sizeof *moved, compare_inodes);
        for (size_t i = 0; i < looked_at->n; i++) {
                const struct pv_change *c = &looked_at->item[i];
                const struct inode key = { .ino = c->pre.ino, .root = c->root };
                if (!(c->flags & PV_CHANGE_SUSPECT) && c->pre.nlink > 1 && !S_ISDIR(c->pre.mode) &&
                    bsearch(&key, moved, n_moved, sizeof *moved, compare_inodes))
                        list[n++] = (struct pv_rebase){ .root = c->root, .path = c->path, .facts = &c->pre };
        }
        return n ? pv_stage_rebase(e->s, list, n, err) : 0;
}

/* Of a batch that was rolled back around the host, the items that stayed; else all. */
static bool counts(const struct pv_plan_list *p, size_t i)
{
        return !(p->marks & PV_MARK_PARTLY) || p->item[i].state == PV_ITEM_KEPT;
}

/* The path as it landed: with the command's own time, so that the layer's entry is what is expected. */
static void landed_facts(const struct pv_item *it, struct pv_facts *f)
{
        const struct pv_landing *l = it->landing;
        *f = (struct pv_facts){ .mode = it->in.mode };
        if (it->in.mode == 0 || it->flags & PV_ITEM_OLD_TREE) {
                f->mode = 0;
                return;
        }
        f->uid = it->in.uid;
        f->gid = it->in.gid;
        f->size = it->in.size;
        f->rdev = it->in.rdev;
        f->nlink = l->nlink;
        f->xattrs = l->xattrs;
        f->link = l->link;
        f->mtime = it->flags & PV_ITEM_TIMES
                           ? it->staged_mtime
                           : (struct timespec){ .tv_sec = it->in.mtime_s, .tv_nsec = it->in.mtime_ns };
        f->hashed = l->hashed;
        memcpy(f->sha256, l->sha256, sizeof f->sha256);
        if (it->flags & PV_ITEM_MERGED) {
                f->mode = l->mode;
                f->uid = l->uid;
                f->gid = l->gid;
                f->size = l->size;
        }
        if (S_ISDIR(f->mode)) /* files are recognised by what is in them, a directory by being the same one */
                f->ino = it->op == PV_OP_META ? it->out.ino : it->in.ino;
        if (it->op == PV_OP_META) {
                f->mode = it->meta->mode[1];
                f->uid = it->meta->uid[1];
                f->gid = it->meta->gid[1];
        }
}

bool pv_beside_is_landed(const struct pv_item *it, const struct pv_place *at)
{
        pv_auto_arena text = { 0 };
        struct pv_facts want, have;
        if (!(it->flags & PV_ITEM_LANDS))
                return false;
        landed_facts(it, &want);
        if (pv_facts_get(at->dirfd, at->name, &text, &have) < 0 || !pv_facts_exist(&want) || !pv_facts_exist(&have) ||
            pv_facts_get_xattrs(at->dirfd, at->name, PV_FACTS_HOST, &have.xattrs) < 0 ||
            !pv_facts_same_metadata(&want, &have))
                return false;
        if (S_ISLNK(want.mode))
                return want.link && have.link && pv_streq(want.link, have.link);
        if (!S_ISREG(want.mode))
                return true;
        return want.hashed && want.size == have.size && pv_facts_hash(at->dirfd, at->name, &have) == 0 &&
               memcmp(want.sha256, have.sha256, sizeof want.sha256) == 0;
}

int pv_beside_settle(struct pv_engine *e, struct pv_err *err)
{
        const struct pv_plan_list *p = e->plan;
        size_t n = 0;
        pv_auto_free struct pv_rebase *list = pv_calloc(p->n + 1, sizeof *list);
        pv_auto_free struct pv_facts *facts = pv_calloc(p->n + 1, sizeof *facts);
        for (size_t i = 0; i < p->n; i++) {
                const struct pv_item *it = &p->item[i];
                if (!(it->flags & PV_ITEM_LANDS) || !counts(p, i))
                        continue;
                landed_facts(it, &facts[n]);
                list[n] = (struct pv_rebase){
                        .root = it->root, .path = it->path, .facts = &facts[n], .landed = it->op != PV_OP_META
                };
                n++;
        }
        return pv_stage_rebase(e->s, list, n, err);
}

/*
 * What came out and was put back has a new ctime, by which it would be doubted. It is what it was if it is still that
 * inode with that time of its last write.
 */
static int facts_of_original(struct pv_engine *e, const struct pv_item *it, struct pv_arena *text, struct pv_facts *f)
{
        struct pv_place at;
        struct pv_ident have;
        if (pv_place_target(e, it, &at) < 0 || pv_ident_read(at.dirfd, at.name, &have, NULL) < 0 ||
            !pv_item_is_out(it, &have) || pv_facts_get(at.dirfd, at.name, text, f) < 0 ||
            (pv_facts_exist(f) && pv_facts_get_xattrs(at.dirfd, at.name, PV_FACTS_HOST, &f->xattrs) < 0))
                return 0; /* somebody else's meanwhile: it is doubted, rightly */
        if (it->flags & PV_ITEM_HASHED) {
                f->hashed = true;
                memcpy(f->sha256, it->sha256, sizeof f->sha256);
        }
        return 1;
}

int pv_beside_settle_back(struct pv_engine *e, struct pv_err *err)
{
        const struct pv_plan_list *p = e->plan;
        size_t n = 0;
        pv_auto_arena text = { 0 };
        pv_auto_free struct pv_rebase *list = pv_calloc(p->n + 1, sizeof *list);
        pv_auto_free struct pv_facts *facts = pv_calloc(p->n + 1, sizeof *facts);
        pv_engine_reset_walks(e);
        for (size_t i = 0; i < p->n; i++) {
                const struct pv_item *it = &p->item[i];
                if (it->state == PV_ITEM_KEPT || it->op == PV_OP_META || !facts_of_original(e, it, &text, &facts[n]))
                        continue;
                list[n] = (struct pv_rebase){ .root = it->root, .path = it->path, .facts = &facts[n] };
                n++;
        }
        /* A conflict that a person had decided is one again. */
        if (e->slots.fd >= 0 && pv_unsettled_load(e, list, n, &text, err) < 0)
                return -1;
        return n ? pv_stage_rebase(e->s, list, n, err) : 0;
}
