/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "stage/journal.h"

#define ITEMS 40

static int dir = -1;

static struct pv_ident some_ident(unsigned n, mode_t type)
{
        return (struct pv_ident){ .ino = 1000000007ULL * n,
                                  .size = n * 3,
                                  .mtime_s = -(int64_t)n,
                                  .mtime_ns = n,
                                  .mode = type | 0644,
                                  .uid = n,
                                  .gid = 4294967295U };
}

static struct pv_xattrs some_xattrs(const char *value)
{
        struct pv_xattrs x = { .item = pv_calloc(1, sizeof *x.item), .n = 1 };
        x.item[0] = (struct pv_xattr){ .name = pv_strdup("user.x"), .value = pv_strdup(value), .size = strlen(value) };
        return x;
}

static struct pv_plan_list make_plan(void)
{
        struct pv_plan_list p = { .owns_paths = true };
        p.head = (struct pv_batch_head){ .id = "000007-0badcafe", .kind = PV_BATCH_APPLY, .n_roots = 2 };
        p.head.when = (struct timespec){ .tv_sec = 1800000000, .tv_nsec = 5 };
        p.head.root_mode = pv_calloc(3, sizeof *p.head.root_mode);
        p.head.root_mode[1] = PV_ROOT_BESIDE;
        for (unsigned i = 0; i < ITEMS; i++) {
                struct pv_item *it = pv_plan_list_add(&p);
                it->path = pv_strf("a/dir%u/\xff\n name %u", i / 7, i);
                it->op = i % 5 == 4 ? PV_OP_META : PV_OP_EXCHANGE;
                it->at = PV_AT_LAYER;
                it->root = i / 20;
                it->slot = i;
                it->in = some_ident(i + 1, i % 3 ? S_IFREG : S_IFDIR);
                it->out = i % 4 ? some_ident(i + 2, S_IFREG) : (struct pv_ident){ 0 };
                if (it->op == PV_OP_META) {
                        it->meta = pv_calloc(1, sizeof *it->meta);
                        it->meta->mode[1] = 0755;
                        it->meta->xattrs[1] = some_xattrs("value");
                }
                if (i % 2) {
                        it->flags = PV_ITEM_HASHED | PV_ITEM_TIMES;
                        it->sha256 = pv_calloc(1, PV_SHA256_SIZE);
                        it->sha256[3] = (unsigned char)i;
                        it->staged_mtime.tv_sec = i;
                }
        }
        p.access = pv_calloc(1, sizeof *p.access);
        p.access[p.n_access++] =
                (struct pv_access){ .root = 1, .layer = -1, .mode = 0555, .path = pv_strdup("a/dir0") };
        return p;
}

static void write_plan(const struct pv_plan_list *p)
{
        struct pv_err err;
        pv_auto_journal j = PV_JOURNAL_INIT;
        assert_int_equal(pv_journal_create(&j, dir, "journal", &err), 0);
        assert_int_equal(pv_journal_put_plan(&j, p, &err), 0);
        assert_int_equal(pv_journal_mark(&j, PV_MARK_READY, &err), 0);
}

static void same_ident(const struct pv_ident *a, const struct pv_ident *b)
{
        assert_int_equal(a->mode, b->mode);
        assert_int_equal(a->ino, b->ino);
        assert_int_equal(a->gid, b->gid);
        if (S_ISDIR(a->mode))
                return;
        assert_int_equal(a->size, b->size);
        assert_int_equal(a->mtime_s, b->mtime_s);
        assert_int_equal(a->mtime_ns, b->mtime_ns);
}

static void test_what_is_written_is_read(void **state)
{
        struct pv_plan_list p = make_plan(), q = { 0 };
        struct pv_err err;
        write_plan(&p);
        assert_int_equal(pv_journal_read(dir, "journal", &q, &err), 0);
        assert_int_equal(q.n, p.n);
        assert_int_equal(q.marks, PV_MARK_READY);
        assert_string_equal(q.head.id, p.head.id);
        assert_int_equal(q.head.when.tv_sec, p.head.when.tv_sec);
        assert_int_equal(q.head.root_mode[1], PV_ROOT_BESIDE);
        assert_int_equal(q.n_access, 1);
        assert_int_equal(q.access[0].layer, -1);
        for (size_t i = 0; i < p.n; i++) {
                assert_string_equal(q.item[i].path, p.item[i].path);
                assert_int_equal(q.item[i].op, p.item[i].op);
                assert_int_equal(q.item[i].flags, p.item[i].flags);
                assert_int_equal(q.item[i].staged_mtime.tv_sec, p.item[i].staged_mtime.tv_sec);
                same_ident(&p.item[i].in, &q.item[i].in);
                same_ident(&p.item[i].out, &q.item[i].out);
                if (p.item[i].sha256)
                        assert_memory_equal(q.item[i].sha256, p.item[i].sha256, PV_SHA256_SIZE);
                if (p.item[i].meta)
                        assert_string_equal(q.item[i].meta->xattrs[1].item[0].value, "value");
        }
        pv_plan_list_fini(&q);
        pv_plan_list_fini(&p);
}

