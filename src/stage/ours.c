/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to let the next look at a running stage tell our own change of an inode from the host's, and never the other way
 * round. An inode is noted with its ctime when three things hold:
 *
 *  1. Before. Its ctime lies before the run's start, or is the one that was noted of it: what it is, it was for the
 *     command, too. A directory that the batch itself copies is ours from the beginning.
 *  2. Between. Who else touches it is seen. It is watched by inotify(7) from before the look of 1 until after that of
 *     3: in a directory every event must be about a name of the batch, which has a record of its own (beside.c); in a
 *     file there must be none of writing, and mode, owner, attributes, number of names, size and time of the last
 *     write must be what they were. inotify knows of no changes that another machine makes: only on the file systems
 *     listed here is anything noted.
 *  3. After. What is changed from now on gets a later ctime: one moment of the file system's clock is taken, as the
 *     run's start was (startclock.c), and the ctime lies before it.
 *
 * The events of a change that is under way may be missing still while its ctime shows already. A change of entries
 * holds the directory's lock until its event is told, so reading an entry waits for it; a writer's last event comes
 * before its descriptor is closed, and the kernel gives no lease while one is open. Then the events are read.
 *
 * What is not noted costs a look, as ever: too much at once, no inotify, a file that may not be read.
 */
#include "stage/ours.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include "base/fd.h"
#include "stage/beside.h"
#include "stage/preimage.h"

/* Held open at once: a descriptor each. */
#define WATCHED_MAX  256
#define ENTRY_EVENTS (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_UNMOUNT | IN_ONLYDIR)
#define WRITE_EVENTS (IN_MODIFY | IN_CLOSE_WRITE | IN_UNMOUNT)

char *pv_ours_file(size_t root)
{
        return pv_strf("roots/%zu/ours", root);
}

/* ---- the record: facts by inode number ---- */

struct pv_ours {
        struct pv_facts *list; /* sorted by ino */
        size_t n;
};

static int by_ino(const void *a, const void *b)
{
        const struct pv_facts *x = a, *y = b;
        return (x->ino > y->ino) - (x->ino < y->ino);
}

struct pv_ours *pv_ours_open(const struct pv_stage *s, size_t root)
{
        struct pv_err ignored = PV_ERR_INIT; /* what a damaged file says no more is not noted */
        pv_auto_free char *file = pv_ours_file(root);
        struct pv_ours *o = pv_calloc(1, sizeof *o);
        struct pv_preimage_reader *in = NULL;
        struct pv_preimage p;
        const char *key;
        if (pv_preimages_open(s->fd.fd, file, &in, &ignored) < 0 || pv_preimages_run(in) != s->runs) {
                pv_preimages_close(in);
                return o;
        }
        while (pv_preimages_next(in, &key, &p, &ignored) > 0) {
                if (o->n % 64 == 0)
                        o->list = pv_realloc(o->list, o->n + 64, sizeof *o->list);
                o->list[o->n++] = p.host;
        }
        pv_preimages_close(in);
        if (o->n > 1)
                qsort(o->list, o->n, sizeof *o->list, by_ino);
        return o;
}

void pv_ours_close(struct pv_ours *o)
{
        if (!o)
                return;
        free(o->list);
        free(o);
}

static void close_ours(struct pv_ours **o)
{
        pv_ours_close(*o);
}
#define auto_ours __attribute__((cleanup(close_ours))) struct pv_ours *

static struct pv_facts *find(const struct pv_ours *o, uint64_t ino)
{
        const struct pv_facts key = { .ino = ino };
        return o->n ? bsearch(&key, o->list, o->n, sizeof *o->list, by_ino) : NULL;
}

bool pv_ours_has_directory(const struct pv_ours *o, uint64_t ino, const struct timespec *ctime)
{
        const struct pv_facts *f = find(o, ino);
        return f && S_ISDIR(f->mode) && pv_clock_compare(&f->ctime, ctime) == 0;
}

static bool is_same_file(const struct pv_facts *a, const struct pv_facts *b)
{
        return S_ISREG(a->mode) && a->ino == b->ino && a->size == b->size && pv_facts_same_metadata(a, b) &&
               pv_clock_compare(&a->mtime, &b->mtime) == 0;
}

bool pv_ours_has_file(const struct pv_ours *o, const struct pv_scan_entry *e)
{
        const struct pv_facts *f = find(o, e->host.ino);
        struct pv_facts now = e->host;
        return f && pv_clock_compare(&f->ctime, &now.ctime) == 0 &&
               pv_facts_get_xattrs(e->host_dir, e->name, PV_FACTS_HOST, &now.xattrs) == 0 && is_same_file(f, &now);
}

