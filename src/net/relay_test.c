/* SPDX-License-Identifier: Apache-2.0 */
/* Relays between TCP connections over loopback, driven turn by turn; the test plays both peers. */
#include "base/test.h"
#include "net/relay.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include "base/str.h"

struct rig {
        struct pv_loop loop;
        struct pv_relay_pool pool;
        struct pv_relay relay;
        int inside, outside; /* the peers' ends, non-blocking */
        int ended, error;
};

static struct rig *rig_of_relay; /* ended has no other way to the test */

static void on_end(struct pv_relay *r, int error)
{
        rig_of_relay->ended++;
        rig_of_relay->error = error;
}

static void tcp_pair(int fd[2])
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof a;
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(listener, (struct sockaddr *)&a, n), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
        fd[0] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd[0], (struct sockaddr *)&a, n), 0);
        fd[1] = accept(listener, NULL, NULL);
        for (int i = 0; i < 2; i++)
                assert_int_equal(fcntl(fd[i], F_SETFL, O_NONBLOCK), 0);
        assert_int_equal(close(listener), 0);
}

static int set_up(void **state)
{
        struct rig *r = pv_calloc(1, sizeof *r);
        struct pv_err e = PV_ERR_INIT;
        int in[2], out[2];
        assert_int_equal(pv_loop_init(&r->loop, &e), 0);
        r->pool = (struct pv_relay_pool){ .loop = &r->loop, .buffer = pv_calloc(PV_RELAY_BUFFER, 1) };
        tcp_pair(in);
        tcp_pair(out);
        r->inside = in[0];
        r->outside = out[0];
        r->relay.ended = on_end;
        rig_of_relay = r;
        assert_int_equal(pv_relay_start(&r->relay, &r->pool, in[1], out[1]), 0);
        *state = r;
        return 0;
}

static int tear_down(void **state)
{
        struct rig *r = *state;
        if (!r->ended)
                pv_relay_abort(&r->relay);
        assert_int_equal(r->pool.n, 0);
        if (r->inside >= 0)
                (void)close(r->inside);
        if (r->outside >= 0)
                (void)close(r->outside);
        pv_loop_fini(&r->loop);
        free(r->pool.buffer);
        free(r);
        return 0;
}

static void turns(struct rig *r, int n)
{
        struct pv_err e = PV_ERR_INIT;
        for (int i = 0; i < n; i++)
                assert_int_equal(pv_loop_turn(&r->loop, 1, &e), 0);
}

static void bytes_pass_both_ways(void **state)
{
        struct rig *r = *state;
        char buf[32];
        assert_int_equal(send(r->inside, "question", 8, 0), 8);
        assert_int_equal(send(r->outside, "banner", 6, 0), 6);
        turns(r, 4);
        assert_int_equal(recv(r->outside, buf, sizeof buf, 0), 8);
        assert_int_equal(recv(r->inside, buf, sizeof buf, 0), 6);
        assert_int_equal(r->relay.from[PV_RELAY_INSIDE].bytes, 8);
        assert_int_equal(r->relay.from[PV_RELAY_OUTSIDE].bytes, 6);
        assert_int_equal(r->ended, 0);
}

static void a_half_close_passes_and_the_other_half_lives(void **state)
{
        struct rig *r = *state;
        char buf[32];
        assert_int_equal(send(r->inside, "all", 3, 0), 3);
        assert_int_equal(shutdown(r->inside, SHUT_WR), 0);
        turns(r, 4);
        assert_int_equal(recv(r->outside, buf, sizeof buf, 0), 3);
        assert_int_equal(recv(r->outside, buf, sizeof buf, 0), 0);
        assert_int_equal(r->ended, 0);
        assert_int_equal(send(r->outside, "answer", 6, 0), 6);
        assert_int_equal(shutdown(r->outside, SHUT_WR), 0);
        turns(r, 4);
        assert_int_equal(recv(r->inside, buf, sizeof buf, 0), 6);
        assert_int_equal(recv(r->inside, buf, sizeof buf, 0), 0);
        assert_int_equal(r->ended, 1);
        assert_int_equal(r->error, 0);
}

static void a_reset_passes_as_a_reset(void **state)
{
        struct rig *r = *state;
        char buf[32];
        pv_relay_reset(r->outside);
        r->outside = -1;
        turns(r, 4);
        assert_int_equal(r->ended, 1);
        assert_int_equal(r->error, ECONNRESET);
        assert_int_equal(recv(r->inside, buf, sizeof buf, 0), -1);
        assert_int_equal(errno, ECONNRESET);
}

/* Sends until nothing goes any more, turning the loop: what was taken in all. */
static size_t stuff(struct rig *r, int fd)
{
        static char big[256 * 1024];
        size_t sum = 0;
        for (int idle = 0; idle < 20;) {
                ssize_t n = send(fd, big, sizeof big, MSG_NOSIGNAL);
                sum += n > 0 ? (size_t)n : 0;
                idle = n > 0 ? 0 : idle + 1;
                turns(r, 1);
        }
        return sum;
}

