/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary directory for the tests of one program, and files in it. */
#ifndef PV_BASE_TEST_DIR_H
#define PV_BASE_TEST_DIR_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/test.h"
#include "base/path.h"

/* dir: "/tmp/...XXXXXX", made its name. For a group's setup. */
static inline int pv_test_dir_make(char *dir)
{
        return mkdtemp(dir) ? 0 : -1;
}

/* With all that is in it. For a group's teardown. */
static inline int pv_test_dir_remove(const char *dir)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_fd tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return pv_path_remove_tree(tmp, dir + strlen("/tmp/"), &err);
}

/* A file with that text, and the directories above it; its path, the caller's. */
static inline char *pv_test_dir_put(const char *dir, const char *rel, const char *text, mode_t mode)
{
        struct pv_err err = PV_ERR_INIT;
        char *path = pv_path_join(dir, rel);
        pv_auto_free char *above = pv_strndup(path, (size_t)(strrchr(path, '/') - path));
        assert_int_equal(pv_path_make_dirs(above, 0700, &err), 0);
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(chmod(path, mode), 0);
        return path;
}

#endif
