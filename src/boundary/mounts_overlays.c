/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The overlays of a view: staged directories, read-only shares, throw-away views, caches. Each is made from descriptors
 * of its layers, detached, and attached when it is whole. The layers of masks and the throw-away uppers lie on the
 * scratch file system.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include "base/path.h"
#include "base/syscall.h"
#include "boundary/fusemount.h"
#include "boundary/mask.h"
#include "boundary/mounts_build.h"
#include "boundary/overlayfs.h"

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
        pv_pathfd_closep(&l->o.place);
        free(l->o.lower);
}
#define auto_layers __attribute__((cleanup(layers_fini))) struct layers
#define LAYERS_INIT                                                                              \
        {                                                                                        \
                .o = {.upper = PV_PATHFD_INIT, .work = PV_PATHFD_INIT, .place = PV_PATHFD_INIT } \
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
static int make_mask(struct pv_mounts_build *b, struct pv_pathfd source, const char *src, const struct pv_strv *masks,
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
static int add_source(struct pv_mounts_build *b, struct layers *l, const char *src, const struct pv_strv *masks,
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

static unsigned overlay_attr(const struct pv_mounts_build *b)
{
        return MOUNT_ATTR_NODEV | (b->in->view->base == PV_VIEW_NEW_ROOT ? MOUNT_ATTR_NOSUID : 0);
}

static int make_overlay(struct pv_mounts_build *b, struct layers *l, int *out, struct pv_err *err)
{
        if (l->o.upper.fd < 0 && l->o.n_lower < 2) {
                struct pv_pathfd empty;
                if (pv_scratch_empty_dir(&b->scratch, &empty, err) < 0)
                        return -1;
                add_lower(l, (struct pv_pathfd){ fcntl(empty.fd, F_DUPFD_CLOEXEC, 3) });
        }
        l->o.attr = overlay_attr(b);
        if (pv_overlayfs_needs_place(&l->o) && pv_scratch_dir(&b->scratch, 0700, &l->o.place, err) < 0)
                return -1;
        return pv_overlayfs_mount(&l->o, out, err);
}

/*
 * Whoever closes an overlay last dissolves it, and waits for RCU: as a rule init, which exits beside the supervisor's
 * work on the record. That takes as long as four of them; what is more, the supervisor closes when it is done.
 */
static void share_the_end(struct pv_mounts_build *b, int mount)
{
        const size_t inits = 4;
        size_t i = b->n_overlays++;
        if (i >= inits && i - inits < PV_MOUNTS_HELD)
                b->out->held[i - inits] = fcntl(mount, F_DUPFD_CLOEXEC, 3);
}

static int mount_layers(struct pv_mounts_build *b, struct layers *l, const struct pv_view_step *s, int *out,
                        struct pv_err *err)
{
        if (make_overlay(b, l, out, err) < 0)
                return pv_err_wrap(err, "show %s", s->dst);
        if (s->op != PV_VIEW_STAGE)
                share_the_end(b, *out);
        return pv_mounts_attach(b, *out, s->dst, true, err);
}

/*
 * Makes the overlay on the scratch file system, to take parts of or to look at by its descriptor; it goes with that. A
 * mount that never was anywhere would be dissolved as its last descriptor is closed, by the exec, which then waits for
 * RCU; and before Linux 6.15 no part of it could be cloned.
 */
static int make_aside(struct pv_mounts_build *b, struct layers *l, int *out, struct pv_err *err)
{
        pv_auto_pathfd place = PV_PATHFD_INIT;
        pv_auto_fd mnt = -1;
        if (make_overlay(b, l, &mnt, err) < 0 || pv_scratch_dir(&b->scratch, 0700, &place, err) < 0)
                return -1;
        if (move_mount(mnt, "", place.fd, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "mount an overlay aside");
        share_the_end(b, mnt);
        *out = pv_fd_steal(&mnt);
        return 0;
}

/*
 * Shows the part at rel of an overlay that was made aside; attr are MOUNT_ATTR_ flags to add. 1; 0: not there as a
 * directory.
 */
static int show_part(struct pv_mounts_build *b, struct pv_pathfd aside, const char *rel, unsigned attr, const char *dst,
                     struct pv_err *err)
{
        struct mount_attr set = { .attr_set = attr };
        pv_auto_fd dir = pv_path_openat(aside, rel, O_PATH | O_DIRECTORY, 0);
        pv_auto_fd mnt = dir < 0 ? -1 : open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (mnt < 0 || (attr && mount_setattr(mnt, "", AT_EMPTY_PATH, &set, sizeof set) < 0))
                return 0;
        return pv_mounts_attach(b, mnt, dst, true, err) < 0 ? -1 : 1;
}

int pv_mounts_make_share(struct pv_mounts_build *b, const char *src, int *out, struct pv_err *err)
{
        static const struct pv_strv nothing = { 0 };
        auto_layers l = LAYERS_INIT;
        if (add_source(b, &l, src, &nothing, err) < 0 || make_aside(b, &l, out, err) < 0)
                return pv_err_wrap(err, "a share of %s", src);
        return 0;
}

/* A throw-away upper and work directory: in the scratch tmpfs, else where the caller keeps room for it. */
static int open_throwaway(struct pv_mounts_build *b, mode_t mode, struct layers *l, struct pv_err *err)
{
        if (pv_scratch_takes_xattrs(&b->scratch))
                return pv_scratch_dir(&b->scratch, mode, &l->o.upper, err) < 0
                               ? -1
                               : pv_scratch_dir(&b->scratch, 0700, &l->o.work, err);
        if (pv_mounts_await_job(b, err) < 0)
                return -1;
        if (!b->job->scratch)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                  "a view of HOME: this kernel's tmpfs has no user attributes (Linux 6.6) and there "
                                  "is no other place for its layer");
        pv_auto_free char *upper = pv_strf("%s/upper%u", b->job->scratch, b->n_uppers);
        pv_auto_free char *work = pv_strf("%s/work%u", b->job->scratch, b->n_uppers++);
        if ((mkdir(b->job->scratch, 0700) < 0 && errno != EEXIST) || mkdir(upper, mode) < 0 || mkdir(work, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make %s", upper);
        return open_layer(upper, &l->o.upper, err) < 0 ? -1 : open_layer(work, &l->o.work, err);
}

/* The layers of a copy-on-write view of src, without what masks name in it. */
static int open_cow(struct pv_mounts_build *b, const char *src, const struct pv_strv *masks, struct layers *l,
                    struct pv_err *err)
{
        struct pv_pathfd source = PV_PATHFD_INIT;
        struct stat st;
        if (open_layer(src, &source, err) < 0)
                return -1;
        add_lower(l, source);
        if (fstat(source.fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "stat %s", src);
        return open_throwaway(b, st.st_mode & 07777, l, err) < 0 ? -1 : pv_mask_lay(l->o.upper, source, masks, err);
}

/*
 * Directories of HOME are many (those that PATH names, toolchains), and each overlay costs to make, and waits for RCU
 * when it is dissolved: one of what they have in common serves them all, and each is a bind of its part. It cannot be
 * made where something is mounted below that, and does not lead through links: then each has its own.
 */
static bool may_share(const struct pv_view_step *s)
{
        return s->op == PV_VIEW_COW || (s->op == PV_VIEW_READ && s->masks.n == 0);
}

/* The directory that src and its relatives lie in; NULL when src has none. One within the other are none. */
static char *common_base(const struct pv_view *view, const char *src)
{
        size_t first = 1 + strcspn(src + 1, "/"), len = strlen(src);
        bool related = false;
        for (size_t i = 0; i < view->n; i++) {
                const struct pv_view_step *s = &view->v[i];
                if (!may_share(s) || strncmp(s->src, src, first) != 0 || pv_path_is_within(s->src, src) ||
                    pv_path_is_within(src, s->src))
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

/* One overlay of base, copy-on-write when one of its parts is. What shows base itself has its own. */
static int make_shared(struct pv_mounts_build *b, const char *base, int *out, struct pv_err *err)
{
        auto_layers l = LAYERS_INIT;
        pv_auto_strv masks = { 0 };
        bool cow = false;
        for (size_t i = 0; i < b->in->view->n; i++) {
                const struct pv_view_step *s = &b->in->view->v[i];
                if (s->op != PV_VIEW_COW || pv_streq(s->src, base) || !pv_path_is_within(s->src, base))
                        continue;
                cow = true;
                for (size_t k = 0; k < s->masks.n; k++)
                        pv_strv_take(&masks, pv_strf("%s/%s", s->src + strlen(base) + 1, s->masks.v[k]));
        }
        pv_mask_tidy(&masks);
        if ((cow ? open_cow(b, base, &masks, &l, err) : add_source(b, &l, base, &masks, err)) < 0)
                return -1;
        return make_aside(b, &l, out, err);
}

/* 1: shown; 0: it has to have its own overlay. */
static int show_shared(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        if (!may_share(s))
                return 0;
        if (!b->share_base || !pv_path_is_within(s->src, b->share_base)) {
                char *base = common_base(b->in->view, s->src);
                if (!base)
                        return 0;
                free(b->share_base);
                b->share_base = base;
                pv_pathfd_closep(&b->share);
                (void)make_shared(b, base, &b->share.fd, &(struct pv_err){ 0 });
        }
        if (b->share.fd < 0 || pv_streq(s->src, b->share_base))
                return 0;
        const char *rel = s->src + strlen(b->share_base) + 1;
        return show_part(b, b->share, rel, s->op == PV_VIEW_READ ? MOUNT_ATTR_RDONLY : 0, s->dst, err);
}

int pv_mounts_read(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        auto_layers l = LAYERS_INIT;
        pv_auto_fd mnt = -1;
        int shared = show_shared(b, s, err);
        if (shared != 0)
                return shared < 0 ? -1 : 0;
        if (add_source(b, &l, s->src, &s->masks, err) < 0)
                return -1;
        return mount_layers(b, &l, s, &mnt, err);
}

static int step_stage_by_fuse(struct pv_mounts_build *b, const struct pv_view_step *s, const struct pv_overlay *o,
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
        if (pv_mounts_attach(b, mnt, s->dst, true, err) < 0)
                return -1;
        b->out->staged[s->index] = pv_fd_steal(&mnt);
        return 0;
}

int pv_mounts_stage(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        if (pv_mounts_await_job(b, err) < 0)
                return -1;
        const struct pv_overlay *o = &b->job->overlays[s->index];
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

int pv_mounts_cow(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        auto_layers l = LAYERS_INIT;
        pv_auto_fd mnt = -1;
        int shared = show_shared(b, s, err);
        if (shared != 0)
                return shared < 0 ? -1 : 0;
        if (open_cow(b, s->src, &s->masks, &l, err) < 0)
                return -1;
        return mount_layers(b, &l, s, &mnt, err);
}

/* What must not be seen of the caches, relative to HOME. */
static void list_cache_masks(const struct pv_mounts_build *b, struct pv_strv *out)
{
        for (size_t i = 0; i < b->in->view->n; i++) {
                const struct pv_view_step *s = &b->in->view->v[i];
                for (size_t k = 0; s->op == PV_VIEW_CACHE && k < s->masks.n; k++)
                        pv_strv_take(out, pv_strf("%s/%s", s->src + strlen(b->job->caches->home) + 1, s->masks.v[k]));
        }
        pv_mask_tidy(out);
}

/* One overlay of HOME and the layer serves all caches; of the rest of it nothing is shown. */
static int make_caches(struct pv_mounts_build *b, struct pv_err *err)
{
        const struct pv_cache_layer *c = b->job->caches;
        auto_layers l = LAYERS_INIT;
        pv_auto_strv masks = { 0 };
        list_cache_masks(b, &masks);
        if (open_layer(c->upper, &l.o.upper, err) < 0 || open_layer(c->work, &l.o.work, err) < 0 ||
            add_source(b, &l, c->home, &masks, err) < 0 || make_aside(b, &l, &b->caches.fd, err) < 0)
                return pv_err_wrap(err, "caches");
        return 0;
}

int pv_mounts_cache(struct pv_mounts_build *b, const struct pv_view_step *s, struct pv_err *err)
{
        if (pv_mounts_await_job(b, err) < 0)
                return -1;
        if (!b->job->caches || b->out->caches_lost)
                return 0;
        /* Nothing is confined by it: where the store's file system takes no upper layer, nothing is kept. */
        if (b->caches.fd < 0 && make_caches(b, err) < 0) {
                b->out->caches_lost = true;
                pv_err_clear(err);
                return 0;
        }
        const char *rel = s->src + strlen(b->job->caches->home) + 1;
        int shown = show_part(b, b->caches, rel, 0, s->dst, err);
        return shown > 0 ? 0 : shown < 0 ? -1 : pv_err_set(err, PV_ERR_SYS, errno, "show %s", s->dst);
}
