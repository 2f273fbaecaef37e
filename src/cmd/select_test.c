/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "cmd/select.h"

#include <string.h>
#include <sys/stat.h>

static void globs(void **state)
{
        static const struct {
                const char *glob, *path;
                bool matches;
        } cases[] = {
                { "*.py", "a/b/x.py", true },
                { "*.py", "a/b/x.pyc", false },
                { "x", "a/x/y", true }, /* a directory stands for what is below it */
                { "x/", "a/x/y", true },
                { "src/*.c", "src/a.c", true },
                { "src/*.c", "src/b/a.c", false },
                { "src/**/a.c", "src/a.c", true },
                { "src/**/a.c", "src/b/c/a.c", true },
                { "**/a.c", "a.c", true },
                { "src/**", "src/b/c", true },
                { "src/**", "src", false },
                { "/a.c", "b/a.c", false },
                { "/a.c", "a.c", true },
                { "src", "src/a", true },
                { "sr", "src/a", false },
                { "a[0-9]", "a7", true },
                { "a?", "ab", true },
                { "a?b", "a/b", false },
                { "*", ".hidden", true },
                { "a\\*", "a*", true },
                { "a\\*", "ab", false },
                { "", "a", false },
                { "**", "a/b", true },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                if (pv_glob_matches(cases[i].glob, cases[i].path) != cases[i].matches)
                        fail_msg("%s on %s", cases[i].glob, cases[i].path);
}

static const char *const paths[] = {
        ".claude/settings.json",
        ".envrc",
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/objects/ab/cd",
        "build/x.o",
        "src/.envrc",
        "src/a.c",
        "src/b.h",
};
enum { N = sizeof paths / sizeof *paths };

static const struct pv_root root = { .kind = PV_ROOT_WORKSPACE,
                                     .target = (char *)"/home/u/w",
                                     .view = (char *)"/home/u/w" };

/* Runs a selection from cwd; wanted is a letter a path: '+' selected, else the reason: n e h i g. */
static void check(const struct pv_select *sel, const char *cwd, const char *wanted)
{
        static const char letter[PV_LEFTS] = { '+', 'n', 'e', 'h', 'i', 'g' };
        struct pv_path_change c[N];
        struct pv_verdict v[N] = { 0 };
        const struct pv_root *roots[] = { &root };
        enum pv_left left[N];
        char got[N + 1] = "";
        struct pv_err err = PV_ERR_INIT;
        for (size_t i = 0; i < N; i++)
                c[i] = (struct pv_path_change){ .root_view = root.view, .path = paths[i], .new_mode = S_IFREG | 0644 };
        pv_classify(c, N, NULL, v);
        v[5].ignored = true;
        v[5].ignored_len = strlen("build");
        struct pv_verdicts all = { .n = N, .change = c, .item = v, .root = roots, .n_roots = 1 };
        if (pv_select_run(sel, &all, cwd, left, &err) < 0)
                fail_msg("%s", err.msg);
        for (size_t i = 0; i < N; i++)
                got[i] = letter[left[i]];
        assert_string_equal(got, wanted);
}

static struct pv_strv list(const char *one)
{
        struct pv_strv v = { 0 };
        pv_strv_add(&v, one);
        return v;
}

static void check_path(const char *path, const char *cwd, const char *wanted)
{
        struct pv_select sel = { .path = list(path) };
        check(&sel, cwd, wanted);
        pv_select_fini(&sel);
}

static void all_leaves_what_runs_by_itself(void **state)
{
        struct pv_select sel = { .all = true };
        check(&sel, "/", "hhgggih++");
        sel.ignored = true;
        check(&sel, "/", "hhggg+h++");
        sel.git_raw = true;
        check(&sel, "/", "hh++++h++");
        sel = (struct pv_select){ .all = true, .everything = true };
        check(&sel, "/", "+++++++++");
}

static void naming_takes(void **state)
{
        check_path(".claude", "/", "+nnnnnnnn");
        check_path(".claude/settings.json", "/", "+nnnnnnnn");
        check_path("/home/u/w/.envrc", "/", "n+nnnnnnn");
        check_path(".git/hooks", "/", "nnn+nnnnn");
        check_path(".git/config", "/", "nn+nnnnnn");
        check_path(".git", "/", "nngggnnnn");
        check_path(".git/objects", "/", "nnnngnnnn");
        check_path("build", "/", "nnnnn+nnn");
        check_path(".", "/home/u/w", "hhgggih++");
        check_path("src", "/home/u", "nnnnnnh++");
        struct pv_select sel = { .include = list(".envrc") };
        check(&sel, "/", "n+nnnn+nn");
        pv_select_fini(&sel);
}

static void paths_are_relative_to_where_one_stands(void **state)
{
        check_path("a.c", "/home/u/w/src", "nnnnnnn+n");
        check_path("src/a.c", "/home/u/w/src", "nnnnnnn+n"); /* from the workspace, since nothing is there */
        check_path("../build", "/home/u/w/src", "nnnnn+nnn");
        check_path("src/", "/tmp", "nnnnnnh++");
}

static void include_and_exclude(void **state)
{
        struct pv_select sel = { .include = list("*.c") };
        check(&sel, "/", "nnnnnnn+n");
        pv_select_fini(&sel);
        sel = (struct pv_select){ .all = true, .exclude = list("src/*.h") };
        check(&sel, "/", "hhgggih+e");
        pv_select_fini(&sel);
        sel = (struct pv_select){ .path = list("src"), .include = list("*.h") };
        check(&sel, "/", "nnnnnnnn+");
        pv_select_fini(&sel);
}

static void what_names_nothing_is_an_error(void **state)
{
        struct pv_path_change c = { .root_view = "/w", .path = "src/main.c" };
        struct pv_verdict v = { 0 };
        const struct pv_root *roots[] = { &root };
        struct pv_verdicts all = { .n = 1, .change = &c, .item = &v, .root = roots, .n_roots = 1 };
        struct pv_err err = PV_ERR_INIT;
        enum pv_left left;
        struct pv_select sel = { 0 };
        assert_int_equal(pv_select_run(&sel, &all, "/", &left, &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
        sel.path = list("src/mian.c");
        assert_int_equal(pv_select_run(&sel, &all, "/", &left, &err), -1);
        assert_string_equal(err.msg, "src/mian.c: nothing changed there");
        assert_string_equal(err.hint, "did you mean src/main.c?");
        pv_select_fini(&sel);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(globs),
                cmocka_unit_test(all_leaves_what_runs_by_itself),
                cmocka_unit_test(naming_takes),
                cmocka_unit_test(paths_are_relative_to_where_one_stands),
                cmocka_unit_test(include_and_exclude),
                cmocka_unit_test(what_names_nothing_is_an_error),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
