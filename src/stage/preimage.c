/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file: a header, blocks, an empty block. A block is its length, a digest over the digest of the block before it
 * and its bytes, and the bytes: whole records. A record is a fixed part, then what the path does not share with the
 * path before it, then the text of a link. Numbers are the machine's own; the header tells another machine's apart.
 */
#include "stage/preimage.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/str.h"
#include "stage/scan.h"

#define BLOCK_MAX   65536U
#define DIGEST_SIZE 16
#define PATH_BYTES  (PATH_MAX + 256) /* what the walk can name: a path of PATH_MAX and one component more */

struct header {
        char magic[8];
        uint32_t version, order, run, reserved;
};
static const struct header the_header = { .magic = "pvpreim", .version = 1, .order = 0x01020304 };

struct block_head {
        uint32_t len;
        unsigned char digest[DIGEST_SIZE];
};

enum record_flags { RECORD_HASHED = 1 << 0, RECORD_LANDED = 1 << 1 };

struct record {
        uint16_t shared, suffix, link;
        uint8_t doubt, flags;
        uint32_t mode, uid, gid, nlink;
        uint64_t size, ino, rdev, xattrs;
        int64_t mtime_s, ctime_s;
        uint32_t mtime_ns, ctime_ns;
        unsigned char sha256[PV_SHA256_SIZE];
};

const char *pv_doubt_text(enum pv_doubt d)
{
        static const char *const text[] = {
                [PV_DOUBT_NONE] = NULL,
                [PV_DOUBT_CHANGED] = "changed on the host while the command ran",
                [PV_DOUBT_METADATA] = "its mode or owner may have been changed on the host while the command ran",
                [PV_DOUBT_DIRECTORY] = "its directory may have been replaced on the host while the command ran",
                [PV_DOUBT_GONE] = "may have been deleted on the host while the command ran",
                [PV_DOUBT_APPEARED] = "appeared on the host after the command had ended",
                [PV_DOUBT_CLOCK] = "the clock was set while the command ran: what the host changed cannot be told",
                [PV_DOUBT_REBOOT] = "the machine went down while the command ran: what the host changed cannot be told",
                [PV_DOUBT_UNREADABLE] = "cannot be looked at on the host",
                [PV_DOUBT_LOST] = "the record of what the host had is damaged",
                [PV_DOUBT_DELETED] = "deleted on the host while the command ran",
        };
        static_assert(sizeof text / sizeof *text == PV_DOUBTS, "a text for each doubt");
        return d < PV_DOUBTS ? text[d] : "not known";
}

static void chain(unsigned char digest[DIGEST_SIZE], const void *bytes, size_t n)
{
        unsigned char hash[PV_SHA256_SIZE];
        pv_auto_str b = { 0 };
        pv_str_put_bytes(&b, digest, DIGEST_SIZE);
        pv_str_put_bytes(&b, bytes, n);
        pv_sha256_bytes(b.s, b.len, hash);
        memcpy(digest, hash, DIGEST_SIZE);
}

/* Writing */

struct pv_preimage_writer {
        int dirfd; /* borrowed */
        char *name, *tmp;
        int fd;
        unsigned char digest[DIGEST_SIZE];
        struct pv_str block;
        struct pv_str last; /* path */
};

static void free_writer(struct pv_preimage_writer *w)
{
        pv_fd_closep(&w->fd);
        pv_str_fini(&w->block);
        pv_str_fini(&w->last);
        free(w->name);
        free(w->tmp);
        free(w);
}

void pv_preimages_abandon(struct pv_preimage_writer *w)
{
        if (!w)
                return;
        (void)unlinkat(w->dirfd, w->tmp, 0);
        free_writer(w);
}