/* Adds what is in `more`, or puts it in the place of what was known of the same inode; more is sorted by ino. */
static int write_ours(const struct pv_stage *s, size_t root, const struct pv_ours *more, struct pv_err *err)
{
        pv_auto_free char *file = pv_ours_file(root);
        auto_ours old = pv_ours_open(s, root);
        struct pv_preimage_writer *out = NULL;
        int r = pv_preimages_create(s->fd.fd, file, s->runs, &out, err);
        for (size_t i = 0, k = 0; r == 0 && (i < old->n || k < more->n);) {
                bool take_new = i == old->n || (k < more->n && more->list[k].ino <= old->list[i].ino);
                const struct pv_preimage p = { .host = take_new ? more->list[k] : old->list[i] };
                pv_auto_free char *key = pv_strf("%016llx", (unsigned long long)p.host.ino);
                while (i < old->n && old->list[i].ino <= p.host.ino)
                        i++;
                k += take_new;
                r = pv_preimages_put(out, key, &p, err);
        }
        if (r == 0)
                return pv_preimages_finish(out, PV_PREIMAGE_CACHED, err);
        pv_preimages_abandon(out);
        return -1;
}

/* ---- watching ---- */

struct watched {
        int fd, wd;
        uint32_t root;
        char *path;          /* of a directory, owned; NULL: a file */
        struct pv_facts was; /* of a file */
        bool touched;        /* by somebody else */
};

struct pv_ours_watch {
        int inotify;
        struct watched list[WATCHED_MAX];
        size_t n;
        struct pv_ours **ours; /* one a root */
        size_t n_roots;
};

void pv_ours_unwatch(struct pv_ours_watch *w)
{
        if (!w)
                return;
        pv_fd_closep(&w->inotify);
        for (size_t i = 0; i < w->n; i++) {
                pv_fd_closep(&w->list[i].fd);
                free(w->list[i].path);
        }
        for (size_t r = 0; r < w->n_roots; r++)
                pv_ours_close(w->ours[r]);
        free(w->ours);
        free(w);
}

/* Whoever changes something there does it through this kernel. */
static bool is_local(int fd)
{
        static const long magic[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC,       BTRFS_SUPER_MAGIC, TMPFS_MAGIC,
                                      F2FS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */ };
        struct statfs st;
        if (fstatfs(fd, &st) < 0)
                return false;
        for (size_t i = 0; i < sizeof magic / sizeof *magic; i++)
                if (magic[i] == (long)st.f_type)
                        return true;
        return false;
}

static bool is_watched(const struct pv_ours_watch *w, uint32_t root, uint64_t ino)
{
        for (size_t i = 0; i < w->n; i++)
                if (w->list[i].root == root && w->list[i].was.ino == ino)
                        return true;
        return false;
}

static bool read_facts(int fd, struct pv_facts *f)
{
        return pv_facts_get(fd, "", NULL, f) == 0 && pv_facts_get_xattrs(fd, "", PV_FACTS_HOST, &f->xattrs) == 0;
}

/* As it was when the run began, or as we left it since. */
static bool is_as_begun(const struct pv_engine *e, const struct pv_ours_watch *w, uint32_t root,
                        const struct pv_facts *f)
{
        const struct pv_facts *left = find(w->ours[root], f->ino);
        if (pv_clock_compare(&f->ctime, &pv_stage_top(e->s)->t0[root]) < 0)
                return true;
        return left && pv_clock_compare(&left->ctime, &f->ctime) == 0 && (S_ISDIR(f->mode) || is_same_file(left, f));
}

/* A directory (with its path) or a file. fresh: the batch made it. */
static void watch(struct pv_engine *e, struct pv_ours_watch *w, uint32_t root, const struct pv_place *at,
                  const char *path, bool fresh)
{
        struct stat st, top;
        if (w->n == WATCHED_MAX || fstatat(at->dirfd, at->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            is_watched(w, root, st.st_ino) || !(path ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)))
                return;
        pv_auto_fd fd = openat(at->dirfd, at->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || !is_local(fd) || fstat(fd, &st) < 0 || fstat(pv_stage_target(e->s, root).fd, &top) < 0 ||
            st.st_dev != top.st_dev)
                return;
        pv_auto_free char *proc = pv_strf("/proc/self/fd/%d", fd);
        struct watched x = { .wd = inotify_add_watch(w->inotify, proc, path ? ENTRY_EVENTS : WRITE_EVENTS),
                             .root = root };
        if (x.wd < 0 || !read_facts(fd, &x.was) || (path ? !S_ISDIR(x.was.mode) : !S_ISREG(x.was.mode)) ||
            (!fresh && !is_as_begun(e, w, root, &x.was)))
                return;
        x.fd = pv_fd_steal(&fd);
        x.path = path ? pv_strdup(path) : NULL;
        w->list[w->n++] = x;
}

