/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a view comes into being. Every mount is made detached (fsmount, open_tree), given its flags while nobody can
 * reach it, and moved to its place by descriptor; places are resolved without following links beneath the new root,
 * because what a stage holds is hostile. The scratch tmpfs is attached first, somewhere in the host's root; the new
 * root is one of its directories. pivot_root(2) then puts the old root on top of the new one and it is detached, with
 * everything that the view does not name: in one umount(2), because each waits for RCU.
 *
 * A clone taken of the host's mounts is made private, so that what the host mounts later does not arrive here without
 * the read-only flag; only a view laid over the host's own root keeps receiving (rslave).
 */
#include "boundary/mounts.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include "base/path.h"
#include "base/syscall.h"
#include "base/mountinfo.h"
#include "boundary/mounts_build.h"

#define COPY_MAX (16u << 20) /* of a single file: more is not a configuration file */

/* ---- places ---- */

static int open_point(const struct pv_mounts_build *b, const char *rel, int flags)
{
        return pv_path_openat(b->root, rel, O_PATH | flags, 0);
}

static void forget_parent(struct pv_mounts_build *b)
{
        pv_pathfd_closep(&b->parent);
        free(b->parent_path);
        b->parent_path = NULL;
}

/* Of a mount that a person asked for: it is seen here first, where its place is made. */
static int no_place(const char *dst, int why, struct pv_err *err)
{
        if (why != EROFS)
                return pv_err_set(err, PV_ERR_SYS, why, "make the place of %s", dst);
        (void)pv_err_set(err, PV_ERR_USAGE, 0,
                         "nothing can be mounted at %s: the command has no such path, and may make none there", dst);
        return pv_err_hint(err, "--mount SRC:DST:read with a DST elsewhere shows it");
}

/*
 * Opens dst's parent directory in the view, making what is missing on the way. Borrowed, until the next one is
 * opened.
 */
static int open_parent(struct pv_mounts_build *b, const char *dst, const char **name, int *out, struct pv_err *err)
{
        const char *last = strrchr(dst, '/') + 1;
        size_t len = (size_t)(last - dst) - 1;
        if (b->parent_path && strncmp(b->parent_path, dst, len) == 0 && b->parent_path[len] == '\0') {
                *name = last;
                *out = b->parent.fd;
                return 0;
        }
        struct pv_pathfd at = { fcntl(b->root.fd, F_DUPFD_CLOEXEC, 3) };
        const char *p = dst + 1;
        for (const char *slash; at.fd >= 0 && (slash = strchr(p, '/')); p = slash + 1) {
                pv_auto_free char *part = pv_strndup(p, (size_t)(slash - p));
                int next = pv_path_openat(at, part, O_PATH | O_DIRECTORY, 0);
                if (next < 0 && errno == ENOENT && mkdirat(at.fd, part, 0755) == 0)
                        next = pv_path_openat(at, part, O_PATH | O_DIRECTORY, 0);
                pv_pathfd_closep(&at);
                at.fd = next;
        }
        if (at.fd < 0) {
                (void)no_place(dst, errno, err);
                return -1;
        }
        forget_parent(b);
        b->parent_path = pv_strndup(dst, len);
        b->parent = at;
        *name = p;
        *out = at.fd;
        return 0;
}

/* Opens the place for a mount, made when it is missing: a directory or an empty file. */
static int make_point(struct pv_mounts_build *b, const char *dst, bool dir, mode_t mode, int *out, struct pv_err *err)
{
        const char *name;
        struct pv_pathfd parent;
        if (open_parent(b, dst, &name, &parent.fd, err) < 0)
                return -1;
        int made = dir ? mkdirat(parent.fd, name, mode) : mknodat(parent.fd, name, S_IFREG | 0444, 0);
        int why = made < 0 ? errno : 0;
        int fd = pv_path_openat(parent, name, O_PATH | (dir ? O_DIRECTORY : O_NOFOLLOW), 0);
        if (fd < 0)
                return no_place(dst, errno == ENOENT && why ? why : errno, err);
        *out = fd;
        return 0;
}

