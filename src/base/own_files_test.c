/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/copy.h"
#include "base/fd.h"
#include "base/own_files.h"

/* Opens a file of mode 0 in a directory of mode 0; made by an ordinary user, whoever runs the test. */
static int open_closed(bool with_rights)
{
        char dir[] = "/var/tmp/pv-own-XXXXXX", file[64];
        if ((geteuid() == 0 && (setresgid(12345, 12345, 12345) < 0 || setresuid(12345, 12345, 12345) < 0)) ||
            !mkdtemp(dir))
                return 101;
        (void)prctl(PR_SET_DUMPABLE, 1); /* as after an exec: /proc/self is one's own again */
        (void)snprintf(file, sizeof file, "%s/file", dir);
        pv_auto_fd fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0);
        if (fd < 0 || chmod(dir, 0) < 0)
                return 102;
        if (with_rights)
                pv_own_files_open();
        pv_auto_fd again = open(file, O_RDONLY | O_CLOEXEC);
        struct stat st;
        int code = again >= 0 && fstat(again, &st) == 0 && st.st_uid == geteuid() ? 0 : 1;
        (void)chmod(dir, 0700);
        (void)unlink(file);
        (void)rmdir(dir);
        return code;
}

static int in_child(bool with_rights)
{
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
                _exit(open_closed(with_rights));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WEXITSTATUS(status);
}

static void test_modes_do_not_keep_the_owner_out(void **state)
{
        assert_int_equal(in_child(false), 1);
        assert_int_equal(in_child(true), 0);
}

/* acl_ea_header and entries of linux/posix_acl_xattr.h, little-endian: u::6 u:ID:6 g::4 m::6 o::0 */
#define ACL(id)                                                                                                        \
        {                                                                                                              \
                2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 6, 0, id, 0, 0, 0, 4, 0, 4, 0, 0xff, 0xff, 0xff, \
                        0xff, 0x10, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff             \
        }
#define NAME "system.posix_acl_access"

static bool is_list(const struct pv_xattrs *x, const void *value, size_t size)
{
        const struct pv_xattr *have = pv_xattrs_find(x, NAME);
        return have && have->size == size && memcmp(have->value, value, size) == 0;
}

/* A list that names another user: read, replaced, removed and set again by who has entered. */
static int use_list(int dir)
{
        static const unsigned char first[] = ACL(1), second[] = ACL(2);
        struct pv_err err = PV_ERR_INIT;
        pv_auto_xattrs read = { 0 }, changed = { 0 }, without = { 0 }, own = { 0 };
        if (pv_xattr_set(dir, "file", NAME, first, sizeof first) < 0)
                return errno == EOPNOTSUPP ? 77 : 103;
        pv_own_files_open();
        if (pv_xattrs_read(dir, "file", PV_COPY_PLAIN, &read, &err) < 0 || !is_list(&read, first, sizeof first))
                return 1;
        if (pv_xattr_set(dir, "file", NAME, second, sizeof second) < 0 ||
            pv_xattrs_read(dir, "file", PV_COPY_PLAIN, &changed, &err) < 0 || !is_list(&changed, second, sizeof second))
                return 2;
        if (pv_xattr_set(dir, "file", NAME, NULL, 0) < 0 || pv_xattr_set(dir, "file", NAME, NULL, 0) < 0 ||
            pv_xattrs_read(dir, "file", PV_COPY_PLAIN, &without, &err) < 0 || without.n != 0)
                return 3;
        if (pv_xattr_set(dir, "nothing", NAME, first, sizeof first) == 0 || errno != ENOENT)
                return 4;
        if (fchdir(dir) < 0 || pv_xattr_set(AT_FDCWD, "file", NAME, first, sizeof first) < 0 ||
            pv_xattrs_read(dir, "file", PV_COPY_PLAIN, &own, &err) < 0 || !is_list(&own, first, sizeof first))
                return 5;
        return 0;
}

static int make_list(void)
{
        char dir[] = "/var/tmp/pv-own-XXXXXX";
        if ((geteuid() == 0 && (setresgid(12345, 12345, 12345) < 0 || setresuid(12345, 12345, 12345) < 0)) ||
            !mkdtemp(dir))
                return 101;
        (void)prctl(PR_SET_DUMPABLE, 1);
        pv_auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_fd file = openat(fd, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        int code = file < 0 ? 102 : use_list(fd);
        (void)unlinkat(fd, "file", 0);
        (void)rmdir(dir);
        return code;
}

static void test_lists_that_name_others_are_what_they_are_outside(void **state)
{
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
                _exit(make_list());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
                skip();
        assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_modes_do_not_keep_the_owner_out),
                cmocka_unit_test(test_lists_that_name_others_are_what_they_are_outside),
        };
        return cmocka_run_group_tests_name("own_files", tests, NULL, NULL);
}