/* before: the item whose parent was looked at last; most have the same. */
static void watch_parent(struct pv_engine *e, struct pv_ours_watch *w, const struct pv_item *it,
                         const struct pv_item **before)
{
        struct pv_place at;
        const char *slash = strrchr(it->path, '/');
        size_t n = slash ? (size_t)(slash - it->path) : 0;
        bool same = *before && (*before)->root == it->root &&
                    strncmp((*before)->path, it->path, n + (slash != NULL)) == 0 &&
                    !strchr((*before)->path + n + (slash != NULL), '/');
        if (*it->path == '\0' || same || pv_place_target(e, it, &at) < 0)
                return;
        *before = it;
        pv_auto_free char *path = pv_strndup(it->path, n);
        at.name = ".";
        watch(e, w, it->root, &at, path, false);
}

/* A file with other names, which goes out of the target or comes back into it. */
static void watch_names(struct pv_engine *e, struct pv_ours_watch *w, const struct pv_item *it)
{
        struct pv_place at;
        struct stat st;
        if (S_ISREG(it->out.mode) && it->flags & PV_ITEM_OUT_LINKED && pv_place_target(e, it, &at) == 0)
                watch(e, w, it->root, &at, NULL, false);
        if (S_ISREG(it->in.mode) && !(it->flags & PV_ITEM_COPY) && pv_place_counterpart(e, it, &at) == 0 &&
            fstatat(at.dirfd, at.name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink > 1)
                watch(e, w, it->root, &at, NULL, false);
}

/* The copy of a new directory, and those in it. */
static void watch_copies(struct pv_engine *e, struct pv_ours_watch *w, size_t i)
{
        const struct pv_plan_list *p = e->plan;
        const struct pv_item *it = &p->item[i];
        struct pv_place at;
        if (!S_ISDIR(it->in.mode) || !(it->flags & PV_ITEM_COPY) || pv_place_counterpart(e, it, &at) < 0)
                return;
        watch(e, w, it->root, &at, it->path, true);
        struct pv_pathfd dir = { openat(at.dirfd, at.name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) };
        pv_auto_fd owner = dir.fd;
        pv_auto_walk walk;
        pv_walk_init(&walk, dir);
        size_t end = pv_plan_list_end(p, i), skip = strlen(it->path) + 1;
        for (size_t k = i + 1; dir.fd >= 0 && k < end; k++) {
                const struct pv_item *below = &p->item[k];
                if (below->op == PV_OP_WITHIN && S_ISDIR(below->in.mode) && !(below->flags & PV_ITEM_OLD_TREE) &&
                    (at.dirfd = pv_walk_parent(&walk, below->path + skip, &at.name)) >= 0)
                        watch(e, w, it->root, &at, below->path, true);
        }
}

struct pv_ours_watch *pv_ours_watch(struct pv_engine *e)
{
        struct pv_ours_watch *w = pv_calloc(1, sizeof *w);
        const struct pv_item *before = NULL;
        w->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        w->n_roots = pv_stage_n_roots(e->s);
        w->ours = pv_calloc(w->n_roots, sizeof *w->ours);
        for (size_t r = 0; r < w->n_roots; r++)
                w->ours[r] = pv_ours_open(e->s, r);
        for (size_t i = 0; w->inotify >= 0 && w->n < WATCHED_MAX && i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                if (it->op != PV_OP_EXCHANGE && it->op != PV_OP_PLACE && it->op != PV_OP_REMOVE)
                        continue;
                watch_parent(e, w, it, &before);
                watch_names(e, w, it);
                watch_copies(e, w, i);
        }
        return w;
}

/* A name of the batch in the directory: of a path that it decides on, or one of its copies beside the target. */
static bool is_of_batch(const struct pv_plan_list *p, const struct watched *dir, const char *name)
{
        pv_auto_free char *beside = pv_strf(PV_BESIDE_PREFIX "%s-", p->head.id);
        pv_auto_free char *path = *dir->path ? pv_strf("%s/%s", dir->path, name) : pv_strdup(name);
        size_t low = 0, high = p->n;
        if (pv_str_has_prefix(name, beside))
                return true;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                const struct pv_item *it = &p->item[mid];
                int order = it->root != dir->root ? (it->root < dir->root ? -1 : 1) : pv_path_order(it->path, path);
                if (order == 0)
                        return it->op != PV_OP_META;
                if (order < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        return false;
}

static void hear(struct pv_ours_watch *w, const struct pv_plan_list *p, const struct inotify_event *event)
{
        for (size_t i = 0; i < w->n; i++) {
                struct watched *x = &w->list[i];
                bool lost = event->mask & (IN_Q_OVERFLOW | IN_UNMOUNT);
                if (lost || (event->wd == x->wd && !(x->path && event->len && is_of_batch(p, x, event->name))))
                        x->touched = true;
        }
}

/* False: the events could not be read. */
static bool hear_all(struct pv_ours_watch *w, const struct pv_plan_list *p)
{
        union {
                struct inotify_event event;
                char bytes[16384];
        } buf;
        for (;;) {
                ssize_t n = read(w->inotify, &buf, sizeof buf);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 && errno == EAGAIN;
                for (ssize_t at = 0; at < n;) {
                        const struct inotify_event *event = (const void *)(buf.bytes + at);
                        hear(w, p, event);
                        at += (ssize_t)sizeof *event + event->len;
                }
        }
}

/* Waits for whoever changes the directory's entries right now. */
static bool wait_for_entries(int fd)
{
        char buf[1024];
        return getdents64(fd, buf, sizeof buf) >= 0;
}

/* Nobody has it open for writing: who had has told of it. */
static bool is_unwritten(int fd)
{
        if (fcntl(fd, F_SETSIG, SIGURG) < 0 || fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
                return false;
        return fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

/* An original that is kept as a copy on another file system loses a name for each that was published. */
static unsigned names_left(const struct pv_plan_list *p, const struct watched *x)
{
        unsigned n = x->was.nlink;
        for (size_t i = 0; i < p->n; i++)
                n -= p->item[i].at == PV_AT_BESIDE && p->item[i].root == x->root && p->item[i].out.ino == x->was.ino;
        return n;
}

/* What it is now, if whatever comes after `now` moves its ctime. */
static bool look(const struct pv_plan_list *p, const struct watched *x, const struct timespec *now, struct pv_facts *f)
{
        if (!x->path && !is_unwritten(x->fd))
                return false;
        if (!read_facts(x->fd, f) || pv_clock_compare(&f->ctime, now) >= 0)
                return false;
        return x->path ? wait_for_entries(x->fd) : is_same_file(&x->was, f) && f->nlink == names_left(p, x);
}

static bool has_root(const struct pv_ours_watch *w, size_t root)
{
        for (size_t i = 0; i < w->n; i++)
                if (w->list[i].root == root)
                        return true;
        return false;
}

void pv_ours_note(struct pv_engine *e, struct pv_ours_watch *w)
{
        pv_auto_free struct pv_facts *now = pv_calloc(w->n + 1, sizeof *now);
        for (size_t r = 0; r < w->n_roots; r++) {
                struct timespec moment;
                struct pv_err ignored = PV_ERR_INIT; /* without a clock nothing is certain */
                if (!has_root(w, r))
                        continue;
                bool told = pv_startclock_take(pv_stage_target(e->s, r), e->s->lock_fd, "", &moment, &ignored) == 0;
                for (size_t i = 0; i < w->n; i++)
                        if (w->list[i].root == r && (!told || !look(e->plan, &w->list[i], &moment, &now[i])))
                                w->list[i].touched = true;
        }
        if (!hear_all(w, e->plan))
                return;
        for (size_t r = 0; r < w->n_roots; r++) {
                struct pv_ours found = { .list = pv_calloc(w->n + 1, sizeof *found.list) };
                struct pv_err ignored = PV_ERR_INIT; /* the note is missing then, and what it is about in doubt */
                for (size_t i = 0; i < w->n; i++)
                        if (w->list[i].root == r && !w->list[i].touched)
                                found.list[found.n++] = now[i];
                if (found.n > 1)
                        qsort(found.list, found.n, sizeof *found.list, by_ino);
                if (found.n > 0)
                        (void)write_ours(e->s, r, &found, &ignored);
                free(found.list);
        }
}
