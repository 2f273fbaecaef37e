/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include "base/path.h"

static void entries_come_without_the_dots_and_errors_are_no_end(void **state)
{
        (void)state;
        char dir[] = "/tmp/pv-dir-test-XXXXXX";
        struct pv_err err = PV_ERR_INIT;
        struct dirent *e = NULL;
        assert_non_null(mkdtemp(dir));
        pv_auto_fd fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(fd, "one", 0700), 0);
        assert_int_equal(symlinkat("one", fd, "link"), 0);
        assert_null(pv_dir_open(fd, "link"));
        for (int again = 0; again < 2; again++) { /* each from the beginning */
                pv_auto_dir d = pv_dir_open(fd, ".");
                assert_non_null(d);
                assert_int_equal(pv_dir_next(d, &e), 1);
                assert_int_equal(pv_dir_next(d, &e), 1);
                assert_int_equal(pv_dir_next(d, &e), 0);
        }
        DIR *lost = pv_dir_open(fd, ".");
        assert_non_null(lost);
        assert_int_equal(close(dirfd(lost)), 0);
        assert_int_equal(pv_dir_next(lost, &e), -1);
        assert_int_equal(errno, EBADF);
        (void)closedir(lost);
        assert_int_equal(pv_path_remove_tree(AT_FDCWD, dir, &err), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(entries_come_without_the_dots_and_errors_are_no_end),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
