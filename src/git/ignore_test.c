/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "git/classify.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "git/ask.h"
#include "git/test_runner.h"

struct one {
        const char *path;
        enum pv_path_kind kind;
        mode_t type;      /* S_IFREG when 0 */
        const char *fold; /* NULL: not ignored */
};

static void ask(const char *root, const struct one *one, size_t n)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_test_runner t = { "/view", root, 0 };
        struct pv_git_runner runner = pv_test_runner(&t);
        pv_auto_free struct pv_path_change *c = pv_calloc(n, sizeof *c);
        pv_auto_free struct pv_verdict *v = pv_calloc(n, sizeof *v);
        for (size_t i = 0; i < n; i++) {
                mode_t mode = (one[i].type ? one[i].type : S_IFREG) | 0644;
                c[i] = (struct pv_path_change){ .root_view = "/view",
                                                .path = one[i].path,
                                                .kind = one[i].kind,
                                                .old_mode = one[i].kind == PV_PATH_ADDED ? 0 : mode,
                                                .new_mode = one[i].kind == PV_PATH_DELETED ? 0 : mode };
        }
        pv_classify(c, n, NULL, v);
        bool asked = false;
        assert_int_equal(pv_ignore_ask(&runner, "/view", c, n, v, NULL, &asked, &err), 0);
        assert_true(asked);
        for (size_t i = 0; i < n; i++) {
                if (v[i].ignored != (one[i].fold != NULL))
                        fail_msg("%s is %signored", one[i].path, v[i].ignored ? "" : "not ");
                if (one[i].fold && v[i].ignored_len != strlen(one[i].fold))
                        fail_msg("%s is folded into %zu bytes", one[i].path, v[i].ignored_len);
        }
        assert_in_range(t.runs, 1, 4);
}

static void rules_of_git(void **state)
{
        static const struct one cases[] = {
                { ".gitignore", PV_PATH_MODIFIED, 0, NULL },
                { ":odd", PV_PATH_ADDED, 0, NULL },
                { "a\nb.o", PV_PATH_ADDED, 0, "a\nb.o" },
                { "build", PV_PATH_DELETED, S_IFDIR, "build" },
                { "build/x", PV_PATH_DELETED, 0, "build" },
                { "node_modules", PV_PATH_ADDED, S_IFDIR, "node_modules" },
                { "node_modules/a", PV_PATH_ADDED, S_IFDIR, "node_modules" },
                { "node_modules/a/i.js", PV_PATH_ADDED, 0, "node_modules" },
                { "p/q/node_modules/z", PV_PATH_ADDED, 0, "p/q/node_modules" },
                { "src/forced.o", PV_PATH_MODIFIED, 0, NULL },
                { "src/keep.o", PV_PATH_ADDED, 0, NULL },
                { "src/old.o", PV_PATH_MODIFIED, 0, "src/old.o" },
                { "src/x.c", PV_PATH_MODIFIED, 0, NULL },
                { "src/x.o", PV_PATH_ADDED, 0, "src/x.o" },
                { "sub/local", PV_PATH_ADDED, 0, "sub/local" },
        };
        char *dir = pv_test_dir_new();
        pv_test_sh(dir, "git init -q; printf 'node_modules/\\nbuild/\\n*.o\\n!keep.o\\n' >.gitignore;"
                        "mkdir -p src sub node_modules/a p/q/node_modules;"
                        "touch src/x.o src/keep.o src/forced.o src/old.o node_modules/a/i.js p/q/node_modules/z;"
                        "printf '/local\\n' >sub/.gitignore; git add -f src/forced.o; git add .; git commit -qm 1");
        ask(dir, cases, sizeof cases / sizeof *cases);
        pv_test_dir_remove(dir);
}

static void paths_that_git_dies_of_do_not_hide_others(void **state)
{
        static const struct one cases[] = {
                { "a.o", PV_PATH_ADDED, 0, "a.o" },
                { "l/x.o", PV_PATH_ADDED, 0, NULL }, /* beyond a link that nobody told of */
                { "sub/x.o", PV_PATH_MODIFIED, 0, "sub/x.o" },
                { "z.o", PV_PATH_ADDED, 0, "z.o" },
        };
        char *dir = pv_test_dir_new();
        pv_test_sh(dir, "git init -q; echo '*.o' >.gitignore; ln -s . l; git init -q sub;"
                        "cd sub; git commit -q --allow-empty -m 1; cd ..; git add -f sub 2>/dev/null; touch sub/x.o;"
                        "git commit -qm 1");
        ask(dir, cases, sizeof cases / sizeof *cases);
        pv_test_dir_remove(dir);
}

static void no_repository_ignores_nothing(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        char *dir = pv_test_dir_new();
        struct pv_test_runner t = { "/view", dir, 0 };
        struct pv_git_runner runner = pv_test_runner(&t);
        struct pv_path_change c = { .root_view = "/view", .path = "a.o", .new_mode = S_IFREG | 0644 };
        struct pv_verdict v = { 0 };
        bool asked = true;
        assert_int_equal(pv_ignore_ask(&runner, "/view", &c, 1, &v, NULL, &asked, &err), 0);
        assert_false(asked);
        assert_false(v.ignored);
        pv_test_dir_remove(dir);
}

static void hooks_paths(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        char *dir = pv_test_dir_new();
        struct pv_test_runner t = { "/view", dir, 0 };
        struct pv_git_runner runner = pv_test_runner(&t);
        struct pv_configured c = { 0 };
        pv_test_sh(dir, "git init -q; git config core.hooksPath tools/../.hooks");
        assert_int_equal(pv_configured_ask(&runner, dir, &c, &err), 0);
        assert_int_equal(c.hooks.n, 1);
        assert_string_equal(c.hooks.v[0], ".hooks");
        pv_test_sh(dir, "git config core.hooksPath /somewhere/else");
        assert_int_equal(pv_configured_ask(&runner, dir, &c, &err), 0);
        assert_int_equal(c.hooks.n, 1);
        pv_configured_fini(&c);
        pv_test_dir_remove(dir);
}

