/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/str.h"
#include "policy/gitconfig.h"

static char dir[] = "/tmp/pv-gitconfig-XXXXXX";

static void expect(const char *text, const char *name)
{
        pv_auto_free char *path = pv_strf("%s/config", dir);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
        pv_auto_free char *got = pv_gitconfig_get(dir, "config", "user", "name");
        if (name)
                assert_string_equal(got ? got : "(none)", name);
        else
                assert_null(got);
        assert_int_equal(unlink(path), 0);
}

static void test_values(void **state)
{
        expect("[user]\n\tname = A Person\n", "A Person");
        expect("[User]\nNAME=x\n", "x");
        expect("[user]\r\n name = x \r\n", "x");
        expect("[user]\n name = a # who\n", "a");
        expect("[user]\n name = \"a # b\" ; c\n", "a # b");
        expect("[user]\n name = \\\"q\\\" \\\\ \n", "\"q\" \\");
        expect("[user]\n name = one\n[other]\n name = no\n[user]\n name = two\n", "two");
        expect("[user \"sub\"]\n name = no\n", NULL);
        expect("[user]\n names = no\n email = x\n", NULL);
        expect("[user]\n name = two \\\n lines\n", NULL);
        expect("[user]\n name = x\n email = two \\\n name = no \\\n name = no\n", "x");
        expect("[user]\n email = one # \\\n name = x\n", "x");
        expect("[user]\n name = \"open\n", NULL);
        expect("[user] name = x\n", "x");
        expect("[other] name = no\n[user]\tname = x # who\n[user \"sub\"] name = no\n", "x");
        expect("[user]]name = no\n[user name = no\n", NULL);
        expect("", NULL);
}

/* Whatever a repository's file holds: an answer or none, within the sanitizers' bounds. */
static void test_random_bytes(void **state)
{
        static const char alphabet[] = "[user]name = \"\\\n\n\r\t #;x";
        unsigned seed = 7;
        for (int round = 0; round < 2000; round++) {
                pv_auto_free char *path = pv_strf("%s/config", dir);
                FILE *f = fopen(path, "w");
                assert_non_null(f);
                assert_true(fputs("[user]\n", f) >= 0);
                for (int i = 0; i < 60; i++)
                        assert_true(fputc(alphabet[(size_t)rand_r(&seed) % sizeof alphabet], f) >= 0);
                assert_int_equal(fclose(f), 0);
                pv_auto_free char *got = pv_gitconfig_get(dir, "config", "user", "name");
                assert_int_equal(unlink(path), 0);
        }
}

static void test_no_file(void **state)
{
        assert_null(pv_gitconfig_get(dir, "missing", "user", "name"));
        assert_null(pv_gitconfig_get("/nonexistent", "config", "user", "name"));
}

static int set_up(void **state)
{
        return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
        return rmdir(dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_values), cmocka_unit_test(test_random_bytes),
                                            cmocka_unit_test(test_no_file) };
        return cmocka_run_group_tests(tests, set_up, tear_down);
}
