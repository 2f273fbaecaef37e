/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test_dir.h"

#include <stdlib.h>
#include <string.h>
#include "base/path.h"
#include "policy/gitperson.h"

static char home[] = "/tmp/pv-gitperson-XXXXXX";

static void put(const char *rel, const char *text)
{
        free(pv_test_dir_put(home, rel, text, 0600));
}

static void expect(const char *git_dir, const char *name, const char *email)
{
        pv_auto_gitperson p = { 0 };
        pv_gitperson_read(home, NULL, git_dir, &p);
        assert_string_equal(p.name ? p.name : "(none)", name);
        assert_string_equal(p.email ? p.email : "(none)", email);
}

static void test_files_in_gits_order(void **state)
{
        expect(NULL, "(none)", "(none)");
        put(".config/git/config", "[user]\n name = general\n email = g@x\n");
        expect(NULL, "general", "g@x");
        put(".gitconfig", "[user]\n name = own\n[include]\n path = inc\n[include]\n path = no/such\n");
        put("inc", "[user]\n email = \"i@x\" # where\n[include]\n path = inc\n"); /* includes itself: ends */
        expect(NULL, "own", "i@x");
        pv_auto_gitperson p = { 0 };
        pv_gitperson_read(home, NULL, NULL, &p);
        assert_int_equal(p.includes.n, 1);
}

static void test_conditions(void **state)
{
        static const struct {
                const char *condition, *git_dir;
                bool holds;
        } cases[] = {
                { "gitdir:/w/", "/w/a/.git", true },
                { "gitdir:/w/", "/wide/.git", false },
                { "gitdir:/w/a/.git", "/w/a/.git", true },
                { "gitdir:/w/*/.git", "/w/a/.git", true },
                { "gitdir:/w/*/.git", "/w/a/b/.git", false },
                { "gitdir:/w/**/.git", "/w/a/b/.git", true },
                { "gitdir:/w/**/.git", "/w/.git", true },
                { "gitdir:a/", "/w/a/b/.git", true },
                { "gitdir:a/", "/w/ab/.git", false },
                { "gitdir:/W/", "/w/a/.git", false },
                { "gitdir/i:/W/", "/w/a/.git", true },
                { "gitdir:/w/?/.git", "/w/a/.git", true },
                { "gitdir:/w/a", NULL, false },
                { "onbranch:main", "/w/a/.git", false },
                { "gitdir:", "/w/a/.git", false },
        };
        put(".config/git/config", "");
        put("inc", "[user]\n name = other\n");
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                pv_auto_free char *text =
                        pv_strf("[user]\n name = own\n[includeIf \"%s\"]\n path = inc\n", cases[i].condition);
                put(".gitconfig", text);
                expect(cases[i].git_dir, cases[i].holds ? "other" : "own", "(none)");
        }
        put(".gitconfig", "[includeIf \"gitdir:~/p/\"]\n path = inc\n");
        pv_auto_free char *git_dir = pv_path_join(home, "p/q/.git");
        expect(git_dir, "other", "(none)");
}

static void test_ignores(void **state)
{
        put(".gitconfig", "");
        put(".config/git/ignore", "*~\n");
        pv_auto_gitperson usual = { 0 }, named = { 0 };
        pv_gitperson_read(home, NULL, NULL, &usual);
        assert_true(pv_str_has_suffix(usual.excludes, "/.config/git/ignore"));
        put(".gitconfig", "[core]\n excludesFile = ~/mine\n");
        pv_gitperson_read(home, NULL, NULL, &named);
        assert_true(pv_str_has_suffix(named.excludes, "/mine"));
}

/* A pattern as bad as can be ends, and soon. */
static void test_patterns_that_would_take_for_ever(void **state)
{
        pv_auto_str text = { 0 };
        pv_str_put(&text, "[includeIf \"gitdir:/");
        for (int i = 0; i < 200; i++)
                pv_str_put(&text, "*a**/");
        pv_str_put(&text, "\"]\n path = inc\n");
        put(".gitconfig", text.s);
        expect("/aaaaaaaaaaaaaaaaaaaaaaaaaaaa/aaaaaaaaaaaaaaaa/.git", "(none)", "(none)");
}

static int make(void **state)
{
        return pv_test_dir_make(home);
}

static int clear(void **state)
{
        return pv_test_dir_remove(home);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_files_in_gits_order),
                cmocka_unit_test(test_conditions),
                cmocka_unit_test(test_ignores),
                cmocka_unit_test(test_patterns_that_would_take_for_ever),
        };
        return cmocka_run_group_tests(tests, make, clear);
}
