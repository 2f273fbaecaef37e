/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "boundary/mask.h"

static char top[64];
static int fd_of(const char *rel)
{
        pv_auto_free char *path = pv_path_join(top, rel);
        return open(path, O_PATH | O_DIRECTORY);
}

static void make(const char *rel, mode_t mode)
{
        pv_auto_free char *path = pv_path_join(top, rel);
        assert_int_equal(S_ISDIR(mode) ? mkdir(path, mode & 07777) : mknod(path, S_IFREG | (mode & 07777), 0), 0);
        assert_int_equal(chmod(path, mode & 07777), 0);
}

static void link_to(const char *text, const char *rel)
{
        pv_auto_free char *path = pv_path_join(top, rel);
        assert_int_equal(symlink(text, path), 0);
}

/* What is at rel: 'w' whiteout, 'd' directory, 0 nothing. */
static char kind(const char *rel)
{
        struct stat st;
        pv_auto_free char *path = pv_path_join(top, rel);
        if (lstat(path, &st) < 0)
                return 0;
        return S_ISCHR(st.st_mode) && st.st_rdev == 0 ? 'w' : S_ISDIR(st.st_mode) ? 'd' : '?';
}

static int setup(void **state)
{
        (void)strcpy(top, "/tmp/pv-mask-XXXXXX");
        if (!mkdtemp(top))
                return -1;
        make("low", S_IFDIR | 0755);
        make("layer", S_IFDIR | 0755);
        return 0;
}

static int teardown(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        return pv_path_remove_tree(AT_FDCWD, top, &err);
}

static void prepare(struct pv_strv *masks, struct pv_strv *present, const char *const *list)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *low = pv_path_join(top, "low");
        for (; *list; list++)
                pv_strv_add(masks, *list);
        assert_int_equal(pv_mask_prepare(low, masks, present, &err), 0);
}

static void lay(const struct pv_strv *masks)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_pathfd layer = { fd_of("layer") }, low = { fd_of("low") };
        assert_int_equal(pv_mask_lay(layer, low, masks, &err), 0);
}

static void masks_are_sorted_and_minimal(void **state)
{
        pv_auto_strv masks = { 0 }, present = { 0 };
        prepare(&masks, &present, (const char *const[]){ "b", "a/x/y", "a-b", "a/x", "a", "b/c", "a", NULL });
        assert_int_equal(masks.n, 3);
        assert_string_equal(masks.v[0], "a");
        assert_string_equal(masks.v[1], "a-b");
        assert_string_equal(masks.v[2], "b");
        assert_int_equal(present.n, 0);
}

static void what_exists_is_told(void **state)
{
        pv_auto_strv masks = { 0 }, present = { 0 };
        pv_auto_free char *ssh = pv_path_join(top, "low/.ssh"), *gh = pv_path_join(top, "low/.config/gh");
        make("low/.ssh", S_IFDIR | 0700);
        make("low/.config", S_IFDIR | 0700);
        make("low/.config/gh", S_IFDIR | 0700);
        make("low/.config/gh2", S_IFDIR | 0700);
        prepare(&masks, &present, (const char *const[]){ ".ssh", ".aws", ".config/gh", ".config/hub", ".x/y", NULL });
        assert_int_equal(present.n, 2);
        assert_true(pv_strv_has(&present, ssh));
        assert_true(pv_strv_has(&present, gh));
}

static void links_are_followed_within_the_tree(void **state)
{
        pv_auto_strv masks = { 0 }, present = { 0 };
        pv_auto_free char *conf = pv_path_join(top, "low/dot/config");
        make("low/dot", S_IFDIR | 0755);
        make("low/dot/config", S_IFDIR | 0755);
        make("low/dot/ssh", S_IFDIR | 0755);
        link_to("dot/ssh2", "low/.ssh");
        link_to("ssh", "low/dot/ssh2");
        link_to(conf, "low/.config");
        link_to("/", "low/.out");
        prepare(&masks, &present, (const char *const[]){ ".ssh", ".config/gh", ".out", ".out/etc", NULL });
        assert_true(pv_strv_has(&masks, ".ssh"));
        assert_true(pv_strv_has(&masks, "dot/ssh"));
        assert_true(pv_strv_has(&masks, "dot/config/gh")); /* which does not exist yet */
        assert_int_equal(masks.n, 5);
}

static void a_link_into_another_store_is_hidden_with_that(void **state)
{
        pv_auto_strv masks = { 0 }, present = { 0 };
        make("low/.secrets", S_IFDIR | 0755);
        make("low/.secrets/netrc", S_IFREG | 0644);
        link_to(".secrets/netrc", "low/.netrc");
        prepare(&masks, &present, (const char *const[]){ ".netrc", ".secrets", NULL });
        assert_int_equal(masks.n, 2);
        assert_int_equal(present.n, 2);
}

static void whiteouts_lie_where_nothing_must_show(void **state)
{
        struct stat st;
        pv_auto_strv masks = { 0 }, present = { 0 };
        make("low/.config", S_IFDIR | 0750);
        make("low/.config/git", S_IFDIR | 0711);
        make("low/file", S_IFREG | 0644);
        prepare(&masks, &present,
                (const char *const[]){ ".ssh", ".config/gh", ".config/git/credentials", ".config/git/a/b", ".none/a",
                                       ".none/b/c", "file/x", NULL });
        lay(&masks);
        assert_int_equal(kind("layer/.ssh"), 'w');
        assert_int_equal(kind("layer/.config"), 'd');
        assert_int_equal(kind("layer/.config/gh"), 'w');
        assert_int_equal(kind("layer/.config/git/credentials"), 'w');
        assert_int_equal(kind("layer/.config/git/a"), 'w');
        assert_int_equal(kind("layer/.none"), 'w');
        assert_int_equal(kind("layer/file"), 0);
        pv_auto_free char *conf = pv_path_join(top, "layer/.config");
        assert_int_equal(stat(conf, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0750);
}

static void a_parent_that_is_a_link_is_left_alone(void **state)
{
        pv_auto_strv masks = { 0 }, present = { 0 };
        link_to("elsewhere", "low/.config");
        make("low/elsewhere", S_IFDIR | 0755);
        prepare(&masks, &present, (const char *const[]){ ".config/gh", NULL });
        lay(&masks);
        assert_int_equal(kind("layer/.config"), 0);
        assert_int_equal(kind("layer/elsewhere/gh"), 'w');
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(masks_are_sorted_and_minimal, setup, teardown),
                cmocka_unit_test_setup_teardown(what_exists_is_told, setup, teardown),
                cmocka_unit_test_setup_teardown(links_are_followed_within_the_tree, setup, teardown),
                cmocka_unit_test_setup_teardown(a_link_into_another_store_is_hidden_with_that, setup, teardown),
                cmocka_unit_test_setup_teardown(whiteouts_lie_where_nothing_must_show, setup, teardown),
                cmocka_unit_test_setup_teardown(a_parent_that_is_a_link_is_left_alone, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