int pv_preimages_create(int dirfd, const char *name, unsigned run, struct pv_preimage_writer **out, struct pv_err *err)
{
        struct header h = the_header;
        h.run = run;
        struct pv_preimage_writer *w = pv_calloc(1, sizeof *w);
        const char *slash = strrchr(name, '/');
        w->dirfd = dirfd;
        w->name = pv_strdup(name);
        w->tmp = pv_strf("%.*s.%s.tmp", slash ? (int)(slash - name) + 1 : 0, name, slash ? slash + 1 : name);
        w->fd = openat(dirfd, w->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        pv_str_put(&w->last, "");
        if (w->fd < 0) {
                (void)pv_err_set(err, PV_ERR_SYS, errno, "create %s", w->tmp);
                free_writer(w);
                return -1;
        }
        if (pv_fd_write_all(w->fd, &h, sizeof h, w->name, err) < 0) {
                pv_preimages_abandon(w);
                return -1;
        }
        *out = w;
        return 0;
}

static int flush_block(struct pv_preimage_writer *w, struct pv_err *err)
{
        struct block_head head = { .len = (uint32_t)w->block.len };
        chain(w->digest, w->block.s, w->block.len);
        memcpy(head.digest, w->digest, DIGEST_SIZE);
        if (pv_fd_write_all(w->fd, &head, sizeof head, w->name, err) < 0 ||
            pv_fd_write_all(w->fd, w->block.s, w->block.len, w->name, err) < 0)
                return -1;
        w->block.len = 0;
        return 0;
}

static struct record to_record(const struct pv_preimage *p)
{
        const struct pv_facts *f = &p->host;
        struct record r = {
                .doubt = (uint8_t)p->doubt,
                .flags = (uint8_t)((f->hashed ? RECORD_HASHED : 0) | (p->landed ? RECORD_LANDED : 0)),
                .link = f->link ? (uint16_t)strlen(f->link) : 0,
                .mode = f->mode,
                .uid = f->uid,
                .gid = f->gid,
                .nlink = f->nlink,
                .size = f->size,
                .ino = f->ino,
                .rdev = f->rdev,
                .xattrs = f->xattrs,
                .mtime_s = f->mtime.tv_sec,
                .ctime_s = f->ctime.tv_sec,
                .mtime_ns = (uint32_t)f->mtime.tv_nsec,
                .ctime_ns = (uint32_t)f->ctime.tv_nsec,
        };
        if (f->hashed)
                memcpy(r.sha256, f->sha256, sizeof r.sha256);
        return r;
}

int pv_preimages_put(struct pv_preimage_writer *w, const char *path, const struct pv_preimage *p, struct pv_err *err)
{
        struct record r = to_record(p);
        size_t len = strlen(path), shared = 0;
        while (shared < len && shared < w->last.len && path[shared] == w->last.s[shared])
                shared++;
        r.shared = (uint16_t)shared;
        r.suffix = (uint16_t)(len - shared);
        if (w->block.len + sizeof r + r.suffix + r.link > BLOCK_MAX && flush_block(w, err) < 0)
                return -1;
        pv_str_put_bytes(&w->block, &r, sizeof r);
        pv_str_put_bytes(&w->block, path + shared, r.suffix);
        pv_str_put_bytes(&w->block, p->host.link, r.link);
        w->last.len = shared;
        pv_str_put(&w->last, path + shared);
        return 0;
}

static int replace(struct pv_preimage_writer *w, enum pv_preimage_flags flags, struct pv_err *err)
{
        if (flags & PV_PREIMAGE_DURABLE && fsync(w->fd) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "sync %s", w->name);
        if (renameat(w->dirfd, w->tmp, w->dirfd, w->name) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "rename to %s", w->name);
        if (!(flags & PV_PREIMAGE_DURABLE))
                return 0;
        const char *slash = strrchr(w->name, '/');
        pv_auto_free char *dir = slash ? pv_strndup(w->name, (size_t)(slash - w->name)) : pv_strdup(".");
        pv_auto_fd fd = openat(w->dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "sync the directory of %s", w->name);
        return 0;
}

int pv_preimages_finish(struct pv_preimage_writer *w, enum pv_preimage_flags flags, struct pv_err *err)
{
        int r = w->block.len ? flush_block(w, err) : 0;
        if (r == 0)
                r = flush_block(w, err);
        if (r == 0)
                r = replace(w, flags, err);
        if (r < 0)
                pv_preimages_abandon(w);
        else
                free_writer(w);
        return r;
}

/* Reading */

struct pv_preimage_reader {
        int fd; /* -1: an empty file */
        char *name;
        unsigned char digest[DIGEST_SIZE];
        size_t len, at;
        bool ended;
        char path[PATH_BYTES + 1], link[PATH_MAX + 1];
        size_t path_len;
        bool any;
        unsigned run;
        char block[BLOCK_MAX]; /* last, and not cleared: most records are short */
};

void pv_preimages_close(struct pv_preimage_reader *r)
{
        if (!r)
                return;
        pv_fd_closep(&r->fd);
        free(r->name);
        free(r);
}

static int damaged(const struct pv_preimage_reader *r, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_INPUT, 0, "%s is damaged", r->name);
}

static int read_exactly(struct pv_preimage_reader *r, void *buf, size_t n, struct pv_err *err)
{
        for (size_t got = 0; got < n;) {
                ssize_t k = read(r->fd, (char *)buf + got, n - got);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read %s", r->name);
                if (k == 0)
                        return damaged(r, err);
                got += (size_t)k;
        }
        return 0;
}

