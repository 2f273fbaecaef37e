/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include "base/path.h"
#include "base/str.h"
#include "stage/facts.h"

static struct pv_arena arena;

static int make_dir(void **state)
{
        char *dir = pv_strdup("/var/tmp/pv-facts-XXXXXX");
        assert_non_null(mkdtemp(dir));
        *state = dir;
        return chdir(dir);
}

static int remove_dir(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *dir = *state;
        pv_arena_fini(&arena);
        return chdir("/") < 0 ? -1 : pv_path_remove_tree(AT_FDCWD, dir, &err);
}

static void put(const char *name, const char *text)
{
        pv_auto_fd fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        struct pv_err err = PV_ERR_INIT;
        assert_return_code(pv_fd_write_all(fd, text, strlen(text), name, &err), 0);
}

static void test_what_does_not_exist_is_mode_zero(void **state)
{
        struct pv_facts f = { .mode = 1 };
        put("file", "x");
        assert_int_equal(pv_facts_get(AT_FDCWD, "missing", &arena, &f), 0);
        assert_false(pv_facts_exist(&f));
        f.mode = 1;
        assert_int_equal(pv_facts_get(AT_FDCWD, "file/below", &arena, &f), 0);
        assert_false(pv_facts_exist(&f));
}

static void test_a_link_is_not_followed_and_its_text_kept(void **state)
{
        struct pv_facts f;
        assert_int_equal(symlink("/etc/passwd", "link"), 0);
        assert_int_equal(pv_facts_get(AT_FDCWD, "link", &arena, &f), 0);
        assert_true(S_ISLNK(f.mode));
        assert_string_equal(f.link, "/etc/passwd");
}

static void test_xattrs_without_any_are_zero(void **state)
{
        uint64_t d = 1;
        put("plain", "x");
        assert_int_equal(pv_facts_get_xattrs(AT_FDCWD, "plain", PV_FACTS_HOST, &d), 0);
        assert_int_equal(d, 0);
}

static void test_the_order_of_xattrs_does_not_matter_but_their_values_do(void **state)
{
        uint64_t a = 0, b = 0, c = 0;
        put("a", "");
        put("b", "");
        put("c", "");
        assert_int_equal(setxattr("a", "user.one", "1", 1, 0) | setxattr("a", "user.two", "2", 1, 0), 0);
        assert_int_equal(setxattr("b", "user.two", "2", 1, 0) | setxattr("b", "user.one", "1", 1, 0), 0);
        assert_int_equal(setxattr("c", "user.one", "2", 1, 0) | setxattr("c", "user.two", "1", 1, 0), 0);
        assert_int_equal(pv_facts_get_xattrs(AT_FDCWD, "a", PV_FACTS_HOST, &a), 0);
        assert_int_equal(pv_facts_get_xattrs(AT_FDCWD, "b", PV_FACTS_HOST, &b), 0);
        assert_int_equal(pv_facts_get_xattrs(AT_FDCWD, "c", PV_FACTS_HOST, &c), 0);
        assert_true(a == b && a != c && a != 0);
}

static void test_staged_xattrs_are_unescaped_and_the_overlays_own_left_out(void **state)
{
        uint64_t host = 0, staged = 0;
        put("host", "");
        put("staged", "");
        assert_int_equal(setxattr("host", "user.overlay.opaque", "agent", 5, 0), 0);
        assert_int_equal(setxattr("staged", "user.overlay.overlay.opaque", "agent", 5, 0), 0);
        assert_int_equal(setxattr("staged", "user.overlay.origin", "", 0, 0), 0);
        assert_int_equal(pv_facts_get_xattrs(AT_FDCWD, "host", PV_FACTS_HOST, &host), 0);
        assert_int_equal(pv_facts_get_xattrs(AT_FDCWD, "staged", PV_FACTS_STAGED, &staged), 0);
        assert_true(host == staged && host != 0);
}

static void test_a_fifo_in_place_of_a_file_does_not_block_the_hash(void **state)
{
        struct pv_facts f = { 0 };
        assert_int_equal(mkfifo("fifo", 0600), 0);
        assert_int_equal(pv_facts_hash(AT_FDCWD, "fifo", &f), -1);
        assert_false(f.hashed);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_what_does_not_exist_is_mode_zero),
                cmocka_unit_test(test_a_link_is_not_followed_and_its_text_kept),
                cmocka_unit_test(test_xattrs_without_any_are_zero),
                cmocka_unit_test(test_the_order_of_xattrs_does_not_matter_but_their_values_do),
                cmocka_unit_test(test_staged_xattrs_are_unescaped_and_the_overlays_own_left_out),
                cmocka_unit_test(test_a_fifo_in_place_of_a_file_does_not_block_the_hash),
        };
        return cmocka_run_group_tests_name("facts", tests, make_dir, remove_dir);
}
