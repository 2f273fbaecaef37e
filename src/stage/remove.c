/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a stage, and what it takes on disk. First stage.json becomes the mark of an unfinished stage (a rename,
 * which a full filesystem has room for): that opens as one with which nothing can be done but removing it. The mark
 * goes last but the lock. So a removal may be interrupted anywhere, and repeated; and what has neither is never
 * emptied, for a person's own directory may well have a file named lock in it. Nor is anything removed that no stage
 * has.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "base/dir.h"
#include "base/parallel.h"
#include "stage/layers.h"
#include "stage/snapshot.h"
#include "stage/state.h"

static const char *const names[] = {
        "stage.json", PV_STAGE_UNFINISHED, "lock",      "decide",     "other-ids", "roots",   "backup",
        "journal",    "journal.new",       "snapshots", "dependents", "refs",      "commits", "jobs"
};
static const char *const prefixes[] = { "abandoned-", "commits-", "undone-", "look-" };

/* Of a stage, or the temporary file that becomes one of its files. */
static bool is_ours(const char *name)
{
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                pv_auto_free char *temporary = pv_strf(".%s.", names[i]);
                if (pv_streq(name, names[i]) || (pv_str_has_prefix(name, temporary) && pv_str_has_suffix(name, ".tmp")))
                        return true;
        }
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
                if (pv_str_has_prefix(name, prefixes[i]))
                        return true;
        return false;
}

/* The next entry of the stage's directory: 1, 0 at the end, -1. *d is opened at the first call. */
static int next_entry(const struct pv_stage *s, DIR **d, struct dirent **e, struct pv_err *err)
{
        if (!*d)
                *d = pv_dir_open(s->fd.fd, ".");
        int more = *d ? pv_dir_next(*d, e) : -1;
        return more < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "read directory %s", s->dir) : more;
}

int pv_stage_check_names(const struct pv_stage *s, struct pv_err *err)
{
        pv_auto_dir d = NULL;
        struct dirent *e;
        int more;
        while ((more = next_entry(s, &d, &e, err)) > 0)
                if (!is_ours(e->d_name)) {
                        (void)pv_err_set(err, PV_ERR_STATE, 0, "%s/%s is nothing of a stage", s->dir, e->d_name);
                        return pv_err_hint(err, "move it elsewhere first");
                }
        return more;
}

/* Empty, or with what a run noted in it (pv_stage_note_init()) and who took it next. */
static bool is_lock(int dirfd, const char *name)
{
        struct stat st;
        if (!pv_streq(name, "lock") && !pv_streq(name, "decide"))
                return false;
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
                return false;
        if (st.st_size == 0) /* whoever may read it */
                return true;
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        return fd >= 0 && pv_process_is_note(fd);
}

