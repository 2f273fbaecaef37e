/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/journal.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>

#define MAGIC      "pvJ1"
#define FLUSH_AT   (256 * 1024)
#define MAX_RECORD (1024 * 1024) /* payload: a longer one is taken for a torn tail when it is read */
#define MAX_ROOTS  4096
#define FRAME      9 /* length, type, checksum */

enum record { REC_HEAD = 'H', REC_ACCESS = 'A', REC_ITEM = 'I', REC_MARK = 'M', REC_KEPT = 'K' };

/* CRC-32C (RFC 3720, appendix B.4), a byte at a time. */
static uint32_t crc(const unsigned char *p, size_t n)
{
        static uint32_t table[256];
        if (table[1] == 0)
                for (uint32_t i = 0; i < 256; i++) {
                        uint32_t c = i;
                        for (int k = 0; k < 8; k++)
                                c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
                        table[i] = c;
                }
        uint32_t c = ~0u;
        while (n-- > 0)
                c = table[(c ^ *p++) & 0xff] ^ c >> 8;
        return ~c;
}

static void put_number(struct pv_str *b, uint64_t v)
{
        unsigned char raw[10];
        size_t n = 0;
        do {
                raw[n] = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
                v >>= 7;
                n++;
        } while (v);
        pv_str_put_bytes(b, raw, n);
}

static void put_block(struct pv_str *b, const void *p, size_t n)
{
        put_number(b, n);
        pv_str_put_bytes(b, p, n);
}

static void put_u32(struct pv_str *b, uint32_t v)
{
        unsigned char raw[4] = { (unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16),
                                 (unsigned char)(v >> 24) };
        pv_str_put_bytes(b, raw, sizeof raw);
}

/* Opens a record: the length is filled in by close_record(). */
static size_t open_record(struct pv_str *b, enum record type)
{
        size_t at = b->len;
        put_u32(b, 0);
        pv_str_putc(b, (char)type);
        return at;
}

static void close_record(struct pv_str *b, size_t at)
{
        uint32_t n = (uint32_t)(b->len - at - 5);
        unsigned char *p = (unsigned char *)b->s + at;
        p[0] = (unsigned char)n;
        p[1] = (unsigned char)(n >> 8);
        p[2] = (unsigned char)(n >> 16);
        p[3] = (unsigned char)(n >> 24);
        put_u32(b, crc((unsigned char *)b->s + at, b->len - at));
}

void pv_journal_close(struct pv_journal *j)
{
        pv_fd_closep(&j->fd);
        pv_str_fini(&j->buf);
}

int pv_journal_create(struct pv_journal *j, int dirfd, const char *name, struct pv_err *err)
{
        j->fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
        return j->fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "create %s", name) : 0;
}

/* Cuts a torn tail, so that what is appended can be read. */
static size_t whole_length(const unsigned char *p, size_t n);

