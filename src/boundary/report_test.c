/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fd.h"
#include "boundary/boundary.h"
#include "boundary/report.h"

static int channel[2];

static int setup(void **state)
{
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel);
}

static int teardown(void **state)
{
        (void)close(channel[0]);
        (void)close(channel[1]);
        return 0;
}

static int collect(struct pv_observations *obs, int *views, size_t n, struct pv_err *err)
{
        int net[PV_BOUNDARY_NET_FDS];
        for (size_t i = 0; i < PV_BOUNDARY_NET_FDS; i++)
                net[i] = -1;
        (void)close(channel[1]);
        channel[1] = -1;
        struct pv_report_sink sink = { .obs = obs, .n_views = n, .net = net };
        sink.views = views;
        int r;
        while ((r = pv_report_take(channel[0], &sink, 0, err)) > 0)
                ;
        return r < 0 || err->kind != PV_ERR_NONE ? -1 : 0;
}

static void a_full_table_of_observations_arrives(void **state)
{
        static struct pv_observations sent, got;
        struct pv_err err = PV_ERR_INIT;
        for (int i = 0; i < PV_CONTROLS_MAX; i++) {
                char name[16];
                (void)snprintf(name, sizeof name, "control-%d", i);
                assert_non_null(pv_observations_add(&sent, PV_DIM_READS, name, "by test"));
        }
        pv_report_observations(channel[1], &sent);
        assert_int_equal(collect(&got, NULL, 0, &err), 0);
        assert_int_equal(got.n, PV_CONTROLS_MAX);
        assert_memory_equal(&got, &sent, sizeof got);
}

static void the_first_error_counts(void **state)
{
        static struct pv_observations got;
        struct pv_err err = PV_ERR_INIT, first = PV_ERR_INIT, second = PV_ERR_INIT;
        (void)pv_err_set(&first, PV_ERR_UNSUPPORTED, EPERM, "first");
        (void)pv_err_set(&second, PV_ERR_SYS, 0, "second");
        pv_report_error(channel[1], &first);
        pv_report_error(channel[1], &second);
        assert_int_equal(collect(&got, NULL, 0, &err), -1);
        assert_int_equal(err.kind, PV_ERR_UNSUPPORTED);
        assert_int_equal(err.sys, EPERM);
        assert_string_equal(err.msg, first.msg);
}

static void views_arrive_where_they_belong(void **state)
{
        static struct pv_observations got;
        struct pv_err err = PV_ERR_INIT;
        int views[2] = { -1, -1 };
        pv_auto_fd fd = open("/", O_PATH);
        assert_int_equal(pv_report_view(channel[1], 1, fd, &err), 0);
        assert_int_equal(pv_report_view(channel[1], 7, fd, &err), 0); /* there is no such */
        assert_int_equal(collect(&got, views, 2, &err), 0);
        assert_int_equal(views[0], -1);
        assert_true(views[1] >= 0);
        assert_int_equal(fcntl(views[1], F_GETFD), FD_CLOEXEC);
        (void)close(views[1]);
}

static void nonsense_is_passed_over(void **state)
{
        static struct pv_observations got;
        struct pv_err err = PV_ERR_INIT;
        static char junk[2000];
        for (unsigned kind = 0; kind < 6; kind++) {
                memset(junk, 0xff, sizeof junk);
                memcpy(junk, &kind, sizeof kind);
                for (size_t len = 1; len < sizeof junk; len = len * 3 + 1)
                        assert_int_equal(send(channel[1], junk, len, 0), len);
        }
        assert_int_equal(collect(&got, NULL, 0, &err), 0);
        assert_int_equal(got.n, 0);
}

static void messages_tell_a_lost_peer_from_silence(void **state)
{
        struct pv_message m;
        assert_int_equal(pv_message_receive(channel[0], &m, MSG_DONTWAIT), -1);
        assert_int_equal(pv_message_send(channel[1], PV_MESSAGE_ENDED, 9), 0);
        assert_int_equal(pv_message_receive(channel[0], &m, 0), 1);
        assert_int_equal(m.kind, PV_MESSAGE_ENDED);
        assert_int_equal(m.value, 9);
        (void)close(channel[1]);
        assert_int_equal(pv_message_receive(channel[0], &m, 0), 0);
        assert_int_equal(pv_message_send(channel[0], PV_MESSAGE_GO, 0), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_full_table_of_observations_arrives, setup, teardown),
                cmocka_unit_test_setup_teardown(the_first_error_counts, setup, teardown),
                cmocka_unit_test_setup_teardown(views_arrive_where_they_belong, setup, teardown),
                cmocka_unit_test_setup_teardown(nonsense_is_passed_over, setup, teardown),
                cmocka_unit_test_setup_teardown(messages_tell_a_lost_peer_from_silence, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