/* A kill before the mark is made, or after it went, leaves the files to lock and nothing else. */
int pv_stage_check_unfinished(const struct pv_stage *s, struct pv_err *err)
{
        struct stat st;
        if (fstatat(s->fd.fd, PV_STAGE_UNFINISHED, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
                return 0;
        pv_auto_dir d = NULL;
        struct dirent *e;
        int more;
        while ((more = next_entry(s, &d, &e, err)) > 0) {
                if (!is_lock(dirfd(d), e->d_name))
                        return pv_err_set(err, PV_ERR_INPUT, 0, "%s is not a stage: it has %s and no stage.json",
                                          s->dir, e->d_name);
        }
        return more;
}

static int remove_contents(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_dir d = NULL;
        struct dirent *e;
        int more;
        while ((more = next_entry(s, &d, &e, err)) > 0) {
                bool last = pv_streq(e->d_name, "lock") || pv_streq(e->d_name, PV_STAGE_UNFINISHED);
                if (!last && is_ours(e->d_name) && pv_path_remove_tree(s->fd.fd, e->d_name, err) < 0)
                        return -1;
        }
        return more;
}

static int remove_file(struct pv_stage *s, const char *name, struct pv_err *err)
{
        if (unlinkat(s->fd.fd, name, 0) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove %s/%s", s->dir, name);
        return 0;
}

int pv_stage_remove(struct pv_stage *s, struct pv_err *err)
{
        unsigned up_to = 0;
        if (!s->taken)
                return pv_err_set(err, PV_ERR_BUSY, 0, "stage %s is in use", s->dir);
        if (pv_stage_check_names(s, err) < 0)
                return pv_err_wrap(err, "remove the stage %s", s->dir);
        if (pv_snapshots_remove(s, err) < 0 || pv_dependents_find(s, &up_to, err) < 0)
                return -1;
        if (up_to > 0) {
                (void)pv_err_set(err, PV_ERR_BUSY, 0, "another job was forked from stage %s and stands on it", s->dir);
                return pv_err_hint(err, "drop the forked job first");
        }
        s->state = PV_STATE_REMOVING;
        s->unwritten = false;
        if (renameat(s->fd.fd, "stage.json", s->fd.fd, PV_STAGE_UNFINISHED) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove %s/stage.json", s->dir);
        if (remove_contents(s, err) < 0)
                return pv_err_wrap(err, "remove the stage %s", s->dir);
        for (size_t k = 0; k < s->n_layers; k++)
                if (s->layers[k].from)
                        pv_dependents_remove(s, s->layers[k].from);
        if (remove_file(s, PV_STAGE_UNFINISHED, err) < 0 || remove_file(s, "lock", err) < 0)
                return -1;
        if (rmdir(s->dir) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove the stage %s", s->dir);
        return 0;
}

#define DIRS_AT_A_TIME 16

/* One directory and what is in it: the directories among that, and the room that all of it takes. */
struct measured {
        struct pv_strv dirs; /* paths below the stage */
        uint64_t blocks;     /* of 512 bytes */
};

/* All directories of one depth. */
struct depth {
        struct pv_pathfd top;
        const struct pv_strv *dirs;
        struct measured *found; /* one a directory */
};

static void add_entry(struct measured *m, int dirfd, const char *dir, const char *name)
{
        struct stat st;
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return;
        m->blocks += (uint64_t)st.st_blocks / (S_ISDIR(st.st_mode) || st.st_nlink == 0 ? 1 : st.st_nlink);
        if (S_ISDIR(st.st_mode) && strlen(dir) + strlen(name) + 2 < PATH_MAX)
                pv_strv_take(&m->dirs, pv_path_join(dir, name));
}

/* What cannot be read (it is gone, or its owner closed it) counts for nothing. */
static void measure_dir(struct pv_pathfd top, const char *dir, struct measured *m)
{
        pv_auto_fd fd = pv_path_openat(top, dir, O_RDONLY | O_DIRECTORY, 0);
        pv_auto_dir d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d)
                return;
        (void)pv_fd_steal(&fd);
        for (struct dirent *e; (e = readdir(d));)
                if (!pv_streq(e->d_name, ".") && !pv_streq(e->d_name, ".."))
                        add_entry(m, dirfd(d), dir, e->d_name);
}

static void measure_range(void *ctx, size_t from, size_t end)
{
        struct depth *d = ctx;
        for (size_t i = from; i < end; i++)
                measure_dir(d->top, d->dirs->v[i], &d->found[i]);
}

int pv_stage_size(const struct pv_stage *s, uint64_t *bytes, struct pv_err *err)
{
        pv_auto_strv dirs = { 0 };
        uint64_t blocks = 0;
        (void)err;
        pv_strv_add(&dirs, "");
        while (dirs.n > 0) {
                struct pv_strv deeper = { 0 };
                struct depth d = { .top = s->fd, .dirs = &dirs, .found = pv_calloc(dirs.n, sizeof *d.found) };
                pv_parallel_for(dirs.n, DIRS_AT_A_TIME, measure_range, &d);
                for (size_t i = 0; i < dirs.n; i++) {
                        blocks += d.found[i].blocks;
                        for (size_t k = 0; k < d.found[i].dirs.n; k++)
                                pv_strv_take(&deeper, pv_steal(&d.found[i].dirs.v[k]));
                        pv_strv_fini(&d.found[i].dirs);
                }
                free(d.found);
                pv_strv_fini(&dirs);
                dirs = deeper;
        }
        *bytes = blocks * 512;
        return 0;
}