int pv_journal_append(struct pv_journal *j, int dirfd, const char *name, struct pv_err *err)
{
        pv_auto_fd fd = openat(dirfd, name, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", name);
        if (st.st_size > 0) {
                void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
                if (map == MAP_FAILED)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read %s", name);
                off_t whole = (off_t)whole_length(map, (size_t)st.st_size);
                (void)munmap(map, (size_t)st.st_size);
                if (whole < st.st_size && ftruncate(fd, whole) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "truncate %s", name);
        }
        j->fd = pv_fd_steal(&fd);
        return 0;
}

int pv_journal_flush(struct pv_journal *j, struct pv_err *err)
{
        if (j->buf.len > 0 && pv_fd_write_all(j->fd, j->buf.s, j->buf.len, "journal", err) < 0)
                return -1;
        j->buf.len = 0;
        return 0;
}

static void put_ident(struct pv_str *b, const struct pv_ident *i)
{
        put_number(b, i->mode);
        if (i->mode == 0)
                return;
        put_number(b, i->ino);
        put_number(b, i->uid);
        put_number(b, i->gid);
        if (S_ISDIR(i->mode))
                return;
        put_number(b, i->size);
        put_number(b, i->rdev);
        put_number(b, (uint64_t)i->mtime_s);
        put_number(b, i->mtime_ns);
}

static void put_meta(struct pv_str *b, const struct pv_meta *m)
{
        for (int k = 0; k < 2; k++) {
                put_number(b, m->mode[k]);
                put_number(b, m->uid[k]);
                put_number(b, m->gid[k]);
                put_number(b, m->xattrs[k].n);
                for (size_t i = 0; i < m->xattrs[k].n; i++) {
                        const struct pv_xattr *x = &m->xattrs[k].item[i];
                        put_block(b, x->name, strlen(x->name));
                        put_block(b, x->value, x->size);
                }
        }
}

static void put_landing(struct pv_str *b, const struct pv_landing *l)
{
        put_number(b, l->xattrs);
        put_number(b, l->nlink);
        put_block(b, l->sha256, l->hashed ? PV_SHA256_SIZE : 0);
        put_block(b, l->link, l->link ? strlen(l->link) : 0);
        put_number(b, l->size);
        put_number(b, l->mode);
        put_number(b, l->uid);
        put_number(b, l->gid);
}

static size_t shared_prefix(const char *a, const char *b)
{
        size_t n = 0;
        while (a[n] && a[n] == b[n])
                n++;
        return n;
}

static void put_item(struct pv_str *b, const struct pv_item *it, const char *before)
{
        size_t at = open_record(b, REC_ITEM);
        size_t shared = shared_prefix(before, it->path);
        put_number(b, it->op);
        put_number(b, it->at);
        put_number(b, it->flags);
        put_number(b, it->root);
        put_number(b, it->layer);
        put_number(b, it->slot);
        put_number(b, shared);
        put_block(b, it->path + shared, strlen(it->path + shared));
        put_ident(b, &it->in);
        put_ident(b, &it->out);
        if (it->flags & PV_ITEM_HASHED)
                pv_str_put_bytes(b, it->sha256, PV_SHA256_SIZE);
        if (it->flags & PV_ITEM_TIMES) {
                put_number(b, (uint64_t)it->staged_mtime.tv_sec);
                put_number(b, (uint64_t)it->staged_mtime.tv_nsec);
        }
        if (it->op == PV_OP_META)
                put_meta(b, it->meta);
        if (it->flags & PV_ITEM_LANDS)
                put_landing(b, it->landing);
        close_record(b, at);
}

static void put_head(struct pv_str *b, const struct pv_batch_head *h)
{
        size_t at = open_record(b, REC_HEAD);
        pv_str_put(b, MAGIC);
        put_number(b, h->kind);
        put_block(b, h->id, strlen(h->id));
        put_block(b, h->of, strlen(h->of));
        put_number(b, (uint64_t)h->when.tv_sec);
        put_number(b, (uint64_t)h->when.tv_nsec);
        put_number(b, h->n_roots);
        for (uint32_t i = 0; i < h->n_roots; i++)
                put_number(b, h->root_mode[i]);
        put_block(b, h->boot, strlen(h->boot));
        close_record(b, at);
}

int pv_journal_put_plan(struct pv_journal *j, const struct pv_plan_list *p, struct pv_err *err)
{
        put_head(&j->buf, &p->head);
        for (size_t i = 0; i < p->n_access; i++) {
                size_t at = open_record(&j->buf, REC_ACCESS);
                put_number(&j->buf, p->access[i].root);
                put_number(&j->buf, (uint64_t)((int64_t)p->access[i].layer + 1));
                put_number(&j->buf, p->access[i].mode);
                put_block(&j->buf, p->access[i].path, strlen(p->access[i].path));
                close_record(&j->buf, at);
        }
        const char *before = "";
        for (size_t i = 0; i < p->n; i++) {
                size_t at = j->buf.len;
                put_item(&j->buf, &p->item[i], before);
                if (j->buf.len - at - FRAME > MAX_RECORD)
                        return pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                          "%s: its attributes are too large to be taken back", p->item[i].path);
                before = p->item[i].path;
                if (j->buf.len >= FLUSH_AT && pv_journal_flush(j, err) < 0)
                        return -1;
        }
        return 0;
}

int pv_journal_mark(struct pv_journal *j, enum pv_batch_mark mark, struct pv_err *err)
{
        size_t at = open_record(&j->buf, REC_MARK);
        put_number(&j->buf, mark);
        close_record(&j->buf, at);
        return pv_journal_flush(j, err);
}

int pv_journal_put_kept(struct pv_journal *j, const struct pv_plan_list *p, struct pv_err *err)
{
        for (size_t i = 0; i < p->n; i++) {
                if (p->item[i].state != PV_ITEM_KEPT)
                        continue;
                size_t at = open_record(&j->buf, REC_KEPT);
                put_number(&j->buf, i);
                close_record(&j->buf, at);
        }
        return pv_journal_mark(j, PV_MARK_PARTLY, err);
}

/* Reading: everything is bounded by what is left; `bad` sticks. */
struct reader {
        const unsigned char *p, *end;
        bool bad;
};

