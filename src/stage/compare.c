/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contents of one size are compared, since whoever changed them could set their times: a small file by the hash of
 * what the host had, which was taken at the end of the run, a larger one byte by byte with the host's while that is
 * still the one of the preimage, else by hash; where neither can be done it counts as changed.
 */
#include "stage/compare.h"

#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/fd.h"
#include "stage/state.h"

#define COMPARE_BUF 65536

/* Two versions of a file and whether they have the same bytes. Zero where nothing is said, for memcmp(3). */
struct comparison {
        uint64_t ino, size, pre_ino;
        struct timespec ctime, pre_ctime;
        unsigned char pre_sha256[PV_SHA256_SIZE];
        unsigned root, layer;
        bool same;
};

static int order_comparisons(const void *a, const void *b)
{
        return memcmp(a, b, offsetof(struct comparison, same));
}

/* With its padding. */
static struct comparison *new_comparison(const struct pv_change *c)
{
        struct comparison *one = pv_calloc(1, sizeof *one);
        one->ino = c->now.ino;
        one->size = c->now.size;
        one->ctime = c->now.ctime;
        one->pre_ino = c->pre.ino;
        one->pre_ctime = c->pre.ctime;
        one->root = c->root;
        one->layer = c->layer;
        if (c->pre.hashed)
                memcpy(one->pre_sha256, c->pre.sha256, sizeof one->pre_sha256);
        return one;
}

static bool has_content(const struct pv_change *c)
{
        return S_ISREG(c->now.mode) && S_ISREG(c->pre.mode) && c->now.size == c->pre.size && c->pre.size > 0;
}

void pv_compare_note(void **known, const struct pv_change *c)
{
        if (!has_content(c))
                return;
        struct comparison *one = new_comparison(c);
        one->same = c->kind == PV_CHANGE_METADATA;
        struct comparison **kept = tsearch(one, known, order_comparisons);
        if (!kept || *kept != one)
                free(one);
}

/* *same is what was found out about the same two contents before. */
static bool is_known(const struct pv_comparing *m, const struct pv_change *c, bool *same)
{
        if (!m->known)
                return false;
        struct comparison *key = new_comparison(c);
        struct comparison **found = tfind(key, &m->known, order_comparisons);
        free(key);
        if (found)
                *same = (*found)->same;
        return found;
}

void pv_comparing_fini(struct pv_comparing *m)
{
        pv_freep(&m->buf);
}

static ssize_t read_full(int fd, char *buf, size_t n, off_t at)
{
        size_t got = 0;
        while (got < n) {
                ssize_t k = pread(fd, buf + got, n - got, at + (off_t)got);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return -1;
                if (k == 0)
                        break;
                got += (size_t)k;
        }
        return (ssize_t)got;
}

