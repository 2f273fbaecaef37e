/* SPDX-License-Identifier: Apache-2.0 */
/* The order that init's launcher reads: exec.h. What comes of it: tests/test_exec.py. */
#include "base/test.h"

#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"
#include "boundary/exec.h"

static void an_order_is_read_as_it_was_written(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_exec_command got;
        char *argv[] = { "printf", "", "a b\n\xff", NULL };
        const struct pv_exec_order order = { .number = 7, .terminal = true, .given = { false, true, false } };
        pv_auto_fd fd = -1;
        assert_int_equal(pv_exec_order_write(&order, argv, "/work", "xterm", &fd, &err), 0);
        assert_int_equal(pv_exec_order_read(fd, &got, &err), 0);
        assert_int_equal(got.order.number, 7);
        assert_true(got.order.terminal && got.order.given[1] && !got.order.given[0]);
        for (size_t i = 0; i < 3; i++)
                assert_string_equal(got.argv[i], argv[i]);
        assert_null(got.argv[3]);
        assert_string_equal(got.cwd, "/work");
        assert_string_equal(got.term, "xterm");
        pv_exec_command_fini(&got);
}

static void half_an_order_is_refused(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        char *argv[] = { "true", NULL };
        const struct pv_exec_order order = { .number = 1 };
        pv_auto_fd fd = -1;
        assert_int_equal(pv_exec_order_write(&order, argv, "/", "", &fd, &err), 0);
        off_t whole = lseek(fd, 0, SEEK_END);
        for (off_t len = 0; len < whole; len++) {
                struct pv_exec_command got;
                pv_auto_fd part = memfd_create("part", MFD_CLOEXEC);
                char buf[4096];
                assert_int_equal(pread(fd, buf, (size_t)len, 0), len);
                assert_int_equal(pwrite(part, buf, (size_t)len, 0), len);
                pv_err_clear(&err);
                assert_int_equal(pv_exec_order_read(part, &got, &err), -1);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_order_is_read_as_it_was_written),
                cmocka_unit_test(half_an_order_is_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