static uint64_t get_number(struct reader *r)
{
        uint64_t v = 0;
        for (unsigned shift = 0; shift < 64; shift += 7) {
                if (!r->p || r->p >= r->end)
                        break;
                unsigned char c = *r->p++;
                v |= (uint64_t)(c & 0x7f) << shift;
                if (!(c & 0x80))
                        return v;
        }
        r->bad = true;
        return 0;
}

static uint64_t get_bounded(struct reader *r, uint64_t most)
{
        uint64_t v = get_number(r);
        if (v > most)
                r->bad = true;
        return r->bad ? 0 : v;
}

static const unsigned char *get_bytes(struct reader *r, size_t n)
{
        if (r->bad || n > (size_t)(r->end - r->p)) {
                r->bad = true;
                return NULL;
        }
        const unsigned char *p = r->p;
        r->p += n;
        return p;
}

/* A block as a new string without NULs inside; NULL when bad. */
static char *get_string(struct reader *r, size_t most)
{
        size_t n = get_bounded(r, most);
        const unsigned char *p = get_bytes(r, n);
        if (!p || memchr(p, '\0', n)) {
                r->bad = true;
                return NULL;
        }
        return pv_strndup((const char *)p, n);
}

static void get_ident(struct reader *r, struct pv_ident *i)
{
        *i = (struct pv_ident){ .mode = (uint32_t)get_bounded(r, UINT32_MAX) };
        if (i->mode == 0)
                return;
        i->ino = get_number(r);
        i->uid = (uint32_t)get_bounded(r, UINT32_MAX);
        i->gid = (uint32_t)get_bounded(r, UINT32_MAX);
        if (S_ISDIR(i->mode))
                return;
        i->size = get_number(r);
        i->rdev = get_number(r);
        i->mtime_s = (int64_t)get_number(r);
        i->mtime_ns = (uint32_t)get_bounded(r, 999999999);
}

static struct pv_meta *get_meta(struct reader *r)
{
        struct pv_meta *m = pv_calloc(1, sizeof *m);
        for (int k = 0; k < 2; k++) {
                m->mode[k] = (uint32_t)get_bounded(r, UINT32_MAX);
                m->uid[k] = (uint32_t)get_bounded(r, UINT32_MAX);
                m->gid[k] = (uint32_t)get_bounded(r, UINT32_MAX);
                size_t n = get_bounded(r, 4096);
                struct pv_xattrs *x = &m->xattrs[k];
                x->item = pv_calloc(n + 1, sizeof *x->item);
                while (x->n < n && !r->bad) {
                        char *name = get_string(r, 255);
                        size_t size = get_bounded(r, 65536);
                        const unsigned char *value = get_bytes(r, size);
                        if (!name || !value) {
                                free(name);
                                break;
                        }
                        void *copy = memcpy(pv_calloc(1, size + 1), value, size);
                        x->item[x->n++] = (struct pv_xattr){ .name = name, .value = copy, .size = size };
                }
        }
        return m;
}

static struct pv_landing *get_landing(struct reader *r)
{
        struct pv_landing *l = pv_calloc(1, sizeof *l);
        l->xattrs = get_number(r);
        l->nlink = (uint32_t)get_bounded(r, UINT32_MAX);
        size_t n = get_bounded(r, PV_SHA256_SIZE);
        const unsigned char *sha = get_bytes(r, n);
        l->link = get_string(r, PATH_MAX);
        l->size = get_number(r);
        l->mode = (uint32_t)get_bounded(r, UINT32_MAX);
        l->uid = (uint32_t)get_bounded(r, UINT32_MAX);
        l->gid = (uint32_t)get_bounded(r, UINT32_MAX);
        if (!sha || (n != 0 && n != PV_SHA256_SIZE))
                r->bad = true;
        if (r->bad)
                return l;
        memcpy(l->sha256, sha, n);
        l->hashed = n != 0;
        if (l->link && !*l->link)
                pv_freep(&l->link);
        return l;
}

/* Relative, no empty, "." or ".." component: nothing that leaves its root. */
static bool path_is_sound(const char *path)
{
        if (*path == '\0')
                return true;
        for (const char *p = path;; p++) {
                size_t n = strcspn(p, "/");
                if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
                        return false;
                p += n;
                if (*p == '\0')
                        return true;
        }
}

