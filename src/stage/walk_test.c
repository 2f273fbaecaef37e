/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "stage/walk.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "base/fd.h"

#define DEEP 300

static char top[] = "/tmp/pv-walk-XXXXXX";

/* "d/d/d/.../f", so many directories deep. */
static void name_at(unsigned depth, char out[2 * DEEP + 2])
{
        for (unsigned i = 0; i < depth; i++)
                memcpy(out + (size_t)2 * i, "d/", 2);
        memcpy(out + (size_t)2 * depth, "f", 2);
}

static int make_chain(void **state)
{
        (void)state;
        if (!mkdtemp(top))
                return -1;
        int fd = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
        for (unsigned i = 0; fd >= 0 && i < DEEP; i++) {
                pv_auto_fd above = fd;
                if (mkdirat(above, "d", 0755) < 0)
                        return -1;
                fd = openat(above, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
        }
        return fd < 0 ? -1 : close(fd);
}

static int remove_chain(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        (void)state;
        return pv_path_remove_tree(AT_FDCWD, top, &err);
}

static size_t count_open(void)
{
        size_t n = 0;
        struct dirent *e;
        pv_auto_dir d = pv_dir_open(AT_FDCWD, "/proc/self/fd");
        assert_non_null(d);
        while (pv_dir_next(d, &e) > 0)
                n++;
        return n;
}

/* Its inode number tells one directory of the chain from the others. */
static ino_t inode_of(int fd)
{
        struct stat st;
        assert_int_equal(fstatat(fd, "", &st, AT_EMPTY_PATH), 0);
        return st.st_ino;
}

static void every_depth_is_found_on_the_way_down_up_and_across(void **state)
{
        (void)state;
        static ino_t inode[DEEP + 1];
        char path[2 * DEEP + 2];
        pv_auto_fd root = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
        size_t before = count_open(), most = 0;
        pv_auto_walk w;
        pv_walk_init(&w, (struct pv_pathfd){ root });
        for (unsigned turn = 0; turn < 3 * (DEEP + 1); turn++) {
                unsigned step = turn % (DEEP + 1);
                unsigned depth = turn < DEEP + 1 ? step : turn < 2 * (DEEP + 1) ? DEEP - step : step * 7 % (DEEP + 1);
                const char *name = NULL;
                name_at(depth, path);
                int fd = pv_walk_parent(&w, path, &name);
                assert_true(fd >= 0);
                assert_string_equal(name, "f");
                if (turn < DEEP + 1)
                        inode[depth] = inode_of(fd);
                assert_int_equal(inode_of(fd), inode[depth]);
                size_t now = count_open();
                most = now > most ? now : most;
        }
        assert_true(inode[0] == inode_of(root) && inode[1] != inode[DEEP]);
        assert_in_range(most - before, 1, 70);
}

static void what_is_no_path_below_the_root_is_refused(void **state)
{
        static const char *const no[] = { "..", "d/..", "../d/f", "d/../f", "d//f", "d/", "d/.", "d/d/none/f" };
        (void)state;
        pv_auto_fd root = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
        pv_auto_walk w;
        pv_walk_init(&w, (struct pv_pathfd){ root });
        for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
                const char *name = NULL;
                assert_int_equal(pv_walk_parent(&w, no[i], &name), -1);
                assert_true(pv_walk_parent(&w, "d/d/f", &name) >= 0); /* and does no harm */
        }
}

static void a_link_on_the_way_is_not_followed(void **state)
{
        const char *name = NULL;
        (void)state;
        pv_auto_fd root = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
        pv_auto_walk w;
        pv_walk_init(&w, (struct pv_pathfd){ root });
        assert_int_equal(symlinkat("d/d", root, "link"), 0);
        assert_int_equal(pv_walk_parent(&w, "link/f", &name), -1);
        assert_true(pv_walk_parent(&w, "link", &name) >= 0);
        assert_int_equal(unlinkat(root, "link", 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_depth_is_found_on_the_way_down_up_and_across),
                cmocka_unit_test(what_is_no_path_below_the_root_is_refused),
                cmocka_unit_test(a_link_on_the_way_is_not_followed),
        };
        return cmocka_run_group_tests(tests, make_chain, remove_chain);
}
