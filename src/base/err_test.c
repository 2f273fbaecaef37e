/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/err.h"

#include <errno.h>
#include <string.h>

static void set_appends_errno_and_wrap_prepends(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        assert_int_equal(pv_err_set(&e, PV_ERR_SYS, ENOENT, "open %s", "x"), -1);
        assert_string_equal(e.msg, "open x: No such file or directory");
        assert_int_equal(pv_err_wrap(&e, "stage"), -1);
        assert_string_equal(e.msg, "stage: open x: No such file or directory");
        assert_int_equal(e.sys, ENOENT);
}

static void long_messages_are_cut_not_overrun(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        char big[2000];
        memset(big, 'a', sizeof big - 1);
        big[sizeof big - 1] = '\0';
        (void)pv_err_set(&e, PV_ERR_SYS, EIO, "%s", big);
        (void)pv_err_wrap(&e, "%s", big);
        assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
}

static void each_kind_has_its_exit_code(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        assert_int_equal(pv_err_exit_code(&e), 0);
        (void)pv_err_set(&e, PV_ERR_USAGE, 0, "x");
        assert_int_equal(pv_err_exit_code(&e), 2);
        (void)pv_err_set(&e, PV_ERR_CONFLICT, 0, "x");
        assert_int_equal(pv_err_exit_code(&e), 3);
        (void)pv_err_set(&e, PV_ERR_NO_JOB, 0, "x");
        assert_int_equal(pv_err_exit_code(&e), 4);
        (void)pv_err_set(&e, PV_ERR_UNSUPPORTED, 0, "x");
        assert_int_equal(pv_err_exit_code(&e), 5);
        (void)pv_err_set(&e, PV_ERR_POLICY, 0, "x");
        assert_int_equal(pv_err_exit_code(&e), 6);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(set_appends_errno_and_wrap_prepends),
                cmocka_unit_test(long_messages_are_cut_not_overrun),
                cmocka_unit_test(each_kind_has_its_exit_code),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
