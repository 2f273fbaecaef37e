/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/passwd.h"

#include <string.h>
#include "base/str.h"

static const char text[] = "root:x:0:0:root:/root:/bin/bash\n"
                           "# a comment\n"
                           "broken\n"
                           "nowhere:x:1000:1000::relative:/bin/sh\n"
                           "ann:x:1001:1001:Ann,,,:/home/ann:/bin/sh\n"
                           "second:x:1001:1001::/home/second:/bin/sh\n"
                           "empty:x:1002:1002:::/bin/sh\n"
                           "+::::::\n"
                           "last:x:1003:1003::/home/last:";

static void finds_the_home_of_a_user(void **state)
{
        static const struct {
                uid_t uid;
                const char *home;
        } want[] = { { 0, "/root" }, { 1000, NULL },         { 1001, "/home/ann" },
                     { 1002, NULL }, { 1003, "/home/last" }, { 1004, NULL } };
        char path[] = "/tmp/pvisor-passwd.XXXXXX";
        int fd = mkstemp(path);
        (void)state;
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
                pv_auto_free char *home = pv_passwd_home(path, want[i].uid);
                if (want[i].home)
                        assert_string_equal(home, want[i].home);
                else
                        assert_null(home);
        }
        (void)close(fd);
        (void)unlink(path);
        assert_null(pv_passwd_home(path, 0));
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(finds_the_home_of_a_user) };
        return cmocka_run_group_tests_name("passwd", tests, NULL, NULL);
}
