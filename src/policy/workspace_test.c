/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>
#include "base/path.h"
#include "policy/workspace.h"

static char top[PATH_MAX]; /* a temporary directory, real path */

static char *at(const char *rel)
{
        return pv_path_join(top, rel);
}

static void make_dir(const char *rel)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *path = at(rel);
        assert_int_equal(pv_path_make_dirs(path, 0755, &err), 0);
}

static void write_file(const char *rel, const char *text)
{
        pv_auto_free char *path = at(rel);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

static void make_git_dir(const char *rel)
{
        pv_auto_free char *objects = pv_path_join(rel, "objects"), *refs = pv_path_join(rel, "refs");
        pv_auto_free char *head = pv_path_join(rel, "HEAD");
        make_dir(objects);
        make_dir(refs);
        write_file(head, "ref: refs/heads/main\n");
}

static void stand_in(const char *rel)
{
        pv_auto_free char *path = at(rel);
        assert_int_equal(chdir(path), 0);
}

static struct pv_workspace find(const char *dir, const char *pwd, const char *home)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_workspace w = { 0 };
        assert_int_equal(pv_workspace_find(dir, pwd, home, &w, &err), 0);
        return w;
}

static void assert_at(const char *path, const char *rel)
{
        pv_auto_free char *expected = at(rel);
        assert_non_null(path);
        assert_string_equal(path, expected);
}

static void test_plain_directory(void **state)
{
        make_dir("plain/deep");
        stand_in("plain/deep");
        pv_auto_workspace w = find(NULL, NULL, NULL);
        assert_at(w.path, "plain/deep");
        assert_false(w.is_git);
}

static void test_git_top_level(void **state)
{
        make_git_dir("repo/.git");
        make_dir("repo/a/b");
        stand_in("repo/a/b");
        pv_auto_workspace w = find(NULL, NULL, NULL);
        assert_at(w.path, "repo");
        assert_at(w.cwd, "repo/a/b");
        assert_true(w.is_git);
        assert_null(w.git_dir);
        stand_in("repo/.git/refs");
        pv_auto_workspace inside = find(NULL, NULL, NULL);
        assert_at(inside.path, "repo");
}

static void test_broken_git_dir_is_none(void **state)
{
        make_dir("broken/.git");
        make_dir("broken/a");
        stand_in("broken/a");
        pv_auto_workspace w = find(NULL, NULL, NULL);
        assert_at(w.path, "broken/a");
}

static void test_bare_repository(void **state)
{
        make_git_dir("bare.git");
        make_dir("bare.git/refs/heads");
        stand_in("bare.git/refs/heads");
        pv_auto_workspace w = find(NULL, NULL, NULL);
        assert_at(w.path, "bare.git");
        assert_true(w.is_git);
}

static void test_worktree(void **state)
{
        make_git_dir("main/.git");
        make_dir("main/.git/worktrees/wt");
        make_dir("wt");
        write_file("main/.git/worktrees/wt/HEAD", "ref: refs/heads/wt\n");
        write_file("main/.git/worktrees/wt/commondir", "../..\n");
        pv_auto_free char *back = at("wt/.git"), *text = pv_strf("gitdir: %s/main/.git/worktrees/wt\n", top);
        write_file("main/.git/worktrees/wt/gitdir", back);
        write_file("wt/.git", text);
        stand_in("wt");
        pv_auto_workspace w = find(NULL, NULL, NULL);
        assert_at(w.path, "wt");
        assert_at(w.git_dir, "main/.git");
        assert_null(w.git_stray);
}

static void test_submodule(void **state)
{
        make_git_dir("super/.git");
        make_git_dir("super/.git/modules/sub");
        make_dir("super/sub/x");
        write_file("super/.git/modules/sub/config", "[core]\n\tbare = false\n\tworktree = ../../../sub\n");
        write_file("super/sub/.git", "gitdir: ../.git/modules/sub\n");
        stand_in("super/sub/x");
        pv_auto_workspace w = find(NULL, NULL, NULL);
        assert_at(w.path, "super/sub");
        assert_at(w.git_dir, "super/.git/modules/sub");
        stand_in("super");
        pv_auto_workspace whole = find(NULL, NULL, NULL);
        assert_at(whole.path, "super");
        assert_null(whole.git_dir);
}

/* A command of an earlier run wrote .git so as to see somebody else's repository: nothing opens. */
static void test_forged_git_file(void **state)
{
        make_git_dir("private/.git");
        make_dir("forged");
        write_file("forged/.git", "gitdir: ../private/.git\n");
        stand_in("forged");
        pv_auto_workspace w = find(NULL, NULL, NULL);
        assert_at(w.path, "forged");
        assert_null(w.git_dir);
        assert_at(w.git_stray, "private/.git");
}

static void test_home_is_no_workspace_from_below(void **state)
{
        make_git_dir("home/.git");
        make_dir("home/project");
        stand_in("home/project");
        pv_auto_free char *home = at("home");
        pv_auto_workspace w = find(NULL, NULL, home);
        assert_at(w.path, "home/project");
        assert_true(w.home_skipped);
        stand_in("home");
        pv_auto_workspace self = find(NULL, NULL, home);
        assert_at(self.path, "home");
        assert_false(self.home_skipped);
}

static void test_logical_directory(void **state)
{
        make_dir("real/inner");
        pv_auto_free char *link = at("link"), *target = at("real");
        assert_int_equal(symlink(target, link), 0);
        stand_in("link/inner");
        pv_auto_free char *pwd = at("link/inner"), *wrong = at("plain");
        pv_auto_workspace w = find(NULL, pwd, NULL);
        assert_at(w.cwd, "real/inner");
        assert_at(w.logical, "link/inner");
        pv_auto_workspace lie = find(NULL, wrong, NULL);
        assert_null(lie.logical);
}

static void test_named(void **state)
{
        make_dir("named");
        stand_in("plain");
        pv_auto_free char *dir = at("named"), *missing = at("missing");
        pv_auto_workspace w = find(dir, NULL, NULL);
        assert_at(w.path, "named");
        assert_at(w.cwd, "named");
        struct pv_workspace none = { 0 };
        struct pv_err err = PV_ERR_INIT;
        assert_int_equal(pv_workspace_find(missing, NULL, NULL, &none, &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
}

static int set_up(void **state)
{
        char template[] = "/tmp/pv-workspace-XXXXXX";
        return mkdtemp(template) && realpath(template, top) ? 0 : -1;
}

static int tear_down(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        return chdir("/") < 0 ? -1 : pv_path_remove_tree(AT_FDCWD, top, &err);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_plain_directory),
                cmocka_unit_test(test_git_top_level),
                cmocka_unit_test(test_broken_git_dir_is_none),
                cmocka_unit_test(test_bare_repository),
                cmocka_unit_test(test_worktree),
                cmocka_unit_test(test_submodule),
                cmocka_unit_test(test_forged_git_file),
                cmocka_unit_test(test_home_is_no_workspace_from_below),
                cmocka_unit_test(test_logical_directory),
                cmocka_unit_test(test_named),
        };
        return cmocka_run_group_tests(tests, set_up, tear_down);
}
