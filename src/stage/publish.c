/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carrying out a plan, item by item, and looking at what came out of the target each time.
 *
 * Directories come first, in the order of the plan, and their metadata last. In between are the files: each stands in a
 * directory that is there by then, and no two touch the same name, so that they may go in any order and on several
 * threads. A rollback and a recovery ask of each item where it lies, never which ones came before.
 */
#include "stage/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/parallel.h"
#include "stage/facts.h"

#define FILES_AT_A_TIME 128

/* What one step found; the batch goes on after PUBLISHED alone. */
static enum pv_publish_outcome conflict(struct pv_engine *e, const struct pv_item *it, const char *why)
{
        pv_apply_result_add(e->result, it->root, it->path, why);
        return PV_PUBLISH_CONFLICT;
}

static enum pv_publish_outcome fail(const struct pv_item *it, const char *what, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_SYS, errno, "%s %s", what, it->path);
        return PV_PUBLISH_FAILED;
}

/*
 * Sorts the reasons for which a rename into or out of the target fails. EXDEV: another filesystem, or one that does
 * as if (bind mounts, btrfs subvolumes, project quotas). EINVAL and its kin: no flags on this filesystem.
 */
static enum pv_publish_outcome rename_failed(struct pv_engine *e, const struct pv_item *it, struct pv_err *err)
{
        uint32_t *mode = &e->plan->head.root_mode[it->root];
        switch (errno) {
        case EXDEV:
                if (*mode & PV_ROOT_BESIDE)
                        return fail(it, "publish", err);
                *mode |= PV_ROOT_BESIDE;
                return PV_PUBLISH_RETRY;
        case EINVAL:
        case ENOSYS:
        case EOPNOTSUPP:
                if (*mode & PV_ROOT_WEAK)
                        return fail(it, "publish", err);
                *mode |= PV_ROOT_BESIDE | PV_ROOT_WEAK;
                return PV_PUBLISH_RETRY;
        case ENOENT:
                return conflict(e, it, "removed on the host meanwhile");
        case EEXIST:
        case ENOTEMPTY:
                return conflict(e, it, "appeared on the host meanwhile");
        default:
                return fail(it, "publish", err);
        }
}

/* A parent that cannot be reached any more is the host's doing, unless it is the machine's. */
static enum pv_publish_outcome unreachable(struct pv_engine *e, const struct pv_item *it, struct pv_err *err)
{
        if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
                return conflict(e, it, "a directory above it was replaced on the host");
        return fail(it, "reach", err);
}

/* The window between check and exchange, closed to the moment before the exchange. */
static bool is_unchanged(const struct pv_item *it, const struct pv_place *target)
{
        struct pv_ident have;
        struct timespec ctime;
        if (pv_ident_read(target->dirfd, target->name, &have, &ctime) < 0 || !pv_item_is_out(it, &have))
                return false;
        return S_ISDIR(have.mode) || it->out_ctime.tv_sec == 0 ||
               (ctime.tv_sec == it->out_ctime.tv_sec && ctime.tv_nsec == it->out_ctime.tv_nsec);
}

static bool has_content(int dirfd, const char *name, const unsigned char *sha256)
{
        struct pv_facts f = { 0 };
        return sha256 && pv_facts_hash(dirfd, name, &f) == 0 && memcmp(f.sha256, sha256, PV_SHA256_SIZE) == 0;
}

bool pv_publish_verify(struct pv_engine *e, size_t i, size_t *culprit, const char **why)
{
        const struct pv_item *it = &e->plan->item[i];
        struct pv_place at;
        struct pv_ident have;
        *culprit = i;
        *why = "changed on the host meanwhile";
        if (it->op == PV_OP_PLACE)
                return true;
        if (pv_place_counterpart(e, it, &at) < 0)
                return false;
        bool writer = false;
        int r = S_ISREG(it->out.mode) ? pv_ident_read_unwritten(at.dirfd, at.name, &have, &writer)
                                      : pv_ident_read(at.dirfd, at.name, &have, NULL);
        if (writer)
                *why = "open for writing on the host";
        if (writer || r < 0 || !pv_item_is_out(it, &have))
                return false;
        if (S_ISDIR(it->out.mode))
                return pv_tree_is_exact(e, i, &at, PV_LOOK_FOR_WRITERS, culprit, why);
        /* Times alone are no proof that it is what was merged, where the kernel's are as coarse as its clock tick. */
        return !(it->flags & PV_ITEM_MERGED) || e->plan->head.kind != PV_BATCH_APPLY ||
               has_content(at.dirfd, at.name, it->sha256);
}

