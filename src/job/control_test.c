/* SPDX-License-Identifier: Apache-2.0 */
/* Packets of the control socket: control_packet.h. Who may speak and what is served: tests/test_control.py. */
#include "base/test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/str.h"
#include "job/control_packet.h"

static int pair[2];

static int setup(void **state)
{
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
        (void)close(pair[0]);
        (void)close(pair[1]);
        return 0;
}

static void a_packet_arrives_with_its_descriptors(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_control_packet got = PV_CONTROL_PACKET_INIT;
        json_t *body = json_pack("{s:s}", "verb", "state");
        const int fds[2] = { STDIN_FILENO, STDERR_FILENO };
        assert_int_equal(pv_control_packet_send(pair[0], body, fds, 2, 0, &err), 0);
        assert_int_equal(pv_control_packet_receive(pair[1], &got, 0, &err), 1);
        assert_true(json_equal(got.body, body));
        assert_true(got.fds[0] >= 0 && got.fds[1] >= 0);
        assert_int_equal(got.fds[2], -1);
        assert_int_equal(fcntl(got.fds[1], F_GETFD), FD_CLOEXEC);
        json_decref(body);
}

static void nonsense_is_refused(void **state)
{
        static const char *const packets[] = { "x", "[]", "7", "{\"a\":1,\"a\":2}", "{} x", "\"\"" };
        for (size_t i = 0; i < sizeof packets / sizeof *packets; i++) {
                struct pv_err err = PV_ERR_INIT;
                pv_auto_control_packet got = PV_CONTROL_PACKET_INIT;
                assert_true(send(pair[0], packets[i], strlen(packets[i]), 0) > 0);
                assert_int_equal(pv_control_packet_receive(pair[1], &got, 0, &err), -1);
                assert_int_equal(err.kind, PV_ERR_INPUT);
        }
}

static void what_is_too_long_is_refused_on_both_sides(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_free char *text = pv_calloc(PV_CONTROL_PACKET_MAX + 1, 1);
        memset(text, 'x', PV_CONTROL_PACKET_MAX);
        json_t *body = json_pack("{s:s}", "verb", text);
        assert_int_equal(pv_control_packet_send(pair[0], body, NULL, 0, 0, &err), -1);
        assert_int_equal(err.kind, PV_ERR_USAGE);
        json_decref(body);
        pv_auto_control_packet got = PV_CONTROL_PACKET_INIT;
        pv_err_clear(&err);
        assert_true(send(pair[0], text, PV_CONTROL_PACKET_MAX + 1, 0) > 0);
        assert_int_equal(pv_control_packet_receive(pair[1], &got, 0, &err), -1);
        assert_int_equal(err.kind, PV_ERR_INPUT);
}

static void silence_and_an_end_are_told_apart(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_control_packet got = PV_CONTROL_PACKET_INIT;
        assert_int_equal(pv_control_packet_receive(pair[1], &got, MSG_DONTWAIT, &err), -1);
        assert_int_equal(err.sys, EAGAIN);
        (void)close(pair[0]);
        assert_int_equal(pv_control_packet_receive(pair[1], &got, 0, &err), 0);
}

static void what_was_said_before_a_close_is_heard(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_control_packet got = PV_CONTROL_PACKET_INIT;
        assert_true(send(pair[1], "{}", 2, 0) > 0); /* never read: the close is a reset */
        assert_true(send(pair[0], "{\"ok\":false}", 12, 0) > 0);
        (void)close(pair[0]);
        assert_int_equal(pv_control_packet_receive(pair[1], &got, 0, &err), 1);
}

static void errors_travel(void **state)
{
        for (int kind = PV_ERR_NONE + 1; kind < PV_ERR_KINDS; kind++) {
                struct pv_err sent = PV_ERR_INIT, got = PV_ERR_INIT;
                (void)pv_err_set(&sent, (enum pv_err_kind)kind, 0, "why \xff");
                (void)pv_err_hint(&sent, "do it");
                json_t *j = pv_control_error_json(&sent);
                pv_control_error_parse(j, &got);
                assert_int_equal(got.kind, kind);
                assert_string_equal(got.msg, sent.msg);
                assert_string_equal(got.hint, sent.hint);
                json_decref(j);
        }
        struct pv_err odd = PV_ERR_INIT;
        json_t *j = json_pack("{s:s, s:i}", "kind", "of a newer version", "error", 7);
        pv_control_error_parse(j, &odd);
        assert_int_equal(odd.kind, PV_ERR_SYS);
        json_decref(j);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_packet_arrives_with_its_descriptors, setup, teardown),
                cmocka_unit_test_setup_teardown(nonsense_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(what_is_too_long_is_refused_on_both_sides, setup, teardown),
                cmocka_unit_test_setup_teardown(silence_and_an_end_are_told_apart, setup, teardown),
                cmocka_unit_test_setup_teardown(what_was_said_before_a_close_is_heard, setup, teardown),
                cmocka_unit_test(errors_travel),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
