/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is beside its content: status, mode, owner, times, links' targets, attributes. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include "base/outer_ids.h"
#include "fuse/acl.h"
#include "fuse/marks.h"
#include "fuse/ops.h"

#define LIST_MAX_BYTES  65536
#define VALUE_MAX_BYTES 65536

static void reply_attr(fuse_req_t req, struct pv_fuse_fs *fs, struct pv_fuse_node *n)
{
        struct stat st;
        size_t layer;
        if (pv_fuse_stat(fs, n, &st, &layer) < 0) {
                pv_fuse_done(req, fs, -1);
                return;
        }
        n->told_ctime = st.st_ctim;
        n->told_size = st.st_size;
        pv_fuse_show(fs, n, &st);
        double timeout = pv_fuse_timeout(fs, n->names ? n->names->dir : NULL, layer);
        (void)pthread_mutex_unlock(&fs->lock);
        (void)fuse_reply_attr(req, &st, timeout);
}

void pv_fuse_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)fi;
        (void)pthread_mutex_lock(&fs->lock);
        reply_attr(req, fs, pv_fuse_node_of(fs, ino));
}

/* Where a node is, for calls by path: its directory and name, or what is held of it. */
struct spot {
        struct pv_fuse_place place;
        struct pv_fuse_found f;
        int dirfd;
        const char *name; /* "": dirfd itself */
};

static void spot_fini(struct spot *s)
{
        pv_fuse_place_close(&s->place);
}
#define auto_spot __attribute__((cleanup(spot_fini))) struct spot

static int find_spot(struct pv_fuse_fs *fs, struct pv_fuse_node *n, struct spot *s)
{
        if (n == &fs->root_node || n->fd >= 0) {
                s->dirfd = n == &fs->root_node ? fs->layer[0] : n->fd;
                s->name = "";
                s->f = (struct pv_fuse_found){ .layer = n->upper ? 0 : fs->n_layers - 1, .upper = n->upper };
                return fstat(s->dirfd, &s->f.st);
        }
        if (pv_fuse_locate(fs, n, &s->place, &s->name, &s->f) < 0)
                return -1;
        s->dirfd = s->f.dirfd;
        return 0;
}

/* ---- changing ---- */

static int check_change(const struct pv_fuse_fs *fs, const struct spot *s, int what)
{
        int owners = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;
        bool now = what & (FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_ATIME_NOW);
        if (s->f.upper || !*s->name)
                return 0;
        if (what & owners || (what & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME) && !now))
                return pv_fuse_may_own(fs, &s->f.st);
        return pv_fuse_may_write(fs, &s->f, s->name);
}

static int set_size(const struct spot *s, off_t size, const struct fuse_file_info *fi)
{
        if (fi)
                return ftruncate(((struct pv_fuse_handle *)(uintptr_t)fi->fh)->fd, size);
        return truncate(pv_fuse_proc(s->dirfd, s->name).s, size);
}

static int set_owner(const struct spot *s, const struct stat *attr, int what)
{
        uid_t uid = what & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
        gid_t gid = what & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;
        return fchownat(s->dirfd, s->name, uid, gid, *s->name ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH);
}

static struct timespec time_of(int what, int set, int now, struct timespec t)
{
        if (what & now)
                return (struct timespec){ .tv_nsec = UTIME_NOW };
        return what & set ? t : (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static int set_times(const struct spot *s, const struct stat *attr, int what)
{
        const struct timespec t[2] = {
                time_of(what, FUSE_SET_ATTR_ATIME, FUSE_SET_ATTR_ATIME_NOW, attr->st_atim),
                time_of(what, FUSE_SET_ATTR_MTIME, FUSE_SET_ATTR_MTIME_NOW, attr->st_mtim),
        };
        if (*s->name)
                return utimensat(s->dirfd, s->name, t, AT_SYMLINK_NOFOLLOW);
        return utimensat(AT_FDCWD, pv_fuse_proc(s->dirfd, "").s, t, 0);
}

static int set_mode(const struct spot *s, mode_t mode)
{
        return chmod(pv_fuse_proc(s->dirfd, s->name).s, mode & 07777); /* links have none: the kernel does not ask */
}

static int change(struct pv_fuse_fs *fs, struct pv_fuse_node *n, const struct stat *attr, int what,
                  const struct fuse_file_info *fi)
{
        struct spot before __attribute__((cleanup(spot_fini))) = { .place = PV_FUSE_PLACE_INIT };
        auto_spot s = { .place = PV_FUSE_PLACE_INIT };
        bool cut = what & FUSE_SET_ATTR_SIZE && attr->st_size == 0;
        if (!fs->writable) {
                errno = EROFS;
                return -1;
        }
        if (find_spot(fs, n, &before) < 0 || check_change(fs, &before, what) < 0)
                return -1;
        if (n != &fs->root_node && pv_fuse_raise(fs, n, cut ? PV_FUSE_EMPTY : 0) < 0)
                return -1;
        if (find_spot(fs, n, &s) < 0)
                return -1;
        if (what & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) && set_owner(&s, attr, what) < 0)
                return -1;
        if (what & FUSE_SET_ATTR_MODE && set_mode(&s, attr->st_mode) < 0)
                return -1;
        if (what & FUSE_SET_ATTR_SIZE && set_size(&s, attr->st_size, fi) < 0)
                return -1;
        int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;
        return what & times ? set_times(&s, attr, what) : 0;
}

void pv_fuse_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int what, struct fuse_file_info *fi)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)pthread_mutex_lock(&fs->lock);
        struct pv_fuse_node *n = pv_fuse_node_of(fs, ino);
        if (change(fs, n, attr, what, fi) < 0)
                pv_fuse_done(req, fs, -1);
        else
                reply_attr(req, fs, n);
}

