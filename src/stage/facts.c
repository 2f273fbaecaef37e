/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/facts.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include "base/clock.h"
#include "base/copy.h"
#include "base/fd.h"
#include "base/outer_ids.h"
#include "base/str.h"
#include "base/syscall.h"

/* xattr(7): a list of names is at most 64 KiB, so is a value. */
#define XATTR_MAX      65536
#define OVERLAY_PREFIX "user.overlay."
#define OVERLAY_ESCAPE "user.overlay.overlay."

static struct timespec to_timespec(struct statx_timestamp t)
{
        return (struct timespec){ .tv_sec = t.tv_sec, .tv_nsec = t.tv_nsec };
}

static int read_link(int dirfd, const char *name, struct pv_arena *arena, char **out)
{
        char text[PATH_MAX];
        ssize_t n = readlinkat(dirfd, name, text, sizeof text);
        if (n < 0)
                return -1;
        *out = pv_arena_text(arena, text, (size_t)n);
        return 0;
}

int pv_facts_get(int dirfd, const char *name, struct pv_arena *arena, struct pv_facts *out)
{
        struct statx sx;
        struct pv_facts f = { 0 };
        if (statx(dirfd, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &sx) < 0) {
                if (errno != ENOENT && errno != ENOTDIR)
                        return -1;
                *out = f;
                return 0;
        }
        f.mode = sx.stx_mode;
        f.uid = sx.stx_uid;
        f.gid = sx.stx_gid;
        f.nlink = sx.stx_nlink;
        f.size = sx.stx_size;
        f.ino = sx.stx_ino;
        f.blocks = sx.stx_blocks;
        f.mtime = to_timespec(sx.stx_mtime);
        f.ctime = to_timespec(sx.stx_ctime);
        if (S_ISCHR(f.mode) || S_ISBLK(f.mode))
                f.rdev = makedev(sx.stx_rdev_major, sx.stx_rdev_minor);
        if (S_ISLNK(f.mode) && read_link(dirfd, name, arena, &f.link) < 0)
                return -1;
        *out = f;
        return 0;
}

/*
 * The *xattrat calls are Linux 6.13's and take no O_PATH descriptor as the file itself; a path through /proc/self/fd
 * does the same always. There the descriptor itself is named by following its link.
 */
struct xattr_path {
        int dirfd;
        const char *name;
        char *proc; /* owned; made when it is needed */
};

static const char *proc_path(struct xattr_path *p)
{
        if (!p->proc)
                p->proc = *p->name ? pv_strf("/proc/self/fd/%d/%s", p->dirfd, p->name)
                                   : pv_strf("/proc/self/fd/%d", p->dirfd);
        return p->proc;
}

static ssize_t list_xattrs(struct xattr_path *p, char *buf, size_t size)
{
        ssize_t n = -1;
        errno = ENOSYS;
        if (*p->name)
                n = pv_sys_listxattrat(p->dirfd, p->name, AT_SYMLINK_NOFOLLOW, buf, size);
        if (n >= 0 || errno != ENOSYS)
                return n;
        return *p->name ? llistxattr(proc_path(p), buf, size) : listxattr(proc_path(p), buf, size);
}

static ssize_t get_xattr(struct xattr_path *p, const char *attr, void *buf, size_t size)
{
        ssize_t n = -1;
        if (pv_outer_ids_has(attr))
                return pv_outer_ids_get(p->dirfd, p->name, attr, buf, size);
        errno = ENOSYS;
        if (*p->name)
                n = pv_sys_getxattrat(p->dirfd, p->name, AT_SYMLINK_NOFOLLOW, attr, buf, size);
        if (n >= 0 || errno != ENOSYS)
                return n;
        return *p->name ? lgetxattr(proc_path(p), attr, buf, size) : getxattr(proc_path(p), attr, buf, size);
}

