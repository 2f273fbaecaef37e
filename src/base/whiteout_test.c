/* SPDX-License-Identifier: Apache-2.0 */
/* Whiteouts of both kinds, and what looks like one and is none. */
#include "base/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/xattr.h>
#include "base/copy.h"
#include "base/path.h"
#include "base/whiteout.h"

static int make_dir(char *path)
{
        assert_non_null(mkdtemp(path));
        return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool is_one(int dir, const char *name)
{
        struct stat st;
        assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
        return pv_whiteout_is(dir, name, &st);
}

static void test_what_is_one(void **state)
{
        char path[] = "/var/tmp/pvisor-whiteout-XXXXXX", file[64], mark = 0;
        struct pv_err ignored;
        (void)state;
        int dir = make_dir(path);
        assert_int_equal(pv_whiteout_make(dir, "gone"), 0);
        assert_true(is_one(dir, "gone"));
        assert_int_equal(pv_whiteout_make(dir, "gone"), -1);
        assert_int_equal(errno, EEXIST);
        assert_int_equal(mknodat(dir, "empty", S_IFREG | 0600, 0), 0);
        assert_int_equal(mknodat(dir, "pipe", S_IFIFO | 0600, 0), 0);
        assert_false(is_one(dir, "empty") || is_one(dir, "pipe"));
        (void)snprintf(file, sizeof file, "%s/empty", path);
        if (lsetxattr(file, "user.overlay.whiteout", "y", 1, 0) == 0) {
                assert_true(is_one(dir, "empty"));
                assert_int_equal(truncate(file, 1), 0); /* with content it is a file */
                assert_false(is_one(dir, "empty"));
                assert_int_equal(pv_whiteout_allow(dir), 0);
                assert_int_equal(getxattr(path, PV_OVERLAY_OPAQUE, &mark, 1), 1);
                assert_int_equal(mark, 'x');
                assert_int_equal(setxattr(path, PV_OVERLAY_OPAQUE, "y", 1, 0), 0);
                assert_int_equal(pv_whiteout_allow(dir), 0); /* what hides all goes on to */
                assert_int_equal(getxattr(path, PV_OVERLAY_OPAQUE, &mark, 1), 1);
                assert_int_equal(mark, 'y');
        }
        (void)close(dir);
        assert_int_equal(pv_path_remove_tree(AT_FDCWD, path, &ignored), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_what_is_one) };
        return cmocka_run_group_tests_name("whiteout", tests, NULL, NULL);
}
