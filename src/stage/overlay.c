/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is mounted for a run, and what serves it: the kernel's overlayfs, or a program of ours (src/fuse) where that
 * cannot. What shows before the mount is said before it, with the reason; a filesystem that refuses for reasons of its
 * own shows in the mount.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include "base/fd.h"
#include "base/mountinfo.h"
#include "stage/baseline.h"
#include "stage/change.h"
#include "stage/layers.h"
#include "stage/ours.h"
#include "stage/run_batch.h"
#include "stage/state.h"

/* Entries of the root that are looked at for owners that no id stands for in the sandbox. */
#define ENTRIES_MAX 512
/* What a file system whose clock cannot be read may be behind: the longest tick in use. */
#define CLOCK_BEHIND_S 3
#ifndef FS_CASEFOLD_FL
#define FS_CASEFOLD_FL 0x40000000
#endif

struct filesystem {
        long magic;
        const char *name;
};

/* Overlayfs takes none of these for an upper: they lack whiteouts, d_type, or renames as it needs them. */
static const struct filesystem no_upper[] = {
        { 0x794c7630, "overlayfs" },  { NFS_SUPER_MAGIC, "NFS" },
        { MSDOS_SUPER_MAGIC, "FAT" }, { 0x2011bab0, "exFAT" },
        { V9FS_MAGIC, "9p" },         { CIFS_SUPER_MAGIC, "CIFS" },
        { SMB2_SUPER_MAGIC, "SMB" },  { ECRYPTFS_SUPER_MAGIC, "eCryptfs" },
};
/* Nor these for a lower: names there are not compared byte by byte. */
static const struct filesystem no_lower[] = {
        { MSDOS_SUPER_MAGIC, "FAT" },
        { 0x2011bab0, "exFAT" },
        { 0x7366746e, "NTFS" },
        { AUTOFS_SUPER_MAGIC, "autofs" },
};

static const char *find_filesystem(const struct filesystem *list, size_t n, int fd)
{
        struct statfs st;
        if (fstatfs(fd, &st) < 0)
                return NULL;
        for (size_t i = 0; i < n; i++)
                if (list[i].magic == (long)st.f_type)
                        return list[i].name;
        return NULL;
}

/* The stage itself, and the layers of others that it stands on. */
static int check_upper(struct pv_stage *s, size_t root, struct pv_err *err)
{
        int fd = s->fd.fd;
        const char *fs = find_filesystem(no_upper, sizeof no_upper / sizeof *no_upper, fd);
        for (size_t k = 0; !fs && k < s->n_layers; k++)
                if (s->layers[k].from && (fd = pv_layer_fd(s, root, k).fd) >= 0)
                        fs = find_filesystem(no_upper, sizeof no_upper / sizeof *no_upper, fd);
        if (!fs)
                return 0;
        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "the stage %s lies on %s, which overlayfs cannot write to", s->dir,
                         fs);
        return pv_err_hint(err, "--stage DIR with a directory on another filesystem");
}

static int check_attributes(const struct pv_stage *s, struct pv_err *err)
{
        pv_auto_fd fd = openat(s->fd.fd, "roots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s/roots", s->dir);
        if (fgetxattr(fd, "user.overlay.opaque", NULL, 0) < 0 && errno == EOPNOTSUPP) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                 "the stage %s lies on a filesystem without extended attributes (tmpfs has them "
                                 "since Linux 6.6)",
                                 s->dir);
                return pv_err_hint(err, "--stage DIR with a directory on another filesystem");
        }
        return 0;
}

static int check_lower(const struct pv_stage_root *r, struct pv_err *err)
{
        unsigned long flags = 0;
        const char *fs = find_filesystem(no_lower, sizeof no_lower / sizeof *no_lower, r->target.fd);
        if (fs)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s lies on %s, which overlayfs cannot show",
                                  r->root.target, fs);
        pv_auto_fd fd = openat(r->target.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && flags & FS_CASEFOLD_FL)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s folds the case of names, which overlayfs cannot show",
                                  r->root.target);
        return 0;
}

/*
 * An ordinary user has one id of each kind mapped in a user namespace. In a directory that has another one the command
 * could do nothing that needs its owner or changes it (EOVERFLOW).
 */
static int check_owner(const struct pv_stage_root *r, struct pv_err *err)
{
        struct stat st;
        if (fstat(r->target.fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "look at %s", r->root.target);
        if (geteuid() == 0)
                return 0;
        if (st.st_uid != geteuid()) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                 "%s belongs to user %u, and only your own id %u can be "
                                 "mapped into the sandbox",
                                 r->root.target, st.st_uid, geteuid());
                return pv_err_hint(err, "stage a directory of your own, or run without --stage");
        }
        if (st.st_gid != getegid()) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                 "%s belongs to group %u, and only your own group %u can "
                                 "be mapped into the sandbox",
                                 r->root.target, st.st_gid, getegid());
                return pv_err_hint(err, "newgrp or sg to that group, or chgrp %u %s", getegid(), r->root.target);
        }
        return 0;
}