static int give_access(const struct pv_item *it, const struct pv_place *at, uint32_t mode, unsigned flag,
                       struct pv_err *err)
{
        if (!(it->flags & flag) || fchmodat(at->dirfd, at->name, (mode & 07777) | S_IRWXU, 0) == 0)
                return 0;
        return pv_err_set(err, PV_ERR_SYS, errno, "change the mode of %s", it->path);
}

static int take_access(const struct pv_item *it, const struct pv_place *at, uint32_t mode, unsigned flag,
                       struct pv_err *err)
{
        if (!(it->flags & flag) || fchmodat(at->dirfd, at->name, mode & 07777, 0) == 0)
                return 0;
        return pv_err_set(err, PV_ERR_SYS, errno, "restore the mode of %s", it->path);
}

/*
 * What goes in, held open over the move where its mode or ctime must be set afterwards: a directory that was opened up
 * gets its mode back, and the ctime must lie after this moment, or a job that runs on this target would not see that
 * its lower layer moved. XFS leaves it alone in an exchange; a chmod to the same mode moves it.
 */
struct incoming {
        int fd; /* O_PATH, or -1: nothing to do */
        struct timespec ctime;
};

static void close_incoming(struct incoming *in)
{
        pv_fd_closep(&in->fd);
}
#define auto_incoming __attribute__((cleanup(close_incoming))) struct incoming