int pv_mounts_attach(struct pv_mounts_build *b, int mount, const char *dst, bool dir, struct pv_err *err)
{
        pv_auto_fd point = -1;
        if (make_point(b, dst, dir, 0755, &point, err) < 0)
                return -1;
        if (move_mount(mount, "", point, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "mount %s", dst);
        if (b->parent_path && pv_path_is_within(b->parent_path, dst)) /* covered */
                forget_parent(b);
        return 0;
}

/* ---- binds ---- */

static int bind(struct pv_mounts_build *b, const struct pv_view_step *s, unsigned attr, unsigned flags,
                struct pv_err *err)
{
        pv_auto_fd fd = open_tree(AT_FDCWD, s->src, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | flags);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "show %s", s->src);
        struct mount_attr set = { .attr_set = attr, .propagation = MS_PRIVATE };
        if (mount_setattr(fd, "", AT_EMPTY_PATH | (flags & AT_RECURSIVE), &set, sizeof set) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "show %s: set the mount's flags", s->src);
        return pv_mounts_attach(b, fd, s->dst, S_ISDIR(st.st_mode), err);
}

static int step_system(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        return bind(b, s, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, AT_RECURSIVE, err);
}

static int step_write(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        return bind(b, s, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, AT_RECURSIVE, err);
}

/* Read-only keeps mode and owner of the host's node as they are; writing to the device needs no writable mount. */
static int step_device(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        return bind(b, s, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, err);
}

/* ---- directories of the scratch file system ---- */

static int step_dir(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_fd fd = -1;
        return make_point(b, s->dst, true, s->mode, &fd, err);
}

static int step_link(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        const char *name;
        int parent;
        if (open_parent(b, s->dst, &name, &parent, err) < 0)
                return -1;
        if (symlinkat(s->src, parent, name) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "link %s", s->dst);
        return 0;
}

static int step_private(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_pathfd dir = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        if (pv_scratch_dir(&b->scratch, s->mode, &dir, err) < 0 || pv_scratch_clone(dir, 0, &mnt, err) < 0)
                return -1;
        return pv_mounts_attach(b, mnt, s->dst, true, err);
}

static int step_seal(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_fd fd = open_point(b, s->dst + 1, O_DIRECTORY);
        struct mount_attr set = { .attr_set = MOUNT_ATTR_RDONLY };
        if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &set, sizeof set) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make %s read-only", s->dst);
        return 0;
}

