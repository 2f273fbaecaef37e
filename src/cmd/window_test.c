/* SPDX-License-Identifier: Apache-2.0 */
/* What `attach` makes of keys and of output: keys.h, modes.h. */
#include "base/test.h"

#include <string.h>
#include "cmd/keys.h"
#include "cmd/modes.h"

static struct pv_keys keys(const char *text)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_keys k;
        if (pv_keys_parse(text, &k, &err) < 0)
                fail_msg("%s", err.msg);
        return k;
}

/* Types in pieces of one byte and as a whole: the same goes on. */
static void assert_typed(const char *sequence, const char *typed, bool leaves, const char *goes_on)
{
        for (size_t piece = 1; piece <= strlen(typed) + 1; piece++) {
                struct pv_keys k = keys(sequence);
                pv_auto_str out = { 0 };
                bool left = false;
                for (size_t at = 0; at < strlen(typed) && !left; at += piece) {
                        size_t n = strlen(typed) - at < piece ? strlen(typed) - at : piece;
                        left = pv_keys_see(&k, typed + at, n, &out);
                }
                assert_int_equal(left, leaves);
                assert_string_equal(out.s ? out.s : "", goes_on);
        }
}

static void keys_are_taken_out(void **state)
{
        assert_typed("ctrl-p,ctrl-q", "abc", false, "abc");
        assert_typed("ctrl-p,ctrl-q", "a\x10\x11rest", true, "a");
        assert_typed("ctrl-p,ctrl-q", "\x10x", false, "\x10x");
        assert_typed("ctrl-p,ctrl-q", "\x10\x10\x11", true, "\x10");
        assert_typed("a,a,b", "aaab", true, "a");
        assert_typed("a,b,a,b,c", "ababab", false, "ab");
        assert_typed("d", "d", true, "");
        assert_typed("", "\x10\x11", false, "\x10\x11");
}

static void key_names_are_judged(void **state)
{
        static const char *const wrong[] = { "ctrl-", "ctrl-pq", "esc", "a,,b", "ctrl-1", "a b" };
        struct pv_err err = PV_ERR_INIT;
        struct pv_keys k = keys("ctrl-@,ctrl-[,ctrl-\\,x");
        assert_int_equal(k.n, 4);
        assert_memory_equal(k.key,
                            "\x00\x1b\x1c"
                            "x",
                            4);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
                assert_int_equal(pv_keys_parse(wrong[i], &k, &err), -1);
        assert_int_equal(pv_keys_parse("a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", &k, &err), -1);
}

static void assert_modes(const char *said, const char *set, const char *undo)
{
        for (size_t piece = 1; piece <= strlen(said); piece++) {
                struct pv_modes m = { 0 };
                pv_auto_str a = { 0 };
                pv_auto_str b = { 0 };
                for (size_t at = 0; at < strlen(said); at += piece)
                        pv_modes_see(&m, said + at, strlen(said) - at < piece ? strlen(said) - at : piece);
                pv_modes_put(&m, &a);
                pv_modes_put_undo(&m, &b);
                assert_string_equal(a.s ? a.s : "", set);
                assert_string_equal(b.s, undo);
        }
}

static void modes_are_found_wherever_they_are_cut(void **state)
{
        assert_modes("plain", "", "\033[0m");
        assert_modes("x\033[?1049hy\033[31mz", "\033[?1049h", "\033[?1049l\033[0m");
        assert_modes("\033[?1049h\033[?1049l", "", "\033[0m");
        assert_modes("\033[?25l", "\033[?25l", "\033[?25h\033[0m");
        assert_modes("\033[?25l\033[?25h", "", "\033[0m");
        assert_modes("\033[?1000;1006h\033=", "\033[?1000h\033[?1006h\033=", "\033[?1000l\033[?1006l\033>\033[0m");
        assert_modes("\033[?1049h\033c", "", "\033[0m");
        assert_modes("\033[>1u\033[>5u\033[>4;2m", "\033[>4;2m\033[>5u\033[>5u", "\033[>4;0m\033[<2u\033[0m");
        assert_modes("\033[>1u\033[<u\033[<9u\033[>4;2m\033[>4;0m", "", "\033[0m");
        assert_modes("\033[>1049h", "", "\033[0m");
        assert_modes("\033[?\033[?2004h", "\033[?2004h", "\033[?2004l\033[0m");
}

static void hostile_output_stays_within_bounds(void **state)
{
        struct pv_modes m = { 0 };
        pv_auto_str out = { 0 };
        for (unsigned i = 0; i < 5000; i++) {
                pv_auto_free char *s = pv_strf("\033[?%u;%u;99999999999999999999h", i + 100, i * 7);
                pv_modes_see(&m, s, strlen(s));
        }
        for (int i = 0; i < 1000; i++)
                pv_modes_see(&m, ";1", 2);
        pv_modes_put(&m, &out);
        assert_int_equal(m.n_set, PV_MODES_MAX);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(keys_are_taken_out),
                cmocka_unit_test(key_names_are_judged),
                cmocka_unit_test(modes_are_found_wherever_they_are_cut),
                cmocka_unit_test(hostile_output_stays_within_bounds),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
