/* SPDX-License-Identifier: Apache-2.0 */
/* A copy has all that makes up its original, or is not there; and the names of attributes in a layer and outside. */
#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/copy.h"
#include "base/path.h"

#define NOBODY 65534

struct dir {
        char path[64];
        int fd;
};

static int make_dir(void **state)
{
        static struct dir d;
        (void)snprintf(d.path, sizeof d.path, "/var/tmp/pvisor-copy-XXXXXX");
        assert_non_null(mkdtemp(d.path));
        d.fd = open(d.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(d.fd >= 0);
        *state = &d;
        return 0;
}

static int remove_dir(void **state)
{
        struct dir *d = *state;
        struct pv_err ignored = PV_ERR_INIT;
        (void)close(d->fd);
        return pv_path_remove_tree(AT_FDCWD, d->path, &ignored);
}

static void write_file(const struct dir *d, const char *name, const char *text, mode_t mode)
{
        int fd = openat(d->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        assert_return_code(fchmod(fd, mode), 0);
        (void)close(fd);
}

static void copy(const struct dir *d, const char *from, const char *to, unsigned flags)
{
        struct pv_err err = PV_ERR_INIT;
        if (pv_copy_entry(d->fd, from, d->fd, to, flags, &err) < 0)
                fail_msg("%s", err.msg);
}

static struct stat look(const struct dir *d, const char *name)
{
        struct stat st;
        assert_return_code(fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
        return st;
}

/* All names with their values: "name=value " for each, sorted by name. */
static void assert_attributes(const struct dir *d, const char *name, const char *want)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_xattrs x = { 0 };
        pv_auto_str text = { 0 };
        assert_return_code(pv_xattrs_read(d->fd, name, PV_COPY_PLAIN, &x, &err), 0);
        for (size_t i = 0; i < x.n; i++) {
                pv_str_putf(&text, "%s=", x.item[i].name);
                pv_str_put_bytes(&text, x.item[i].value, x.item[i].size);
                pv_str_putc(&text, ' ');
        }
        assert_string_equal(text.len ? text.s : "", want);
}

static void set(const struct dir *d, const char *name, const char *attr, const char *value)
{
        if (pv_xattr_set(d->fd, name, attr, value, strlen(value)) == 0)
                return;
        if (errno == ENOTSUP)
                skip(); /* no user attributes here: tmpfs before Linux 6.6 */
        fail_msg("%s: %s", attr, strerror(errno));
}

static void test_a_file(void **state)
{
        struct dir *d = *state;
        struct timespec t[2] = { { .tv_sec = 1, .tv_nsec = 2 }, { .tv_sec = 3, .tv_nsec = 4 } };
        write_file(d, "a", "text", 0440);
        assert_return_code(utimensat(d->fd, "a", t, 0), 0);
        copy(d, "a", "b", PV_COPY_PLAIN);
        struct stat a = look(d, "a"), b = look(d, "b");
        char text[8] = "";
        int fd = openat(d->fd, "b", O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, text, sizeof text), 4);
        (void)close(fd);
        assert_string_equal(text, "text");
        assert_int_not_equal(a.st_ino, b.st_ino);
        assert_int_equal(a.st_mode, b.st_mode);
        assert_int_equal(b.st_mtim.tv_sec, 3);
        assert_int_equal(b.st_mtim.tv_nsec, 4);
}

/* Shared by reflink where the file system can, else copied range by range: to whoever looks it is the same. */
static void test_holes_stay_holes(void **state)
{
        struct dir *d = *state;
        enum { SIZE = 64 << 20 };
        int fd = openat(d->fd, "a", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(pwrite(fd, "begin", 5, 0), 5);
        assert_int_equal(pwrite(fd, "middle", 6, SIZE / 2), 6);
        assert_return_code(ftruncate(fd, SIZE), 0);
        (void)close(fd);
        copy(d, "a", "b", PV_COPY_PLAIN);
        struct stat b = look(d, "b");
        assert_int_equal(b.st_size, SIZE);
        assert_true(b.st_blocks <= look(d, "a").st_blocks + 64);
        char text[8] = "";
        fd = openat(d->fd, "b", O_RDONLY | O_CLOEXEC);
        assert_int_equal(pread(fd, text, 6, SIZE / 2), 6);
        assert_string_equal(text, "middle");
        assert_int_equal(pread(fd, text, 1, SIZE - 1), 1);
        assert_int_equal(text[0], 0);
        (void)close(fd);
}

static void test_attributes_of_a_file_that_may_not_be_written(void **state)
{
        struct dir *d = *state;
        write_file(d, "a", "text", 0600);
        set(d, "a", "user.one", "1");
        set(d, "a", "user.two", "");
        assert_return_code(fchmodat(d->fd, "a", 0444, 0), 0);
        copy(d, "a", "b", PV_COPY_PLAIN);
        assert_attributes(d, "b", "user.one=1 user.two= ");
        assert_int_equal(look(d, "b").st_mode & 07777, 0444);
}

/* acl_ea_header and entries of linux/posix_acl_xattr.h, little-endian: u::6 u:1:4 g::4 m::4 o::0 */
static const unsigned char acl[] = { 2, 0, 0,    0,    1,    0,    6,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    4,
                                     0, 1, 0,    0,    0,    4,    0,    4, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
                                     4, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff };

static void test_access_lists(void **state)
{
        struct dir *d = *state;
        unsigned char got[sizeof acl + 8];
        write_file(d, "a", "text", 0600);
        assert_return_code(mkdirat(d->fd, "dir", 0755), 0);
        if (pv_xattr_set(d->fd, "a", "system.posix_acl_access", acl, sizeof acl) < 0 && errno == ENOTSUP)
                skip();
        assert_return_code(pv_xattr_set(d->fd, "dir", "system.posix_acl_default", acl, sizeof acl), 0);
        copy(d, "a", "b", PV_COPY_PLAIN);
        copy(d, "dir", "again", PV_COPY_PLAIN);
        assert_return_code(fchdir(d->fd), 0);
        assert_int_equal(getxattr("b", "system.posix_acl_access", got, sizeof got), sizeof acl);
        assert_memory_equal(got, acl, sizeof acl);
        assert_int_equal(look(d, "b").st_mode, look(d, "a").st_mode);
        assert_int_equal(getxattr("again", "system.posix_acl_default", got, sizeof got), sizeof acl);
        assert_memory_equal(got, acl, sizeof acl);
        assert_return_code(chdir("/"), 0);
}

static void test_a_tree_with_links(void **state)
{
        struct dir *d = *state;
        assert_return_code(mkdirat(d->fd, "a", 0755), 0);
        assert_return_code(mkdirat(d->fd, "a/sub", 0700), 0);
        write_file(d, "a/file", "text", 0644);
        assert_return_code(linkat(d->fd, "a/file", d->fd, "a/sub/same", 0), 0);
        assert_return_code(symlinkat("../nowhere", d->fd, "a/link"), 0);
        assert_return_code(mkfifoat(d->fd, "a/pipe", 0640), 0);
        assert_return_code(fchmodat(d->fd, "a/sub", 0500, 0), 0);
        copy(d, "a", "b", PV_COPY_PLAIN);
        struct stat file = look(d, "b/file"), same = look(d, "b/sub/same");
        assert_int_equal(file.st_ino, same.st_ino);
        assert_int_equal(file.st_nlink, 2);
        assert_true(S_ISLNK(look(d, "b/link").st_mode));
        assert_true(S_ISFIFO(look(d, "b/pipe").st_mode));
        assert_int_equal(look(d, "b/sub").st_mode & 07777, 0500);
        copy(d, "a", "alone", PV_COPY_SHALLOW);
        assert_int_equal(faccessat(d->fd, "alone/file", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

static void test_what_is_there_is_left_alone(void **state)
{
        struct dir *d = *state;
        struct pv_err err = PV_ERR_INIT;
        write_file(d, "a", "new", 0644);
        write_file(d, "b", "older", 0644);
        assert_int_equal(pv_copy_entry(d->fd, "a", d->fd, "b", PV_COPY_PLAIN, &err), -1);
        assert_int_equal(err.sys, EEXIST);
        assert_int_equal(look(d, "b").st_size, 5);
}

/* Of another's file an ordinary user could only make one with another owner: no copy then, and nothing left of it. */
static void test_an_owner_that_cannot_be_given(void **state)
{
        struct dir *d = *state;
        struct pv_err err = PV_ERR_INIT;
        assert_return_code(fchmod(d->fd, 0777), 0);
        pid_t pid = fork();
        if (pid == 0) {
                int etc = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
                        _exit(2);
                int r = pv_copy_entry(etc, "passwd", d->fd, "copy", PV_COPY_PLAIN, &err);
                _exit(r < 0 && err.sys == EPERM && faccessat(d->fd, "copy", F_OK, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

#define OUTSIDE "user.overlay.overlay.overlay.x=3 user.overlay.overlay.x=2 user.overlay.x=1 user.x=0 "
#define IN_LAYER                                                                     \
        "user.overlay.overlay.overlay.overlay.x=3 user.overlay.overlay.overlay.x=2 " \
        "user.overlay.overlay.x=1 "

static void set_outside(const struct dir *d, const char *name)
{
        set(d, name, "user.x", "0");
        set(d, name, "user.overlay.x", "1");
        set(d, name, "user.overlay.overlay.x", "2");
        set(d, name, "user.overlay.overlay.overlay.x", "3");
}

static void test_copies_into_a_layer_and_out_of_it(void **state)
{
        struct dir *d = *state;
        write_file(d, "a", "", 0644);
        set_outside(d, "a");
        copy(d, "a", "b", PV_COPY_TO_LAYER);
        assert_attributes(d, "b", IN_LAYER "user.x=0 ");
        set(d, "b", PV_OVERLAY_OPAQUE, "y");
        copy(d, "b", "c", PV_COPY_FROM_LAYER);
        assert_attributes(d, "c", OUTSIDE);
}

/* In place, and however often: a recovery repeats what may have been done. */
static void test_moves_into_a_layer_and_out_of_it(void **state)
{
        struct dir *d = *state;
        struct pv_err err = PV_ERR_INIT;
        write_file(d, "a", "", 0644);
        set_outside(d, "a");
        for (int round = 0; round < 2; round++) {
                for (int again = 0; again < 2; again++)
                        assert_return_code(pv_xattrs_enter_layer(d->fd, "a", &err), 0);
                assert_attributes(d, "a", IN_LAYER "user.overlay.pvisor.entered=y user.x=0 ");
                set(d, "a", PV_OVERLAY_OPAQUE, "y");
                assert_return_code(pv_xattrs_leave_layer(d->fd, "a", &err), 0);
                assert_attributes(d, "a", OUTSIDE);
        }
}

/* Ended after some steps: what is left to do is noted, and what was next may be done already. */
static void test_a_move_into_a_layer_that_was_cut_short(void **state)
{
        struct dir *d = *state;
        struct pv_err err = PV_ERR_INIT;
        static const char rest[] = "user.overlay.overlay.x\0user.overlay.x";
        for (int done = 0; done < 2; done++) {
                const char *name = done ? "b" : "a";
                write_file(d, name, "", 0644);
                set(d, name, "user.overlay.overlay.overlay.overlay.x", "3");
                set(d, name, done ? "user.overlay.overlay.overlay.x" : "user.overlay.overlay.x", "2");
                set(d, name, "user.overlay.x", "1");
                assert_return_code(pv_xattr_set(d->fd, name, "user.overlay.pvisor.entering", rest, sizeof rest), 0);
                assert_return_code(pv_xattrs_enter_layer(d->fd, name, &err), 0);
                assert_attributes(d, name, IN_LAYER "user.overlay.pvisor.entered=y ");
        }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
        static const struct CMUnitTest tests[] = {
                TEST(test_a_file),
                TEST(test_holes_stay_holes),
                TEST(test_attributes_of_a_file_that_may_not_be_written),
                TEST(test_access_lists),
                TEST(test_a_tree_with_links),
                TEST(test_what_is_there_is_left_alone),
                TEST(test_an_owner_that_cannot_be_given),
                TEST(test_copies_into_a_layer_and_out_of_it),
                TEST(test_moves_into_a_layer_and_out_of_it),
                TEST(test_a_move_into_a_layer_that_was_cut_short),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
