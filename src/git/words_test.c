/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "git/words.h"

#include <string.h>
#include <sys/stat.h>
#include "git/test_runner.h"

/* Two copies of a repository: what the host has, and what a command made of it. */
struct pair {
        char *base, *view;
        struct pv_test_runner base_ctx, view_ctx;
        struct pv_git_runner base_runner, view_runner;
        struct pv_git_words words;
};

static const struct pv_git_repo everything = { .refs = true, .head = true, .index = true, .config = true };

static struct pair make(const char *before, const char *after)
{
        struct pair p = { .base = pv_test_dir_new(), .view = pv_test_dir_new() };
        pv_auto_free char *copy = pv_strf("cp -a %s/. .", p.base);
        pv_test_sh(p.base, before);
        pv_test_sh(p.view, copy);
        pv_test_sh(p.view, after);
        return p;
}

static void compare(struct pair *p, const struct pv_git_repo *repo)
{
        p->base_ctx = (struct pv_test_runner){ "/v", p->base, 0 };
        p->view_ctx = (struct pv_test_runner){ "/v", p->view, 0 };
        p->base_runner = pv_test_runner(&p->base_ctx);
        p->view_runner = pv_test_runner(&p->view_ctx);
        pv_git_words_make(&p->view_runner, &p->base_runner, "/v", repo, &p->words);
        if (!p->words.known)
                fail_msg("not known: %s", p->words.why);
}

static void finish(struct pair *p)
{
        pv_git_words_fini(&p->words);
        pv_test_dir_remove(p->base);
        pv_test_dir_remove(p->view);
}

#define COMMIT(text) "git commit -q --allow-empty -m '" text "';"
#define START        "git init -q;" COMMIT("first")

static void commits_per_branch(void **state)
{
        struct pair p = make(
                START COMMIT("second") "git branch old; git branch same",
                COMMIT("third")
                        COMMIT("fourth \033[31mred") "git branch -D -q old; git checkout -q -b feature HEAD~1;" COMMIT(
                                "on feature"));
        compare(&p, &everything);
        assert_int_equal(p.words.n_refs, 3);
        assert_string_equal(p.words.ref[0].name, "refs/heads/feature");
        assert_int_equal(p.words.ref[0].kind, PV_GIT_REF_ADDED);
        assert_int_equal(p.words.ref[0].ahead, 2);
        assert_string_equal(p.words.ref[0].subjects.v[0], "on feature");
        assert_string_equal(p.words.ref[1].name, "refs/heads/main");
        assert_int_equal(p.words.ref[1].kind, PV_GIT_REF_MOVED);
        assert_int_equal(p.words.ref[1].ahead, 2);
        assert_int_equal(p.words.ref[1].behind, 0);
        assert_string_equal(p.words.ref[1].subjects.v[1], "third");
        assert_int_equal(p.words.ref[2].kind, PV_GIT_REF_DELETED);
        assert_string_equal(p.words.head_old, "main");
        assert_string_equal(p.words.head_now, "feature");
        assert_false(p.words.detached);
        finish(&p);
}

static void rewritten_history(void **state)
{
        struct pair p = make(START COMMIT("second"), "git reset -q --hard HEAD~1;" COMMIT("other") COMMIT("more"));
        compare(&p, &everything);
        assert_int_equal(p.words.n_refs, 1);
        assert_int_equal(p.words.ref[0].ahead, 2);
        assert_int_equal(p.words.ref[0].behind, 1);
        finish(&p);
}

static void detached_head_and_tags(void **state)
{
        struct pair p =
                make(START "git tag old", "git checkout -q --detach;" COMMIT("loose") "git tag v1; git tag -d old");
        compare(&p, &everything);
        assert_true(p.words.detached);
        assert_string_equal(p.words.head_old, "main");
        assert_int_equal(p.words.n_refs, 2);
        assert_string_equal(p.words.ref[0].name, "refs/tags/old");
        assert_string_equal(p.words.ref[1].name, "refs/tags/v1");
        assert_int_equal(p.words.ref[1].ahead, 1);
        finish(&p);
}

static void staged_entries(void **state)
{
        struct pair p =
                make(START "echo 1 >kept; git add kept",
                     "echo 2 >new; git add new; echo x >un; git rm -q --cached kept; echo 1 >kept; git add kept");
        compare(&p, &everything);
        assert_int_equal(p.words.n_staged, 1);
        assert_string_equal(p.words.staged.v[0], "A new");
        assert_int_equal(p.words.n_unstaged, 0);
        finish(&p);
}

static void stash_in_words_of_its_own(void **state)
{
        struct pair p = make(START "echo 1 >a; git add a;" COMMIT("a"), "echo 2 >a; git stash push -q -m 'put away'");
        compare(&p, &everything);
        assert_int_equal(p.words.stash_now, 1);
        assert_int_equal(p.words.stash_old, 0);
        assert_string_equal(p.words.stash.v[0], "On main: put away");
        assert_int_equal(p.words.n_refs, 0);
        finish(&p);
}