void pv_fuse_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        char text[PATH_MAX + 1];
        (void)pthread_mutex_lock(&fs->lock);
        auto_spot s = { .place = PV_FUSE_PLACE_INIT };
        ssize_t n = find_spot(fs, pv_fuse_node_of(fs, ino), &s);
        if (n == 0)
                n = readlinkat(s.dirfd, s.name, text, sizeof text - 1);
        if (n < 0) {
                pv_fuse_done(req, fs, -1);
                return;
        }
        text[n] = '\0';
        (void)pthread_mutex_unlock(&fs->lock);
        (void)fuse_reply_readlink(req, text);
}

void pv_fuse_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        struct statvfs st;
        (void)ino;
        if (fstatvfs(fs->layer[0], &st) < 0)
                (void)fuse_reply_err(req, errno);
        else
                (void)fuse_reply_statfs(req, &st);
}

/* ---- attributes ---- */

/* The name that a program's attribute has in a layer. False: it may not be had. */
static bool name_in_layer(const struct pv_fuse_fs *fs, size_t layer, const char *name, struct pv_str *out)
{
        if (!pv_fuse_is_live(fs, layer) && pv_str_has_prefix(name, PV_FUSE_MARK))
                pv_str_putf(out, "%s%s", PV_FUSE_ESCAPE, name + strlen(PV_FUSE_MARK));
        else
                pv_str_put(out, name);
        return out->len <= XATTR_NAME_MAX;
}

/* The kernel takes "not supported" for a failed check of permission. */
static int attribute_error(const char *name)
{
        return pv_fuse_is_acl(name) && (errno == EOPNOTSUPP || errno == EACCES) ? ENODATA : errno;
}

static ssize_t get_list(const struct spot *s, const char *name, char *value, size_t size)
{
        struct pv_fuse_proc path = pv_fuse_proc(s->dirfd, s->name);
        if (pv_outer_ids_has(name))
                return pv_outer_ids_get(s->dirfd, s->name, name, value, size);
        return *s->name ? lgetxattr(path.s, name, value, size) : getxattr(path.s, name, value, size);
}

void pv_fuse_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        char value[VALUE_MAX_BYTES];
        pv_auto_str real = { 0 };
        (void)pthread_mutex_lock(&fs->lock);
        auto_spot s = { .place = PV_FUSE_PLACE_INIT };
        struct pv_fuse_node *node = pv_fuse_node_of(fs, ino);
        bool capability = pv_streq(name, "security.capability");
        ssize_t n = capability && node->no_capability ? -1 : find_spot(fs, node, &s);
        if (n < 0 && capability && node->no_capability)
                errno = ENODATA;
        if (n == 0 && !name_in_layer(fs, s.f.layer, name, &real)) {
                errno = ENODATA;
                n = -1;
        }
        if (n == 0) {
                struct pv_fuse_proc path = pv_fuse_proc(s.dirfd, s.name);
                bool acl = pv_fuse_is_acl(name);
                size_t room = size < sizeof value ? size : sizeof value;
                if (acl)
                        n = get_list(&s, real.s, value, sizeof value);
                else
                        n = *s.name ? lgetxattr(path.s, real.s, value, room) : getxattr(path.s, real.s, value, room);
                if (acl && n > 0)
                        n = (ssize_t)pv_fuse_acl_show(fs, value, (size_t)n);
                if (acl && size && n > (ssize_t)size) {
                        errno = ERANGE;
                        n = -1;
                }
        }
        int e = n < 0 ? attribute_error(name) : 0;
        if (capability && e == ENODATA && node->upper) /* only a copy up brings one, and no command can set it */
                node->no_capability = true;
        (void)pthread_mutex_unlock(&fs->lock);
        if (e)
                (void)fuse_reply_err(req, e);
        else if (size == 0)
                (void)fuse_reply_xattr(req, (size_t)n);
        else
                (void)fuse_reply_buf(req, value, (size_t)n);
}