static void get_item(struct reader *r, struct pv_plan_list *out)
{
        const char *before = out->n ? out->item[out->n - 1].path : "";
        struct pv_item it = { 0 };
        it.op = (uint8_t)get_bounded(r, PV_OP_WITHIN);
        it.at = (uint8_t)get_bounded(r, PV_AT_BESIDE);
        it.flags = (uint32_t)get_bounded(r, UINT32_MAX);
        it.root = (uint32_t)get_bounded(r, out->head.n_roots ? out->head.n_roots - 1 : 0);
        it.layer = (uint32_t)get_bounded(r, UINT32_MAX);
        it.slot = (uint32_t)get_bounded(r, UINT32_MAX);
        size_t shared = get_bounded(r, strlen(before));
        pv_auto_free char *rest = get_string(r, MAX_RECORD);
        get_ident(r, &it.in);
        get_ident(r, &it.out);
        const unsigned char *sha = it.flags & PV_ITEM_HASHED ? get_bytes(r, PV_SHA256_SIZE) : NULL;
        if (it.flags & PV_ITEM_TIMES) {
                it.staged_mtime.tv_sec = (time_t)get_number(r);
                it.staged_mtime.tv_nsec = (long)get_bounded(r, 999999999);
        }
        if (it.op == PV_OP_META && !r->bad)
                it.meta = get_meta(r);
        if (it.flags & PV_ITEM_LANDS && !r->bad)
                it.landing = get_landing(r);
        pv_auto_free char *path = rest ? pv_strf("%.*s%s", (int)shared, before, rest) : NULL;
        if (r->bad || !path || !path_is_sound(path)) {
                r->bad = true;
                pv_meta_free(it.meta);
                pv_landing_free(it.landing);
                return;
        }
        it.path = pv_steal(&path);
        if (sha)
                it.sha256 = memcpy(pv_calloc(1, PV_SHA256_SIZE), sha, PV_SHA256_SIZE);
        *pv_plan_list_add(out) = it;
}

static bool id_is_sound(const char *id)
{
        return strspn(id, "0123456789abcdef-") == strlen(id);
}

static void get_head(struct reader *r, struct pv_batch_head *h)
{
        const unsigned char *magic = get_bytes(r, strlen(MAGIC));
        if (!magic || memcmp(magic, MAGIC, strlen(MAGIC)) != 0) {
                r->bad = true;
                return;
        }
        h->kind = (enum pv_batch_kind)get_bounded(r, PV_BATCH_UNDO);
        pv_auto_free char *id = get_string(r, PV_BATCH_ID - 1);
        pv_auto_free char *of = get_string(r, PV_BATCH_ID - 1);
        h->when.tv_sec = (time_t)get_number(r);
        h->when.tv_nsec = (long)get_bounded(r, 999999999);
        h->n_roots = (uint32_t)get_bounded(r, MAX_ROOTS);
        if (r->bad || !id_is_sound(id) || !id_is_sound(of) || *id == '\0') {
                r->bad = true;
                return;
        }
        memcpy(h->id, id, strlen(id) + 1);
        memcpy(h->of, of, strlen(of) + 1);
        h->root_mode = pv_calloc(h->n_roots + 1, sizeof *h->root_mode);
        for (uint32_t i = 0; i < h->n_roots; i++)
                h->root_mode[i] = (uint32_t)get_bounded(r, PV_ROOT_BESIDE | PV_ROOT_WEAK);
        if (r->p == r->end) /* of an earlier version */
                return;
        pv_auto_free char *boot = get_string(r, PV_BOOT_ID_TEXT - 1);
        if (boot)
                memcpy(h->boot, boot, strlen(boot) + 1);
}

static void get_access(struct reader *r, struct pv_plan_list *out)
{
        struct pv_access a = { .root = (uint32_t)get_bounded(r, out->head.n_roots ? out->head.n_roots - 1 : 0) };
        a.layer = (int32_t)get_bounded(r, INT32_MAX) - 1;
        a.mode = (uint32_t)get_bounded(r, UINT32_MAX);
        a.path = get_string(r, MAX_RECORD);
        if (r->bad || !path_is_sound(a.path)) {
                r->bad = true;
                free(a.path);
                return;
        }
        out->access = pv_realloc(out->access, out->n_access + 1, sizeof *out->access);
        out->access[out->n_access++] = a;
}

static void get_record(struct reader *r, enum record type, struct pv_plan_list *out)
{
        switch (type) {
        case REC_HEAD:
                get_head(r, &out->head);
                break;
        case REC_ACCESS:
                get_access(r, out);
                break;
        case REC_ITEM:
                get_item(r, out);
                break;
        case REC_MARK:
                out->marks |= (unsigned)get_bounded(r, PV_MARK_PARTLY);
                break;
        case REC_KEPT: {
                size_t i = get_bounded(r, out->n ? out->n - 1 : 0);
                if (!r->bad && i < out->n)
                        out->item[i].state = PV_ITEM_KEPT;
                break;
        }
        default:
                r->bad = true;
        }
}

