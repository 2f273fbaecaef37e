/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "stage/close.h"

#include <string.h>
#include <sys/stat.h>
#include "base/str.h"

/* a/ becomes b/ with both its files, c becomes d; e stands for itself. */
static struct pv_change items[] = {
        { .path = (char *)"a", .kind = PV_CHANGE_DELETED, .pre.mode = S_IFDIR },
        { .path = (char *)"a/x", .kind = PV_CHANGE_DELETED, .flags = PV_CHANGE_IMPLIED, .pre.mode = S_IFREG },
        { .path = (char *)"a/y", .kind = PV_CHANGE_DELETED, .flags = PV_CHANGE_IMPLIED, .pre.mode = S_IFREG },
        { .path = (char *)"b", .kind = PV_CHANGE_ADDED, .now.mode = S_IFDIR, .renamed_from = (char *)"a" },
        { .path = (char *)"b/x", .kind = PV_CHANGE_ADDED, .now.mode = S_IFREG, .renamed_from = (char *)"a/x" },
        { .path = (char *)"b/y", .kind = PV_CHANGE_ADDED, .now.mode = S_IFREG, .renamed_from = (char *)"a/y" },
        { .path = (char *)"c", .kind = PV_CHANGE_DELETED, .pre.mode = S_IFREG },
        { .path = (char *)"d", .kind = PV_CHANGE_ADDED, .now.mode = S_IFREG, .renamed_from = (char *)"c" },
        { .path = (char *)"e", .kind = PV_CHANGE_MODIFIED, .pre.mode = S_IFREG, .now.mode = S_IFREG },
};
enum { N = sizeof items / sizeof *items };

static bool is_listed(const char *list, const char *path)
{
        pv_auto_free char *spaced = pv_strf(" %s ", list), *word = pv_strf(" %s ", path);
        return strstr(spaced, word) != NULL;
}

/* Selects, bars, closes: the paths selected then and the paths held back, as "a b | c". */
static void check(enum pv_change_kind lone, const char *asked, const char *barred_paths, const char *want)
{
        struct pv_changes c = { .item = items, .n = N };
        struct pv_err err = PV_ERR_INIT;
        bool selected[N], barred[N], held[N];
        const struct pv_halves halves = { .barred = barred, .held = held, .lone = lone };
        pv_auto_str got = { 0 };
        for (size_t i = 0; i < N; i++) {
                barred[i] = is_listed(barred_paths, items[i].path);
                selected[i] = !barred[i] && (pv_streq(asked, "*") || is_listed(asked, items[i].path));
        }
        assert_int_equal(pv_apply_close_selection(&c, selected, &halves, &err), 0);
        for (size_t i = 0; i < N; i++)
                if (selected[i])
                        pv_str_putf(&got, "%s ", items[i].path);
        pv_str_put(&got, "|");
        for (size_t i = 0; i < N; i++)
                if (held[i] && !barred[i])
                        pv_str_putf(&got, " %s", items[i].path);
        assert_string_equal(got.s, want);
}

static void both_halves_go_together(void **state)
{
        check(PV_CHANGE_DELETED, "d", "", "c d |");
        check(PV_CHANGE_ADDED, "c", "", "c d |");
        check(PV_CHANGE_DELETED, "b/x", "", "a a/x a/y b b/x b/y |");
        check(PV_CHANGE_DELETED, "e", "", "e |");
}

static void an_apply_never_deletes_what_it_does_not_publish(void **state)
{
        check(PV_CHANGE_DELETED, "*", "d", "a a/x a/y b b/x b/y e | c");
        check(PV_CHANGE_DELETED, "*", "c", "a a/x a/y b b/x b/y d e |");
        check(PV_CHANGE_DELETED, "*", "b/x", "b b/y c d e | a a/x a/y");
        check(PV_CHANGE_DELETED, "*", "a/x", "b b/x b/y c d e | a a/y");
        check(PV_CHANGE_DELETED, "c", "d", "| c");
}

static void a_drop_never_throws_away_what_stays_deleted(void **state)
{
        check(PV_CHANGE_ADDED, "*", "c", "a a/x a/y b b/x b/y e | d");
        check(PV_CHANGE_ADDED, "*", "d", "a a/x a/y b b/x b/y c e |");
        check(PV_CHANGE_ADDED, "*", "a/x", "c d e | a a/y b b/x b/y");
}

/* What a batch needs is less: the halves are whole changes. */
static void a_batch_needs_no_halves(void **state)
{
        struct pv_changes c = { .item = items, .n = N };
        bool selected[N] = { [4] = true, [6] = true };
        pv_close_over_needs(&c, selected);
        for (size_t i = 0; i < N; i++)
                assert_int_equal(selected[i], i == 3 || i == 4 || i == 6);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(both_halves_go_together),
                cmocka_unit_test(an_apply_never_deletes_what_it_does_not_publish),
                cmocka_unit_test(a_drop_never_throws_away_what_stays_deleted),
                cmocka_unit_test(a_batch_needs_no_halves),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
