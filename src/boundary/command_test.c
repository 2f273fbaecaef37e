/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/child_test.h"

#include <sys/stat.h>
#include "base/path.h"
#include "boundary/command.h"

static char top[64];

static void put(const char *name, const char *text, mode_t mode)
{
        pv_auto_free char *path = pv_path_join(top, name);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        (void)fputs(text, f);
        (void)fclose(f);
        assert_int_equal(chmod(path, mode), 0);
}

static struct pv_strv kept; /* what at() made, freed at the end */

static char *at(const char *rel)
{
        pv_strv_take(&kept, pv_path_join(top, rel));
        return kept.v[kept.n - 1];
}

static int setup(void **state)
{
        (void)strcpy(top, "/tmp/pv-command-XXXXXX");
        if (!mkdtemp(top) || mkdir(at("a"), 0755) < 0 || mkdir(at("b"), 0755) < 0)
                return -1;
        put("a/tool", "#!/bin/sh\nexit 11\n", 0644); /* not executable: the search goes on */
        put("b/tool", "#!/bin/sh\nexit 12\n", 0755);
        put("b/bare", "exit ${1:-13}\n", 0755); /* no interpreter named */
        put("a/closed", "#!/bin/sh\n", 0644);
        put("b/lost", "#!/no/such/interpreter\n", 0755);
        put("b/environment", "#!/bin/sh\n[ \"$WORD\" = x ] && [ -z \"$PV_OUTER\" ] && exit 14\n", 0755);
        return 0;
}

static int teardown(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_strv_fini(&kept);
        return pv_path_remove_tree(AT_FDCWD, top, &err);
}

/* What the exec ended with: the command's code, or 200 and the error's kind. */
static int exec_it(void *arg)
{
        char *const *argv = arg;
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *path = pv_strf("PATH=%s/a:%s/none:%s/b", top, top, top);
        char word[] = "WORD=x";
        char *const envp[] = { word, path, NULL };
        (void)setenv("PATH", "/nowhere", 1); /* it is the command's that counts */
        (void)setenv("PV_OUTER", "1", 1);
        (void)pv_command_exec(argv, envp, &err);
        return 200 + (int)err.kind;
}

#define RUN(...) in_child(exec_it, (char *[]){ __VA_ARGS__, NULL })

static void a_name_is_searched_in_the_commands_path(void **state)
{
        assert_int_equal(RUN("tool"), 12);
        assert_int_equal(RUN("environment"), 14);
}

static void a_path_is_taken_as_it_is(void **state)
{
        assert_int_equal(RUN(at("b/tool")), 12);
        assert_int_equal(RUN(at("a/tool")), 200 + PV_ERR_NOT_EXEC);
        assert_int_equal(RUN(at("none/tool")), 200 + PV_ERR_NOT_FOUND);
        assert_int_equal(RUN(at("b/tool/x")), 200 + PV_ERR_NOT_FOUND);
        assert_int_equal(RUN(top), 200 + PV_ERR_NOT_EXEC);
}

static void what_is_missing_or_closed_is_told_apart(void **state)
{
        assert_int_equal(RUN("no-such-tool"), 200 + PV_ERR_NOT_FOUND);
        assert_int_equal(RUN(""), 200 + PV_ERR_NOT_FOUND);
        assert_int_equal(RUN("closed"), 200 + PV_ERR_NOT_EXEC);
        assert_int_equal(RUN("lost"), 200 + PV_ERR_NOT_FOUND);
}

static void a_script_without_interpreter_goes_to_the_shell(void **state)
{
        assert_int_equal(RUN("bare"), 13);
        assert_int_equal(RUN("bare", "15"), 15);
        assert_int_equal(RUN(at("b/bare"), "16"), 16);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_name_is_searched_in_the_commands_path),
                cmocka_unit_test(a_path_is_taken_as_it_is),
                cmocka_unit_test(what_is_missing_or_closed_is_told_apart),
                cmocka_unit_test(a_script_without_interpreter_goes_to_the_shell),
        };
        return cmocka_run_group_tests(tests, setup, teardown);
}
