/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/parallel.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 10007

struct seen {
        unsigned char times[MANY];
        size_t chunk;
        atomic_bool wrong; /* a range that is none */
};

static void look(void *ctx, size_t from, size_t end)
{
        struct seen *s = ctx;
        bool whole = end - from == s->chunk || end == MANY;
        if (!whole || from % s->chunk != 0)
                atomic_store(&s->wrong, true);
        for (size_t i = from; i < end; i++)
                s->times[i]++;
}

static void check_loop(size_t n, size_t chunk)
{
        static struct seen s;
        memset(&s, 0, sizeof s);
        s.chunk = chunk;
        pv_parallel_for(n, chunk, look, &s);
        for (size_t i = 0; i < MANY; i++)
                assert_int_equal(s.times[i], i < n);
        assert_true(n != MANY || !atomic_load(&s.wrong));
}

static void each_thing_is_done_once(void **state)
{
        (void)state;
        check_loop(0, 16);
        check_loop(1, 16);
        check_loop(MANY, MANY);
        check_loop(MANY, 1);
        check_loop(MANY, 100);
}

static void with_threads_too(void **state)
{
        pv_parallel_use_threads();
        each_thing_is_done_once(state);
        pv_parallel_set_share(NULL);
}

static void nothing(void *ctx, size_t from, size_t end)
{
        (void)ctx, (void)from, (void)end;
}

/* A process with threads may not enter a user namespace (EINVAL); one without may be refused it for other reasons. */
static void threads_are_gone_afterwards(void **state)
{
        (void)state;
        pid_t pid = fork();
        if (pid == 0) {
                pv_parallel_use_threads();
                for (int i = 0; i < 200; i++)
                        pv_parallel_for(64, 1, nothing, NULL);
                _exit(unshare(CLONE_NEWUSER) < 0 && errno == EINVAL);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void see_whether_alone(void *ctx, size_t from, size_t end)
{
        (void)from, (void)end;
        if (gettid() != getpid())
                atomic_store((atomic_bool *)ctx, true);
}

/* With the limit of descriptors: 0 when the loop ran on the caller's thread alone, and the limit is what it was. */
static int run_within(rlim_t soft, rlim_t hard)
{
        const struct rlimit set = { soft, hard };
        struct rlimit left = { 0 };
        atomic_bool threads = false;
        pid_t pid = fork();
        if (pid == 0) {
                pv_parallel_use_threads();
                if (setrlimit(RLIMIT_NOFILE, &set) < 0)
                        _exit(3);
                for (int i = 0; i < 200; i++)
                        pv_parallel_for(64, 1, see_whether_alone, &threads);
                if (getrlimit(RLIMIT_NOFILE, &left) < 0 || left.rlim_cur != soft || left.rlim_max != hard)
                        _exit(2);
                _exit(atomic_load(&threads));
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void no_more_threads_than_their_directories_may_be_open(void **state)
{
        struct rlimit now;
        (void)state;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
        assert_int_equal(run_within(64, 64), 0);
        assert_in_range(run_within(64, now.rlim_max), 0, 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_thing_is_done_once),
                cmocka_unit_test(with_threads_too),
                cmocka_unit_test(threads_are_gone_afterwards),
                cmocka_unit_test(no_more_threads_than_their_directories_may_be_open),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