/* The next whole record: its payload and type; false at the end or where the tail is torn. */
static bool next_record(const unsigned char **p, const unsigned char *end, struct reader *payload, enum record *type)
{
        const unsigned char *at = *p;
        if (end - at < FRAME)
                return false;
        size_t n = at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        if (n > MAX_RECORD || n > (size_t)(end - at) - FRAME)
                return false;
        const unsigned char *sum = at + 5 + n;
        uint32_t want = sum[0] | (uint32_t)sum[1] << 8 | (uint32_t)sum[2] << 16 | (uint32_t)sum[3] << 24;
        if (crc(at, n + 5) != want)
                return false;
        *type = (enum record)at[4];
        *payload = (struct reader){ .p = at + 5, .end = sum };
        *p = sum + 4;
        return true;
}

static size_t whole_length(const unsigned char *p, size_t n)
{
        const unsigned char *at = p;
        struct reader r;
        enum record type;
        while (next_record(&at, p + n, &r, &type))
                ;
        return (size_t)(at - p);
}

static int read_records(const unsigned char *p, size_t n, struct pv_plan_list *out, const char *name,
                        struct pv_err *err)
{
        const unsigned char *at = p;
        struct reader r;
        enum record type;
        out->owns_paths = true;
        if (n == 0)
                return 0;
        for (bool first = true; next_record(&at, p + n, &r, &type); first = false) {
                if ((type == REC_HEAD) != first)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "read %s: records in a wrong order", name);
                get_record(&r, type, out);
                if (r.bad)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "read %s: record at byte %zu is damaged", name,
                                          (size_t)(at - p));
        }
        return 0;
}

/* Maps the file; an empty one gives NULL and 0. */
static int map_file(int dirfd, const char *name, void **map, size_t *n, struct pv_err *err)
{
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", name);
        if (!S_ISREG(st.st_mode))
                return pv_err_set(err, PV_ERR_INPUT, 0, "read %s: not a regular file", name);
        *n = (size_t)st.st_size;
        *map = NULL;
        if (*n == 0)
                return 0;
        *map = mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0);
        return *map == MAP_FAILED ? pv_err_set(err, PV_ERR_SYS, errno, "read %s", name) : 0;
}

int pv_journal_read(int dirfd, const char *name, struct pv_plan_list *out, struct pv_err *err)
{
        void *map = NULL;
        size_t n = 0;
        struct pv_plan_list list = { 0 };
        if (map_file(dirfd, name, &map, &n, err) < 0)
                return -1;
        int r = read_records(map, n, &list, name, err);
        for (size_t i = 0; r == 0 && list.marks & PV_MARK_READY && i < list.n; i++)
                if (list.item[i].op == 0 || list.item[i].at == 0 ||
                    (list.item[i].flags & PV_ITEM_GROUPED && list.item[i].slot >= list.n))
                        r = pv_err_set(err, PV_ERR_INPUT, 0, "read %s: item %zu is damaged", name, i);
        if (map)
                (void)munmap(map, n);
        if (r < 0) {
                pv_plan_list_fini(&list);
                return -1;
        }
        *out = list;
        return 0;
}

int pv_journal_read_head(int dirfd, const char *name, struct pv_batch_head *head, size_t *n_items, unsigned *marks,
                         struct pv_err *err)
{
        void *map = NULL;
        size_t n = 0;
        if (map_file(dirfd, name, &map, &n, err) < 0)
                return -1;
        struct pv_plan_list list = { 0 };
        const unsigned char *at = map;
        struct reader r;
        enum record type;
        bool bad = false;
        *n_items = 0;
        while (map && !bad && next_record(&at, (unsigned char *)map + n, &r, &type)) {
                *n_items += type == REC_ITEM;
                if (type == REC_HEAD || type == REC_MARK)
                        get_record(&r, type, &list);
                bad = r.bad;
        }
        if (map)
                (void)munmap(map, n);
        if (bad || list.head.kind == 0) {
                pv_plan_list_fini(&list);
                return pv_err_set(err, PV_ERR_INPUT, 0, "read %s: damaged", name);
        }
        *head = list.head;
        head->root_mode = NULL;
        *marks = list.marks;
        pv_plan_list_fini(&list);
        return 0;
}
