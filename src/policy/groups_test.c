/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "policy/groups.h"

static void test_shipped(void **state)
{
        static const char *const names[] = { "@npm", "@pypi", "@crates", "@go", "@debian", "github" };
        pv_auto_groups g = { 0 };
        struct pv_err err = PV_ERR_INIT;
        assert_int_equal(pv_groups_load("/nonexistent", "/nonexistent", &g, &err), 0);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                const struct pv_group *one = pv_groups_find(&g, names[i]);
                assert_non_null(one);
                assert_true(one->targets.n > 0);
        }
        assert_true(pv_strv_has(&pv_groups_find(&g, "npm")->targets, "registry.npmjs.org:443"));
        assert_null(pv_groups_need(&g, "@nmp", &err));
        assert_int_equal(err.kind, PV_ERR_USAGE);
        assert_non_null(strstr(err.hint, "@npm"));
}

/* A configuration directory with this groups.yaml in it. */
static void write_own(char *dir, const char *text)
{
        char path[64];
        assert_non_null(mkdtemp(dir));
        (void)snprintf(path, sizeof path, "%s/pvisor", dir);
        assert_int_equal(mkdir(path, 0700), 0);
        (void)snprintf(path, sizeof path, "%s/pvisor/groups.yaml", dir);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
}

static void remove_own(const char *dir)
{
        char path[64];
        (void)snprintf(path, sizeof path, "%s/pvisor/groups.yaml", dir);
        assert_int_equal(unlink(path), 0);
        (void)snprintf(path, sizeof path, "%s/pvisor", dir);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(rmdir(dir), 0);
}

static void test_own_ones_come_first(void **state)
{
        char dir[] = "/tmp/pv-groups-XXXXXX";
        pv_auto_groups g = { 0 };
        struct pv_err err = PV_ERR_INIT;
        write_own(dir, "npm: [npm.corp.example:443]\nwork: [git.corp.example, 10.0.0.0/8:80-90]\n");
        assert_int_equal(pv_groups_load(dir, NULL, &g, &err), 0);
        assert_string_equal(pv_groups_find(&g, "npm")->targets.v[0], "npm.corp.example:443");
        assert_int_equal(pv_groups_find(&g, "npm")->targets.n, 1);
        assert_int_equal(pv_groups_find(&g, "work")->targets.n, 2);
        assert_non_null(pv_groups_find(&g, "pypi"));
        remove_own(dir);
}

static void test_errors_name_file_and_line(void **state)
{
        static const char *const wrong[] = { "a: [x.example]\nb: ['not a host']\n", "a: [x.example]\nUpper: [y]\n" };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                char dir[] = "/tmp/pv-groups-XXXXXX";
                pv_auto_groups g = { 0 };
                struct pv_err err = PV_ERR_INIT;
                write_own(dir, wrong[i]);
                assert_int_equal(pv_groups_load(dir, NULL, &g, &err), -1);
                assert_int_equal(err.kind, PV_ERR_USAGE);
                assert_non_null(strstr(err.msg, "/pvisor/groups.yaml:2"));
                remove_own(dir);
        }
}

static void test_what_holds_a_target(void **state)
{
        static const struct {
                const char *target, *with;
        } cases[] = {
                { "pypi.org", "@pypi" },
                { "pypi.org:443", "@pypi" },
                { "pypi.org:80", NULL },
                { "a.corp.example", "@work" },
                { "corp.example", NULL },
                { "xcorp.example", NULL },
                { "registry.npmjs.org", "@work or @npm" },
        };
        char dir[] = "/tmp/pv-groups-XXXXXX";
        pv_auto_groups g = { 0 };
        struct pv_err err = PV_ERR_INIT;
        write_own(dir, "work: ['*.corp.example:443', registry.npmjs.org]\n");
        assert_int_equal(pv_groups_load(dir, NULL, &g, &err), 0);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                pv_auto_free char *with = pv_groups_with(&g, cases[i].target);
                if (cases[i].with)
                        assert_string_equal(with, cases[i].with);
                else
                        assert_null(with);
        }
        remove_own(dir);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_shipped),
                cmocka_unit_test(test_own_ones_come_first),
                cmocka_unit_test(test_errors_name_file_and_line),
                cmocka_unit_test(test_what_holds_a_target),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