static int read_header(struct pv_preimage_reader *r, struct pv_err *err)
{
        struct header h;
        if (read_exactly(r, &h, sizeof h, err) < 0)
                return -1;
        r->run = h.run;
        h.run = 0;
        return memcmp(&h, &the_header, sizeof h) != 0 || r->run == 0 ? damaged(r, err) : 0;
}

unsigned pv_preimages_run(const struct pv_preimage_reader *r)
{
        return r->run;
}

int pv_preimages_open(int dirfd, const char *name, struct pv_preimage_reader **out, struct pv_err *err)
{
        struct pv_preimage_reader *r = pv_realloc(NULL, 1, sizeof *r);
        memset(r, 0, offsetof(struct pv_preimage_reader, block));
        r->name = pv_strdup(name);
        r->fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (r->fd < 0 && errno != ENOENT) {
                (void)pv_err_set(err, PV_ERR_SYS, errno, "open %s", name);
                goto fail;
        }
        if (r->fd >= 0 && read_header(r, err) < 0)
                goto fail;
        *out = r;
        return 0;
fail:
        pv_preimages_close(r);
        return -1;
}

static int next_block(struct pv_preimage_reader *r, struct pv_err *err)
{
        struct block_head head;
        if (read_exactly(r, &head, sizeof head, err) < 0)
                return -1;
        if (head.len > BLOCK_MAX)
                return damaged(r, err);
        if (read_exactly(r, r->block, head.len, err) < 0)
                return -1;
        chain(r->digest, r->block, head.len);
        if (memcmp(r->digest, head.digest, DIGEST_SIZE) != 0)
                return damaged(r, err);
        r->len = head.len;
        r->at = 0;
        r->ended = head.len == 0;
        return 0;
}

static void from_record(const struct record *r, struct pv_preimage *p)
{
        struct pv_facts *f = &p->host;
        *f = (struct pv_facts){
                .mode = r->mode,
                .uid = r->uid,
                .gid = r->gid,
                .nlink = r->nlink,
                .size = r->size,
                .ino = r->ino,
                .rdev = r->rdev,
                .xattrs = r->xattrs,
                .mtime = { .tv_sec = r->mtime_s, .tv_nsec = r->mtime_ns },
                .ctime = { .tv_sec = r->ctime_s, .tv_nsec = r->ctime_ns },
                .hashed = r->flags & RECORD_HASHED,
        };
        memcpy(f->sha256, r->sha256, sizeof f->sha256);
        p->doubt = (enum pv_doubt)r->doubt;
        p->landed = r->flags & RECORD_LANDED;
        p->recorded = true;
}

/* The path of the record, checked to come after the one before. */
static int take_path(struct pv_preimage_reader *r, const struct record *rec, struct pv_err *err)
{
        char last[PATH_BYTES + 1];
        if (rec->shared > r->path_len || (size_t)rec->shared + rec->suffix > PATH_BYTES)
                return damaged(r, err);
        memcpy(last, r->path, r->path_len + 1);
        memcpy(r->path + rec->shared, r->block + r->at, rec->suffix);
        r->path_len = (size_t)rec->shared + rec->suffix;
        r->path[r->path_len] = '\0';
        if (strlen(r->path) != r->path_len || (r->any && pv_path_order(last, r->path) >= 0))
                return damaged(r, err);
        r->any = true;
        return 0;
}

int pv_preimages_next(struct pv_preimage_reader *r, const char **path, struct pv_preimage *p, struct pv_err *err)
{
        struct record rec;
        if (r->fd < 0 || r->ended)
                return 0;
        if (r->at == r->len && next_block(r, err) < 0)
                return -1;
        if (r->ended)
                return 0;
        if (r->len - r->at < sizeof rec)
                return damaged(r, err);
        memcpy(&rec, r->block + r->at, sizeof rec);
        r->at += sizeof rec;
        if (r->len - r->at < (size_t)rec.suffix + rec.link || rec.link > PATH_MAX || rec.doubt >= PV_DOUBTS)
                return damaged(r, err);
        if (take_path(r, &rec, err) < 0)
                return -1;
        r->at += rec.suffix;
        memcpy(r->link, r->block + r->at, rec.link);
        r->link[rec.link] = '\0';
        r->at += rec.link;
        from_record(&rec, p);
        p->host.link = S_ISLNK(rec.mode) ? r->link : NULL;
        *path = r->path;
        return 1;
}
