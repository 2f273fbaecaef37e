/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file: records, each a head and its bytes. The first head that is not whole ends it; whoever appends next goes on
 * from there.
 */
#include "stage/bases.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "stage/state.h"

#define FILE_MAX  (256ULL << 20) /* of one root */
#define FLUSH_AT  (256U << 10)
#define TEXT_LOOK 8000
#define MAGIC     0x31427670U /* "pvB1" */

struct head {
        uint32_t magic, len;
        unsigned char sha256[PV_SHA256_SIZE];
};

struct pv_bases {
        const struct pv_stage *s;
        size_t root;
        const char *file;
        int fd; /* -1: not opened yet */
        bool closed;
        uint64_t start, end; /* of the file when it was opened, and with what is buffered */
        struct pv_str buf;
};

bool pv_bases_is_text(const char *bytes, size_t n)
{
        return n == 0 || !memchr(bytes, '\0', n < TEXT_LOOK ? n : TEXT_LOOK);
}

static const char *const files[] = { "bases", "bases-start" };

static char *path_of(const char *dir, size_t root, const char *file)
{
        return pv_strf("%s%sroots/%zu/%s", dir, *dir ? "/" : "", root, file);
}

/* The record at *at; false at the end of what is whole. *at moves behind it. */
static bool next_head(int fd, uint64_t size, uint64_t *at, struct head *h)
{
        if (size - *at < sizeof *h || pread(fd, h, sizeof *h, (off_t)*at) != (ssize_t)sizeof *h || h->magic != MAGIC ||
            h->len > PV_BASE_FILE_MAX || size - *at - sizeof *h < h->len)
                return false;
        *at += sizeof *h + h->len;
        return true;
}

struct pv_bases *pv_bases_new(const struct pv_stage *s, size_t root)
{
        struct pv_bases *b = pv_calloc(1, sizeof *b);
        *b = (struct pv_bases){ .s = s, .root = root, .file = files[0], .fd = -1 };
        return b;
}

struct pv_bases *pv_bases_new_start(const struct pv_stage *s, size_t root)
{
        struct pv_bases *b = pv_bases_new(s, root);
        b->file = files[1];
        return b;
}

