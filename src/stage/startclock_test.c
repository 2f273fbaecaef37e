/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "stage/startclock.h"

static struct pv_err err;

static struct timespec ctime_of(int fd)
{
        struct stat st;
        assert_return_code(fstat(fd, &st), 0);
        return st.st_ctim;
}

static void touch(int dirfd, const char *name)
{
        pv_auto_fd fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0 && write(fd, "x", 1) == 1);
}

static struct timespec ctime_at(int dirfd, const char *name)
{
        pv_auto_fd fd = openat(dirfd, name, O_PATH | O_CLOEXEC);
        return ctime_of(fd);
}

struct place {
        char *dir;
        struct pv_pathfd fd;
};

static void enter(struct place *p, const char *base)
{
        p->dir = pv_strf("%s/pv-clock-XXXXXX", base);
        assert_non_null(mkdtemp(p->dir));
        assert_return_code(pv_path_open_root(p->dir, &p->fd, &err), 0);
}

static void leave(struct place *p)
{
        pv_pathfd_closep(&p->fd);
        assert_return_code(pv_path_remove_tree(AT_FDCWD, p->dir, &err), 0);
        free(p->dir);
}

/* own: a file of ours there, or one on another filesystem. */
static void check_order(struct place *p, int own)
{
        struct timespec t0;
        for (int i = 0; i < 200; i++) {
                pv_auto_free char *before = pv_strf("before-%d", i), *after = pv_strf("after-%d", i);
                touch(p->fd.fd, before);
                struct timespec b = ctime_at(p->fd.fd, before);
                assert_return_code(pv_startclock_take(p->fd, own, p->dir, &t0, &err), 0);
                touch(p->fd.fd, after);
                struct timespec a = ctime_at(p->fd.fd, after);
                assert_true(pv_clock_compare(&b, &t0) < 0);
                assert_true(pv_clock_compare(&a, &t0) >= 0);
        }
}

static void test_t0_lies_between_what_was_before_and_what_comes_after(void **state)
{
        static const char *const bases[] = { "/var/tmp", "/dev/shm" };
        for (size_t i = 0; i < 2; i++)
                for (size_t k = 0; k < 2; k++) {
                        struct place target, own;
                        enter(&target, bases[i]);
                        enter(&own, bases[k]);
                        pv_auto_fd file = openat(own.fd.fd, "own", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
                        check_order(&target, file);
                        leave(&own);
                        leave(&target);
                }
}

static void test_taking_it_leaves_no_trace_in_the_target(void **state)
{
        struct place target, own;
        struct timespec t0;
        enter(&target, "/var/tmp");
        enter(&own, "/dev/shm");
        pv_auto_fd file = openat(own.fd.fd, "own", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct timespec before = ctime_of(target.fd.fd);
        assert_return_code(pv_startclock_take(target.fd, file, target.dir, &t0, &err), 0);
        struct timespec after = ctime_of(target.fd.fd);
        assert_int_equal(pv_clock_compare(&before, &after), 0);
        assert_int_equal(rmdir(target.dir), 0); /* it is empty */
        assert_int_equal(mkdir(target.dir, 0700), 0);
        leave(&own);
        leave(&target);
}

static void test_clocks_that_can_be_compared(void **state)
{
        struct pv_clockwatch nobody = { -1 }, watch = { -1 };
        struct pv_startclock then = { .boot_id = "a", .realtime_ns = 5000000000000, .boottime_ns = 1000000000 };
        struct pv_startclock now = then;
        now.boottime_ns += 3600 * 1000000000LL;
        assert_int_equal(pv_startclock_judge(&then, &now, &nobody), PV_CLOCK_STEADY);
        now.realtime_ns = then.realtime_ns + 1000000000; /* an hour's slewing */
        assert_int_equal(pv_startclock_judge(&then, &now, &nobody), PV_CLOCK_STEADY);
        now.realtime_ns = then.realtime_ns - 3000000000;
        assert_int_equal(pv_startclock_judge(&then, &now, &nobody), PV_CLOCK_STEPPED);
        now.realtime_ns = then.realtime_ns + 3000000000;
        assert_int_equal(pv_startclock_judge(&then, &now, &nobody), PV_CLOCK_STEPPED);
        pv_clockwatch_start(&watch); /* who watched all the time knows better */
        assert_true(watch.fd >= 0);
        assert_false(pv_clockwatch_saw_step(&watch));
        assert_int_equal(pv_startclock_judge(&then, &now, &watch), PV_CLOCK_STEADY);
        (void)strcpy(now.boot_id, "b");
        assert_int_equal(pv_startclock_judge(&then, &now, &watch), PV_CLOCK_REBOOTED);
        then.boot_id[0] = now.boot_id[0] = '\0';
        assert_int_equal(pv_startclock_judge(&then, &now, &watch), PV_CLOCK_REBOOTED);
        pv_fd_closep(&watch.fd);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_t0_lies_between_what_was_before_and_what_comes_after),
                cmocka_unit_test(test_taking_it_leaves_no_trace_in_the_target),
                cmocka_unit_test(test_clocks_that_can_be_compared),
        };
        return cmocka_run_group_tests_name("startclock", tests, NULL, NULL);
}