/* Nor with files in it that do; those further down are not looked for before a run. */
static int check_entries(const struct pv_stage_root *r, struct pv_err *err)
{
        pv_auto_fd fd = geteuid() == 0 ? -1 : openat(r->target.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_dir d = fd < 0 ? NULL : fdopendir(fd);
        if (!d)
                return 0;
        (void)pv_fd_steal(&fd);
        struct dirent *e;
        for (int i = 0; i < ENTRIES_MAX && (e = readdir(d)); i++) {
                struct stat st;
                if (pv_streq(e->d_name, ".") || pv_streq(e->d_name, "..") ||
                    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ||
                    (st.st_uid == geteuid() && st.st_gid == getegid()))
                        continue;
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                 "%s/%s belongs to %s %u, for which overlayfs has no id in the sandbox", r->root.target,
                                 e->d_name, st.st_uid != geteuid() ? "user" : "group",
                                 st.st_uid != geteuid() ? st.st_uid : st.st_gid);
                return pv_err_hint(err, "chown or chgrp it, or --stage-backend fuse");
        }
        return 0;
}

/* Calls found() for each mount that shows below root i. */
static int each_submount(const struct pv_stage *s, size_t i,
                         int (*found)(void *ctx, const char *point, struct pv_err *err), void *ctx, struct pv_err *err)
{
        const struct pv_stage_root *r = &s->roots[i];
        pv_auto_mountinfo mounts = { 0 };
        if (pv_mountinfo_read(&mounts, err) < 0)
                return -1;
        for (size_t k = 0; k < mounts.n; k++) {
                const struct pv_mount_entry *m = &mounts.v[k];
                struct statx sx = { 0 };
                if (pv_streq(m->point, r->root.target) || !pv_path_is_within(m->point, r->root.target))
                        continue;
                /* Below another mount that hides it, it is of no concern. */
                if (statx(r->target.fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &sx) == 0 && sx.stx_mask & STATX_MNT_ID &&
                    sx.stx_mnt_id != m->parent)
                        continue;
                if (found(ctx, m->point, err) < 0)
                        return -1;
        }
        return 0;
}

static int refuse_submount(void *ctx, const char *point, struct pv_err *err)
{
        const struct pv_stage_root *r = ctx;
        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                         "%s is mounted below %s, and overlayfs cannot show a tree with mounts in it", point,
                         r->root.target);
        return pv_err_hint(err, "unmount it, or stage a directory without it (--workspace DIR)");
}

/* Whether the kernel's overlayfs can serve root i; else why not. */
static int check_kernel(struct pv_stage *s, size_t i, struct pv_err *err)
{
        struct pv_stage_root *r = &s->roots[i];
        if (check_owner(r, err) < 0 || check_entries(r, err) < 0) {
                pv_stage_note_other_ids(s);
                return -1;
        }
        if (check_upper(s, i, err) < 0)
                return -1;
        return each_submount(s, i, refuse_submount, r, err);
}

/* Decides what serves each root. */
static int choose(struct pv_stage *s, struct pv_overlay *o, struct pv_err *err)
{
        for (size_t i = 0; i < s->n_roots; i++) {
                struct pv_err why = PV_ERR_INIT;
                o[i].channel = -1;
                if (check_lower(&s->roots[i], err) < 0)
                        return -1;
                if (s->backend == PV_STAGE_BACKEND_FUSE) {
                        o[i].by_fuse = pv_strdup("as --stage-backend asks");
                } else if (check_kernel(s, i, &why) < 0) {
                        if (why.kind != PV_ERR_UNSUPPORTED || s->backend == PV_STAGE_BACKEND_KERNEL) {
                                *err = why;
                                return -1;
                        }
                        o[i].by_fuse = pv_strdup(why.msg);
                }
        }
        return check_attributes(s, err);
}

/* Layers n - 1 .. 0, newest first. */
static void put_frozen(const struct pv_stage *s, size_t root, size_t n, struct pv_overlay *o)
{
        o->root = &s->roots[root].root;
        o->frozen = pv_calloc(n + 1, sizeof *o->frozen);
        o->n_frozen = n;
        for (size_t k = 0; k < n; k++)
                o->frozen[k] = pv_layer_path(s, root, n - 1 - k);
}

