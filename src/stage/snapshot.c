/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints of a stage in which a command runs. The mounted upper cannot be frozen by starting a new one on top, so
 * what it holds is copied (shared, where the filesystem has reflinks) while the command is held still. The copy cannot
 * be a layer of this stage either: what the command takes away afterwards leaves no whiteout in the upper, and would
 * show again. So it is a stage of its own, snapshots/<name>, that stands on the same frozen layers and whose one layer
 * is the copy; sealed at once, against what the host has then. Jobs are forked from it as from any stage.
 *
 * One that was cut short has no stage.json and counts for nothing; its directory goes with the next of that name, or
 * with the stage.
 */
#include "stage/snapshot.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "base/fd.h"
#include "stage/baseline.h"
#include "stage/layers.h"
#include "stage/mirror.h"
#include "stage/ours.h"

#define SNAPSHOTS "snapshots"

char *pv_stage_snapshot_dir(const char *stage_dir, const char *name)
{
        pv_auto_free char *dir = pv_strf("%s/" SNAPSHOTS "/%s", stage_dir, name);
        pv_auto_free char *state = pv_path_join(dir, "stage.json");
        return access(state, F_OK) == 0 ? pv_steal(&dir) : NULL;
}

/* Names of what is there, whole or not. */
static int list_all(const struct pv_stage *s, struct pv_strv *names, struct pv_err *err)
{
        pv_auto_dir d = pv_dir_open(s->fd.fd, SNAPSHOTS);
        struct dirent *e;
        int more = d || errno != ENOENT ? -1 : 0;
        while (d && (more = pv_dir_next(d, &e)) > 0)
                if (e->d_name[0] != '.')
                        pv_strv_add(names, e->d_name);
        return more < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "stage %s: " SNAPSHOTS, s->dir) : 0;
}

struct dated {
        char *name; /* borrowed */
        struct timespec when;
};

static int by_date(const void *a, const void *b)
{
        const struct dated *x = a, *y = b;
        int c = pv_clock_compare(&x->when, &y->when);
        return c ? c : strcmp(x->name, y->name);
}

int pv_snapshots_list(const struct pv_stage *s, struct pv_strv *names, struct pv_err *err)
{
        pv_auto_strv all = { 0 };
        size_t n = 0;
        if (list_all(s, &all, err) < 0)
                return -1;
        pv_auto_free struct dated *list = pv_calloc(all.n + 1, sizeof *list);
        for (size_t i = 0; i < all.n; i++) {
                struct stat st;
                pv_auto_free char *state = pv_strf(SNAPSHOTS "/%s/stage.json", all.v[i]);
                if (fstatat(s->fd.fd, state, &st, AT_SYMLINK_NOFOLLOW) == 0)
                        list[n++] = (struct dated){ .name = all.v[i], .when = st.st_mtim };
        }
        qsort(list, n, sizeof *list, by_date);
        for (size_t i = 0; i < n; i++)
                pv_strv_add(names, list[i].name);
        return 0;
}

static int remove_one(struct pv_stage *s, const char *name, struct pv_err *err)
{
        pv_auto_free char *dir = pv_strf("%s/" SNAPSHOTS "/%s", s->dir, name);
        pv_auto_free char *relative = pv_strf(SNAPSHOTS "/%s", name);
        pv_auto_free char *lock = pv_path_join(dir, "lock");
        if (access(lock, F_OK) == 0) {
                pv_auto_stage snapshot = NULL;
                if (pv_stage_open(dir, PV_STAGE_DISCARD, &snapshot, err) < 0)
                        return -1;
                return pv_stage_remove(snapshot, err);
        }
        return pv_path_remove_tree(s->fd.fd, relative, err);
}

int pv_snapshots_remove(struct pv_stage *s, struct pv_err *err)
{
        pv_auto_strv names = { 0 };
        if (list_all(s, &names, err) < 0)
                return -1;
        for (size_t i = 0; i < names.n; i++)
                if (remove_one(s, names.v[i], err) < 0)
                        return -1;
        return 0;
}

/* The uppers of all roots, copied to to[i], most of them while the command goes on. */
static int copy_uppers(struct pv_stage *s, char *const *to, const struct pv_freezer *freezer, struct pv_err *err)
{
        pv_auto_free struct pv_mirror **mirror = pv_calloc(s->n_roots, sizeof *mirror);
        int r = 0;
        for (size_t i = 0; r == 0 && i < s->n_roots; i++) {
                pv_auto_free char *from = pv_layer_path(s, i, s->n_layers - 1);
                r = pv_mirror_new(from, to[i], &mirror[i], err);
                if (r == 0)
                        pv_mirror_begin(mirror[i]);
        }
        if (r == 0)
                r = freezer->freeze(freezer->ctx, err);
        for (size_t i = 0; r == 0 && i < s->n_roots; i++)
                r = pv_mirror_finish(mirror[i], err);
        freezer->thaw(freezer->ctx);
        for (size_t i = 0; i < s->n_roots; i++)
                pv_mirror_free(mirror[i]);
        return r < 0 ? pv_err_wrap(err, "copy what is staged") : 0;
}

