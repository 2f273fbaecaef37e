/* SPDX-License-Identifier: Apache-2.0 */
#include "job/kept.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "base/process.h"
#include "job/store.h"
#include "policy/kept.h"

#define LOCK      "lock"
#define UPPER     "upper"
#define WORK      "work"
#define WORKSPACE "workspace"
#define PATH_TEXT 8192

#define LOCK_TRIES   5
#define LOCK_WAIT_US 2000
/* For the rest of a run whose command is dead, and for the death of one that was killed. */
#define ENDING_MS 10000

/* Is this try at a lock that is held not the last one? */
static bool try_again(int fd, int tries)
{
        int most = pv_process_noted_over(fd) ? ENDING_MS * 1000 / LOCK_WAIT_US : LOCK_TRIES;
        return tries < most && usleep(LOCK_WAIT_US) == 0;
}

/*
 * Takes top/lock, both made when missing. A shared lock is waited for, since only who removes a directory, or looks
 * whether it may, has the other for long, and that is over soon; the other is PV_ERR_BUSY after some tries, of which
 * there are more where the run that has it is over.
 */
static int take_lock(const char *top, int how, int *out, struct pv_err *err)
{
        pv_auto_free char *path = pv_path_join(top, LOCK);
        for (int tries = 0;;) {
                struct stat held, there;
                if (pv_path_make_dirs(top, 0700, err) < 0)
                        return -1;
                pv_auto_fd fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
                if (fd < 0 && errno == ENOENT)
                        continue;
                if (fd < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
                if (flock(fd, how == LOCK_SH ? how : how | LOCK_NB) < 0) {
                        int e = errno;
                        if (e == EINTR || (e == EWOULDBLOCK && try_again(fd, tries++)))
                                continue;
                        return pv_err_set(err, e == EWOULDBLOCK ? PV_ERR_BUSY : PV_ERR_SYS, e, "lock %s", path);
                }
                if (fstat(fd, &held) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
                if (stat(path, &there) < 0 || held.st_ino != there.st_ino || held.st_dev != there.st_dev)
                        continue;
                /* Of a run whose supervisor was killed the command may write for another moment. */
                if (how == LOCK_EX && pv_process_noted_lives(fd, ENDING_MS))
                        return pv_err_set(err, PV_ERR_BUSY, 0, "lock %s", path);
                *out = pv_fd_steal(&fd);
                return 0;
        }
}

/*
 * Gives the owner of a directory of pVisor's own its rights, which an earlier command may have taken away, or mode
 * where that is not 0; by descriptor, since a link may lie there. -1 with errno: ENOTDIR or ELOOP when it is no
 * directory.
 */
static int own_dir(int at, const char *name, mode_t mode)
{
        struct stat st;
        pv_auto_fd fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -1;
        mode_t wanted = mode ? mode : (st.st_mode & 07777) | 0700;
        return wanted == (st.st_mode & 07777) ? 0 : pv_fd_chmod(fd, wanted);
}

/*
 * An agent's state.
 */

/*
 * What of a setting's path is not what its mount needs goes away: an earlier command's link, or file for a directory.
 */
static int clear_place(struct pv_pathfd root, const char *rel, bool dir, struct pv_err *err)
{
        for (const char *at = rel;;) {
                size_t n = (size_t)(at - rel) + strcspn(at, "/");
                bool last = rel[n] == '\0';
                pv_auto_free char *part = pv_strndup(rel, n);
                struct stat st;
                const char *name = NULL;
                pv_auto_pathfd parent = PV_PATHFD_INIT;
                if (pv_path_open_parent(root, part, &parent, &name) < 0)
                        return errno == ENOENT ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "look at %s", part);
                if (fstatat(parent.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return errno == ENOENT ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "look at %s", part);
                if (last && !dir ? !S_ISREG(st.st_mode) : !S_ISDIR(st.st_mode))
                        return pv_path_remove_tree(parent.fd, name, err);
                if (last)
                        return 0;
                if (own_dir(parent.fd, name, 0) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "open %s to its owner", part);
                at = rel + n + 1;
        }
}

/* The place of a mount in a state directory, relative to it; NULL: it lies elsewhere. */
static const char *place_in(const struct pv_kept *k, const struct pv_mount *m)
{
        if (!m->by_profile || pv_streq(m->dst, k->dst) || !pv_path_is_within(m->dst, k->dst))
                return NULL;
        return m->dst + strlen(k->dst) + 1;
}

static int prepare_state(const struct pv_plan *p, const struct pv_kept *k, struct pv_err *err)
{
        pv_auto_pathfd root = PV_PATHFD_INIT;
        if (pv_path_make_dirs(k->src, 0700, err) < 0)
                return -1;
        if (own_dir(AT_FDCWD, k->src, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s to its owner", k->src);
        if (pv_path_open_root(k->src, &root, err) < 0)
                return -1;
        for (size_t i = 0; i < p->n_mounts; i++) {
                struct stat st;
                const char *rel = place_in(k, &p->mounts[i]);
                if (rel && stat(p->mounts[i].src, &st) == 0 && clear_place(root, rel, S_ISDIR(st.st_mode), err) < 0)
                        return pv_err_wrap(err, "%s", k->src);
        }
        return 0;
}

/* The empty files and directories that settings were mounted on would be no settings; only when no run has them. */
static void sweep_places(const struct pv_plan *p)
{
        for (size_t i = 0; i < p->n_state; i++) {
                pv_auto_pathfd root = PV_PATHFD_INIT;
                struct pv_err ignored = PV_ERR_INIT;
                if (pv_path_open_root(p->state[i].src, &root, &ignored) < 0)
                        continue;
                for (size_t k = 0; k < p->n_mounts; k++) {
                        struct stat st;
                        const char *name = NULL, *rel = place_in(&p->state[i], &p->mounts[k]);
                        pv_auto_pathfd parent = PV_PATHFD_INIT;
                        if (!rel || pv_path_open_parent(root, rel, &parent, &name) < 0 ||
                            fstatat(parent.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                                continue;
                        if (S_ISDIR(st.st_mode))
                                (void)unlinkat(parent.fd, name, AT_REMOVEDIR);
                        else if (S_ISREG(st.st_mode) && st.st_size == 0)
                                (void)unlinkat(parent.fd, name, 0);
                }
        }
}

static int prepare_states(const struct pv_plan *p, const char *store, struct pv_kept_run *out, struct pv_err *err)
{
        pv_auto_free char *top = pv_kept_state_of(store, p->profile.name);
        if (take_lock(top, LOCK_SH, &out->state_lock, err) < 0)
                return pv_err_wrap(err, "state of %s", p->profile.name);
        for (size_t i = 0; i < p->n_state; i++)
                if (prepare_state(p, &p->state[i], err) < 0)
                        return -1;
        return 0;
}

int pv_kept_forget_state(const char *name, bool *there, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        pv_auto_fd lock = -1;
        if (pv_store_path(&store, err) < 0)
                return -1;
        pv_auto_free char *agents = pv_path_join(store, "agents");
        pv_auto_free char *top = pv_kept_state_of(store, name);
        pv_auto_fd dir = open(agents, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", agents);
        *there = dir >= 0 && faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        if (!*there)
                return 0;
        if (take_lock(top, LOCK_EX, &lock, err) < 0) {
                (void)pv_err_wrap(err, "state of %s", name);
                return err->kind == PV_ERR_BUSY ? pv_err_hint(err, "a run has it: pvisor list") : -1;
        }
        return pv_path_remove_tree(dir, name, err);
}

/*
 * Caches.
 */

/*
 * Makes one directory of upper/REL, or opens the one that is there to its owner; links are an earlier command's work.
 */
static int make_one(struct pv_pathfd upper, const char *rel, mode_t mode)
{
        const char *name = NULL;
        pv_auto_pathfd parent = PV_PATHFD_INIT;
        if (pv_path_open_parent(upper, rel, &parent, &name) < 0)
                return -1;
        if (mkdirat(parent.fd, name, 0700) < 0)
                return errno == EEXIST ? own_dir(parent.fd, name, 0) : -1;
        return own_dir(parent.fd, name, mode);
}

/* upper/REL, new with the mode of the host's, which it covers. -1 with errno. */
static int make_layer_dir(const struct pv_plan *p, struct pv_pathfd upper, const char *rel)
{
        struct stat st;
        pv_auto_free char *host = pv_path_join(p->home, rel);
        mode_t mode = stat(host, &st) == 0 ? st.st_mode & 0777 : 0700;
        for (size_t n = strcspn(rel, "/"); rel[n]; n += 1 + strcspn(rel + n + 1, "/")) {
                pv_auto_free char *part = pv_strndup(rel, n);
                if (make_one(upper, part, 0700) < 0)
                        return -1;
        }
        return make_one(upper, rel, mode);
}

/* A cache in whose way something else lies is none in this run. */
static int make_layer(struct pv_plan *p, const char *path, struct pv_err *err)
{
        pv_auto_pathfd upper = PV_PATHFD_INIT;
        if (pv_path_make_dirs(path, 0700, err) < 0 || pv_path_open_root(path, &upper, err) < 0)
                return -1;
        for (size_t i = 0; i < p->caches.n;) {
                char *rel = p->caches.v[i];
                if (make_layer_dir(p, upper, rel) == 0) {
                        i++;
                        continue;
                }
                if (errno != ELOOP && errno != ENOTDIR && errno != EXDEV)
                        return pv_err_set(err, PV_ERR_SYS, errno, "make directory %s/%s", path, rel);
                pv_log_warn("~/%s is not kept: an earlier command left something else than a directory there; "
                            "pvisor prune --caches removes all caches",
                            rel);
                memmove(&p->caches.v[i], &p->caches.v[i + 1], (p->caches.n - i - 1) * sizeof *p->caches.v);
                p->caches.v[--p->caches.n] = NULL;
                free(rel);
        }
        return 0;
}

/* overlayfs takes no work directory that a volatile mount has used. */
static int renew_work(int dir, struct pv_err *err)
{
        if (pv_path_remove_tree(dir, WORK, err) < 0)
                return -1;
        return mkdirat(dir, WORK, 0700) < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "make directory %s", WORK) : 0;
}

static int note_use(const struct pv_plan *p, int dir, int lock, struct pv_err *err)
{
        if (futimens(lock, NULL) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "note the use of caches");
        if (faccessat(dir, WORKSPACE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        return pv_file_write_at(dir, WORKSPACE, p->workspace, strlen(p->workspace), 0600, PV_FILE_REPLACE, err);
}

static int prepare_caches(struct pv_plan *p, struct pv_kept_run *out, struct pv_err *err)
{
        if (take_lock(p->cache_dir, LOCK_EX, &out->caches_lock, err) < 0) {
                if (err->kind != PV_ERR_BUSY)
                        return -1;
                pv_err_clear(err);
                pv_log_note("another run of this workspace has its caches: this one's are thrown away");
                pv_plan_forget_caches(p);
                return 0;
        }
        pv_auto_fd dir = open(p->cache_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", p->cache_dir);
        out->upper = pv_path_join(p->cache_dir, UPPER);
        out->work = pv_path_join(p->cache_dir, WORK);
        if (make_layer(p, out->upper, err) < 0 || renew_work(dir, err) < 0 ||
            note_use(p, dir, out->caches_lock, err) < 0)
                return -1;
        if (p->caches.n == 0) {
                free(out->upper);
                out->upper = NULL;
                pv_plan_forget_caches(p);
        }
        return 0;
}

int pv_kept_prepare(struct pv_plan *plan, struct pv_kept_run *out, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        if (plan->n_state == 0 && !plan->cache_dir)
                return 0;
        if (pv_store_path(&store, err) < 0)
                return -1;
        if (plan->n_state && prepare_states(plan, store, out, err) < 0)
                return -1;
        if (plan->cache_dir && prepare_caches(plan, out, err) < 0)
                return pv_err_wrap(err, "caches");
        return 0;
}

void pv_kept_note_init(const struct pv_kept_run *k, const struct pv_process *init)
{
        if (k->caches_lock >= 0)
                pv_process_note(k->caches_lock, init);
}

void pv_kept_note_over(const struct pv_kept_run *k)
{
        if (k->caches_lock >= 0)
                pv_process_note_over(k->caches_lock);
}

void pv_kept_run_fini(const struct pv_plan *plan, struct pv_kept_run *k)
{
        if (k->state_lock >= 0 && flock(k->state_lock, LOCK_EX | LOCK_NB) == 0)
                sweep_places(plan);
        pv_fd_closep(&k->state_lock);
        pv_fd_closep(&k->caches_lock);
        free(k->upper);
        free(k->work);
        *k = (struct pv_kept_run)PV_KEPT_RUN_INIT;
}

/* Regular files below a directory, by what they take on disk; a damaged tree counts as far as it can be read. */
static uint64_t measure(int at, const char *name, int depth)
{
        uint64_t bytes = 0;
        pv_auto_fd fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_dir d = fd < 0 || depth > 128 ? NULL : fdopendir(pv_fd_steal(&fd));
        for (struct dirent *e; d && (e = readdir(d));) {
                struct stat st;
                if (pv_streq(e->d_name, ".") || pv_streq(e->d_name, "..") ||
                    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                bytes += (uint64_t)st.st_blocks * 512;
                if (S_ISDIR(st.st_mode))
                        bytes += measure(dirfd(d), e->d_name, depth + 1);
        }
        return bytes;
}

static void add_cache(const char *top, const char *name, struct pv_kept_cache **all, size_t *n)
{
        struct stat st;
        size_t len = 0;
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_fd lock = -1;
        pv_auto_free char *path = pv_path_join(top, name);
        pv_auto_fd dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0 || fstat(dir, &st) < 0)
                return;
        *all = pv_realloc(*all, *n + 1, sizeof **all);
        struct pv_kept_cache *c = &(*all)[(*n)++];
        *c = (struct pv_kept_cache){ .path = pv_steal(&path), .used = st.st_mtim };
        if (fstatat(dir, LOCK, &st, AT_SYMLINK_NOFOLLOW) == 0)
                c->used = st.st_mtim;
        (void)pv_file_read_at(dir, WORKSPACE, PATH_TEXT, &c->workspace, &len, &ignored);
        c->bytes = measure(dir, UPPER, 0);
        c->in_use = take_lock(c->path, LOCK_EX, &lock, &ignored) < 0;
}

static int compare_use(const void *a, const void *b)
{
        const struct pv_kept_cache *x = a, *y = b;
        return pv_clock_compare(&x->used, &y->used);
}

int pv_kept_caches_list(struct pv_kept_cache **out, size_t *n, struct pv_err *err)
{
        pv_auto_free char *store = NULL;
        struct pv_kept_cache *all = NULL;
        size_t count = 0;
        if (pv_store_path(&store, err) < 0)
                return -1;
        pv_auto_free char *top = pv_kept_caches(store);
        pv_auto_dir d = opendir(top);
        struct dirent *e = NULL;
        int r = d || errno == ENOENT ? 0 : -1;
        while (d && (r = pv_dir_next(d, &e)) > 0)
                if (e->d_name[0] != '.')
                        add_cache(top, e->d_name, &all, &count);
        if (r < 0) {
                (void)pv_err_set(err, PV_ERR_SYS, errno, "read %s", top);
                pv_kept_caches_free(all, count);
                return -1;
        }
        if (count > 1)
                qsort(all, count, sizeof *all, compare_use);
        *out = all;
        *n = count;
        return 0;
}

void pv_kept_caches_free(struct pv_kept_cache *all, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                free(all[i].workspace);
                free(all[i].path);
        }
        free(all);
}

int pv_kept_cache_remove(const struct pv_kept_cache *c, struct pv_err *err)
{
        pv_auto_fd lock = -1;
        pv_auto_free char *parent = pv_strndup(c->path, (size_t)(strrchr(c->path, '/') - c->path));
        if (take_lock(c->path, LOCK_EX, &lock, err) < 0)
                return pv_err_wrap(err, "caches");
        pv_auto_fd dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", parent);
        return pv_path_remove_tree(dir, strrchr(c->path, '/') + 1, err);
}