static int open_file(int dirfd, const char *name)
{
        return openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* errno stays EACCES where it cannot be done. */
static bool open_up(struct pv_comparing *m, const struct pv_pair *p, const struct pv_change *c)
{
        if (errno != EACCES || !m->may_open || !S_ISREG(c->now.mode))
                return false;
        if (pv_stage_borrow(m->s) && fchmodat(p->staged_dir, p->name, (c->now.mode & 07777) | S_IRUSR, 0) == 0)
                return true;
        errno = EACCES;
        return false;
}

static void close_up(const struct pv_pair *p, const struct pv_change *c)
{
        int sys = errno;
        if (fchmodat(p->staged_dir, p->name, c->now.mode & 07777, 0) == 0)
                errno = sys;
}

static int open_staged_file(struct pv_comparing *m, const struct pv_pair *p, const struct pv_change *c)
{
        int fd = open_file(p->staged_dir, p->name);
        if (fd < 0 && open_up(m, p, c)) {
                fd = open_file(p->staged_dir, p->name);
                close_up(p, c);
        }
        return fd;
}

/* What is gone by now has none. */
static int read_staged_xattrs(struct pv_comparing *m, const struct pv_pair *p, struct pv_change *c)
{
        if (p->staged_dir < 0)
                return 0;
        int r = pv_facts_get_staged_xattrs(p->staged_dir, p->name, &c->now.xattrs, &c->overlay);
        if (r < 0 && open_up(m, p, c)) {
                r = pv_facts_get_staged_xattrs(p->staged_dir, p->name, &c->now.xattrs, &c->overlay);
                close_up(p, c);
        }
        c->overlay_known = r == 0;
        return r < 0 && errno != ENOENT && (errno != EACCES || !m->may_open) ? -1 : 0;
}

static bool has_same_bytes(struct pv_comparing *m, int a, const struct pv_pair *p, uint64_t size)
{
        pv_auto_fd b = open_file(p->host_dir, p->name);
        if (b < 0)
                return false;
        for (uint64_t at = 0; at < size;) { /* both have this size: no read beyond it to see the end */
                size_t want = size - at < COMPARE_BUF ? (size_t)(size - at) : COMPARE_BUF;
                if (read_full(a, m->buf, want, (off_t)at) != (ssize_t)want ||
                    read_full(b, m->buf + COMPARE_BUF, want, (off_t)at) != (ssize_t)want ||
                    memcmp(m->buf, m->buf + COMPARE_BUF, want) != 0)
                        return false;
                at += want;
        }
        return true;
}

static bool has_hash(struct pv_comparing *m, int fd, const struct pv_facts *pre)
{
        struct pv_err unreadable = PV_ERR_INIT; /* counts as changed */
        unsigned char sha256[PV_SHA256_SIZE];
        if (pre->size > COMPARE_BUF) {
                if (pv_sha256_fd(fd, sha256, "", &unreadable) < 0)
                        return false;
        } else {
                if (read_full(fd, m->buf, pre->size, 0) != (ssize_t)pre->size)
                        return false;
                pv_sha256_bytes(m->buf, pre->size, sha256);
        }
        return memcmp(sha256, pre->sha256, sizeof sha256) == 0;
}

/*
 * A file is not read again that is what it was a moment ago. One that is written to through a mapping may differ and
 * have the same times: then it is seen the next time. As pv_compare().
 */
static int has_same_content(struct pv_comparing *m, const struct pv_pair *p, const struct pv_change *c)
{
        bool same = c->pre.size == 0;
        if (c->now.size != c->pre.size)
                return 0;
        if (same || is_known(m, c, &same))
                return same;
        if (!c->pre.hashed && !p->host_is_pre)
                return 0;
        pv_auto_fd fd = open_staged_file(m, p, c);
        if (fd < 0)
                return errno == EACCES && !m->may_open ? -1 : 0;
        if (!m->buf)
                m->buf = pv_calloc(2, COMPARE_BUF);
        /* Of a small file the hash costs less than to open and read the other side, too. */
        bool hash = c->pre.hashed && (!p->host_is_pre || c->pre.size <= COMPARE_BUF);
        return hash ? has_hash(m, fd, &c->pre) : has_same_bytes(m, fd, p, c->pre.size);
}

static int has_same_substance(struct pv_comparing *m, const struct pv_pair *p, const struct pv_change *c)
{
        const struct pv_facts *pre = &c->pre, *now = &c->now;
        if (S_ISREG(pre->mode))
                return has_same_content(m, p, c);
        if (S_ISLNK(pre->mode))
                return pre->link && now->link && pv_streq(pre->link, now->link);
        return S_ISDIR(pre->mode) || pre->rdev == now->rdev;
}

static unsigned compare_metadata(const struct pv_facts *pre, const struct pv_facts *now)
{
        unsigned flags = 0;
        if ((pre->mode & 07777) != (now->mode & 07777) && !S_ISLNK(now->mode))
                flags |= PV_CHANGE_MODE;
        if (pre->uid != now->uid || pre->gid != now->gid)
                flags |= PV_CHANGE_OWNER;
        if (pre->xattrs != now->xattrs)
                flags |= PV_CHANGE_XATTRS;
        return flags;
}

int pv_compare(struct pv_comparing *m, const struct pv_pair *p, struct pv_change *c)
{
        if (read_staged_xattrs(m, p, c) < 0)
                return -1;
        if ((c->pre.mode & S_IFMT) != (c->now.mode & S_IFMT)) {
                c->kind = PV_CHANGE_TYPE;
                return 1;
        }
        int same = has_same_substance(m, p, c);
        if (same < 0)
                return -1;
        unsigned differs = compare_metadata(&c->pre, &c->now);
        c->flags |= differs;
        c->kind = same ? PV_CHANGE_METADATA : PV_CHANGE_MODIFIED;
        if (!same || differs)
                return 1;
        if (S_ISDIR(c->pre.mode) || pv_clock_compare(&c->pre.mtime, &c->now.mtime) == 0)
                return 0;
        c->flags |= PV_CHANGE_TIMES;
        return 1;
}
