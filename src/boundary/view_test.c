/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include "base/mountinfo.h"
#include "boundary/view.h"

static void mountinfo_is_unescaped(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_mountinfo m = { 0 };
        char *text = pv_strdup("1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
                               "2 1 8:1 /x /a\\040b\\012c\\134d ro,nosuid - ext4 /dev/vda rw\n"
                               "3 1 0:5 / /proc rw - proc proc rw,hidepid=ro\n"
                               "4 1 0:6 / /sup rw master:1 propagate_from:2 - tmpfs tmpfs ro,size=1\n");
        assert_int_equal(pv_mountinfo_parse(text, &m, &err), 0);
        assert_int_equal(m.n, 4);
        assert_string_equal(m.v[1].point, "/a b\nc\\d");
        assert_int_equal(m.v[0].parent, 0);
        assert_int_equal(m.v[3].parent, 1);
        assert_false(m.v[0].read_only);
        assert_true(m.v[1].read_only);
        assert_false(m.v[2].read_only);
        assert_true(m.v[3].read_only);
        assert_true(pv_mountinfo_has_below(&m, "/"));
        assert_false(pv_mountinfo_has_below(&m, "/proc"));
        assert_true(pv_mountinfo_has(&m, "/sup"));
}

static void mountinfo_refuses_garbage(void **state)
{
        static const char *const bad[] = { "x\n",
                                           "1 2 3 4 5 6\n",
                                           "1 0 8:1 / / rw shared:1 ext4 a b\n",
                                           "1 x 8:1 / / rw - ext4 a b\n",
                                           "1  8:1 / / rw - ext4 a b\n",
                                           "\n\n" };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                struct pv_err err = PV_ERR_INIT;
                pv_auto_mountinfo m = { 0 };
                assert_int_equal(pv_mountinfo_parse(pv_strdup(bad[i]), &m, &err), -1);
                assert_int_equal(err.kind, PV_ERR_INPUT);
        }
}

static void the_last_step_above_a_path_decides(void **state)
{
        pv_auto_view view = { 0 };
        pv_view_add(&view, PV_VIEW_SYSTEM, "/usr", "/usr");
        pv_view_add(&view, PV_VIEW_COW, "/home/a", "/home/a");
        pv_view_add(&view, PV_VIEW_STAGE, NULL, "/home/a/p");
        assert_int_equal(pv_view_at(&view, "/home/a/p/x")->op, PV_VIEW_STAGE);
        assert_int_equal(pv_view_at(&view, "/home/a/pq")->op, PV_VIEW_COW);
        assert_null(pv_view_at(&view, "/home"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(mountinfo_is_unescaped),
                cmocka_unit_test(mountinfo_refuses_garbage),
                cmocka_unit_test(the_last_step_above_a_path_decides),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