static int hold_incoming(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, struct incoming *in,
                         struct pv_err *err)
{
        struct stat st;
        bool ctime = it->op == PV_OP_EXCHANGE && !S_ISLNK(it->in.mode) && (!e->bump_known || e->bump);
        in->fd = -1;
        if (!ctime && !(it->flags & PV_ITEM_OPEN_IN))
                return 0;
        in->fd = openat(at->dirfd, at->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (in->fd < 0 || fstat(in->fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open the staged %s", it->path);
        in->ctime = st.st_ctim;
        return 0;
}

static int release_incoming(struct pv_engine *e, const struct pv_item *it, struct incoming *in, struct pv_err *err)
{
        struct stat st;
        if (in->fd < 0)
                return 0;
        if (!e->bump_known && it->op == PV_OP_EXCHANGE) {
                if (fstat(in->fd, &st) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "look at %s", it->path);
                e->bump = st.st_ctim.tv_sec == in->ctime.tv_sec && st.st_ctim.tv_nsec == in->ctime.tv_nsec;
                e->bump_known = true;
        }
        if ((it->flags & PV_ITEM_OPEN_IN || e->bump) && pv_fd_chmod(in->fd, it->in.mode & 07777) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "set the mode of %s", it->path);
        return 0;
}

/* What was prepared for a move that failed is staged content again, here where it is known to have been prepared. */
static enum pv_publish_outcome did_not_move(struct pv_engine *e, size_t i, const struct pv_place *at,
                                            struct pv_err *err)
{
        struct pv_item *it = &e->plan->item[i];
        enum pv_publish_outcome why = rename_failed(e, it, err);
        if (it->flags & PV_ITEM_COPY)
                return why;
        it->state = PV_ITEM_DONE;
        int restored = pv_tree_restore(e, i, at, err);
        it->state = PV_ITEM_PENDING;
        return restored < 0 ? PV_PUBLISH_FAILED : why;
}

static enum pv_publish_outcome exchange(struct pv_engine *e, size_t i, struct pv_err *err)
{
        struct pv_item *it = &e->plan->item[i];
        struct pv_place at, target;
        auto_incoming in = { .fd = -1 };
        const char *why;
        size_t culprit;
        if (pv_place_target(e, it, &target) < 0)
                return unreachable(e, it, err);
        if (pv_place_counterpart(e, it, &at) < 0)
                return fail(it, "open the staged", err);
        if (!is_unchanged(it, &target))
                return conflict(e, it, "changed on the host meanwhile");
        if (pv_tree_prepare(e, i, &at, err) < 0 || give_access(it, &at, it->in.mode, PV_ITEM_OPEN_IN, err) < 0 ||
            give_access(it, &target, it->out.mode, PV_ITEM_OPEN_OUT, err) < 0 ||
            hold_incoming(e, it, &at, &in, err) < 0)
                return PV_PUBLISH_FAILED;
        if (pv_move_swap(e, it, &at, &target) < 0)
                return did_not_move(e, i, &at, err);
        it->state = PV_ITEM_DONE;
        if (release_incoming(e, it, &in, err) < 0)
                return PV_PUBLISH_FAILED;
        if (!pv_publish_verify(e, i, &culprit, &why))
                return conflict(e, &e->plan->item[culprit], why);
        return take_access(it, &at, it->out.mode, PV_ITEM_OPEN_OUT, err) < 0 ? PV_PUBLISH_FAILED : PV_PUBLISHED;
}

static enum pv_publish_outcome place(struct pv_engine *e, size_t i, struct pv_err *err)
{
        struct pv_item *it = &e->plan->item[i];
        struct pv_place at, target;
        auto_incoming in = { .fd = -1 };
        if (pv_place_target(e, it, &target) < 0)
                return unreachable(e, it, err);
        if (pv_place_counterpart(e, it, &at) < 0)
                return fail(it, "open the staged", err);
        if (pv_tree_prepare(e, i, &at, err) < 0 || give_access(it, &at, it->in.mode, PV_ITEM_OPEN_IN, err) < 0 ||
            hold_incoming(e, it, &at, &in, err) < 0)
                return PV_PUBLISH_FAILED;
        if (pv_move_new(e, it, &at, &target) < 0)
                return did_not_move(e, i, &at, err);
        it->state = PV_ITEM_DONE;
        /* One whose entries follow stays open until they are in; the access list closes it. */
        if (it->flags & PV_ITEM_SHALLOW && !(it->flags & PV_ITEM_MOVED_TREE))
                return PV_PUBLISHED;
        return release_incoming(e, it, &in, err) < 0 ? PV_PUBLISH_FAILED : PV_PUBLISHED;
}

/* Somebody else's empty directory may be removed, but not moved: its ".." would have to be written. */
static bool remove_empty_directory(struct pv_engine *e, size_t i, const struct pv_place *at,
                                   const struct pv_place *target)
{
        const struct pv_item *it = &e->plan->item[i];
        if (!S_ISDIR(it->out.mode) || pv_plan_list_end(e->plan, i) != i + 1)
                return false;
        if (mkdirat(at->dirfd, at->name, it->out.mode & 07777) < 0)
                return false;
        if (unlinkat(target->dirfd, target->name, AT_REMOVEDIR) == 0)
                return true;
        int keep = errno;
        (void)unlinkat(at->dirfd, at->name, AT_REMOVEDIR);
        errno = keep;
        return false;
}

static enum pv_publish_outcome remove_item(struct pv_engine *e, size_t i, struct pv_err *err)
{
        struct pv_item *it = &e->plan->item[i];
        struct pv_place at, target;
        const char *why;
        size_t culprit;
        if (pv_place_target(e, it, &target) < 0)
                return unreachable(e, it, err);
        if (pv_place_counterpart(e, it, &at) < 0)
                return fail(it, "open the backup for", err);
        if (!is_unchanged(it, &target))
                return conflict(e, it, "changed on the host meanwhile");
        if (give_access(it, &target, it->out.mode, PV_ITEM_OPEN_OUT, err) < 0)
                return PV_PUBLISH_FAILED;
        if (pv_move_new(e, it, &target, &at) < 0) {
                if (errno != EACCES || !remove_empty_directory(e, i, &at, &target))
                        return rename_failed(e, it, err);
                it->state = PV_ITEM_DONE;
                return PV_PUBLISHED;
        }
        it->state = PV_ITEM_DONE;
        if (!pv_publish_verify(e, i, &culprit, &why))
                return conflict(e, &e->plan->item[culprit], why);
        return take_access(it, &at, it->out.mode, PV_ITEM_OPEN_OUT, err) < 0 ? PV_PUBLISH_FAILED : PV_PUBLISHED;
}

static enum pv_publish_outcome publish_item(struct pv_engine *e, size_t i, struct pv_err *err)
{
        switch ((enum pv_op)e->plan->item[i].op) {
        case PV_OP_EXCHANGE:
                return exchange(e, i, err);
        case PV_OP_PLACE:
                return place(e, i, err);
        case PV_OP_REMOVE:
                return remove_item(e, i, err);
        case PV_OP_META:
        case PV_OP_WITHIN:
                return PV_PUBLISHED;
        }
        return PV_PUBLISHED;
}

/* Directories' metadata last and from below: a mode of 0555 must not keep its own entries out. */
static enum pv_publish_outcome publish_metadata(struct pv_engine *e, struct pv_err *err)
{
        for (size_t i = e->plan->n; i-- > 0;) {
                struct pv_item *it = &e->plan->item[i];
                const char *why = NULL;
                if (it->op != PV_OP_META)
                        continue;
                it->state = PV_ITEM_DONE;
                if (pv_meta_publish(e, it, &why, err) < 0)
                        return PV_PUBLISH_FAILED;
                if (why)
                        return conflict(e, it, why);
        }
        return PV_PUBLISHED;
}

static bool is_file(const struct pv_item *it)
{
        return !S_ISDIR(it->in.mode) && !S_ISDIR(it->out.mode);
}

static enum pv_publish_outcome publish_directories(struct pv_engine *e, struct pv_err *err)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                enum pv_publish_outcome r = is_file(&e->plan->item[i]) ? PV_PUBLISHED : publish_item(e, i, err);
                if (r != PV_PUBLISHED)
                        return r;
        }
        return PV_PUBLISHED;
}

/* Why a range of files was left in the middle. */
struct stop {
        size_t item;
        enum pv_publish_outcome outcome;
        struct pv_err err;
        struct pv_hand hand;
};

struct files {
        struct pv_engine *e;
        atomic_size_t first; /* item that did not go, of those that are known */
        struct stop **stop;  /* of each range; NULL: all of it went */
};

static void note_stop(struct files *f, struct stop *s)
{
        size_t first = atomic_load(&f->first);
        while (s->item < first && !atomic_compare_exchange_weak(&f->first, &first, s->item))
                ;
        f->stop[s->item / FILES_AT_A_TIME] = s;
}

/* Goes on to the end though another range has stopped behind it: of those that stop, the first one is told of. */
static void publish_range(void *ctx, size_t from, size_t end)
{
        struct files *f = ctx;
        struct stop *s = pv_calloc(1, sizeof *s);
        enum pv_publish_outcome r = PV_PUBLISHED;
        pv_hand_init(&s->hand, f->e);
        for (size_t i = from; r == PV_PUBLISHED && i < end && i < atomic_load(&f->first); i++) {
                s->item = i;
                if (is_file(&s->hand.plan.item[i]))
                        r = publish_item(&s->hand.engine, i, &s->err);
        }
        s->outcome = r;
        if (r != PV_PUBLISHED) {
                note_stop(f, s);
                return;
        }
        pv_hand_fini(&s->hand);
        free(s);
}

static enum pv_publish_outcome publish_files(struct pv_engine *e, struct pv_err *err)
{
        const size_t n = e->plan->n;
        struct files f = { .e = e, .first = n, .stop = pv_calloc(n / FILES_AT_A_TIME + 1, sizeof(struct stop *)) };
        enum pv_publish_outcome r = PV_PUBLISHED;
        pv_engine_reset_walks(e); /* each hand opens its own */
        pv_parallel_for(n, FILES_AT_A_TIME, publish_range, &f);
        for (size_t k = 0; k <= n / FILES_AT_A_TIME; k++) {
                struct stop *s = f.stop[k];
                if (!s)
                        continue;
                if (r == PV_PUBLISHED) {
                        r = s->outcome;
                        *err = s->err;
                        pv_hand_tell(&s->hand, e);
                }
                pv_hand_fini(&s->hand);
                free(s);
        }
        free(f.stop);
        return r;
}

enum pv_publish_outcome pv_publish(struct pv_engine *e, struct pv_err *err)
{
        if (pv_access_open(e, PV_ACCESS_BEFORE, err) < 0)
                return PV_PUBLISH_FAILED;
        enum pv_publish_outcome r = publish_directories(e, err);
        if (r == PV_PUBLISHED)
                r = publish_files(e, err);
        if (r != PV_PUBLISHED)
                return r;
        if (pv_access_restore(e, PV_ACCESS_BEFORE, err) < 0)
                return PV_PUBLISH_FAILED;
        return publish_metadata(e, err);
}