static int step_mask(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        struct stat st;
        struct pv_pathfd nothing;
        pv_auto_fd point = open_point(b, s->dst + 1, O_NOFOLLOW);
        if (point < 0 && errno == ENOENT)
                return 0;
        if (point < 0 || fstat(point, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", s->dst);
        pv_auto_fd mnt = -1;
        if ((S_ISDIR(st.st_mode) ? pv_scratch_empty_dir(&b->scratch, &nothing, err)
                                 : pv_scratch_empty_file(&b->scratch, &nothing, err)) < 0 ||
            pv_scratch_clone(nothing, MOUNT_ATTR_RDONLY, &mnt, err) < 0)
                return -1;
        if (move_mount(mnt, "", point, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", s->dst);
        return 0;
}

static int step_copy(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        const char *name;
        struct stat st;
        int parent;
        pv_auto_fd from = open(s->src, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > COPY_MAX)
                return pv_err_set(err, PV_ERR_SYS, from < 0 ? errno : EINVAL, "copy %s", s->src);
        if (open_parent(b, s->dst, &name, &parent, err) < 0)
                return -1;
        pv_auto_fd to = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (to < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "copy %s", s->src);
        for (off_t at = 0; at < st.st_size;) {
                ssize_t n = sendfile(to, from, &at, (size_t)(st.st_size - at));
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "copy %s", s->src);
                if (n == 0) /* shorter than it was */
                        break;
        }
        struct timespec times[2] = { st.st_atim, st.st_mtim };
        if (fchmod(to, st.st_mode & 07777) < 0 || futimens(to, times) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "copy %s", s->src);
        return 0;
}

static int step_text(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_pathfd dir = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        if (pv_scratch_dir(&b->scratch, 0755, &dir, err) < 0)
                return -1;
        pv_auto_fd fd = openat(dir.fd, "text", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
        if (fd < 0 || fchmod(fd, 0444) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make %s", s->dst);
        if (pv_fd_write_all(fd, s->src, strlen(s->src), s->dst, err) < 0)
                return -1;
        const struct pv_pathfd file = { fd };
        if (pv_scratch_clone(file, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, &mnt, err) < 0)
                return -1;
        return pv_mounts_attach(b, mnt, s->dst, false, err);
}

/* ---- kernel file systems ---- */

static int mount_kernel_fs(const char *type, const char *const options[][2], unsigned attr, int *out,
                           struct pv_err *err)
{
        pv_auto_fd fs = fsopen(type, FSOPEN_CLOEXEC);
        if (fs < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "mount %s", type);
        for (size_t i = 0; options && options[i][0]; i++)
                if (fsconfig(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "mount %s: %s", type, options[i][0]);
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return pv_err_set(err, errno == EPERM ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno, "mount %s", type);
        int fd = fsmount(fs, FSMOUNT_CLOEXEC, attr);
        if (fd < 0)
                return pv_err_set(err, errno == EPERM ? PV_ERR_UNSUPPORTED : PV_ERR_SYS, errno, "mount %s", type);
        *out = fd;
        return 0;
}

static int step_pts(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        static const char *const options[][2] = { { "ptmxmode", "0666" }, { "mode", "0620" }, { NULL, NULL } };
        pv_auto_fd mnt = -1;
        if (mount_kernel_fs("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, &mnt, err) < 0)
                return -1;
        return pv_mounts_attach(b, mnt, s->dst, true, err);
}

/*
 * What of /proc belongs to the machine, not to the namespace, and is root's to write: a process without capabilities
 * whose uid is the host's root passes the mode bits.
 */
static const char *const proc_machine[] = { "acpi", "asound", "bus",  "driver", "dynamic_debug", "fs",
                                            "irq",  "mtrr",   "scsi", "sys",    "sysrq-trigger", "tty" };

static int protect_proc(struct pv_pathfd proc, struct pv_err *err)
{
        struct mount_attr set = {
                .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
        };
        for (size_t i = 0; i < sizeof proc_machine / sizeof *proc_machine; i++) {
                pv_auto_fd fd = open_tree(proc.fd, proc_machine[i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
                if (fd < 0 && errno == ENOENT)
                        continue;
                if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &set, sizeof set) < 0 ||
                    move_mount(fd, "", proc.fd, proc_machine[i], MOVE_MOUNT_F_EMPTY_PATH) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "make /proc/%s read-only", proc_machine[i]);
        }
        return 0;
}

static int step_proc(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_pathfd mnt = PV_PATHFD_INIT;
        if (mount_kernel_fs("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, &mnt.fd, err) < 0) {
                if (err->kind == PV_ERR_UNSUPPORTED)
                        (void)pv_err_hint(err, "a container that hides parts of /proc forbids it: start that with "
                                               "podman --security-opt unmask=ALL or docker "
                                               "--security-opt systempaths=unconfined");
                return -1;
        }
        if (pv_mounts_attach(b, mnt.fd, s->dst, true, err) < 0)
                return -1;
        /* From before the read-only mount goes on top: a look-up that starts there does not meet it. */
        b->out->sysctl = openat(mnt.fd, "sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (b->out->sysctl < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open /proc/sys");
        return b->in->view->base == PV_VIEW_NEW_ROOT ? protect_proc(mnt, err) : 0;
}

/* ---- the engine ---- */

int pv_mounts_await_job(struct pv_mounts_build *b, struct pv_err *err)
{
        if (!b->job)
                b->job = b->in->await_job(b->in->ctx, err);
        return b->job ? 0 : -1;
}

static int (*const steps[])(struct pv_mounts_build *, const struct pv_view_step *, struct pv_err *) = {
        [PV_VIEW_DIR] = step_dir,       [PV_VIEW_LINK] = step_link,        [PV_VIEW_PRIVATE] = step_private,
        [PV_VIEW_SEAL] = step_seal,     [PV_VIEW_SYSTEM] = step_system,    [PV_VIEW_FILE] = step_system,
        [PV_VIEW_TEXT] = step_text,     [PV_VIEW_COPY] = step_copy,        [PV_VIEW_READ] = pv_mounts_read,
        [PV_VIEW_WRITE] = step_write,   [PV_VIEW_STAGE] = pv_mounts_stage, [PV_VIEW_COW] = pv_mounts_cow,
        [PV_VIEW_KEPT] = step_write,    [PV_VIEW_CACHE] = pv_mounts_cache, [PV_VIEW_MASK] = step_mask,
        [PV_VIEW_DEVICE] = step_device, [PV_VIEW_PTS] = step_pts,          [PV_VIEW_PROC] = step_proc,
};
static_assert(sizeof steps / sizeof *steps == PV_VIEW_OPS, "a function for each step");

/* A directory of the scratch file system, mounted over itself, so that it can become the root. */
static int open_new_root(struct pv_mounts_build *b, struct pv_err *err)
{
        pv_auto_pathfd dir = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        if (pv_scratch_dir(&b->scratch, 0755, &dir, err) < 0 || pv_scratch_clone(dir, 0, &mnt, err) < 0)
                return -1;
        if (move_mount(mnt, "", dir.fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "mount the new root");
        b->root.fd = pv_fd_steal(&mnt);
        return 0;
}

static int open_host_root(struct pv_mounts_build *b, struct pv_err *err)
{
        struct mount_attr slave = { .propagation = MS_SLAVE };
        if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &slave, sizeof slave) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make the mount namespace a slave of the host's");
        return pv_path_open_root("/", &b->root, err);
}

static int enter_new_root(struct pv_mounts_build *b, struct pv_err *err)
{
        struct mount_attr set = { .attr_set = MOUNT_ATTR_RDONLY };
        if (mount_setattr(b->root.fd, "", AT_EMPTY_PATH, &set, sizeof set) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make the new root read-only");
        if (fchdir(b->root.fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "change to the new root");
        /* On top of the new root now lies the host's, with the scratch file system in or on it. */
        if ((b->scratch.over_root && umount2(".", MNT_DETACH) < 0) || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach the host's root");
        return 0;
}

/* The layers of masks live on inside the overlays that use them. */
static int leave_scratch(struct pv_mounts_build *b, struct pv_err *err)
{
        if (umount2(pv_fd_path(b->scratch.dir.fd).s, MNT_DETACH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach the scratch file system");
        return 0;
}

static int build_all(struct pv_mounts_build *b, struct pv_err *err)
{
        const struct pv_view *view = b->in->view;
        if (pv_scratch_mount(&b->scratch, err) < 0 ||
            (view->base == PV_VIEW_NEW_ROOT ? open_new_root(b, err) : open_host_root(b, err)) < 0)
                return -1;
        for (size_t i = 0; i < view->n; i++)
                if (steps[view->v[i].op](b, &view->v[i], err) < 0)
                        return -1;
        /* As pv_mounts_read() would show it; the probes use the descriptor. */
        if (pv_mounts_await_job(b, err) < 0 ||
            (b->job->canary && pv_mounts_make_share(b, b->job->canary, &b->out->share, err) < 0))
                return -1;
        return view->base == PV_VIEW_NEW_ROOT ? enter_new_root(b, err) : leave_scratch(b, err);
}

int pv_mounts_enter(const struct pv_mounts_in *in, struct pv_mounts_out *out, struct pv_err *err)
{
        struct pv_mounts_build b = {
                .in = in,
                .scratch = PV_SCRATCH_INIT,
                .root = PV_PATHFD_INIT,
                .parent = PV_PATHFD_INIT,
                .share = PV_PATHFD_INIT,
                .caches = PV_PATHFD_INIT,
                .out = out,
        };
        mode_t mask = umask(0);
        int r = build_all(&b, err);
        (void)umask(mask);
        forget_parent(&b);
        pv_pathfd_closep(&b.share);
        pv_pathfd_closep(&b.caches);
        free(b.share_base);
        pv_scratch_close(&b.scratch);
        pv_pathfd_closep(&b.root);
        return r;
}

int pv_mounts_verify(const struct pv_view *view, struct pv_err *err)
{
        pv_auto_mountinfo now = { 0 };
        if (pv_mountinfo_read(&now, err) < 0)
                return -1;
        for (size_t i = 0; i < now.n; i++) {
                const char *point = now.v[i].point;
                const struct pv_view_step *s = pv_view_at(view, point);
                bool must = !s || pv_view_op_is_read_only(s->op) || (s->op == PV_VIEW_PROC && !pv_streq(s->dst, point));
                if (must && !now.v[i].read_only)
                        return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s is writable in the view but must not be",
                                          point);
        }
        return 0;
}
