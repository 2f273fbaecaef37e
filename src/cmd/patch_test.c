/* SPDX-License-Identifier: Apache-2.0 */
/* Patches as git itself takes them: each is applied by `git apply` in a directory of its own and compared. */
#include "base/test.h"
#include "cmd/patch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "cmd/quote.h"
#include "cmd/screen.h"
#include "git/test_runner.h"

static void names(void **state)
{
        static const char *const cases[][2] = {
                { "plain.c", "a/plain.c" },
                { "with space", "a/with space" },
                { "tab\there", "\"a/tab\\there\"" },
                { "quote\"back\\slash", "\"a/quote\\\"back\\\\slash\"" },
                { "new\nline", "\"a/new\\nline\"" },
                { "\033[31m", "\"a/\\033[31m\"" },
                { "caf\xc3\xa9", "\"a/caf\\303\\251\"" },
                { "\x7f\x01", "\"a/\\177\\001\"" },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                pv_auto_str b = { 0 };
                pv_quote_name(&b, "a/", cases[i][0]);
                assert_string_equal(b.s, cases[i][1]);
        }
}

static void lines_for_a_terminal(void **state)
{
        static const char line[] = "+\tprintf(\"\\n\");\033]0;title\007\r";
        pv_auto_str b = { 0 };
        pv_put_safe_line(&b, line, sizeof line - 1);
        assert_string_equal(b.s, "+\tprintf(\"\\n\");\\x1b]0;title\\x07\\x0d");
}

static void cut_in_the_middle(void **state)
{
        pv_auto_str b = { 0 };
        pv_put_fitted(&b, "src/caf\xc3\xa9/very/long/path/to/a/file.c", 20);
        assert_int_equal(pv_columns(b.s, b.len), 20);
        assert_string_equal(b.s + b.len - 6, "file.c");
        pv_str_fini(&b);
        pv_put_fitted(&b, "short", 20);
        assert_string_equal(b.s, "short");
}

static struct pv_patch_side side(const char *path, unsigned mode, const char *data)
{
        return (struct pv_patch_side){ .path = path, .mode = mode, .data = data, .len = data ? strlen(data) : 0 };
}

static const struct pv_patch_side nothing = { 0 };

static void put_side(int dir, const struct pv_patch_side *s)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *target = s->data ? pv_strndup(s->data, s->len) : NULL;
        if (!s->path)
                return;
        if (s->mode == 0120000)
                assert_int_equal(symlinkat(target, dir, s->path), 0);
        else
                assert_int_equal(pv_file_write_at(dir, s->path, s->data, s->len, s->mode & 0777, PV_FILE_REPLACE, &err),
                                 0);
}

static void assert_side(int dir, const struct pv_patch_side *s)
{
        struct pv_err err = PV_ERR_INIT;
        struct stat st;
        char target[4096];
        pv_auto_free char *data = NULL;
        size_t len = 0;
        assert_int_equal(fstatat(dir, s->path, &st, AT_SYMLINK_NOFOLLOW), 0);
        if (s->mode == 0120000) {
                ssize_t n = readlinkat(dir, s->path, target, sizeof target);
                assert_int_equal(n, s->len);
                assert_memory_equal(target, s->data, s->len);
                return;
        }
        assert_int_equal((st.st_mode & 0100) != 0, (s->mode & 0100) != 0);
        assert_int_equal(pv_file_read_at(dir, s->path, 1 << 24, &data, &len, &err), 0);
        assert_int_equal(len, s->len);
        if (len)
                assert_memory_equal(data, s->data, len);
}

