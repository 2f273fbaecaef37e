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
#include "boundary/fusemount.h"
#include "boundary/mask.h"
#include "boundary/mountinfo.h"
#include "boundary/overlayfs.h"
#include "boundary/scratch.h"

#define COPY_MAX (16u << 20) /* of a single file: more is not a configuration file */

struct build {
        const struct pv_mounts_in *in;
        struct pv_scratch scratch;
        struct pv_pathfd root;   /* the new root, or the host's */
        struct pv_pathfd parent; /* of the last place that was opened, with its path: the next one is often beside it */
        char *parent_path;
        unsigned n_uppers;      /* throw-away uppers made in in->scratch */
        struct pv_pathfd share; /* one overlay of share_base, for all that is shown of it; -1: it cannot be made */
        char *share_base;
        struct pv_pathfd caches; /* the overlay of in->caches; -1 until the first step needs it */
        struct pv_mounts_out *out;
};

/* ---- places ---- */

static int open_point(const struct build *b, const char *rel, int flags)
{
        return pv_path_openat(b->root, rel, O_PATH | flags, 0);
}

static void forget_parent(struct build *b)
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

/* Opens dst's parent directory in the view, making what is missing on the way. Borrowed, until the next one is opened. */
static int open_parent(struct build *b, const char *dst, const char **name, int *out, struct pv_err *err)
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
static int make_point(struct build *b, const char *dst, bool dir, mode_t mode, int *out, struct pv_err *err)
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

static int attach(struct build *b, int mount, const char *dst, bool dir, struct pv_err *err)
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

static int bind(struct build *b, const struct pv_view_step *s, unsigned attr, unsigned flags, struct pv_err *err)
{
        pv_auto_fd fd = open_tree(AT_FDCWD, s->src, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | flags);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "show %s", s->src);
        struct mount_attr set = { .attr_set = attr, .propagation = MS_PRIVATE };
        if (mount_setattr(fd, "", AT_EMPTY_PATH | (flags & AT_RECURSIVE), &set, sizeof set) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "show %s: set the mount's flags", s->src);
        return attach(b, fd, s->dst, S_ISDIR(st.st_mode), err);
}

static int step_system(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        return bind(b, s, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, AT_RECURSIVE, err);
}

static int step_write(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        return bind(b, s, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, AT_RECURSIVE, err);
}

/* Read-only keeps mode and owner of the host's node as they are; writing to the device needs no writable mount. */
static int step_device(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        return bind(b, s, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0, err);
}

/* ---- directories of the scratch file system ---- */

static int step_dir(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_fd fd = -1;
        return make_point(b, s->dst, true, s->mode, &fd, err);
}

static int step_link(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        const char *name;
        int parent;
        if (open_parent(b, s->dst, &name, &parent, err) < 0)
                return -1;
        if (symlinkat(s->src, parent, name) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "link %s", s->dst);
        return 0;
}

static int step_private(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_pathfd dir = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        if (pv_scratch_dir(&b->scratch, s->mode, &dir, err) < 0 || pv_scratch_clone(dir, 0, &mnt, err) < 0)
                return -1;
        return attach(b, mnt, s->dst, true, err);
}

static int step_seal(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_fd fd = open_point(b, s->dst + 1, O_DIRECTORY);
        struct mount_attr set = { .attr_set = MOUNT_ATTR_RDONLY };
        if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &set, sizeof set) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make %s read-only", s->dst);
        return 0;
}

static int step_mask(struct build *b, const struct pv_view_step *s, struct pv_err *err)
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

static int step_copy(struct build *b, const struct pv_view_step *s, struct pv_err *err)
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

/* ---- overlays ---- */

/* The layers of one overlay while they are being opened. */
struct layers {
        struct pv_overlayfs o;
        size_t cap;
};

static void layers_fini(struct layers *l)
{
        for (size_t i = 0; i < l->o.n_lower; i++)
                pv_pathfd_closep(&l->o.lower[i]);
        pv_pathfd_closep(&l->o.upper);
        pv_pathfd_closep(&l->o.work);
        free(l->o.lower);
}
#define auto_layers __attribute__((cleanup(layers_fini))) struct layers
#define LAYERS_INIT                                                     \
        {                                                               \
                .o = {.upper = PV_PATHFD_INIT, .work = PV_PATHFD_INIT } \
        }