static bool open_for_append(struct pv_bases *b)
{
        struct head h;
        struct stat st;
        pv_auto_free char *file = path_of("", b->root, b->file);
        b->fd = openat(b->s->fd.fd, file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (b->fd < 0 || fstat(b->fd, &st) < 0 || !S_ISREG(st.st_mode))
                return false;
        while (next_head(b->fd, (uint64_t)st.st_size, &b->end, &h))
                ;
        b->start = b->end;
        return b->end == (uint64_t)st.st_size || ftruncate(b->fd, (off_t)b->end) == 0;
}

/* Without room nothing of this time is kept: the record of the preimages needs it more. */
static void give_up(struct pv_bases *b)
{
        if (b->fd >= 0)
                (void)!ftruncate(b->fd, (off_t)b->start);
        b->closed = true;
        b->buf.len = 0;
}

static void flush(struct pv_bases *b)
{
        uint64_t at = b->end - b->buf.len;
        for (size_t done = 0; done < b->buf.len;) {
                ssize_t n = pwrite(b->fd, b->buf.s + done, b->buf.len - done, (off_t)(at + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0) {
                        give_up(b);
                        return;
                }
                done += (size_t)n;
        }
        b->buf.len = 0;
}

static void keep(struct pv_bases *b, const char *bytes, size_t n, const unsigned char *sha256)
{
        struct head h = { .magic = MAGIC, .len = (uint32_t)n };
        if (b->closed || n == 0 || !pv_bases_is_text(bytes, n))
                return;
        if (b->fd < 0 && !open_for_append(b)) {
                b->closed = true;
                return;
        }
        if (b->end + sizeof h + n > FILE_MAX)
                return;
        memcpy(h.sha256, sha256, sizeof h.sha256);
        pv_str_put_bytes(&b->buf, &h, sizeof h);
        pv_str_put_bytes(&b->buf, bytes, n);
        b->end += sizeof h + n;
        if (b->buf.len >= FLUSH_AT)
                flush(b);
}

/* All of it, up to one byte more than max; -1 with errno. */
static ssize_t read_all(int fd, char *buf, size_t max)
{
        size_t got = 0;
        while (got <= max) {
                ssize_t n = read(fd, buf + got, max + 1 - got);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -1;
                if (n == 0)
                        break;
                got += (size_t)n;
        }
        return (ssize_t)got;
}

int pv_bases_hash_and_keep(struct pv_bases *b, int dirfd, const char *name, struct pv_facts *f)
{
        struct stat st;
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -1;
        if (!S_ISREG(st.st_mode) || st.st_size > PV_BASE_FILE_MAX)
                return pv_facts_hash(dirfd, name, f);
        pv_auto_free char *bytes = malloc((size_t)st.st_size + 1);
        ssize_t n = bytes ? read_all(fd, bytes, (size_t)st.st_size) : -1;
        if (n < 0)
                return -1;
        if (n != st.st_size) /* it is being written */
                return pv_facts_hash(dirfd, name, f);
        pv_sha256_bytes(bytes, (size_t)n, f->sha256);
        f->hashed = true;
        keep(b, bytes, (size_t)n, f->sha256);
        return 0;
}

void pv_bases_free(struct pv_bases *b)
{
        if (!b)
                return;
        if (b->buf.len)
                flush(b);
        pv_fd_closep(&b->fd);
        pv_str_fini(&b->buf);
        free(b);
}

static int find_in(int fd, const unsigned char *sha256, char **out, size_t *len, struct pv_err *err)
{
        struct head h;
        struct stat st;
        unsigned char have[PV_SHA256_SIZE];
        if (fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read what files were before");
        for (uint64_t at = 0; next_head(fd, (uint64_t)st.st_size, &at, &h);) {
                if (memcmp(h.sha256, sha256, sizeof h.sha256) != 0)
                        continue;
                pv_auto_free char *bytes = pv_calloc((size_t)h.len + 1, 1);
                if (pread(fd, bytes, h.len, (off_t)(at - h.len)) != (ssize_t)h.len)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read what files were before");
                pv_sha256_bytes(bytes, h.len, have);
                if (memcmp(have, sha256, sizeof have) != 0)
                        continue;
                *out = pv_steal(&bytes);
                *len = h.len;
                return 0;
        }
        return 0;
}

static int find_below(const struct pv_stage *s, const char *dir, size_t root, const unsigned char *sha256, char **out,
                      size_t *len, struct pv_err *err)
{
        for (size_t i = 0; i < sizeof files / sizeof *files && !*out; i++) {
                pv_auto_free char *path = path_of(dir, root, files[i]);
                pv_auto_fd fd = openat(s->fd.fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
                if (fd >= 0 && find_in(fd, sha256, out, len, err) < 0)
                        return -1;
        }
        return 0;
}

int pv_bases_find(const struct pv_stage *s, size_t root, const unsigned char sha256[PV_SHA256_SIZE], char **out,
                  size_t *len, struct pv_err *err)
{
        static const unsigned char empty[PV_SHA256_SIZE] = { 0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14,
                                                             0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
                                                             0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c,
                                                             0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55 };
        *out = NULL;
        *len = 0;
        if (memcmp(sha256, empty, sizeof empty) == 0) {
                *out = pv_strdup("");
                return 0;
        }
        if (find_below(s, "", root, sha256, out, len, err) < 0)
                return -1;
        const char *last = NULL;
        for (size_t k = s->n_layers; k-- > 0 && !*out;) {
                const char *from = s->layers[k].from;
                if (!from || (last && pv_streq(last, from)))
                        continue;
                last = from;
                if (find_below(s, from, root, sha256, out, len, err) < 0)
                        return -1;
        }
        return 0;
}