/* old becomes now by `git apply`; a comment before and behind is passed over. */
static void check(struct pv_patch_side old, struct pv_patch_side now, enum pv_patch_flags flags)
{
        struct pv_err err = PV_ERR_INIT;
        struct stat st;
        pv_auto_patch p = { 0 };
        pv_auto_str text = { 0 };
        char *dir = pv_test_dir_new();
        pv_auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(pv_patch_make(&old, &now, flags, &p, &err), 0);
        assert_true(p.text.len > 0);
        put_side(fd, &old);
        pv_str_put(&text, "# a: comment\n");
        pv_str_put_bytes(&text, p.text.s, p.text.len);
        pv_str_put(&text, "# b: comment\n");
        assert_int_equal(pv_file_write_at(fd, ".patch", text.s, text.len, 0600, PV_FILE_REPLACE, &err), 0);
        pv_test_sh(dir, "git apply --whitespace=nowarn .patch");
        if (now.path)
                assert_side(fd, &now);
        if (old.path && (!now.path || !pv_streq(old.path, now.path)))
                assert_int_equal(fstatat(fd, old.path, &st, AT_SYMLINK_NOFOLLOW), -1);
        pv_test_dir_remove(dir);
}

enum { FILE_MODE = 0100644, EXEC_MODE = 0100755, LINK_MODE = 0120000 };

static void what_git_applies(void **state)
{
        static const struct {
                const char *name, *old, *now; /* contents; NULL: not there */
        } cases[] = {
                { "a", "one\ntwo\n", "one\n2\n" },
                { "with space", "one\n", "two\n" },
                { "caf\xc3\xa9 \t\"q\"\\", "one\n", "two\n" },
                { "bad\xff\xfe", "one\n", "two\n" },
                { "new", NULL, "content\n" },
                { "new and empty", NULL, "" },
                { "gone", "content\n", NULL },
                { "gone empty", "", NULL },
                { "no newline", "a\nb", "a\nc" },
                { "newline came", "a\nb", "a\nb\n" },
                { "newline went", "a\nb\n", "a\nb" },
                { "crlf", "a\r\nb\r\n", "a\r\nc\r\n" },
                { "crlf to lf", "a\r\nb\r\n", "a\nb\n" },
                { "emptied", "a\n", "" },
                { "filled", "", "a\n" },
                { "looks like a patch", "a\n", "--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\ndiff --git a/q b/q\n" },
                { "spaces", "a\n", "a \n\n \n" },
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                check(cases[i].old ? side(cases[i].name, FILE_MODE, cases[i].old) : nothing,
                      cases[i].now ? side(cases[i].name, FILE_MODE, cases[i].now) : nothing, PV_PATCH_TEXT);
}

static void modes_links_and_renames(void **state)
{
        check(side("a b", FILE_MODE, "x\n"), side("a b", EXEC_MODE, "x\n"), PV_PATCH_TEXT);
        check(side("a", EXEC_MODE, "x\n"), side("a", FILE_MODE, "y\n"), PV_PATCH_TEXT);
        check(nothing, side("l", LINK_MODE, "some where"), PV_PATCH_TEXT);
        check(side("l", LINK_MODE, "x"), side("l", LINK_MODE, "y\nz"), PV_PATCH_TEXT);
        check(side("l", LINK_MODE, "x"), nothing, PV_PATCH_TEXT);
        check(nothing, side("run", EXEC_MODE, "#!/bin/sh\n"), PV_PATCH_TEXT);
        check(side("old name", FILE_MODE, "x\n"), side("new\"name", FILE_MODE, "x\n"), PV_PATCH_TEXT);
        check(side("old", FILE_MODE, "x\ny\nz\n"), side("new", EXEC_MODE, "x\ny\n2\n"), PV_PATCH_TEXT);
        check(side("old", FILE_MODE, ""), side("new", FILE_MODE, ""), PV_PATCH_TEXT);
}

static void binary_files(void **state)
{
        static const char one[] = "\0\1\2\3binary\xff", two[] = "\0\1\2\3other\xff\xfe";
        struct pv_err err = PV_ERR_INIT;
        struct pv_patch_side old = { "b", FILE_MODE, one, sizeof one }, now = { "b", FILE_MODE, two, sizeof two };
        struct pv_patch_side exec = { "b", EXEC_MODE, one, sizeof one };
        pv_auto_patch p = { 0 };
        assert_int_equal(pv_patch_make(&old, &now, PV_PATCH_TEXT, &p, &err), 0);
        assert_true(p.binary);
        assert_int_equal(p.text.len, 0);
        check(old, now, PV_PATCH_BINARY);
        check(nothing, now, PV_PATCH_BINARY);
        check(old, nothing, PV_PATCH_BINARY);
        check(old, exec, PV_PATCH_TEXT);
}

/* Each refused name is one that git refuses, and the reverse. */
static void names_that_git_refuses(void **state)
{
        static const char *const names[] = { "git~1",  "GIT~1",    ".git.",    ".git ",       ".git . .",
                                             ".git:x", "git~1.",   "git~1:y",  "git~2",       ".gitx",
                                             ".git.x", "git~1x",   ".github",  ".gitmodules", "x.git",
                                             "git",    "a\\git~1", "a\\.git.", ".git:",       "..git" };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                struct pv_err err = PV_ERR_INIT;
                struct pv_patch_side now = side(names[i], FILE_MODE, "x\n");
                pv_auto_patch p = { 0 };
                char *dir = pv_test_dir_new();
                pv_auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                assert_int_equal(pv_patch_make(&nothing, &now, PV_PATCH_TEXT, &p, &err), 0);
                assert_int_equal(pv_file_write_at(fd, "p", p.text.s, p.text.len, 0600, PV_FILE_REPLACE, &err), 0);
                pv_auto_free char *script =
                        pv_strf("git init -q; if git apply p 2>/dev/null; then exit %d; else exit %d; fi",
                                pv_patch_is_refused(names[i], FILE_MODE) ? 1 : 0,
                                pv_patch_is_refused(names[i], FILE_MODE) ? 0 : 1);
                pv_test_sh(dir, script);
                pv_test_dir_remove(dir);
        }
        assert_true(pv_patch_is_refused("sub/.gitmodules", LINK_MODE));
}