static void a_slow_reader_stops_the_writer_and_nothing_is_lost(void **state)
{
        struct rig *r = *state;
        static char buf[256 * 1024];
        size_t sent = stuff(r, r->outside), got = 0;
        assert_true(r->relay.from[PV_RELAY_OUTSIDE].pending_len <= PV_RELAY_BUFFER);
        assert_true(sent < 64 * 1024 * 1024);
        assert_int_equal(shutdown(r->outside, SHUT_WR), 0);
        assert_int_equal(shutdown(r->inside, SHUT_WR), 0); /* both halves: the loop must not spin on the hang-up */
        turns(r, 4);
        assert_int_equal(r->ended, 0);
        assert_int_equal(r->relay.watch[PV_RELAY_OUTSIDE].events, 0);
        for (int i = 0; i < 100000 && !r->ended; i++) {
                ssize_t n = recv(r->inside, buf, sizeof buf, 0);
                got += n > 0 ? (size_t)n : 0;
                turns(r, 1);
        }
        assert_int_equal(r->ended, 1);
        /* What the kernel has taken it brings along on its own, on a busy machine with pauses. */
        for (ssize_t n; (n = recv(r->inside, buf, sizeof buf, 0)) != 0; got += n > 0 ? (size_t)n : 0) {
                struct pollfd p = { .fd = r->inside, .events = POLLIN };
                assert_true(n > 0 || (errno == EAGAIN && poll(&p, 1, 10000) > 0));
        }
        assert_int_equal(got, sent);
}

static void preloaded_bytes_come_first(void **state)
{
        struct rig *r = *state;
        char buf[32] = { 0 };
        assert_int_equal(send(r->inside, "c", 1, 0), 1);
        pv_relay_preload(&r->relay, PV_RELAY_OUTSIDE, "a", 1);
        pv_relay_preload(&r->relay, PV_RELAY_OUTSIDE, "b", 1);
        turns(r, 4);
        assert_int_equal(recv(r->outside, buf, sizeof buf, 0), 3);
        assert_string_equal(buf, "abc");
}

static void a_limit_holds_and_resume_goes_on(void **state)
{
        struct rig *r = *state;
        static char buf[256 * 1024];
        struct pv_rate limit, *limits[] = { &limit, NULL };
        size_t got = 0;
        pv_rate_init(&limit, 1000000, r->loop.now_us);
        r->relay.limit[PV_RELAY_OUTSIDE] = limits;
        uint64_t start = r->loop.now_us;
        (void)stuff(r, r->outside);
        while (r->loop.now_us - start < 300000) {
                ssize_t n = recv(r->inside, buf, sizeof buf, 0);
                got += n > 0 ? (size_t)n : 0;
                turns(r, 1);
                pv_relay_pool_resume(&r->pool);
        }
        assert_in_range(got, 100000, 500000); /* 0.3 s of 1 MB/s and the first tenth, on a machine that may be busy */
        r->relay.limit[PV_RELAY_OUTSIDE] = NULL;
}

static void those_who_wait_for_one_limit_share_it(void **state)
{
        enum { N = 3 };
        struct rig *r = *state;
        static char buf[256 * 1024];
        struct pv_rate limit, *limits[] = { &limit, NULL };
        struct pv_relay relay[N] = { 0 };
        int from[N], to[N];
        size_t got[N] = { 0 };
        pv_rate_init(&limit, 1000000, r->loop.now_us);
        for (int i = 0; i < N; i++) {
                int in[2], out[2];
                tcp_pair(in);
                tcp_pair(out);
                to[i] = in[0];
                from[i] = out[0];
                relay[i].ended = on_end;
                relay[i].limit[PV_RELAY_OUTSIDE] = limits;
                assert_int_equal(pv_relay_start(&relay[i], &r->pool, in[1], out[1]), 0);
                assert_true(send(from[i], buf, sizeof buf, 0) > 0);
        }
        uint64_t start = r->loop.now_us;
        while (r->loop.now_us - start < 300000) {
                for (int i = 0; i < N; i++) {
                        ssize_t n = recv(to[i], buf, sizeof buf, 0);
                        got[i] += n > 0 ? (size_t)n : 0;
                }
                turns(r, 1);
                pv_relay_pool_resume(&r->pool);
        }
        for (int i = 0; i < N; i++) {
                assert_true(got[i] > 30000);
                pv_relay_abort(&relay[i]);
                (void)close(from[i]);
                (void)close(to[i]);
        }
        assert_null(r->pool.throttled);
}

static void who_ended_its_half_and_is_gone_ends_it_all(void **state)
{
        struct rig *r = *state;
        assert_int_equal(shutdown(r->inside, SHUT_WR), 0);
        turns(r, 4);
        assert_int_equal(r->ended, 0);
        pv_relay_reset(r->inside);
        r->inside = -1;
        turns(r, 4);
        assert_int_equal(r->ended, 1);
        assert_int_equal(r->error, ECONNRESET);
}

static void an_abort_does_not_take_back_what_was_sent_whole(void **state)
{
        struct rig *r = *state;
        char buf[8];
        assert_int_equal(send(r->inside, "last", 4, 0), 4);
        assert_int_equal(shutdown(r->inside, SHUT_WR), 0);
        turns(r, 4);
        pv_relay_abort(&r->relay);
        r->ended = 1;
        assert_int_equal(recv(r->outside, buf, sizeof buf, 0), 4);
        assert_int_equal(recv(r->outside, buf, sizeof buf, 0), 0);
        assert_int_equal(recv(r->inside, buf, sizeof buf, 0), -1);
        assert_int_equal(errno, ECONNRESET);
}

#define RIGGED(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
        const struct CMUnitTest tests[] = {
                RIGGED(bytes_pass_both_ways),
                RIGGED(a_half_close_passes_and_the_other_half_lives),
                RIGGED(a_reset_passes_as_a_reset),
                RIGGED(a_slow_reader_stops_the_writer_and_nothing_is_lost),
                RIGGED(preloaded_bytes_come_first),
                RIGGED(a_limit_holds_and_resume_goes_on),
                RIGGED(those_who_wait_for_one_limit_share_it),
                RIGGED(who_ended_its_half_and_is_gone_ends_it_all),
                RIGGED(an_abort_does_not_take_back_what_was_sent_whole),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