/* The name that the command sees for a stored attribute; NULL: it is not the command's. */
static const char *seen_name(const char *stored, enum pv_facts_side side, struct pv_str *buf)
{
        if (pv_streq(stored, "security.selinux") || pv_streq(stored, "security.ima") ||
            pv_streq(stored, "security.evm"))
                return NULL; /* given by the host to every file, by where it lies */
        if (pv_str_has_prefix(stored, PV_XATTR_OWN))
                return NULL; /* a note of ours on a target, or what would like to be one */
        if (side == PV_FACTS_HOST || !pv_str_has_prefix(stored, OVERLAY_PREFIX))
                return stored;
        if (!pv_str_has_prefix(stored, OVERLAY_ESCAPE))
                return NULL;
        buf->len = 0;
        pv_str_put(buf, OVERLAY_PREFIX);
        pv_str_put(buf, stored + sizeof OVERLAY_ESCAPE - 1);
        return buf->s;
}

/* One attribute's part of the digest. Parts are added up, so that the order of the list does not matter. */
static int digest_one(struct xattr_path *p, enum pv_facts_side side, const char *stored, const char *seen, char *value,
                      uint64_t *sum)
{
        unsigned char hash[PV_SHA256_SIZE];
        ssize_t n = get_xattr(p, stored, value, XATTR_MAX);
        if (n < 0 && errno == ENODATA)
                return 0;
        if (n < 0 && (errno != EACCES || side == PV_FACTS_STAGED))
                return -1;
        if (n < 0) { /* the mode forbids the owner to read it: it counts as an attribute of a value of its own */
                static const char unreadable[] = "unreadable";
                n = (ssize_t)sizeof unreadable - 1;
                memcpy(value, unreadable, sizeof unreadable);
        }
        pv_auto_str part = { 0 };
        pv_str_put_bytes(&part, seen, strlen(seen) + 1);
        pv_str_put_bytes(&part, value, (size_t)n);
        pv_sha256_bytes(part.s, part.len, hash);
        uint64_t v = 0;
        memcpy(&v, hash, sizeof v);
        *sum += v;
        return 0;
}

static int get_xattrs(int dirfd, const char *name, enum pv_facts_side side, uint64_t *digest, unsigned *overlay)
{
        char few[1024];
        pv_auto_free char *many = NULL, *value = NULL;
        pv_auto_str seen_buf = { 0 };
        struct xattr_path p = { .dirfd = dirfd, .name = name };
        char *names = few;
        uint64_t sum = 0;
        int r = 0;
        ssize_t n = list_xattrs(&p, few, sizeof few);
        if (n < 0 && errno == ERANGE) {
                names = many = pv_calloc(XATTR_MAX, 1);
                n = list_xattrs(&p, many, XATTR_MAX);
        }
        if (n < 0 && errno != EOPNOTSUPP)
                r = -1;
        *overlay = 0;
        for (const char *a = names; r == 0 && a < names + n; a += strlen(a) + 1) {
                *overlay |= pv_xattr_overlay_kind(a);
                const char *seen = seen_name(a, side, &seen_buf);
                if (!seen)
                        continue;
                if (!value)
                        value = pv_calloc(XATTR_MAX, 1);
                r = digest_one(&p, side, a, seen, value, &sum);
        }
        pv_freep(&p.proc);
        if (r == 0)
                *digest = sum;
        return r;
}

int pv_facts_get_xattrs(int dirfd, const char *name, enum pv_facts_side side, uint64_t *digest)
{
        unsigned overlay;
        return get_xattrs(dirfd, name, side, digest, &overlay);
}

int pv_facts_get_staged_xattrs(int dirfd, const char *name, uint64_t *digest, unsigned *overlay)
{
        return get_xattrs(dirfd, name, PV_FACTS_STAGED, digest, overlay);
}

int pv_facts_hash(int dirfd, const char *name, struct pv_facts *f)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0)
                return -1;
        if (pv_sha256_fd(fd, f->sha256, name, &err) < 0) {
                errno = err.sys;
                return -1;
        }
        f->hashed = true;
        return 0;
}

bool pv_facts_same_metadata(const struct pv_facts *a, const struct pv_facts *b)
{
        return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->rdev == b->rdev &&
               a->xattrs == b->xattrs;
}

bool pv_facts_same_inode_state(const struct pv_facts *a, const struct pv_facts *b)
{
        return a->ino == b->ino && a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->size == b->size &&
               a->nlink == b->nlink && a->rdev == b->rdev && pv_clock_compare(&a->mtime, &b->mtime) == 0 &&
               pv_clock_compare(&a->ctime, &b->ctime) == 0;
}
