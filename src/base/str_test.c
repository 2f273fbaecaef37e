/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <string.h>
#include "base/str.h"

static void assert_safe(const char *in, const char *want)
{
        pv_auto_str b = { 0 };
        pv_str_put_safe(&b, in);
        assert_string_equal(b.s, want);
}

static void terminal_escapes_become_text(void **state)
{
        assert_safe("plain name.c", "plain name.c");
        assert_safe("a\033[2Jb", "a\\x1b[2Jb");
        assert_safe("a\nb\tc\\d\r", "a\\nb\\tc\\\\d\\x0d");
        assert_safe("\x7f", "\\x7f");
        assert_safe("\xc2\x9b"
                    "31m",
                    "\\xc2\\x9b31m"); /* C1 CSI in UTF-8 */
        assert_safe("\x9b", "\\x9b");
        assert_safe("caf\xc3\xa9", "caf\xc3\xa9");
        assert_safe("\xe2\x80\xae"
                    "txt",
                    "\\xe2\\x80\\xaetxt");              /* right-to-left override */
        assert_safe("\xc0\xaf", "\\xc0\\xaf");          /* overlong */
        assert_safe("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* surrogate */
        assert_safe("\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80");
        assert_safe("", "");
}

static void what_is_shown_as_nothing_becomes_text(void **state)
{
        assert_safe("a\xe2\x80\x8b", "a\\xe2\\x80\\x8b"); /* zero-width space */
        assert_safe("a\xef\xb8\x80", "a\\xef\\xb8\\x80"); /* variation selector */
        assert_safe("a\xe3\x85\xa4", "a\\xe3\\x85\\xa4"); /* Hangul filler */
        assert_safe("a\xcd\x8f", "a\\xcd\\x8f");          /* combining grapheme joiner */
        assert_safe("a\xe3\x80\x80 ", "a\xe3\x80\x80 ");  /* blanks are part of a text */
}

static void assert_path(const char *in, const char *want)
{
        pv_auto_str b = { 0 };
        pv_str_put_path(&b, in);
        assert_string_equal(b.s, want);
}

static void blanks_in_a_path_can_be_told(void **state)
{
        assert_path("a b/c", "a b/c");
        assert_path("README.md ", "README.md\\x20");
        assert_path(" a/ b /c", "\\x20a/\\x20b\\x20/c");
        assert_path(" ", "\\x20");
        assert_path("a\xc2\xa0"
                    "b",
                    "a\\xc2\\xa0b"); /* no-break space */
        assert_path("a\xe3\x80\x80"
                    "b",
                    "a\\xe3\\x80\\x80b"); /* ideographic space */
        assert_path("\xff", "\\xff");
        assert_path("", "");
}

static void sizes_and_durations(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        uint64_t v = 0;
        assert_int_equal(pv_parse_size("512", &v, &e), 0);
        assert_int_equal(v, 512);
        assert_int_equal(pv_parse_size("1.5GiB", &v, &e), 0);
        assert_int_equal(v, 3ULL << 29);
        assert_int_equal(pv_parse_size("4GB", &v, &e), 0);
        assert_int_equal(v, 4000000000ULL);
        assert_int_equal(pv_parse_size("99999999999TB", &v, &e), -1);
        assert_int_equal(pv_parse_size("", &v, &e), -1);
        assert_int_equal(pv_parse_size("-1", &v, &e), -1);
        assert_int_equal(pv_parse_size("5q", &v, &e), -1);
        assert_int_equal(e.kind, PV_ERR_USAGE);
        assert_int_equal(pv_parse_duration("500ms", &v, &e), 0);
        assert_int_equal(v, 500);
        assert_int_equal(pv_parse_duration("2", &v, &e), 0);
        assert_int_equal(v, 2000);
        assert_int_equal(pv_parse_duration("5m", &v, &e), 0);
        assert_int_equal(v, 300000);
        assert_int_equal(pv_parse_duration("36500d", &v, &e), 0);
        assert_int_equal(v, PV_DURATION_MAX_MS);
        assert_int_equal(pv_parse_duration("36501d", &v, &e), -1);
        assert_int_equal(v, PV_DURATION_MAX_MS);
        assert_non_null(strstr(e.msg, "longer than 36500d"));
}

static void vectors_own_their_strings(void **state)
{
        pv_auto_strv v = { 0 };
        pv_strv_add(&v, "a");
        pv_strv_take(&v, pv_strf("%d", 7));
        assert_int_equal(v.n, 2);
        assert_true(pv_strv_has(&v, "7"));
        assert_false(pv_strv_has(&v, "b"));
        assert_null(v.v[2]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(terminal_escapes_become_text), cmocka_unit_test(what_is_shown_as_nothing_becomes_text),
                cmocka_unit_test(blanks_in_a_path_can_be_told), cmocka_unit_test(sizes_and_durations),
                cmocka_unit_test(vectors_own_their_strings),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
