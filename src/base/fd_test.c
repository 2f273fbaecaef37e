/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static bool is_open(int fd)
{
        return fcntl(fd, F_GETFD) >= 0;
}

/* In a child: with 3 to 19 open, keeps some of them. Its exit code is the first that is not as it should be. */
static int keep(const int *keep, size_t n)
{
        int null = open("/dev/null", O_RDONLY);
        for (int fd = 3; fd < 20; fd++)
                if (null < 0 || (fd != null && dup2(null, fd) < 0))
                        return 1;
        if (pv_fd_keep_only(keep, n) < 0)
                return 2;
        for (int fd = 0; fd < 20; fd++) {
                bool wanted = fd < 3;
                for (size_t i = 0; i < n; i++)
                        wanted |= keep[i] == fd;
                if (is_open(fd) != wanted)
                        return 10 + fd;
        }
        return 0;
}

static void only_what_is_named_stays_open(void **state)
{
        (void)state;
        static const struct {
                int fd[5];
                size_t n;
        } sets[] = { { { 0 }, 0 }, { { 3 }, 1 }, { { 19 }, 1 }, { { 9, 4, -1, 9, 3 }, 5 }, { { 1, 7, 6, 5 }, 4 } };
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
                int status = -1;
                pid_t pid = fork();
                if (pid == 0)
                        _exit(keep(sets[i].fd, sets[i].n));
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_int_equal(status, 0);
        }
}

static void a_path_by_descriptor_leads_to_the_file_itself(void **state)
{
        (void)state;
        char path[] = "/tmp/pv-fd-test-XXXXXX", moved[sizeof path + 2];
        struct stat st;
        pv_auto_fd made = mkstemp(path);
        pv_auto_fd fd = open(path, O_PATH | O_CLOEXEC);
        (void)snprintf(moved, sizeof moved, "%s-2", path);
        assert_int_equal(rename(path, moved), 0);
        assert_int_equal(fchmod(fd, 0640), -1);
        assert_int_equal(pv_fd_chmod(fd, 0640), 0);
        assert_int_equal(stat(moved, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0640);
        pv_auto_fd again = open(pv_fd_path(fd).s, O_RDWR | O_CLOEXEC);
        assert_true(again >= 0 && made >= 0);
        assert_int_equal(pv_fd_chmod(-1, 0600), -1);
        assert_int_equal(unlink(moved), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(only_what_is_named_stays_open),
                cmocka_unit_test(a_path_by_descriptor_leads_to_the_file_itself),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