static void configuration(void **state)
{
        struct pair p = make(START "git config a.same 1; git config a.gone 1; git config a.changed z",
                             "git config --unset a.gone; git config a.changed b; git config core.hooksPath .x;"
                             "git config core.fsmonitor ./evil");
        compare(&p, &everything);
        assert_int_equal(p.words.n_settings, 4);
        assert_string_equal(p.words.setting[0].key, "a.changed");
        assert_string_equal(p.words.setting[0].old, "z");
        assert_string_equal(p.words.setting[0].now, "b");
        assert_string_equal(p.words.setting[1].key, "a.gone");
        assert_null(p.words.setting[1].now);
        assert_string_equal(p.words.setting[2].key, "core.fsmonitor");
        assert_string_equal(p.words.setting[3].key, "core.hookspath");
        finish(&p);
}

static void a_new_repository(void **state)
{
        struct pair p = make("true", START COMMIT("second"));
        struct pv_git_repo repo = { .added = true };
        compare(&p, &repo);
        assert_int_equal(p.words.n_refs, 1);
        assert_int_equal(p.words.ref[0].ahead, 2);
        assert_null(p.words.head_old);
        finish(&p);
}

static void only_what_was_touched_is_asked(void **state)
{
        struct pair p = make(START, "true");
        struct pv_git_repo repo = { .index = true };
        compare(&p, &repo);
        assert_int_equal(p.view_ctx.runs, 1);
        assert_int_equal(p.base_ctx.runs, 1);
        finish(&p);
}

static int no_git(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
                  size_t *out_len, int *exit_code, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_NOT_FOUND, 0, "git");
}

static void without_git_it_says_so(void **state)
{
        struct pv_git_runner runner = { no_git, NULL };
        pv_auto_git_words w = { 0 };
        pv_git_words_make(&runner, &runner, "/v", &everything, &w);
        assert_false(w.known);
        assert_string_equal(w.why, "there is no git in the view");
}

/* Whatever comes back: bounded, parsed, no crash. */
static int garbage(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
                   size_t *out_len, int *exit_code, struct pv_err *err)
{
        unsigned *seed = ctx;
        size_t n = (*seed = *seed * 1103515245 + 12345) % 400;
        *out = pv_calloc(n + 1, 1);
        for (size_t i = 0; i < n; i++) {
                static const char some[] = "\0\n:<>Aaf0123 refs/heads/x";
                *seed = *seed * 1103515245 + 12345;
                (*out)[i] = some[(*seed >> 16) % sizeof some];
        }
        *out_len = n;
        *exit_code = 0;
        return 0;
}

static void garbage_is_survived(void **state)
{
        unsigned seed = 1;
        struct pv_git_runner runner = { garbage, &seed };
        for (int i = 0; i < 300; i++) {
                pv_auto_git_words w = { 0 };
                pv_git_words_make(&runner, &runner, "/v", &everything, &w);
        }
}

static void repositories_are_told_apart(void **state)
{
        struct pv_path_change c[] = {
                { .path = ".git/index", .kind = PV_PATH_MODIFIED, .new_mode = S_IFREG, .size = 5 },
                { .path = ".git/refs/heads/x", .kind = PV_PATH_ADDED, .new_mode = S_IFREG, .size = 41 },
                { .path = ".git/MERGE_HEAD", .kind = PV_PATH_ADDED, .new_mode = S_IFREG },
                { .path = "a.c", .kind = PV_PATH_ADDED, .new_mode = S_IFREG },
                { .path = "v/l/.git", .kind = PV_PATH_ADDED, .new_mode = S_IFDIR },
                { .path = "v/l/.git/HEAD", .kind = PV_PATH_ADDED, .new_mode = S_IFREG },
                { .path = "v/m/.git", .kind = PV_PATH_TYPE, .new_mode = S_IFREG },
        };
        enum { N = sizeof c / sizeof *c };
        struct pv_verdict v[N] = { 0 };
        for (size_t i = 0; i < N; i++)
                c[i].root_view = "/w";
        pv_classify(c, N, NULL, v);
        pv_auto_free struct pv_git_repo *repo = NULL;
        size_t n = 0, more = 0;
        pv_git_repos_find(c, v, N, 2, &repo, &n, &more);
        assert_int_equal(n, 2);
        assert_int_equal(more, 1);
        assert_int_equal(repo[0].path_len, 0);
        assert_int_equal(repo[0].n_files, 3);
        assert_int_equal(repo[0].size, 46);
        assert_true(repo[0].index && repo[0].refs && !repo[0].head && !repo[0].added);
        assert_string_equal(repo[0].operation, "merge");
        assert_int_equal(repo[1].path_len, strlen("v/l"));
        assert_true(repo[1].added && repo[1].head);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(commits_per_branch),
                cmocka_unit_test(rewritten_history),
                cmocka_unit_test(detached_head_and_tags),
                cmocka_unit_test(staged_entries),
                cmocka_unit_test(stash_in_words_of_its_own),
                cmocka_unit_test(configuration),
                cmocka_unit_test(a_new_repository),
                cmocka_unit_test(only_what_was_touched_is_asked),
                cmocka_unit_test(without_git_it_says_so),
                cmocka_unit_test(garbage_is_survived),
                cmocka_unit_test(repositories_are_told_apart),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
