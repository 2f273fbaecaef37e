/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/child_test.h"

#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "boundary/caps.h"
#include "boundary/control.h"

static int gain_all(void)
{
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct all[2] = { { .effective = ~0U, .permitted = ~0U }, { 0 } };

        return (int)syscall(SYS_capset, &head, all);
}

static int drop(void *arg)
{
        struct pv_observations obs = { 0 };
        struct pv_err err = PV_ERR_INIT;
        enum pv_caps_keep keep = *(enum pv_caps_keep *)arg;

        if (enter_userns(CLONE_NEWNS) < 0)
                return 77;
        CHILD_CHECK(mount("none", "/tmp", "tmpfs", 0, NULL) == 0); /* the twin: with them it works */
        CHILD_CHECK(pv_caps_no_new_privs(&obs, &err) == 0);
        CHILD_CHECK(pv_caps_drop(keep, &obs, &err) == 0);
        CHILD_CHECK(mount("none", "/tmp", "tmpfs", 0, NULL) < 0 && errno == EPERM);
        CHILD_CHECK(gain_all() < 0 && errno == EPERM);
        CHILD_CHECK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0) < 0);
        CHILD_CHECK(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) < 0);
        CHILD_CHECK(prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 0);
        CHILD_CHECK(prctl(PR_CAPBSET_READ, CAP_FOWNER, 0, 0, 0) == (keep == PV_CAPS_ROOT_FILES));
        CHILD_CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
        CHILD_CHECK(obs.n == 2 && obs.item[1].installed);
        return 0;
}

static void check(enum pv_caps_keep keep)
{
        int r = in_child(drop, &keep);

        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static void nothing_is_left_for_an_ordinary_user(void **state)
{
        (void)state;
        check(PV_CAPS_NONE);
}

static void root_keeps_what_reaches_files_alone(void **state)
{
        (void)state;
        check(PV_CAPS_ROOT_FILES);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_is_left_for_an_ordinary_user),
                cmocka_unit_test(root_keeps_what_reaches_files_alone),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