static void what_is_configured(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        char *dir = pv_test_dir_new();
        struct pv_test_runner t = { "/view", dir, 0 };
        struct pv_git_runner runner = pv_test_runner(&t);
        struct pv_configured c = { 0 };
        pv_test_sh(dir,
                   "git init -q; git config include.path ../tools/more; git config alias.x '!sh tools/x.sh \"$@\"';"
                   "git config filter.a.b.clean \"python3 'tools/clean.py' %f\"; git config user.name tools/name;"
                   "mkdir tools; printf '[core]\\nfsmonitor = ./tools/../fs.sh\\n' >tools/more");
        assert_int_equal(pv_configured_ask(&runner, dir, &c, &err), 0);
        assert_int_equal(c.files.n, 1);
        assert_string_equal(c.files.v[0], "tools/more");
        assert_true(pv_strv_has(&c.programs, "tools/x.sh"));
        assert_true(pv_strv_has(&c.programs, "tools/clean.py"));
        assert_true(pv_strv_has(&c.programs, "fs.sh"));
        assert_false(pv_strv_has(&c.programs, "tools/name"));
        pv_configured_fini(&c);
        pv_test_dir_remove(dir);
}

/* What the script says behind an answer. The caller's. */
static char *end_of_answer(char *const argv[], int exit_code)
{
        const char *mark = strstr(argv[2], "printf '") + strlen("printf '\\n");
        return pv_strf("\n%.*s %d\n", (int)strcspn(mark, " "), mark, exit_code);
}

/* The time was up with the first question. */
static int dear(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
                size_t *out_len, int *exit_code, struct pv_err *err)
{
        *out = end_of_answer(argv, PV_GIT_TOO_DEAR);
        *out_len = strlen(*out);
        *exit_code = 0;
        return 0;
}

static void a_configuration_that_is_dear_is_no_missing_repository(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_git_runner runner = { dear, NULL };
        struct pv_path_change c = { .root_view = "/w", .path = "a.o", .new_mode = S_IFREG | 0644 };
        struct pv_verdict v = { 0 };
        struct pv_configured configured = { 0 };
        bool asked = false;
        assert_int_equal(pv_ignore_ask(&runner, "/w", &c, 1, &v, &configured, &asked, &err), -1);
        assert_non_null(strstr(err.msg, "its configuration takes too long"));
        assert_false(asked);
}

/* As much of it as an answer may have. */
static int talkative(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
                     size_t *out_len, int *exit_code, struct pv_err *err)
{
        enum { WORDS = 300000 };
        pv_auto_str text = { 0 };
        pv_auto_free char *line = end_of_answer(argv, 0);
        pv_str_put(&text, "/w/hooks\n");
        pv_str_put(&text, line);
        pv_str_put_bytes(&text, "file:.git/config\0alias.x\n", sizeof "file:.git/config\0alias.x\n" - 1);
        for (unsigned i = WORDS; i > 0; i--)
                pv_str_putf(&text, "w%x w%x ", i, i);
        pv_str_putc(&text, '\0');
        pv_str_put(&text, line);
        *out_len = text.len;
        *out = pv_str_steal(&text);
        *exit_code = 0;
        return 0;
}

static void many_words_take_no_time(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_git_runner runner = { talkative, NULL };
        struct pv_configured c = { 0 };
        (void)alarm(60); /* it takes less than one second; each word compared with all before takes minutes */
        assert_int_equal(pv_configured_ask(&runner, "/w", &c, &err), 0);
        (void)alarm(0);
        assert_int_equal(c.programs.n, 300000);
        assert_true(pv_configured_has(&c.programs, "w1") && pv_configured_has(&c.programs, "w493e0"));
        assert_false(pv_configured_has(&c.programs, "w493e1"));
        assert_true(pv_configured_has(&c.hooks, "hooks"));
        pv_configured_fini(&c);
}

static int hostile(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
                   size_t *out_len, int *exit_code, struct pv_err *err)
{
        static const char answer[] = "x\0001\0*\0./other\0x\0001";
        *out = pv_calloc(1, sizeof answer);
        memcpy(*out, answer, sizeof answer);
        *out_len = sizeof answer - 1;
        *exit_code = 0;
        return 0;
}

static void an_answer_of_another_form_ignores_nothing(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_git_runner runner = { hostile, NULL };
        struct pv_path_change c[] = { { .root_view = "/w", .path = "a.o", .new_mode = S_IFREG | 0644 },
                                      { .root_view = "/w", .path = "b.o", .new_mode = S_IFREG | 0644 } };
        struct pv_verdict v[2] = { 0 };
        bool asked = false;
        assert_int_equal(pv_ignore_ask(&runner, "/w", c, 2, v, NULL, &asked, &err), 0);
        assert_false(v[0].ignored || v[1].ignored);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(rules_of_git),
                cmocka_unit_test(paths_that_git_dies_of_do_not_hide_others),
                cmocka_unit_test(no_repository_ignores_nothing),
                cmocka_unit_test(hooks_paths),
                cmocka_unit_test(what_is_configured),
                cmocka_unit_test(many_words_take_no_time),
                cmocka_unit_test(a_configuration_that_is_dear_is_no_missing_repository),
                cmocka_unit_test(an_answer_of_another_form_ignores_nothing),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
