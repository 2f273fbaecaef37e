/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes, their names and paths, ids, and what is kept of them: what every request stands on. */
#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "fuse/fs.h"

static struct pv_fuse_fs *make(void)
{
        struct pv_fuse_fs *fs = pv_calloc(1, sizeof *fs);
        fs->layer[0] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fs->n_layers = 1;
        fs->inotify = -1;
        assert_int_equal(pv_fuse_nodes_init(fs), 0);
        return fs;
}

static void unmake(struct pv_fuse_fs *fs)
{
        assert_int_equal(fs->n_names, 0); /* every test gives all back */
        assert_int_equal(fs->n_uppers, 0);
        (void)close(fs->layer[0]);
        free(fs->names);
        free(fs->uppers);
        free(fs->shown.slot);
        free(fs->seen.slot);
        free(fs);
}

static struct pv_fuse_node *add(struct pv_fuse_fs *fs, struct pv_fuse_node *dir, const char *name, mode_t type)
{
        struct pv_fuse_node *n = pv_fuse_node_new(type);
        n->lookups = 1;
        pv_fuse_name_add(fs, dir, name, n);
        return n;
}

static void assert_path(struct pv_fuse_fs *fs, const struct pv_fuse_node *n, const char *want)
{
        pv_auto_str path = { 0 };
        assert_int_equal(pv_fuse_node_path(fs, n, &path), 0);
        assert_string_equal(path.s, want);
}

static void test_a_path_follows_renames(void **state)
{
        struct pv_fuse_fs *fs = make();
        struct pv_fuse_node *a = add(fs, &fs->root_node, "a", S_IFDIR), *b = add(fs, a, "b", S_IFDIR);
        struct pv_fuse_node *f = add(fs, b, "f", S_IFREG);
        (void)state;
        assert_path(fs, &fs->root_node, "");
        assert_path(fs, f, "a/b/f");
        pv_fuse_name_remove(fs, &fs->root_node, "a");
        pv_fuse_name_add(fs, &fs->root_node, "other", a);
        assert_path(fs, f, "other/b/f");
        pv_fuse_name_remove(fs, &fs->root_node, "other");
        pv_auto_str path = { 0 };
        assert_int_equal(pv_fuse_node_path(fs, f, &path), -1);
        assert_int_equal(errno, ENOENT);
        pv_fuse_name_add(fs, &fs->root_node, "a", a);
        pv_fuse_node_forget(fs, a, 1);
        pv_fuse_node_forget(fs, b, 1);
        assert_path(fs, f, "a/b/f"); /* forgotten directories stay while something in them is known */
        pv_fuse_node_forget(fs, f, 1);
        unmake(fs);
}

static void test_a_file_has_several_names(void **state)
{
        struct pv_fuse_fs *fs = make();
        struct pv_fuse_node *f = add(fs, &fs->root_node, "one", S_IFREG);
        (void)state;
        pv_fuse_upper_add(fs, f, 4711);
        pv_fuse_name_add(fs, &fs->root_node, "two", f);
        assert_ptr_equal(pv_fuse_name_find(fs, &fs->root_node, "one"), f);
        assert_ptr_equal(pv_fuse_name_find(fs, &fs->root_node, "two"), f);
        assert_ptr_equal(pv_fuse_upper_find(fs, 4711), f);
        pv_fuse_name_remove(fs, &fs->root_node, "two");
        assert_null(pv_fuse_name_find(fs, &fs->root_node, "two"));
        assert_path(fs, f, "one");
        pv_fuse_name_remove(fs, &fs->root_node, "none of this name"); /* silence */
        pv_fuse_node_forget(fs, f, 100);                              /* more than was counted */
        assert_null(pv_fuse_upper_find(fs, 4711));
        unmake(fs);
}

static void test_many_names_are_all_found(void **state)
{
        enum { MANY = 5000 };
        struct pv_fuse_fs *fs = make();
        char name[16];
        (void)state;
        for (unsigned i = 0; i < MANY; i++) {
                (void)snprintf(name, sizeof name, "%u", i);
                pv_fuse_upper_add(fs, add(fs, &fs->root_node, name, S_IFREG), i + 1);
        }
        for (unsigned i = 0; i < MANY; i++) {
                (void)snprintf(name, sizeof name, "%u", i);
                struct pv_fuse_node *n = pv_fuse_name_find(fs, &fs->root_node, name);
                assert_non_null(n);
                assert_ptr_equal(pv_fuse_upper_find(fs, i + 1), n);
                pv_fuse_node_forget(fs, n, 1);
        }
        unmake(fs);
}