static void read_back(const char *bytes, size_t n, struct pv_plan_list *out, int *result)
{
        struct pv_err err;
        pv_auto_fd fd = openat(dir, "cut", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(pv_fd_write_all(fd, bytes, n, "cut", &err), 0);
        *result = pv_journal_read(dir, "cut", out, &err);
}

static void test_a_torn_tail_is_what_was_whole_and_never_ready(void **state)
{
        struct pv_plan_list p = make_plan();
        struct pv_err err;
        pv_auto_free char *bytes = NULL;
        size_t n;
        write_plan(&p);
        assert_int_equal(pv_file_read_at(dir, "journal", 1 << 20, &bytes, &n, &err), 0);
        for (size_t cut = 0; cut < n; cut++) {
                struct pv_plan_list q = { 0 };
                int r;
                read_back(bytes, cut, &q, &r);
                assert_int_equal(r, 0);
                assert_int_equal(q.marks, 0);
                assert_true(q.n <= p.n);
                pv_plan_list_fini(&q);
        }
        pv_plan_list_fini(&p);
}

static void test_what_is_appended_after_a_torn_tail_is_read(void **state)
{
        struct pv_plan_list p = make_plan(), q = { 0 };
        struct pv_err err;
        write_plan(&p);
        {
                pv_auto_fd fd = openat(dir, "journal", O_WRONLY | O_APPEND | O_CLOEXEC);
                assert_int_equal(write(fd, "\x05\0\0\0Mtorn", 9), 9);
                pv_auto_journal j = PV_JOURNAL_INIT;
                assert_int_equal(pv_journal_append(&j, dir, "journal", &err), 0);
                assert_int_equal(pv_journal_mark(&j, PV_MARK_COMMITTED, &err), 0);
        }
        assert_int_equal(pv_journal_read(dir, "journal", &q, &err), 0);
        assert_int_equal(q.marks, PV_MARK_READY | PV_MARK_COMMITTED);
        pv_plan_list_fini(&q);
        pv_plan_list_fini(&p);
}

/* Records that check out but lie: every byte of the payloads is changed, with the checksum made right again. */
static uint32_t crc(const unsigned char *p, size_t n)
{
        uint32_t c = ~0u;
        for (size_t i = 0; i < n; i++) {
                c ^= p[i];
                for (int k = 0; k < 8; k++)
                        c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
        }
        return ~c;
}

/* Written all the same it would be read as a torn tail: a plan that is never ready, though it was carried out. */
static void test_what_does_not_fit_into_a_record_is_refused(void **state)
{
        enum { ATTRIBUTES = 17, SIZE = 65536 };
        struct pv_plan_list p = make_plan();
        struct pv_err err = PV_ERR_INIT;
        pv_auto_journal j = PV_JOURNAL_INIT;
        struct pv_xattrs *x = &p.item[4].meta->xattrs[1];
        pv_xattrs_fini(x);
        x->item = pv_calloc(ATTRIBUTES, sizeof *x->item);
        for (; x->n < ATTRIBUTES; x->n++)
                x->item[x->n] = (struct pv_xattr){ .name = pv_strf("user.%02zu", x->n),
                                                   .value = pv_calloc(SIZE, 1),
                                                   .size = SIZE };
        assert_int_equal(pv_journal_create(&j, dir, "journal", &err), 0);
        assert_int_equal(pv_journal_put_plan(&j, &p, &err), -1);
        assert_int_equal(err.kind, PV_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.msg, p.item[4].path));
        pv_plan_list_fini(&p);
}

static void test_damaged_records_are_refused_or_harmless(void **state)
{
        struct pv_plan_list p = make_plan();
        struct pv_err err;
        pv_auto_free char *bytes = NULL;
        size_t n;
        write_plan(&p);
        assert_int_equal(pv_file_read_at(dir, "journal", 1 << 20, &bytes, &n, &err), 0);
        for (size_t at = 0; at + 9 <= n;) {
                unsigned char *rec = (unsigned char *)bytes + at;
                size_t len = rec[0] | (size_t)rec[1] << 8 | (size_t)rec[2] << 16;
                for (size_t i = 5; i < 5 + len; i += 1 + (size_t)random() % 5) {
                        unsigned char was = rec[i], sum[4];
                        struct pv_plan_list q = { 0 };
                        int r;
                        memcpy(sum, rec + 5 + len, 4);
                        rec[i] = (unsigned char)(random() % 3 ? random() : 0xff);
                        uint32_t c = crc(rec, 5 + len);
                        for (int k = 0; k < 4; k++)
                                rec[5 + len + (size_t)k] = (unsigned char)(c >> 8 * k);
                        read_back(bytes, n, &q, &r);
                        for (size_t k = 0; k < q.n; k++) {
                                assert_false(q.item[k].path[0] == '/' || strstr(q.item[k].path, "/../"));
                                assert_true(q.item[k].root < q.head.n_roots || q.head.n_roots == 0);
                        }
                        pv_plan_list_fini(&q);
                        rec[i] = was;
                        memcpy(rec + 5 + len, sum, 4);
                }
                at += len + 9;
        }
        pv_plan_list_fini(&p);
}

static int set_up(void **state)
{
        char name[] = "/tmp/pv-journal-XXXXXX";
        if (!mkdtemp(name))
                return -1;
        *state = pv_strdup(name);
        dir = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return dir < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
        struct pv_err err;
        int r = pv_path_remove_tree(AT_FDCWD, *state, &err);
        free(*state);
        pv_fd_closep(&dir);
        return r;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_what_is_written_is_read),
                cmocka_unit_test(test_a_torn_tail_is_what_was_whole_and_never_ready),
                cmocka_unit_test(test_what_is_appended_after_a_torn_tail_is_read),
                cmocka_unit_test(test_what_does_not_fit_into_a_record_is_refused),
                cmocka_unit_test(test_damaged_records_are_refused_or_harmless),
        };
        return cmocka_run_group_tests_name("journal", tests, set_up, tear_down);
}
