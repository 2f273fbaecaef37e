/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/json.h"
#include "base/path.h"

#include <fcntl.h>
#include <string.h>

static char dir[] = "/tmp/pv-file-test-XXXXXX";

static int make_dir(void **state)
{
        return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        return pv_path_remove_tree(AT_FDCWD, dir, &e);
}

static void write_replaces_whole_and_leaves_no_temporary(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        pv_auto_fd d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(pv_file_write_at(d, "f", "one", 3, 0600, PV_FILE_DURABLE, &e), 0);
        assert_int_equal(pv_file_write_at(d, "f", "two!", 4, 0640, PV_FILE_REPLACE, &e), 0);
        pv_auto_free char *text = NULL;
        size_t n = 0;
        assert_int_equal(pv_file_read_at(d, "f", 100, &text, &n, &e), 0);
        assert_string_equal(text, "two!");
        assert_int_equal(pv_file_read_at(d, "f", 3, &text, &n, &e), -1);
        assert_int_equal(e.kind, PV_ERR_INPUT);
        pv_auto_dir list = opendir(dir);
        int entries = 0;
        while (readdir(list))
                entries++;
        assert_int_equal(entries, 3);
}

static void a_fifo_or_link_is_not_read(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        pv_auto_fd d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char *text = NULL;
        assert_int_equal(mkfifoat(d, "p", 0600), 0);
        assert_int_equal(pv_file_read_at(d, "p", 100, &text, NULL, &e), -1);
        assert_int_equal(e.kind, PV_ERR_INPUT);
        assert_int_equal(symlinkat("f", d, "l"), 0);
        assert_int_equal(pv_file_read_at(d, "l", 100, &text, NULL, &e), -1);
        assert_int_equal(e.sys, ELOOP);
}

static void json_keeps_bytes_that_are_not_unicode(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        const char *const names[] = { "plain", "caf\xc3\xa9", "\xff\xfe", "a\nb", "" };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                pv_auto_json j = pv_json_bytes(names[i]);
                pv_auto_free char *back = NULL;
                assert_int_equal(pv_json_get_bytes(j, &back, &e), 0);
                assert_string_equal(back, names[i]);
        }
        pv_auto_json bad = json_pack("{s:s}", "bytes", "0");
        char *out = NULL;
        assert_int_equal(pv_json_get_bytes(bad, &out, &e), -1);
        pv_auto_json nul = json_pack("{s:s}", "bytes", "6100");
        assert_int_equal(pv_json_get_bytes(nul, &out, &e), -1);
}

static void damaged_json_names_file_and_line(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        json_t *j = NULL;
        pv_auto_fd d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(pv_file_write_at(d, "bad.json", "{\n \"a\": 1,\n", 11, 0600, PV_FILE_REPLACE, &e), 0);
        assert_int_equal(pv_json_read_at(d, "bad.json", 1000, &j, &e), -1);
        assert_int_equal(e.kind, PV_ERR_INPUT);
        assert_non_null(strstr(e.msg, "bad.json:"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(write_replaces_whole_and_leaves_no_temporary),
                cmocka_unit_test(a_fifo_or_link_is_not_read),
                cmocka_unit_test(json_keeps_bytes_that_are_not_unicode),
                cmocka_unit_test(damaged_json_names_file_and_line),
        };
        return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
