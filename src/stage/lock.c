/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/xattr.h>
#include "base/copy.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/statedir.h"

#define WAIT_MS 10000
#define STEP_MS 20
#define HINT    PV_XATTR_OWN "pending"

void pv_target_unlock(struct pv_target_lock *l)
{
        for (size_t i = 0; i < l->n; i++)
                pv_fd_closep(&l->fd[i]);
        free(l->fd);
        *l = (struct pv_target_lock){ 0 };
}

static int lock_one(int fd, const char *target, struct pv_err *err)
{
        for (int waited = 0;; waited += STEP_MS) {
                if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                        return 0;
                if (errno != EWOULDBLOCK && errno != EINTR)
                        break; /* a filesystem whose directories cannot be locked: see below */
                if (waited >= WAIT_MS)
                        return pv_err_set(err, PV_ERR_BUSY, 0, "%s: another apply or undo is under way", target);
                (void)usleep(STEP_MS * 1000);
        }
        /* NFS locks through byte ranges, which want a descriptor open for writing: none of a directory. */
        return 0;
}

struct target {
        int fd;
        const char *path;
        struct stat st;
};

/* In the order of (device, inode): two stages with the same roots in another order must not wait for each other. */
static int compare_targets(const void *a, const void *b)
{
        const struct stat *x = &((const struct target *)a)->st, *y = &((const struct target *)b)->st;
        if (x->st_dev != y->st_dev)
                return x->st_dev < y->st_dev ? -1 : 1;
        return x->st_ino == y->st_ino ? 0 : x->st_ino < y->st_ino ? -1 : 1;
}

int pv_target_lock(struct pv_stage *s, struct pv_target_lock *out, struct pv_err *err)
{
        if (pv_stage_require_targets(s, err) < 0)
                return -1;
        size_t n = pv_stage_n_roots(s);
        pv_auto_free struct target *target = pv_calloc(n, sizeof *target);
        pv_auto_target_lock l = { .fd = pv_calloc(n, sizeof *l.fd) };
        for (size_t i = 0; i < n; i++) {
                struct target *t = &target[i];
                t->path = pv_stage_root(s, i)->target;
                t->fd = openat(pv_stage_target(s, i).fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (t->fd < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "open %s", t->path);
                l.fd[l.n++] = t->fd;
                if (fstat(t->fd, &t->st) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "look at %s", t->path);
        }
        qsort(target, n, sizeof *target, compare_targets);
        for (size_t i = 0; i < n; i++)
                if (lock_one(target[i].fd, target[i].path, err) < 0)
                        return -1;
        *out = l;
        l = (struct pv_target_lock){ 0 };
        return 0;
}

static void notice_name(const struct pv_stage *s, size_t i, char out[33])
{
        unsigned char sum[PV_SHA256_SIZE];
        const char *target = pv_stage_root(s, i)->target;
        pv_sha256_bytes(target, strlen(target), sum);
        pv_hex(sum, 16, out);
}

int pv_pending_open_dir(void)
{
        struct pv_err ignored;
        pv_auto_free char *state = NULL;
        if (pv_state_dir(&state, &ignored) < 0)
                return -1;
        pv_auto_free char *dir = pv_path_join(state, "pending");
        if (pv_path_make_dirs(state, 0700, &ignored) < 0 || pv_path_make_dirs(dir, 0700, &ignored) < 0)
                return -1;
        return open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int note_one(struct pv_stage *s, size_t i, int dirfd)
{
        struct pv_err ignored;
        char name[33];
        const char *dir = pv_stage_dir(s);
        notice_name(s, i, name);
        return dirfd < 0 ? -1 : pv_file_write_at(dirfd, name, dir, strlen(dir), 0600, PV_FILE_REPLACE, &ignored);
}

static int hint_path(struct pv_stage *s, size_t i, char out[64])
{
        return snprintf(out, 64, "/proc/self/fd/%d/.", pv_stage_target(s, i).fd);
}

int pv_pending_set(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_fd dir = pv_pending_open_dir();
        for (size_t i = 0; i < pv_stage_n_roots(s); i++) {
                char path[64];
                (void)hint_path(s, i, path);
                const char *stage = pv_stage_dir(s);
                int noted = note_one(s, i, dir);
                int hinted = setxattr(path, HINT, stage, strlen(stage), 0);
                if (noted < 0 && hinted < 0 && errno == ENOSPC)
                        return pv_err_set(err, PV_ERR_SYS, ENOSPC, "note the batch that begins");
                /* A read-only store over a target without attributes: this stage alone then knows of its batch. */
        }
        return 0;
}

void pv_pending_forget(struct pv_stage *s, size_t i)
{
        char path[64], name[33];
        pv_auto_fd dir = pv_pending_open_dir();
        notice_name(s, i, name);
        if (dir >= 0)
                (void)unlinkat(dir, name, 0);
        (void)hint_path(s, i, path);
        (void)removexattr(path, HINT);
}

void pv_pending_clear(struct pv_stage *s)
{
        for (size_t i = 0; i < pv_stage_n_roots(s); i++)
                pv_pending_forget(s, i);
}

/* Does that directory hold a batch under way? Where one may not look, it is taken to. */
static bool is_unfinished(const char *stage)
{
        struct stat st;
        pv_auto_free char *journal = pv_path_join(stage, "journal");
        return lstat(journal, &st) == 0 || errno == EACCES;
}

static char *read_notice(struct pv_stage *s, size_t i)
{
        struct pv_err ignored;
        char name[33], *text = NULL;
        pv_auto_fd dir = pv_pending_open_dir();
        notice_name(s, i, name);
        if (dir < 0 || pv_file_read_at(dir, name, PATH_MAX, &text, NULL, &ignored) < 0)
                return NULL;
        return text;
}

bool pv_pending_is_set(struct pv_stage *s)
{
        for (size_t i = 0; i < pv_stage_n_roots(s); i++) {
                pv_auto_free char *noted = read_notice(s, i);
                if (noted && pv_streq(noted, pv_stage_dir(s)))
                        return true;
        }
        return false;
}

int pv_pending_find(struct pv_stage *s, size_t i, char **dir, struct pv_err *err)
{
        char path[64], hint[PATH_MAX + 1];
        pv_auto_free char *noted = read_notice(s, i);
        *dir = NULL;
        if (noted && !pv_streq(noted, pv_stage_dir(s))) {
                if (is_unfinished(noted))
                        *dir = pv_steal(&noted);
                else
                        pv_pending_forget(s, i);
                return 0;
        }
        (void)hint_path(s, i, path);
        ssize_t n = getxattr(path, HINT, hint, PATH_MAX);
        if (n <= 0)
                return 0;
        hint[n] = '\0';
        if (hint[0] != '/' || pv_streq(hint, pv_stage_dir(s)) || !is_unfinished(hint)) {
                (void)removexattr(path, HINT); /* stale: its removal failed once */
                return 0;
        }
        (void)pv_err_set(err, PV_ERR_BUSY, 0, "%s: an apply from another job store was cut short",
                         pv_stage_root(s, i)->target);
        return pv_err_hint(err, "finish it first, as who began it: pvisor apply --dry-run --all %s", hint);
}