/* An empty work directory; what a volatile mount left there would refuse the next. */
static int clear_work(struct pv_stage *s, size_t root, char **path, struct pv_err *err)
{
        pv_auto_free char *name = pv_strf("roots/%zu/work", root);
        if (pv_path_remove_tree(s->fd.fd, name, err) < 0)
                return pv_err_wrap(err, "stage %s", s->dir);
        if (mkdirat(s->fd.fd, name, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make %s/%s", s->dir, name);
        *path = pv_path_join(s->dir, name);
        return 0;
}

struct clocks {
        const struct pv_stage *s;
        struct timespec *t0;
};

/* A mount below the root has a clock of its own: T0 is the earliest of all. */
static int take_clock(void *ctx, const char *point, struct pv_err *err)
{
        struct clocks *c = ctx;
        struct pv_err unreadable = PV_ERR_INIT;
        struct timespec t = { .tv_sec = c->t0->tv_sec - CLOCK_BEHIND_S };
        (void)err;
        pv_auto_pathfd fd = { open(point, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) };
        if (fd.fd >= 0 && pv_startclock_take(fd, c->s->lock_fd, point, &t, &unreadable) < 0)
                t = (struct timespec){ .tv_sec = c->t0->tv_sec - CLOCK_BEHIND_S };
        if (pv_clock_compare(&t, c->t0) < 0)
                *c->t0 = t;
        return 0;
}

static int take_start(struct pv_stage *s, struct pv_err *err)
{
        struct pv_stage_layer *top = pv_stage_top(s);
        pv_clockwatch_start(&s->watch);
        pv_startclock_read(&top->clock);
        for (size_t i = 0; i < s->n_roots; i++) {
                struct pv_stage_root *r = &s->roots[i];
                struct stat st;
                if (fstat(r->target.fd, &st) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "look at %s", r->root.target);
                r->dev = (uint64_t)st.st_dev;
                r->ino = (uint64_t)st.st_ino;
                if (pv_startclock_take(r->target, s->lock_fd, r->root.target, &top->t0[i], err) < 0)
                        return -1;
                struct clocks below = { .s = s, .t0 = &top->t0[i] };
                if (s->overlays[i].by_fuse && each_submount(s, i, take_clock, &below, err) < 0)
                        return -1;
        }
        top->ran = true;
        return 0;
}

/* The next run shall see what the host made of it since. */
static int let_go_of_landed(struct pv_stage *s, struct pv_err *err)
{
        bool any = false;
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_auto_free char *file = pv_landed_file(i);
                any = any || faccessat(s->fd.fd, file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
        }
        if (!any || s->state != PV_STATE_SEALED)
                return 0;
        if (pv_batches_note_let_go(s, err) < 0 || pv_changes_let_go_of_landed(s, err) < 0)
                return pv_err_wrap(err, "stage %s", s->dir);
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_auto_free char *file = pv_landed_file(i), *ours = pv_ours_file(i);
                (void)unlinkat(s->fd.fd, file, 0);
                (void)unlinkat(s->fd.fd, ours, 0);
        }
        return 0;
}

int pv_stage_begin_run(struct pv_stage *s, const struct pv_overlay **overlays, size_t *n, struct pv_err *err)
{
        if (pv_stage_require_targets(s, err) < 0 || let_go_of_landed(s, err) < 0)
                return -1;
        pv_overlays_free(pv_steal(&s->overlays), s->n_roots);
        s->overlays = pv_calloc(s->n_roots, sizeof *s->overlays);
        if (choose(s, s->overlays, err) < 0)
                return -1;
        for (size_t i = 0; i < s->n_roots; i++) {
                put_frozen(s, i, s->n_layers - 1, &s->overlays[i]);
                s->overlays[i].upper = pv_layer_path(s, i, s->n_layers - 1);
                if (clear_work(s, i, &s->overlays[i].work, err) < 0)
                        return -1;
        }
        if (take_start(s, err) < 0)
                return -1;
        s->state = PV_STATE_RUNNING;
        s->runs++;
        if (pv_stage_write_state(s, err) < 0)
                return -1;
        pv_fd_closep(&s->decide_fd); /* from here on others decide beside the run */
        *overlays = s->overlays;
        *n = s->n_roots;
        return 0;
}

int pv_stage_view_overlays(struct pv_stage *s, const char *throwaway_dir, const struct pv_overlay **overlays, size_t *n,
                           struct pv_err *err)
{
        if (pv_stage_require_targets(s, err) < 0)
                return -1;
        pv_overlays_free(pv_steal(&s->views), s->n_roots);
        s->views = pv_calloc(s->n_roots, sizeof *s->views);
        if (choose(s, s->views, err) < 0)
                return -1;
        for (size_t i = 0; i < s->n_roots; i++) {
                struct pv_overlay *o = &s->views[i];
                put_frozen(s, i, s->n_layers, o);
                if (s->view_copies) {
                        free(o->frozen[0]);
                        o->frozen[0] = pv_strf("%s/%zu/staged", s->view_copies, i);
                }
                o->upper = pv_strf("%s/%zu/upper", throwaway_dir, i);
                o->work = pv_strf("%s/%zu/work", throwaway_dir, i);
                pv_auto_fd top = openat(pv_layer_fd(s, i, s->n_layers - 1).fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (pv_path_make_dirs(o->work, 0700, err) < 0)
                        return -1;
                if (pv_layer_make_like(AT_FDCWD, o->upper, top >= 0 ? top : s->roots[i].target.fd) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "make %s", o->upper);
        }
        *overlays = s->views;
        *n = s->n_roots;
        return 0;
}
