/* SPDX-License-Identifier: Apache-2.0 */
/* What hostile or careless commands leave: depth, numbers, names without end; and roots that are several. */
#include "base/test.h"

#include <fcntl.h>
#include <sys/resource.h>
#include "base/fd.h"
#include "base/path.h"
#include "stage/fixture.h"
#include "stage/scan.h"

static struct pv_err err;

static void with_few_descriptors(rlim_t few, void (*then)(struct fixture *f), struct fixture *f)
{
        struct rlimit old, less;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
        less = (struct rlimit){ few, old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
        then(f);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static void count_deep(struct fixture *f)
{
        pv_auto_changes c = NULL;
        if (pv_stage_seal(f->stage, NULL, &err) < 0 || pv_changes_compute(f->stage, &c, &err) < 0)
                fail_msg("%s", err.msg);
        /* 1023 levels of "dir/" make a path of 4091 bytes; the next has 4095, and one more has no path. */
        assert_int_equal(c->n, 1026);
        assert_string_equal(c->item[0].path, "at");
        for (size_t i = 1; i < c->n - 1; i++)
                assert_int_equal(c->item[i].flags, 0);
        assert_int_equal(c->item[c->n - 1].flags, PV_CHANGE_BLOCKED);
        assert_non_null(c->item[c->n - 1].why);
        const char *why = NULL;
        assert_false(pv_change_check(f->stage, &c->item[c->n - 1], &why));
}

static void test_a_tree_deeper_than_any_path(void **state)
{
        struct fixture *f = fixture_make("");
        fixture_run(f, "python3 -c 'import os\nopen(\"at\", \"w\")\n"
                       "for i in range(3000): os.mkdir(\"dir\"); os.chdir(\"dir\")'");
        with_few_descriptors(400, count_deep, f);
        fixture_free(f);
}

static void test_deep_trees_in_many_layers_and_closed_directories(void **state)
{
        static char last[64];
        struct fixture *f = fixture_make("");
        for (int i = 0; i < 12; i++) {
                (void)snprintf(last, sizeof last, "layer-%d", i);
                pv_auto_free char *script = pv_strf("python3 -c 'import os\nfor i in range(60):\n"
                                                    "  os.makedirs(\"d\", exist_ok=True); os.chdir(\"d\")\n"
                                                    "open(\"%s\", \"w\")'",
                                                    last);
                fixture_run_and_seal(f, script, NULL);
                assert_return_code(pv_stage_checkpoint(f->stage, last, &err), 0);
        }
        fixture_run(f,
                    "python3 -c 'import os\nfor i in range(60): os.chdir(\"d\")\n"
                    "for i in range(60): os.chmod(\".\", 0); os.chdir(\"..\") if i < 59 else None' 2>/dev/null || :");
        struct rlimit old, few;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
        few = (struct rlimit){ 400, old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        pv_auto_changes c = NULL;
        if (pv_stage_seal(f->stage, NULL, &err) < 0 || pv_changes_compute(f->stage, &c, &err) < 0)
                fail_msg("%s", err.msg);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(c->n, 72);
        pv_auto_free char *again = fixture_changes(f), *and_again = fixture_changes(f);
        assert_string_equal(again, and_again); /* modes were given back */
        fixture_free(f);
}

static void test_a_directory_of_many_names(void **state)
{
        struct fixture *f = fixture_make("");
        fixture_run_and_seal(f,
                             "python3 -c 'import os\n"
                             "for i in range(20000): os.close(os.open(\"n%d\" % (i * 7919 % 20000), os.O_CREAT))'",
                             NULL);
        pv_auto_changes c = NULL;
        assert_return_code(pv_changes_compute(f->stage, &c, &err), 0);
        assert_int_equal(c->n, 20000);
        for (size_t i = 1; i < c->n; i++)
                assert_true(pv_path_order(c->item[i - 1].path, c->item[i].path) < 0);
        assert_non_null(pv_changes_find(c, 0, "n12345"));
        assert_null(pv_changes_find(c, 0, "n20000"));
        fixture_free(f);
}

/* A git worktree: its own directory, and the one of the repository outside of it. */
static void test_two_roots_are_two_lists_in_one(void **state)
{
        struct fixture *f = fixture_make("mkdir work git; echo a >work/a; echo h >git/HEAD");
        pv_auto_free char *work = pv_path_join(f->target, "work"), *git = pv_path_join(f->target, "git");
        pv_auto_free char *dir = pv_path_join(f->dir, "both");
        struct pv_root roots[] = { { PV_ROOT_WORKSPACE, work, work }, { PV_ROOT_GIT_DIR, git, git } };
        const struct pv_overlay *o = NULL;
        size_t n = 0;
        pv_stage_close(f->stage);
        assert_return_code(pv_stage_create(dir, roots, 2, &f->stage, &err), 0);
        assert_return_code(pv_stage_begin_run(f->stage, &o, &n, &err), 0);
        assert_int_equal(n, 2);
        fixture_in_overlay(&o[0], "echo b >>a");
        fixture_in_overlay(&o[1], "echo x >x; rm HEAD");
        assert_return_code(pv_stage_seal(f->stage, NULL, &err), 0);
        pv_auto_changes c = NULL;
        assert_return_code(pv_changes_compute(f->stage, &c, &err), 0);
        assert_int_equal(c->n, 3);
        assert_true(c->item[0].root == 0 && c->item[1].root == 1 && c->item[2].root == 1);
        assert_ptr_equal(pv_changes_find(c, 1, "x"), &c->item[2]);
        assert_null(pv_changes_find(c, 1, "a"));
        fixture_free(f);
}

/* The helper that renames directories by hand is killed with the command. */
static void test_a_renaming_that_was_cut_off(void **state)
{
        struct fixture *f = fixture_make("mkdir d; echo a >d/a; echo b >d/b");
        fixture_run_and_seal(f,
                             "mkdir .pvisor-rename-7-0 d/.pvisor-rename-7-1 .pvisor-rename-7-0/sub\n"
                             "ln d/a .pvisor-rename-7-0/sub/a; chmod 500 .pvisor-rename-7-0; echo c >>d/b\n"
                             "echo mine >.pvisor-rename-8-0",
                             NULL);
        pv_auto_free char *changes = fixture_changes(f);
        assert_string_equal(changes, "A .pvisor-rename-8-0\nM d/b\n");
        pv_auto_free char *seen = fixture_look(f, "find . -mindepth 1 | sort");
        assert_string_equal(seen, "./.pvisor-rename-8-0\n./d\n./d/a\n./d/b\n");
        fixture_free(f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_tree_deeper_than_any_path),
                cmocka_unit_test(test_a_renaming_that_was_cut_off),
                cmocka_unit_test(test_deep_trees_in_many_layers_and_closed_directories),
                cmocka_unit_test(test_a_directory_of_many_names),
                cmocka_unit_test(test_two_roots_are_two_lists_in_one),
        };
        return fixture_main("scan", tests, sizeof tests / sizeof *tests);
}