/* Names as a program sees them: marks of the layer left out, escapes undone. In place; the new length. */
static size_t show_names(char *list, size_t len)
{
        size_t out = 0;
        for (size_t at = 0; at < len;) {
                char *name = list + at;
                size_t n = strlen(name) + 1;
                at += n;
                if (pv_str_has_prefix(name, PV_FUSE_MARK)) {
                        if (!pv_str_has_prefix(name, PV_FUSE_ESCAPE))
                                continue;
                        size_t cut = strlen(PV_FUSE_ESCAPE) - strlen(PV_FUSE_MARK);
                        memmove(name + strlen(PV_FUSE_MARK), name + strlen(PV_FUSE_ESCAPE), n - strlen(PV_FUSE_ESCAPE));
                        n -= cut;
                }
                memmove(list + out, name, n);
                out += n;
        }
        return out;
}

void pv_fuse_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        pv_auto_free char *list = pv_realloc(NULL, LIST_MAX_BYTES, 1);
        (void)pthread_mutex_lock(&fs->lock);
        auto_spot s = { .place = PV_FUSE_PLACE_INIT };
        ssize_t n = find_spot(fs, pv_fuse_node_of(fs, ino), &s);
        if (n == 0) {
                struct pv_fuse_proc path = pv_fuse_proc(s.dirfd, s.name);
                n = *s.name ? llistxattr(path.s, list, LIST_MAX_BYTES) : listxattr(path.s, list, LIST_MAX_BYTES);
        }
        if (n < 0) {
                pv_fuse_done(req, fs, -1);
                return;
        }
        size_t len = (size_t)n;
        if (!pv_fuse_is_live(fs, s.f.layer))
                len = show_names(list, len);
        (void)pthread_mutex_unlock(&fs->lock);
        if (size == 0)
                (void)fuse_reply_xattr(req, len);
        else if (len > size)
                (void)fuse_reply_err(req, ERANGE);
        else
                (void)fuse_reply_buf(req, list, len);
}

/* An access list. Its ids are the host's, which only a process outside our own namespace can write. */
static int change_list(const struct pv_fuse_fs *fs, const struct spot *s, const char *name, const char *value,
                       size_t size)
{
        char old[VALUE_MAX_BYTES / 2], kept[VALUE_MAX_BYTES];
        struct pv_fuse_proc path = pv_fuse_proc(s->dirfd, s->name);
        ssize_t had = value ? get_list(s, name, old, sizeof old) : -1;
        if (size > sizeof old) {
                errno = E2BIG;
                return -1;
        }
        if (had > 0) {
                size = pv_fuse_acl_keep(fs, old, (size_t)had, value, size, kept, sizeof kept);
                value = kept;
        }
        if (pv_outer_ids_has(name))
                return pv_outer_ids_set(s->dirfd, s->name, name, value, size);
        if (*s->name)
                return value ? lsetxattr(path.s, name, value, size, 0) : lremovexattr(path.s, name);
        return value ? setxattr(path.s, name, value, size, 0) : removexattr(path.s, name);
}

/* Sets, or with value NULL removes. */
static int change_attribute(struct pv_fuse_fs *fs, struct pv_fuse_node *n, const char *name, const char *value,
                            size_t size, int flags)
{
        auto_spot s = { .place = PV_FUSE_PLACE_INIT };
        pv_auto_str real = { 0 };
        if (!pv_str_has_prefix(name, "user.") && !pv_fuse_is_acl(name)) {
                errno = pv_str_has_prefix(name, "system.") ? EOPNOTSUPP : EPERM; /* capabilities of files, labels */
                return -1;
        }
        if (find_spot(fs, n, &s) < 0 ||
            (*s.name && (pv_fuse_is_acl(name) ? (s.f.upper ? 0 : pv_fuse_may_own(fs, &s.f.st))
                                              : pv_fuse_may_write(fs, &s.f, s.name)) < 0))
                return -1;
        spot_fini(&s);
        s = (struct spot){ .place = PV_FUSE_PLACE_INIT };
        if (n != &fs->root_node && pv_fuse_raise(fs, n, 0) < 0)
                return -1;
        if (find_spot(fs, n, &s) < 0)
                return -1;
        if (!name_in_layer(fs, s.f.layer, name, &real)) {
                errno = ERANGE;
                return -1;
        }
        struct pv_fuse_proc path = pv_fuse_proc(s.dirfd, s.name);
        if (pv_fuse_is_acl(name))
                return change_list(fs, &s, real.s, value, size);
        if (*s.name)
                return value ? lsetxattr(path.s, real.s, value, size, flags) : lremovexattr(path.s, real.s);
        return value ? setxattr(path.s, real.s, value, size, flags) : removexattr(path.s, real.s);
}

void pv_fuse_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)pthread_mutex_lock(&fs->lock);
        pv_fuse_done(req, fs, change_attribute(fs, pv_fuse_node_of(fs, ino), name, value, size, flags));
}

void pv_fuse_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
        struct pv_fuse_fs *fs = pv_fuse_of(req);
        (void)pthread_mutex_lock(&fs->lock);
        pv_fuse_done(req, fs, change_attribute(fs, pv_fuse_node_of(fs, ino), name, NULL, 0, 0));
}