/* Lines of few kinds, so that many are equal and hunks are many. */
static char *random_text(unsigned *seed, size_t *len)
{
        static const char *const line[] = {
                "",   "a",           "b",      "  c",     "\tlonger line of text", "a\r", "\\ No newline", "-x",
                "+y", "@@ -1 +1 @@", "# note", "\xff\xfe"
        };
        pv_auto_str b = { 0 };
        size_t n = (size_t)rand_r(seed) % 60;
        for (size_t i = 0; i < n; i++)
                pv_str_putf(&b, "%s\n", line[(size_t)rand_r(seed) % (sizeof line / sizeof *line)]);
        if (b.len && rand_r(seed) % 4 == 0)
                b.s[--b.len] = '\0';
        *len = b.len;
        return pv_str_steal(&b);
}

static void random_edits(void **state)
{
        unsigned seed = 7;
        for (int i = 0; i < 60; i++) {
                struct pv_patch_side old = { "f", FILE_MODE, NULL, 0 }, now = old;
                pv_auto_free char *a = random_text(&seed, &old.len), *b = random_text(&seed, &now.len);
                old.data = a;
                now.data = b;
                if (old.len != now.len || memcmp(a, b, old.len) != 0)
                        check(old, now, PV_PATCH_TEXT);
        }
}

static int set_up(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        return pv_patch_begin(&err);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names),
                cmocka_unit_test(lines_for_a_terminal),
                cmocka_unit_test(cut_in_the_middle),
                cmocka_unit_test(what_git_applies),
                cmocka_unit_test(modes_links_and_renames),
                cmocka_unit_test(binary_files),
                cmocka_unit_test(names_that_git_refuses),
                cmocka_unit_test(random_edits),
        };
        return cmocka_run_group_tests(tests, set_up, NULL);
}
