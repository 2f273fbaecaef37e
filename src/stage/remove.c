/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a stage, and what it takes on disk. stage.json goes first: a directory with a lock but without it opens as
 * one with which nothing can be done but removing it. So a removal may be interrupted anywhere, and repeated.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include "base/fd.h"
#include "stage/layers.h"
#include "stage/snapshot.h"
#include "stage/state.h"

static int remove_contents(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_fd fd = openat(s->fd.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_dir d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d)
                return pv_err_set(err, PV_ERR_SYS, errno, "read directory %s", s->dir);
        (void)pv_fd_steal(&fd);
        for (struct dirent *e; (e = readdir(d));) {
                bool last = pv_streq(e->d_name, "lock");
                if (!last && !pv_streq(e->d_name, ".") && !pv_streq(e->d_name, "..") &&
                    pv_path_remove_tree(s->fd.fd, e->d_name, err) < 0)
                        return -1;
        }
        return 0;
}

int pv_stage_remove(struct pv_stage *s, struct pv_err *err)
{
        unsigned up_to = 0;
        if (!s->taken)
                return pv_err_set(err, PV_ERR_BUSY, 0, "stage %s is in use", s->dir);
        if (pv_snapshots_remove(s, err) < 0 || pv_dependents_find(s, &up_to, err) < 0)
                return -1;
        if (up_to > 0) {
                (void)pv_err_set(err, PV_ERR_BUSY, 0, "another job was forked from stage %s and stands on it", s->dir);
                return pv_err_hint(err, "drop the forked job first");
        }
        s->state = PV_STATE_REMOVING;
        s->unwritten = false;
        if (unlinkat(s->fd.fd, "stage.json", 0) < 0 && errno != ENOENT)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove %s/stage.json", s->dir);
        if (remove_contents(s, err) < 0)
                return pv_err_wrap(err, "remove the stage %s", s->dir);
        for (size_t k = 0; k < s->n_layers; k++)
                if (s->layers[k].from)
                        pv_dependents_remove(s, s->layers[k].from);
        if ((unlinkat(s->fd.fd, "lock", 0) < 0 && errno != ENOENT) || rmdir(s->dir) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove the stage %s", s->dir);
        return 0;
}

/* Directories still to be looked into, as paths below one that is open. */
struct pending {
        struct pv_strv dirs;
        uint64_t blocks; /* of 512 bytes, of all that was looked at */
};

static void add_entry(struct pending *p, int dirfd, const char *dir, const char *name)
{
        struct stat st;
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return;
        p->blocks += (uint64_t)st.st_blocks / (S_ISDIR(st.st_mode) || st.st_nlink == 0 ? 1 : st.st_nlink);
        if (S_ISDIR(st.st_mode) && strlen(dir) + strlen(name) + 2 < PATH_MAX)
                pv_strv_take(&p->dirs, pv_path_join(dir, name));
}

/* What cannot be read (it is gone, or its owner closed it) counts for nothing. */
static void add_dir(struct pending *p, struct pv_pathfd top, const char *dir)
{
        pv_auto_fd fd = pv_path_openat(top, dir, O_RDONLY | O_DIRECTORY, 0);
        pv_auto_dir d = fd >= 0 ? fdopendir(fd) : NULL;
        if (!d)
                return;
        (void)pv_fd_steal(&fd);
        for (struct dirent *e; (e = readdir(d));)
                if (!pv_streq(e->d_name, ".") && !pv_streq(e->d_name, ".."))
                        add_entry(p, dirfd(d), dir, e->d_name);
}

static char *pop(struct pv_strv *v)
{
        char *last = v->v[--v->n];
        v->v[v->n] = NULL;
        return last;
}

int pv_stage_size(const struct pv_stage *s, uint64_t *bytes, struct pv_err *err)
{
        struct pending p = { 0 };
        (void)err;
        pv_strv_add(&p.dirs, "");
        while (p.dirs.n > 0) {
                pv_auto_free char *dir = pop(&p.dirs);
                add_dir(&p, s->fd, dir);
        }
        pv_strv_fini(&p.dirs);
        *bytes = p.blocks * 512;
        return 0;
}