static void test_a_renamed_directory_is_complete_below(void **state)
{
        struct pv_fuse_fs *fs = make();
        struct pv_fuse_node *a = add(fs, &fs->root_node, "a", S_IFDIR), *b = add(fs, a, "b", S_IFDIR);
        struct pv_fuse_node *beside = add(fs, &fs->root_node, "beside", S_IFDIR);
        (void)state;
        a->bottom = b->bottom = beside->bottom = 3;
        pv_fuse_nodes_complete(fs, a);
        assert_true(a->upper && b->upper && a->bottom == 0 && b->bottom == 0);
        assert_true(!beside->upper && beside->bottom == 3);
        pv_fuse_node_forget(fs, b, 1);
        pv_fuse_node_forget(fs, a, 1);
        pv_fuse_node_forget(fs, beside, 1);
        unmake(fs);
}

static void test_a_directory_that_was_another_is_not_vouched_for(void **state)
{
        struct pv_fuse_fs *fs = make();
        (void)state;
        pv_fuse_witness(fs, "src", 10);
        pv_fuse_witness(fs, "src", 10);
        pv_fuse_witness(fs, "docs", 11);
        assert_int_equal(pv_fuse_testify(fs, "src"), 10);
        assert_int_equal(pv_fuse_testify(fs, "never seen"), 0);
        pv_fuse_witness(fs, "src", 12);
        pv_fuse_witness(fs, "src", 10); /* back again: in between it was not */
        assert_int_equal(pv_fuse_testify(fs, "src"), 0);
        assert_int_equal(pv_fuse_testify(fs, "docs"), 11);
        unmake(fs);
}

static void test_numbers_stay_through_copy_up_and_differ_between_devices(void **state)
{
        struct pv_fuse_fs *fs = make();
        (void)state;
        const struct stat host = { .st_dev = fs->dev[0], .st_ino = 5 },
                          upper = { .st_dev = fs->dev[0] + 1, .st_ino = 5 };
        assert_int_equal(pv_fuse_shown_ino(fs, &host, false), 5);
        assert_int_not_equal(pv_fuse_shown_ino(fs, &upper, true), 5);
        pv_fuse_table_put(&fs->shown, 5, 77);
        assert_int_equal(pv_fuse_shown_ino(fs, &upper, true), 77);
        assert_int_equal(pv_fuse_shown_ino(fs, &host, false), 5);
        unmake(fs);
}

static int parse(const char *text, struct pv_fuse_range *out, size_t max, size_t *n)
{
        return pv_fuse_ids_parse(text, out, max, n);
}

static void test_ids_are_those_of_the_map(void **state)
{
        struct pv_fuse_fs fs = { .own_uid = 1000, .own_gid = 1000 };
        struct pv_fuse_range r[2];
        size_t n;
        (void)state;
        assert_int_equal(parse("1000 1000 1\n", fs.uids, 2, &fs.n_uids), 0);
        assert_int_equal(parse("0 0 4294967295\n", fs.gids, 2, &fs.n_gids), 0);
        assert_true(!pv_fuse_uid_is_foreign(&fs, 1000) && pv_fuse_uid_is_foreign(&fs, 999));
        assert_true(pv_fuse_uid_is_foreign(&fs, 1001) && !pv_fuse_gid_is_foreign(&fs, 0));
        struct stat st = { .st_uid = 0, .st_gid = 27, .st_mode = S_IFREG };
        const struct pv_fuse_node node = { .ino = 9 };
        pv_fuse_show(&fs, &node, &st);
        assert_true(st.st_uid == 1000 && st.st_gid == 27 && st.st_ino == 9);
        static const char *const bad[] = {
                "",      "\n", "1", "1 1", "1 2 1", "a b c", "1 1 0", "0 0 1\n1 1 1\n2 2 1", "4294967296 4294967296 1",
                "0 0 -1"
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                assert_int_equal(parse(bad[i], r, 2, &n), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_path_follows_renames),
                cmocka_unit_test(test_a_file_has_several_names),
                cmocka_unit_test(test_many_names_are_all_found),
                cmocka_unit_test(test_a_renamed_directory_is_complete_below),
                cmocka_unit_test(test_a_directory_that_was_another_is_not_vouched_for),
                cmocka_unit_test(test_numbers_stay_through_copy_up_and_differ_between_devices),
                cmocka_unit_test(test_ids_are_those_of_the_map),
        };
        return cmocka_run_group_tests_name("fuse-node", tests, NULL, NULL);
}
