/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to keep what is known of each run where any later command of any process finds it, without a daemon. Non-job:
 * the stage's own files (stage/), and what is true of the boundary (evidence/).
 *
 * Actors: the supervisor, which makes one job and ends it; any number of other commands, which read, and decide under
 * the stage's lock. All of them are the person's own. The command inside never sees the store (it is hidden in every
 * view), but names in these files come from it, and files may be damaged by a crash or by hand: each is bounded and
 * checked when read, and a damaged job hides no other.
 *
 * A job appears whole: it is made as jobs/.new-*, its lock taken, its request written, and then renamed to its id.
 * Since it is never empty, a rename to an id that is taken fails, which is what makes ids unique. Interrupted makings
 * stay behind as .new-* and `prune` removes them.
 *
 * Whether a job runs is asked of the kernel, not of a file: the supervisor holds a flock(2) on `lock` until it is
 * dead, however it dies. No state.json, a free lock and a dead sandbox is a lost job. (A pid would do on one machine
 * only, and not from another pid namespace; it is noted in the lock file for `kill` alone, which checks its start
 * time.)
 *
 * Every file but events.jsonl is written once or rewritten whole under a temporary name; events are appended, one
 * write(2) a line.
 *
 * Nothing is synced on the way to the command's start, nor at its end. A crash of the machine can therefore lose the
 * record of the job's last seconds, or leave a request empty, which is reported as damage. It cannot lose work of the
 * host's: what publishing stands on (the stage's start clock, the journal, the data) is made durable by the stage,
 * whose directory is found by its path even when the record beside it is gone.
 */
#include "job/store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "base/sha256.h"
#include "base/statedir.h"
#include "job/store_internal.h"

int pv_store_path(char **out, struct pv_err *err)
{
        return pv_state_dir(out, err);
}

static int hint_elsewhere(struct pv_err *err)
{
        return pv_err_hint(err, "set PVISOR_HOME to a directory of yours that can be written");
}

static int check_owner(const char *store, const struct stat *st, struct pv_err *err)
{
        if (st->st_uid != geteuid()) {
                pv_err_set(err, PV_ERR_POLICY, 0, "job store %s: belongs to user %u, not to user %u", store,
                           (unsigned)st->st_uid, (unsigned)geteuid());
                return pv_err_hint(err, "run as its owner, or set PVISOR_HOME");
        }
        if (st->st_mode & 022) {
                pv_err_set(err, PV_ERR_POLICY, 0, "job store %s: others may write there", store);
                return pv_err_hint(err, "chmod 700 it after a look at what is in it");
        }
        return 0;
}

static int open_dir_at(int dirfd, const char *name, unsigned flags)
{
        if (flags & PV_STORE_MAKE && mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
                return -1;
        return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int open_store(const char *store, unsigned flags, int *out, struct pv_err *err)
{
        int fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT && flags & PV_STORE_MAKE) {
                if (pv_path_make_dirs(store, 0700, err) < 0) {
                        pv_err_wrap(err, "job store");
                        return hint_elsewhere(err);
                }
                fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
        if (fd < 0 && errno == ENOENT) {
                *out = -1;
                return 0;
        }
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0) {
                pv_err_set(err, PV_ERR_SYS, errno, "job store %s", store);
                return hint_elsewhere(err);
        }
        if (check_owner(store, &st, err) < 0) {
                pv_fd_closep(&fd);
                return -1;
        }
        *out = fd;
        return 0;
}

int pv_store_open_jobs(const char *store, unsigned flags, int *jobs, struct pv_err *err)
{
        pv_auto_fd top = -1;
        if (open_store(store, flags, &top, err) < 0)
                return -1;
        int fd = top < 0 ? -1 : open_dir_at(top, "jobs", flags);
        if (fd < 0 && top >= 0 && !(errno == ENOENT && !(flags & PV_STORE_MAKE))) {
                pv_err_set(err, PV_ERR_SYS, errno, "job store %s: jobs", store);
                return hint_elsewhere(err);
        }
        *jobs = fd;
        return 0;
}

int pv_store_list(const char *store, DIR **jobs, struct pv_err *err)
{
        pv_auto_fd fd = -1;
        if (pv_store_open_jobs(store, 0, &fd, err) < 0)
                return -1;
        *jobs = fd < 0 ? NULL : pv_dir_open(fd, ".");
        return fd < 0 || *jobs ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "read job store %s", store);
}

int pv_store_next(DIR *jobs, const char **name, struct pv_err *err)
{
        struct dirent *e = NULL;
        int r = jobs ? pv_dir_next(jobs, &e) : 0;
        if (r < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read the job store");
        *name = r > 0 ? e->d_name : NULL;
        return r;
}

char *pv_store_workspace_dir(const char *workspace)
{
        unsigned char hash[PV_SHA256_SIZE];
        char hex[2 * 16 + 1];
        pv_sha256_bytes(workspace, strlen(workspace), hash);
        pv_hex(hash, 16, hex);
        return pv_strf("workspaces/%s", hex);
}

static int open_workspace(const char *store, const char *workspace, unsigned flags)
{
        pv_auto_free char *rel = pv_store_workspace_dir(workspace);
        pv_auto_fd top = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (top < 0)
                return -1;
        if (flags & PV_STORE_MAKE) {
                int fd = openat(top, rel, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd >= 0 || errno != ENOENT)
                        return fd;
                if (mkdirat(top, "workspaces", 0700) < 0 && errno != EEXIST)
                        return -1;
        }
        return open_dir_at(top, rel, flags);
}

int pv_store_set_last(const char *store, const char *workspace, const char *id, struct pv_err *err)
{
        pv_auto_fd dir = open_workspace(store, workspace, PV_STORE_MAKE);
        pv_auto_free char *target = pv_strf("../../jobs/%s", id);
        pv_auto_free char *tmp = pv_strf(".last.%s", id);
        if (dir < 0 || symlinkat(target, dir, tmp) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "job store %s: link of the newest job", store);
        if (renameat(dir, tmp, dir, "last") < 0) {
                pv_err_set(err, PV_ERR_SYS, errno, "job store %s: link of the newest job", store);
                (void)unlinkat(dir, tmp, 0);
                return -1;
        }
        return 0;
}

char *pv_store_get_last(const char *store, const char *workspace)
{
        char target[64 + PV_JOB_ID_TEXT];
        pv_auto_fd dir = open_workspace(store, workspace, 0);
        ssize_t n = dir < 0 ? -1 : readlinkat(dir, "last", target, sizeof target - 1);
        if (n <= 0)
                return NULL;
        target[n] = '\0';
        const char *slash = strrchr(target, '/');
        return slash && pv_job_is_id(slash + 1) ? pv_strdup(slash + 1) : NULL;
}
