/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <fcntl.h>
#include <unistd.h>
#include "base/pass_fd.h"

static int pair[2];

static int setup(void **state)
{
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair);
}

static int teardown(void **state)
{
        return close(pair[0]) + close(pair[1]);
}

static void send_with(const int *fds, size_t n)
{
        union pv_pass_room room;
        char byte = 'x';
        struct iovec io = { &byte, 1 };
        struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
        pv_pass_fds(&m, &room, fds, n);
        assert_int_equal(sendmsg(pair[0], &m, MSG_NOSIGNAL), 1);
}

static size_t receive_with(int *fds, size_t n, int *flags)
{
        union pv_pass_room room;
        char byte;
        struct iovec io = { &byte, 1 };
        struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1 };
        pv_pass_accept(&m, &room, n);
        assert_int_equal(recvmsg(pair[1], &m, MSG_CMSG_CLOEXEC), 1);
        *flags = m.msg_flags;
        return pv_pass_take(&m, fds, n);
}

static int next_fd(void)
{
        int fd = dup(pair[0]);
        assert_true(fd >= 0);
        assert_return_code(close(fd), 0);
        return fd;
}

static void they_arrive_in_their_order(void **state)
{
        int ends[2], got[3], flags;
        char byte = 0;
        assert_return_code(pipe2(ends, O_CLOEXEC), 0);
        send_with(ends, 2);
        assert_int_equal(receive_with(got, 3, &flags), 2);
        assert_int_equal(flags & MSG_CTRUNC, 0);
        assert_int_equal(got[2], -1);
        assert_int_equal(fcntl(got[1], F_GETFD), FD_CLOEXEC);
        assert_int_equal(write(got[1], "b", 1), 1);
        assert_int_equal(read(got[0], &byte, 1), 1);
        assert_int_equal(byte, 'b');
        for (size_t i = 0; i < 2; i++)
                assert_int_equal(close(ends[i]) + close(got[i]), 0);
}

static void without_any_there_is_none(void **state)
{
        int got[2], flags;
        send_with(NULL, 0);
        assert_int_equal(receive_with(got, 2, &flags), 0);
        assert_int_equal(got[0], -1);
        assert_int_equal(got[1], -1);
}

static void more_than_wanted_leave_nothing_open(void **state)
{
        int many[PV_PASS_FDS], got[PV_PASS_FDS], flags;
        for (size_t i = 0; i < PV_PASS_FDS; i++)
                many[i] = pair[0];
        int before = next_fd();
        for (size_t wanted = 0; wanted < PV_PASS_FDS; wanted++) {
                send_with(many, PV_PASS_FDS);
                assert_int_equal(receive_with(got, wanted, &flags), wanted);
                assert_true(flags & MSG_CTRUNC);
                for (size_t i = 0; i < wanted; i++)
                        assert_return_code(close(got[i]), 0);
                assert_int_equal(next_fd(), before);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(they_arrive_in_their_order, setup, teardown),
                cmocka_unit_test_setup_teardown(without_any_there_is_none, setup, teardown),
                cmocka_unit_test_setup_teardown(more_than_wanted_leave_nothing_open, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