int pv_stage_copy_for_views(struct pv_stage *s, const char *throwaway_dir, const struct pv_freezer *freezer,
                            struct pv_err *err)
{
        pv_auto_strv to = { 0 };
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_auto_free char *dir = pv_strf("%s/%zu", throwaway_dir, i);
                if (pv_path_make_dirs(dir, 0700, err) < 0)
                        return -1;
                pv_strv_take(&to, pv_path_join(dir, "staged"));
        }
        if (copy_uppers(s, to.v, freezer, err) < 0)
                return -1;
        free(s->view_copies);
        s->view_copies = pv_strdup(throwaway_dir);
        pv_fd_closep(&s->decide_fd);
        return 0;
}

/* The layers below, the clocks, and an empty layer on top. */
static struct pv_stage *new_snapshot(const struct pv_stage *s)
{
        struct pv_stage *copy = pv_stage_new();
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_stage_add_root(copy, &s->roots[i].root);
                copy->roots[i].dev = s->roots[i].dev;
                copy->roots[i].ino = s->roots[i].ino;
        }
        pv_stage_stand_on(s, s->n_layers - 1, copy);
        const struct pv_stage_layer *from = pv_stage_top(s);
        struct pv_stage_layer *top = pv_stage_top(copy);
        top->ran = from->ran;
        top->clock = from->clock;
        memcpy(top->t0, from->t0, s->n_roots * sizeof *top->t0);
        copy->runs = s->runs;
        copy->state = PV_STATE_RUNNING;
        return copy;
}

/* The copies take the place of the empty layers. */
static int fill(struct pv_stage *s, struct pv_stage *copy, const struct pv_freezer *freezer, struct pv_err *err)
{
        pv_auto_strv to = { 0 };
        for (size_t i = 0; i < s->n_roots; i++) {
                char *layer = pv_layer_path(copy, i, copy->n_layers - 1);
                pv_strv_take(&to, layer);
                pv_fd_closep(&pv_stage_top(copy)->fd[i]);
                if (rmdir(layer) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "remove %s", layer);
        }
        return copy_uppers(s, to.v, freezer, err);
}

/* What is known of the host so far. The files are never changed in place. */
static int share_records(struct pv_stage *s, struct pv_stage *copy, struct pv_err *err)
{
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_auto_free char *preimages = pv_baseline_file(i), *landed = pv_landed_file(i);
                pv_auto_free char *ours = pv_ours_file(i);
                if (pv_stage_share_file(s->fd.fd, preimages, copy->fd.fd, preimages, err) < 0 ||
                    pv_stage_share_file(s->fd.fd, landed, copy->fd.fd, landed, err) < 0 ||
                    pv_stage_share_file(s->fd.fd, ours, copy->fd.fd, ours, err) < 0)
                        return -1;
        }
        return 0;
}

static int give_views(const struct pv_stage *s, struct pv_stage *copy, struct pv_err *err)
{
        static const struct pv_pathfd none = PV_PATHFD_INIT;
        pv_auto_free struct pv_pathfd *views = pv_calloc(s->n_roots, sizeof *views);
        for (size_t i = 0; i < s->n_roots; i++)
                views[i] = s->beside_views ? s->beside_views[i] : none;
        return pv_stage_seal(copy, views, err);
}

static int make(struct pv_stage *s, struct pv_stage *copy, const char *dir, const struct pv_freezer *freezer,
                struct pv_err *err)
{
        if (pv_stage_lay_out(copy, dir, err) < 0 || fill(s, copy, freezer, err) < 0 || pv_layers_open(copy, err) < 0 ||
            share_records(s, copy, err) < 0)
                return -1;
        return give_views(s, copy, err);
}

/* stage.json comes last: then it is one. */
static int finish(struct pv_stage *copy, const char *name, struct pv_err *err)
{
        for (size_t k = 0; k + 1 < copy->n_layers; k++)
                if (pv_dependents_add(copy, copy->layers[k].from, copy->layers[k].number, err) < 0)
                        return -1;
        return pv_stage_checkpoint(copy, name, err);
}

int pv_stage_snapshot(struct pv_stage *s, const char *name, const struct pv_freezer *freezer, struct pv_err *err)
{
        pv_auto_free char *dir = pv_strf("%s/" SNAPSHOTS "/%s", s->dir, name);
        pv_auto_free char *there = pv_stage_snapshot_dir(s->dir, name);
        struct pv_err ignored = PV_ERR_INIT;
        if (!*name || *name == '.' || strchr(name, '/') || strlen(name) > NAME_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "'%s' is no name for a checkpoint", name);
        if (there)
                return pv_err_set(err, PV_ERR_USAGE, 0, "there is a checkpoint '%s' already", name);
        if (s->n_layers >= PV_STAGE_MAX_LAYERS)
                return pv_err_set(err, PV_ERR_USAGE, 0, "stage %s has %d layers already; no more can be stacked",
                                  s->dir, PV_STAGE_MAX_LAYERS);
        if (remove_one(s, name, err) < 0)
                return -1;
        pv_auto_stage copy = new_snapshot(s);
        if (make(s, copy, dir, freezer, err) == 0 && finish(copy, name, err) == 0)
                return 0;
        pv_stage_closep(&copy);
        (void)remove_one(s, name, &ignored);
        return -1;
}
