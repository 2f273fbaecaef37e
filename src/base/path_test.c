/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/path.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <string.h>

static int make_root(void **state)
{
        char *dir = pv_strdup("/tmp/pv-path-test-XXXXXX");
        if (!mkdtemp(dir))
                return -1;
        *state = dir;
        return 0;
}

static int remove_root(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        int r = pv_path_remove_tree(AT_FDCWD, *state, &e);
        free(*state);
        return r;
}

static void normalise_and_within(void **state)
{
        const char *const want[][2] = { { "/", "/" },   { "//a//b/", "/a/b" }, { "/a/./b/../c", "/a/c" },
                                        { "/..", "/" }, { "/a/../..", "/" },   { "/a/b/..", "/a" } };
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
                pv_auto_free char *n = pv_path_normalise(want[i][0]);
                assert_string_equal(n, want[i][1]);
        }
        assert_true(pv_path_is_within("/a/b", "/a"));
        assert_true(pv_path_is_within("/a", "/a"));
        assert_false(pv_path_is_within("/ab", "/a"));
        assert_true(pv_path_is_within("/ab", "/"));
}

static void links_and_dotdot_do_not_leave_the_root(void **state)
{
        pv_auto_pathfd root = PV_PATHFD_INIT;
        struct pv_err e = PV_ERR_INIT;
        assert_int_equal(pv_path_open_root(*state, &root, &e), 0);
        assert_int_equal(mkdirat(root.fd, "d", 0755), 0);
        assert_int_equal(symlinkat("/etc", root.fd, "out"), 0);
        assert_int_equal(symlinkat("d", root.fd, "in"), 0);
        assert_int_equal(pv_path_openat(root, "out/passwd", O_RDONLY, 0), -1);
        assert_int_equal(errno, ELOOP);
        assert_int_equal(pv_path_openat(root, "in", O_RDONLY, 0), -1);
        assert_int_equal(errno, ELOOP);
        assert_int_equal(pv_path_openat(root, "../etc", O_RDONLY, 0), -1);
        assert_int_equal(errno, EXDEV);
        assert_int_equal(pv_path_openat(root, "/etc", O_RDONLY, 0), -1);
        pv_auto_fd ok = pv_path_openat(root, "d", O_RDONLY | O_DIRECTORY, 0);
        assert_true(ok >= 0);

        pv_auto_pathfd parent = PV_PATHFD_INIT;
        const char *name = NULL;
        assert_int_equal(pv_path_open_parent(root, "d/x", &parent, &name), 0);
        assert_string_equal(name, "x");
        assert_int_equal(pv_path_open_parent(root, "d/..", &parent, &name), -1);
        assert_int_equal(pv_path_open_parent(root, "d/", &parent, &name), -1);
}

static void remove_tree_takes_unreadable_directories_and_no_link_target(void **state)
{
        pv_auto_pathfd root = PV_PATHFD_INIT;
        struct pv_err e = PV_ERR_INIT;
        assert_int_equal(pv_path_open_root(*state, &root, &e), 0);
        assert_int_equal(mkdirat(root.fd, "keep", 0755), 0);
        assert_int_equal(mkdirat(root.fd, "gone", 0755), 0);
        assert_int_equal(mkdirat(root.fd, "gone/work", 0755), 0);
        assert_int_equal(mkdirat(root.fd, "gone/work/x", 0755), 0);
        assert_int_equal(fchmodat(root.fd, "gone/work", 0, 0), 0);
        assert_int_equal(symlinkat("../keep", root.fd, "gone/link"), 0);
        assert_int_equal(pv_path_remove_tree(root.fd, "gone", &e), 0);
        struct stat st;
        assert_int_equal(fstatat(root.fd, "gone", &st, AT_SYMLINK_NOFOLLOW), -1);
        assert_int_equal(fstatat(root.fd, "keep", &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(pv_path_remove_tree(root.fd, "never-was", &e), 0);
}

static void remove_tree_copes_with_more_levels_than_descriptors(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        struct rlimit few = { 100, 0 }, old;
        pv_auto_fd dir = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
        few.rlim_max = old.rlim_max;
        for (int i = 0; i < 3000; i++) {
                assert_int_equal(mkdirat(dir, "deep", 0755), 0);
                assert_int_equal(mkdirat(dir, ".deep-0", 0555), 0);
                int next = openat(dir, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_true(next >= 0);
                (void)close(dir);
                dir = next;
        }
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        pv_auto_fd top = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = pv_path_remove_tree(top, "deep", &e);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(r, 0);
}

static void make_dirs_says_what_mkdir_said(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        pv_auto_free char *deep = pv_path_join(*state, "a/b//c/");
        pv_auto_free char *file = pv_path_join(*state, "a/file");
        assert_int_equal(pv_path_make_dirs(deep, 0700, &e), 0);
        assert_int_equal(pv_path_make_dirs(deep, 0700, &e), 0); /* it is there already */
        pv_auto_fd fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(pv_path_make_dirs(file, 0700, &e), -1);
        assert_int_equal(e.sys, ENOTDIR);
        int want = mkdir("/sys/pv-path-test", 0700) < 0 ? errno : 0; /* refused to root as well */
        assert_int_not_equal(want, ENOENT);
        assert_int_equal(pv_path_make_dirs("/sys/pv-path-test/x", 0700, &e), -1);
        assert_int_equal(e.sys, want);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(normalise_and_within),
                cmocka_unit_test_setup_teardown(make_dirs_says_what_mkdir_said, make_root, remove_root),
                cmocka_unit_test_setup_teardown(links_and_dotdot_do_not_leave_the_root, make_root, remove_root),
                cmocka_unit_test_setup_teardown(remove_tree_copes_with_more_levels_than_descriptors, make_root,
                                                remove_root),
                cmocka_unit_test_setup_teardown(remove_tree_takes_unreadable_directories_and_no_link_target, make_root,
                                                remove_root),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
