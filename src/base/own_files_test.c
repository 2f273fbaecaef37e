/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
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

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(test_modes_do_not_keep_the_owner_out) };
        return cmocka_run_group_tests_name("own_files", tests, NULL, NULL);
}
