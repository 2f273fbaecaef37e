/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/file.h"
#include "base/path.h"
#include "base/str.h"
#include "stage/preimage.h"
#include "stage/scan.h"

static struct pv_err err;
static int dir = -1;

static int make_dir(void **state)
{
        char *path = pv_strdup("/tmp/pv-preimage-XXXXXX");
        *state = mkdtemp(path);
        dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return dir < 0;
}

static int remove_dir(void **state)
{
        pv_auto_free char *path = *state;
        pv_fd_closep(&dir);
        return pv_path_remove_tree(AT_FDCWD, path, &err);
}

static struct pv_preimage make(unsigned i)
{
        struct pv_preimage p = { .doubt = i % 7 == 0 ? PV_DOUBT_CHANGED : PV_DOUBT_NONE };
        p.host = (struct pv_facts){ .mode = S_IFREG | 0644,
                                    .uid = i,
                                    .gid = i + 1,
                                    .nlink = 1,
                                    .size = i * 1000000007ULL,
                                    .ino = ~(uint64_t)i,
                                    .mtime = { -(long)i, 999999999 },
                                    .ctime = { 1L << 40, i },
                                    .xattrs = i,
                                    .hashed = i % 2 };
        if (p.host.hashed)
                memset(p.host.sha256, (int)i, sizeof p.host.sha256);
        if (i % 5 == 0) {
                p.host.mode = S_IFLNK | 0777;
                p.host.link = (char *)(uintptr_t) "to/\xff\n";
        }
        return p;
}

static char *path_of(unsigned i)
{
        return i == 0 ? pv_strdup("") : pv_strf("some/directory/or other/%08u", i);
}

static void write_some(const char *name, unsigned n)
{
        struct pv_preimage_writer *w = NULL;
        assert_return_code(pv_preimages_create(dir, name, 3, &w, &err), 0);
        for (unsigned i = 0; i < n; i++) {
                pv_auto_free char *path = path_of(i);
                struct pv_preimage p = make(i);
                assert_return_code(pv_preimages_put(w, path, &p, &err), 0);
        }
        assert_return_code(pv_preimages_finish(w, PV_PREIMAGE_CACHED, &err), 0);
}

static void assert_same(const struct pv_preimage *a, const struct pv_preimage *b)
{
        assert_true(pv_facts_same_inode_state(&a->host, &b->host) && pv_facts_same_metadata(&a->host, &b->host));
        assert_int_equal(a->doubt, b->doubt);
        assert_int_equal(a->host.hashed, b->host.hashed);
        if (a->host.hashed)
                assert_memory_equal(a->host.sha256, b->host.sha256, sizeof a->host.sha256);
        assert_true(!a->host.link == !b->host.link);
        if (a->host.link)
                assert_string_equal(a->host.link, b->host.link);
}

static void test_what_is_written_is_read(void **state)
{
        static const unsigned counts[] = { 0, 1, 2, 5000 };
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                struct pv_preimage_reader *r = NULL;
                struct pv_preimage p;
                const char *path = NULL;
                write_some("p", counts[k]);
                assert_return_code(pv_preimages_open(dir, "p", &r, &err), 0);
                assert_int_equal(pv_preimages_run(r), 3);
                for (unsigned i = 0; i < counts[k]; i++) {
                        pv_auto_free char *expected = path_of(i);
                        struct pv_preimage q = make(i);
                        assert_int_equal(pv_preimages_next(r, &path, &p, &err), 1);
                        assert_string_equal(path, expected);
                        assert_same(&p, &q);
                }
                assert_int_equal(pv_preimages_next(r, &path, &p, &err), 0);
                pv_preimages_close(r);
        }
}

static void test_a_missing_file_is_an_empty_one(void **state)
{
        struct pv_preimage_reader *r = NULL;
        struct pv_preimage p;
        const char *path = NULL;
        assert_return_code(pv_preimages_open(dir, "missing", &r, &err), 0);
        assert_int_equal(pv_preimages_run(r), 0);
        assert_int_equal(pv_preimages_next(r, &path, &p, &err), 0);
        pv_preimages_close(r);
}

/* Reads to the end; how many records came, -1 when the damage showed. */
static int read_all(const char *name)
{
        struct pv_preimage_reader *r = NULL;
        struct pv_preimage p;
        const char *path = NULL;
        int n = 0, k;
        pv_err_clear(&err);
        if (pv_preimages_open(dir, name, &r, &err) < 0)
                return -1;
        while ((k = pv_preimages_next(r, &path, &p, &err)) > 0)
                n++;
        pv_preimages_close(r);
        return k < 0 ? -1 : n;
}

static void test_every_cut_and_every_turned_bit_shows(void **state)
{
        pv_auto_free char *text = NULL;
        size_t len = 0;
        write_some("whole", 30);
        assert_int_equal(read_all("whole"), 30);
        assert_return_code(pv_file_read_at(dir, "whole", 1 << 20, &text, &len, &err), 0);
        for (size_t cut = 0; cut < len; cut++) {
                assert_return_code(pv_file_write_at(dir, "cut", text, cut, 0600, PV_FILE_REPLACE, &err), 0);
                assert_int_equal(read_all("cut"), -1);
                assert_int_equal(err.kind, PV_ERR_INPUT);
        }
        for (size_t bit = 0; bit < 8 * len; bit += 5) {
                if (bit / 8 >= 16 && bit / 8 < 20)
                        continue; /* the number of the run */
                text[bit / 8] ^= (char)(1 << bit % 8);
                assert_return_code(pv_file_write_at(dir, "bent", text, len, 0600, PV_FILE_REPLACE, &err), 0);
                assert_int_equal(read_all("bent"), -1);
                text[bit / 8] ^= (char)(1 << bit % 8);
        }
}

static void test_an_abandoned_one_changes_nothing(void **state)
{
        struct pv_preimage_writer *w = NULL;
        struct pv_preimage p = make(1);
        write_some("kept", 3);
        assert_return_code(pv_preimages_create(dir, "kept", 4, &w, &err), 0);
        assert_return_code(pv_preimages_put(w, "a", &p, &err), 0);
        pv_preimages_abandon(w);
        assert_int_equal(read_all("kept"), 3);
        assert_int_equal(faccessat(dir, ".kept.tmp", F_OK, 0), -1);
}

static void test_the_order_of_paths(void **state)
{
        static const char *const sorted[] = { "", "a", "a/b", "a/b/c", "a/c", "a ", "a-b", "ab", "b", "\xff" };
        for (size_t i = 0; i < sizeof sorted / sizeof *sorted; i++)
                for (size_t k = 0; k < sizeof sorted / sizeof *sorted; k++) {
                        int o = pv_path_order(sorted[i], sorted[k]);
                        assert_true(i < k ? o < 0 : i > k ? o > 0 : o == 0);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_what_is_written_is_read),
                cmocka_unit_test(test_a_missing_file_is_an_empty_one),
                cmocka_unit_test(test_every_cut_and_every_turned_bit_shows),
                cmocka_unit_test(test_an_abandoned_one_changes_nothing),
                cmocka_unit_test(test_the_order_of_paths),
        };
        return cmocka_run_group_tests_name("preimage", tests, make_dir, remove_dir);
}