/* Takes fd. */
static void add_lower(struct layers *l, struct pv_pathfd fd)
{
        if (l->o.n_lower == l->cap)
                l->o.lower = pv_realloc(l->o.lower, l->cap += 4, sizeof *l->o.lower);
        l->o.lower[l->o.n_lower++] = fd;
}

static int open_layer(const char *path, struct pv_pathfd *out, struct pv_err *err)
{
        out->fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return out->fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "open layer %s", path) : 0;
}

/* A layer of whiteouts for what of source has to stay hidden; {-1} when nothing has. */
static int make_mask(struct build *b, struct pv_pathfd source, const char *src, const struct pv_strv *masks,
                     struct pv_pathfd *mask, struct pv_err *err)
{
        struct stat st;
        if (masks->n == 0)
                return 0;
        if (fstat(source.fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "stat %s", src);
        if (pv_scratch_dir(&b->scratch, st.st_mode & 07777, mask, err) < 0)
                return -1;
        return pv_mask_lay(*mask, source, masks, err);
}

/* The lowest layer, with one of whiteouts above it where there are any. */
static int add_source(struct build *b, struct layers *l, const char *src, const struct pv_strv *masks,
                      struct pv_err *err)
{
        pv_auto_pathfd source = PV_PATHFD_INIT;
        pv_auto_pathfd mask = PV_PATHFD_INIT;
        if (open_layer(src, &source, err) < 0 || make_mask(b, source, src, masks, &mask, err) < 0)
                return -1;
        if (mask.fd >= 0)
                add_lower(l, (struct pv_pathfd){ pv_fd_steal(&mask.fd) });
        add_lower(l, (struct pv_pathfd){ pv_fd_steal(&source.fd) });
        return 0;
}

static unsigned overlay_attr(const struct build *b)
{
        return MOUNT_ATTR_NODEV | (b->in->view->base == PV_VIEW_NEW_ROOT ? MOUNT_ATTR_NOSUID : 0);
}

static int make_overlay(struct build *b, struct layers *l, int *out, struct pv_err *err)
{
        if (l->o.upper.fd < 0 && l->o.n_lower < 2) {
                struct pv_pathfd empty;
                if (pv_scratch_empty_dir(&b->scratch, &empty, err) < 0)
                        return -1;
                add_lower(l, (struct pv_pathfd){ fcntl(empty.fd, F_DUPFD_CLOEXEC, 3) });
        }
        l->o.attr = overlay_attr(b);
        return pv_overlayfs_mount(&l->o, out, err);
}

static int mount_layers(struct build *b, struct layers *l, const struct pv_view_step *s, int *out, struct pv_err *err)
{
        if (make_overlay(b, l, out, err) < 0)
                return pv_err_wrap(err, "show %s", s->dst);
        return attach(b, *out, s->dst, true, err);
}

/*
 * A read-only overlay of src on the scratch file system, to take parts of or to look at by its descriptor; it goes with
 * that. A mount that never was anywhere would be dissolved as its last descriptor is closed, by the exec, which then
 * waits for RCU; and before Linux 6.15 no part of it could be cloned.
 */
static int make_share(struct build *b, const char *src, int *out, struct pv_err *err)
{
        static const struct pv_strv nothing = { 0 };
        auto_layers l = LAYERS_INIT;
        pv_auto_pathfd place = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        if (add_source(b, &l, src, &nothing, err) < 0 || make_overlay(b, &l, &mnt, err) < 0 ||
            pv_scratch_dir(&b->scratch, 0700, &place, err) < 0)
                return -1;
        if (move_mount(mnt, "", place.fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "mount a share of %s", src);
        *out = pv_fd_steal(&mnt);
        return 0;
}

/* The directory that src and its relatives among the read-only sources lie in; NULL when src has none. */
static char *common_base(const struct pv_view *view, const char *src)
{
        size_t first = 1 + strcspn(src + 1, "/"), len = strlen(src);
        bool related = false;
        for (size_t i = 0; i < view->n; i++) {
                const struct pv_view_step *s = &view->v[i];
                if (s->op != PV_VIEW_READ || s->masks.n > 0 || strncmp(s->src, src, first) != 0 ||
                    pv_streq(s->src, src))
                        continue;
                size_t same = 0, end = 0;
                for (; same < len && s->src[same] == src[same]; same++)
                        if (src[same] == '/')
                                end = same;
                if (end < first)
                        continue;
                related = true;
                len = end;
        }
        return related ? pv_strndup(src, len) : NULL;
}

/*
 * Directories of HOME that PATH names are many, and each overlay costs waits for RCU when it is dissolved: one of what
 * they have in common serves them all, and each is a bind of its part. It cannot be made where something is mounted
 * below that, and does not lead through links: then each has its own. 1: shown; 0: it has to have its own.
 */
static int show_shared(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        if (!b->share_base || !pv_path_is_within(s->src, b->share_base)) {
                pv_auto_free char *base = common_base(b->in->view, s->src);
                if (!base)
                        return 0;
                free(b->share_base);
                b->share_base = base;
                base = NULL;
                pv_pathfd_closep(&b->share);
                (void)make_share(b, b->share_base, &b->share.fd, &(struct pv_err){ 0 });
        }
        if (b->share.fd < 0 || pv_streq(s->src, b->share_base))
                return 0;
        pv_auto_fd dir = pv_path_openat(b->share, s->src + strlen(b->share_base) + 1, O_PATH | O_DIRECTORY, 0);
        pv_auto_fd mnt = dir < 0 ? -1 : open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (mnt < 0)
                return 0;
        return attach(b, mnt, s->dst, true, err) < 0 ? -1 : 1;
}

static int step_read(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        auto_layers l = LAYERS_INIT;
        pv_auto_fd mnt = -1;
        int shared = s->masks.n > 0 ? 0 : show_shared(b, s, err);
        if (shared != 0)
                return shared < 0 ? -1 : 0;
        if (add_source(b, &l, s->src, &s->masks, err) < 0)
                return -1;
        return mount_layers(b, &l, s, &mnt, err);
}

static int step_stage_by_fuse(struct build *b, const struct pv_view_step *s, const struct pv_overlay *o,
                              struct pv_err *err)
{
        pv_auto_pathfd source = PV_PATHFD_INIT;
        pv_auto_pathfd mask = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        if (open_layer(s->src, &source, err) < 0 || make_mask(b, source, s->src, &s->masks, &mask, err) < 0)
                return -1;
        const struct pv_fusemount m = {
                .channel = o->channel,
                .ids = b->in->ids,
                .target = source,
                .mask = mask,
                .attr = overlay_attr(b) | (o->upper ? 0 : MOUNT_ATTR_RDONLY),
        };
        if (pv_fusemount(&m, &mnt, err) < 0)
                return pv_err_wrap(err, "show %s", s->dst);
        if (attach(b, mnt, s->dst, true, err) < 0)
                return -1;
        b->out->staged[s->index] = pv_fd_steal(&mnt);
        return 0;
}

static int step_stage(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        const struct pv_overlay *o = &b->in->overlays[s->index];
        if (o->by_fuse)
                return step_stage_by_fuse(b, s, o, err);
        auto_layers l = LAYERS_INIT;
        pv_auto_fd mnt = -1;
        if (o->n_frozen + 2 > PV_OVERLAYFS_LOWERS)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "stage of %s: %zu layers, overlayfs takes %d", s->dst,
                                  o->n_frozen, PV_OVERLAYFS_LOWERS - 2);
        if (o->upper && (open_layer(o->upper, &l.o.upper, err) < 0 || open_layer(o->work, &l.o.work, err) < 0))
                return -1;
        for (size_t i = 0; i < o->n_frozen; i++) {
                struct pv_pathfd frozen;
                if (open_layer(o->frozen[i], &frozen, err) < 0)
                        return -1;
                add_lower(&l, frozen);
        }
        if (add_source(b, &l, s->src, &s->masks, err) < 0 || mount_layers(b, &l, s, &mnt, err) < 0)
                return -1;
        b->out->staged[s->index] = pv_fd_steal(&mnt);
        return 0;
}

/* A throw-away upper and work directory: in the scratch tmpfs, else where the caller keeps room for it. */
static int open_throwaway(struct build *b, mode_t mode, struct layers *l, struct pv_err *err)
{
        if (pv_scratch_takes_xattrs(&b->scratch))
                return pv_scratch_dir(&b->scratch, mode, &l->o.upper, err) < 0
                               ? -1
                               : pv_scratch_dir(&b->scratch, 0700, &l->o.work, err);
        if (!b->in->scratch)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                  "a view of HOME: this kernel's tmpfs has no user attributes (Linux 6.6) and there "
                                  "is no other place for its layer");
        pv_auto_free char *upper = pv_strf("%s/upper%u", b->in->scratch, b->n_uppers);
        pv_auto_free char *work = pv_strf("%s/work%u", b->in->scratch, b->n_uppers++);
        if ((mkdir(b->in->scratch, 0700) < 0 && errno != EEXIST) || mkdir(upper, mode) < 0 || mkdir(work, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make %s", upper);
        return open_layer(upper, &l->o.upper, err) < 0 ? -1 : open_layer(work, &l->o.work, err);
}

static int step_cow(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        auto_layers l = LAYERS_INIT;
        pv_auto_fd mnt = -1;
        struct pv_pathfd source = PV_PATHFD_INIT;
        struct stat st;
        if (open_layer(s->src, &source, err) < 0)
                return -1;
        add_lower(&l, source);
        if (fstat(source.fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "stat %s", s->src);
        if (open_throwaway(b, st.st_mode & 07777, &l, err) < 0 || pv_mask_lay(l.o.upper, source, &s->masks, err) < 0)
                return -1;
        return mount_layers(b, &l, s, &mnt, err);
}

/* What must not be seen of the caches, relative to HOME. */
static void list_cache_masks(const struct pv_mounts_in *in, struct pv_strv *out)
{
        for (size_t i = 0; i < in->view->n; i++) {
                const struct pv_view_step *s = &in->view->v[i];
                for (size_t k = 0; s->op == PV_VIEW_CACHE && k < s->masks.n; k++)
                        pv_strv_take(out, pv_strf("%s/%s", s->src + strlen(in->caches->home) + 1, s->masks.v[k]));
        }
        pv_mask_tidy(out);
}

/* One overlay of HOME and the layer serves all caches; of the rest of it nothing is shown. */
static int make_caches(struct build *b, struct pv_err *err)
{
        const struct pv_cache_layer *c = b->in->caches;
        auto_layers l = LAYERS_INIT;
        pv_auto_strv masks = { 0 };
        pv_auto_pathfd place = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        list_cache_masks(b->in, &masks);
        if (open_layer(c->upper, &l.o.upper, err) < 0 || open_layer(c->work, &l.o.work, err) < 0 ||
            add_source(b, &l, c->home, &masks, err) < 0 || make_overlay(b, &l, &mnt, err) < 0 ||
            pv_scratch_dir(&b->scratch, 0700, &place, err) < 0)
                return pv_err_wrap(err, "caches");
        if (move_mount(mnt, "", place.fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "mount the caches");
        b->caches.fd = pv_fd_steal(&mnt);
        return 0;
}

static int step_cache(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        if (!b->in->caches || b->out->caches_lost)
                return 0;
        /* Nothing is confined by it: where the store's file system takes no upper layer, nothing is kept. */
        if (b->caches.fd < 0 && make_caches(b, err) < 0) {
                b->out->caches_lost = true;
                pv_err_clear(err);
                return 0;
        }
        const char *rel = s->src + strlen(b->in->caches->home) + 1;
        pv_auto_fd dir = pv_path_openat(b->caches, rel, O_PATH | O_DIRECTORY, 0);
        pv_auto_fd mnt = dir < 0 ? -1 : open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (mnt < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "show %s", s->dst);
        return attach(b, mnt, s->dst, true, err);
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

static int step_pts(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        static const char *const options[][2] = { { "ptmxmode", "0666" }, { "mode", "0620" }, { NULL, NULL } };
        pv_auto_fd mnt = -1;
        if (mount_kernel_fs("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, &mnt, err) < 0)
                return -1;
        return attach(b, mnt, s->dst, true, err);
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

static int step_proc(struct build *b, const struct pv_view_step *s, struct pv_err *err)
{
        pv_auto_pathfd mnt = PV_PATHFD_INIT;
        if (mount_kernel_fs("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, &mnt.fd, err) < 0) {
                if (err->kind == PV_ERR_UNSUPPORTED)
                        (void)pv_err_hint(err, "a container that hides parts of /proc forbids it: start that with "
                                               "podman --security-opt unmask=ALL or docker "
                                               "--security-opt systempaths=unconfined");
                return -1;
        }
        if (attach(b, mnt.fd, s->dst, true, err) < 0)
                return -1;
        /* From before the read-only mount goes on top: a look-up that starts there does not meet it. */
        b->out->sysctl = openat(mnt.fd, "sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (b->out->sysctl < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open /proc/sys");
        return b->in->view->base == PV_VIEW_NEW_ROOT ? protect_proc(mnt, err) : 0;
}

/* ---- the engine ---- */

static int (*const steps[])(struct build *, const struct pv_view_step *, struct pv_err *) = {
        [PV_VIEW_DIR] = step_dir,     [PV_VIEW_LINK] = step_link,     [PV_VIEW_PRIVATE] = step_private,
        [PV_VIEW_SEAL] = step_seal,   [PV_VIEW_SYSTEM] = step_system, [PV_VIEW_FILE] = step_system,
        [PV_VIEW_COPY] = step_copy,   [PV_VIEW_READ] = step_read,     [PV_VIEW_WRITE] = step_write,
        [PV_VIEW_STAGE] = step_stage, [PV_VIEW_COW] = step_cow,       [PV_VIEW_KEPT] = step_write,
        [PV_VIEW_CACHE] = step_cache, [PV_VIEW_MASK] = step_mask,     [PV_VIEW_DEVICE] = step_device,
        [PV_VIEW_PTS] = step_pts,     [PV_VIEW_PROC] = step_proc,
};
static_assert(sizeof steps / sizeof *steps == PV_VIEW_OPS, "a function for each step");

/* A directory of the scratch file system, mounted over itself, so that it can become the root. */
static int open_new_root(struct build *b, struct pv_err *err)
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

static int open_host_root(struct build *b, struct pv_err *err)
{
        struct mount_attr slave = { .propagation = MS_SLAVE };
        if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &slave, sizeof slave) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make the mount namespace a slave of the host's");
        return pv_path_open_root("/", &b->root, err);
}

static int enter_new_root(struct build *b, struct pv_err *err)
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
static int leave_scratch(struct build *b, struct pv_err *err)
{
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", b->scratch.dir.fd);
        if (umount2(path, MNT_DETACH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "detach the scratch file system");
        return 0;
}

static int build_all(struct build *b, struct pv_err *err)
{
        const struct pv_view *view = b->in->view;
        if (pv_scratch_mount(&b->scratch, err) < 0 ||
            (view->base == PV_VIEW_NEW_ROOT ? open_new_root(b, err) : open_host_root(b, err)) < 0)
                return -1;
        for (size_t i = 0; i < view->n; i++)
                if (steps[view->v[i].op](b, &view->v[i], err) < 0)
                        return -1;
        /* As step_read() would show it; the probes use the descriptor. */
        if (b->in->canary && make_share(b, b->in->canary, &b->out->share, err) < 0)
                return -1;
        return view->base == PV_VIEW_NEW_ROOT ? enter_new_root(b, err) : leave_scratch(b, err);
}

int pv_mounts_enter(const struct pv_mounts_in *in, struct pv_mounts_out *out, struct pv_err *err)
{
        struct build b = {
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
