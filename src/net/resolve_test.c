/* SPDX-License-Identifier: Apache-2.0 */
/* The plane's side of name resolution, against a program that says what its questions ask for. */
#include "base/test.h"
#include "net/resolve.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "net/loop.h"
#include "net/resolve_packet.h"

#define PATIENCE_MS 20000

static const char *program_path;

struct question {
        struct pv_resolve_wait wait;
        struct pv_resolver *resolver;
        bool answered;
        struct pv_resolved answer;
        const char *next; /* asked when this is answered */
        struct question *with;
};

static void answered(struct pv_resolve_wait *w, const struct pv_resolved *answer)
{
        struct question *q = PV_CONTAINER_OF(w, struct question, wait);
        assert_false(q->answered);
        q->answered = true;
        q->answer = *answer;
        if (q->next)
                pv_resolver_ask(q->resolver, q->next, &q->with->wait);
}

static struct pv_resolver *make(const char *path)
{
        struct pv_err err = PV_ERR_INIT;
        struct pv_resolver *r;
        int program = path ? open(path, O_PATH | O_CLOEXEC) : -1;
        assert_true(!path || program >= 0);
        assert_int_equal(pv_resolver_new(program, &r, &err), 0);
        return r; /* the descriptor stays open until the tests end */
}

static void ask(struct pv_resolver *r, const char *name, struct question *q)
{
        *q = (struct question){ .wait.done = answered, .resolver = r };
        pv_resolver_ask(r, name, &q->wait);
}

static void await(struct pv_resolver *r, const struct question *q)
{
        uint64_t end = pv_clock_monotonic_ms() + PATIENCE_MS;
        while (!q->answered && pv_clock_monotonic_ms() < end) {
                struct pollfd p = { .fd = pv_resolver_fd(r), .events = POLLIN };
                (void)poll(&p, 1, 1000);
                pv_resolver_deliver(r);
        }
        assert_true(q->answered);
}

static struct question asked(struct pv_resolver *r, const char *name)
{
        struct question q;
        ask(r, name, &q);
        await(r, &q);
        return q;
}

static pid_t process_of(const struct question *q)
{
        pid_t pid;
        memcpy(&pid, q->answer.addr[0].b + 4, sizeof pid);
        return pid;
}

static void assert_no_child_is_left(void)
{
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
}

static void names_are_answered_by_one_process(void **state)
{
        struct pv_resolver *r = make(program_path);
        (void)state;
        assert_no_child_is_left(); /* nothing was asked */
        struct question first = asked(r, "first.test"), none = asked(r, "none.test"),
                        several = asked(r, "several.test");
        assert_int_equal(first.answer.status, PV_RESOLVE_FOUND);
        assert_int_equal(first.answer.n, 1);
        assert_int_equal(none.answer.status, PV_RESOLVE_NO_NAME);
        assert_int_equal(several.answer.n, PV_RESOLVE_ADDRESSES);
        assert_int_equal(process_of(&first), process_of(&several));
        assert_int_equal(kill(process_of(&first), 0), 0);
        pv_resolver_free(r);
        assert_no_child_is_left();
}

static void one_question_serves_all_who_wait_and_its_answer_is_kept(void **state)
{
        struct pv_resolver *r = make(program_path);
        struct question a, b, gone;
        (void)state;
        ask(r, "same.test", &a);
        ask(r, "same.test", &gone);
        ask(r, "same.test", &b);
        pv_resolver_forget(r, &gone.wait);
        pv_resolver_forget(r, &gone.wait);
        await(r, &a);
        assert_true(b.answered && !gone.answered);
        ask(r, "same.test", &gone);
        assert_true(gone.answered); /* at once */
        assert_int_equal(gone.answer.addr[0].b[0], 1);
        assert_int_equal(asked(r, "other.test").answer.addr[0].b[0], 2);
        pv_resolver_free(r);
}

static void what_an_answer_makes_one_ask_is_answered(void **state)
{
        struct pv_resolver *r = make(program_path);
        struct question a, b = { .wait.done = answered, .resolver = r };
        (void)state;
        ask(r, "a.test", &a);
        a.next = "b.test";
        a.with = &b;
        await(r, &b);
        assert_int_equal(b.answer.addr[0].b[0], 2);
        pv_resolver_free(r);
}

static void no_more_are_asked_at_once_than_there_are_threads(void **state)
{
        struct pv_resolver *r = make(program_path);
        struct question q[3 * PV_RESOLVE_AT_ONCE];
        size_t n = sizeof q / sizeof *q;
        (void)state;
        for (size_t i = 0; i < n; i++) {
                char name[32];
                (void)snprintf(name, sizeof name, "hold.%zu.test", i);
                ask(r, name, &q[i]);
        }
        for (size_t i = 0; i < n; i++) {
                await(r, &q[i]);
                assert_int_equal(q[i].answer.status, PV_RESOLVE_FOUND);
        }
        pv_resolver_free(r);
}

static void beyond_the_bound_a_name_fails_at_once(void **state)
{
        struct pv_resolver *r = make(program_path);
        static struct question q[PV_RESOLVE_WAITING + 1];
        (void)state;
        for (size_t i = 0; i <= PV_RESOLVE_WAITING; i++) {
                char name[32];
                (void)snprintf(name, sizeof name, "n%zu.test", i);
                ask(r, name, &q[i]);
                assert_int_equal(q[i].answered, i == PV_RESOLVE_WAITING);
        }
        assert_int_equal(q[PV_RESOLVE_WAITING].answer.status, PV_RESOLVE_FAILED);
        for (size_t i = 0; i < PV_RESOLVE_WAITING; i++) {
                await(r, &q[i]);
                assert_int_equal(q[i].answer.status, PV_RESOLVE_FOUND);
        }
        pv_resolver_free(r);
}

static void its_death_fails_all_who_wait_and_it_is_started_anew(void **state)
{
        struct pv_resolver *r = make(program_path);
        struct question q[2 * PV_RESOLVE_AT_ONCE], soon = { .wait.done = answered, .resolver = r }, later;
        (void)state;
        uint64_t start = pv_clock_monotonic_ms();
        ask(r, "die.test", &q[0]);
        q[0].next = "soon.test"; /* while the others are told */
        q[0].with = &soon;
        for (size_t i = 1; i < sizeof q / sizeof *q; i++) {
                char name[32];
                (void)snprintf(name, sizeof name, "n%zu.test", i);
                ask(r, name, &q[i]);
        }
        for (size_t i = 0; i < sizeof q / sizeof *q; i++) {
                await(r, &q[i]);
                assert_int_equal(q[i].answer.status, PV_RESOLVE_FAILED);
        }
        if (pv_clock_monotonic_ms() - start < 900) {
                assert_int_equal(soon.answer.status, PV_RESOLVE_FAILED); /* not sooner than in a second */
                assert_no_child_is_left();
        }
        for (size_t i = 0; i < PATIENCE_MS / 50; i++) {
                char name[32];
                (void)snprintf(name, sizeof name, "later%zu.test", i);
                later = asked(r, name);
                if (later.answer.status == PV_RESOLVE_FOUND)
                        break;
                (void)poll(NULL, 0, 50);
        }
        assert_int_equal(later.answer.status, PV_RESOLVE_FOUND);
        assert_true(pv_clock_monotonic_ms() - start >= 900);
        pv_resolver_free(r);
        assert_no_child_is_left();
}

static void what_it_may_not_say_ends_it(void **state)
{
        static const char *const names[] = { "too-many.test", "endless.test", "empty.test", "none-with-address.test",
                                             "status.test",   "number.test",  "short.test", "long.test",
                                             "nothing.test" };
        (void)state;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                struct pv_resolver *r = make(program_path);
                assert_int_equal(asked(r, names[i]).answer.status, PV_RESOLVE_FAILED);
                assert_no_child_is_left();
                pv_resolver_free(r);
        }
        struct pv_resolver *r = make(program_path);
        struct question twice, other;
        ask(r, "twice.test", &twice);
        ask(r, "die.test", &other);
        await(r, &twice);
        await(r, &other);
        assert_int_equal(twice.answer.status, PV_RESOLVE_FOUND);
        assert_int_equal(other.answer.status, PV_RESOLVE_FAILED);
        pv_resolver_free(r);
}

static void without_a_program_every_name_fails(void **state)
{
        static const char *const paths[] = { NULL, "/dev/null", "/proc/self" };
        (void)state;
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
                struct pv_resolver *r = make(paths[i]);
                assert_int_equal(asked(r, "a.test").answer.status, PV_RESOLVE_FAILED);
                assert_int_equal(asked(r, "b.test").answer.status, PV_RESOLVE_FAILED);
                pv_resolver_free(r);
                assert_no_child_is_left();
        }
}

static void nothing_of_ours_goes_along(void **state)
{
        sigset_t some, before;
        int pair[2];
        (void)state;
        assert_int_equal(pipe(pair), 0); /* not close-on-exec */
        (void)sigfillset(&some);
        assert_int_equal(sigprocmask(SIG_SETMASK, &some, &before), 0);
        (void)setenv("HOME", "/somewhere", 1);
        (void)setenv("RES_OPTIONS", "timeout:1", 1);
        (void)unsetenv("LOCALDOMAIN");
        (void)unsetenv("HOSTALIASES");
        struct pv_resolver *r = make(program_path);
        assert_int_equal(asked(r, "set-apart.test").answer.status, PV_RESOLVE_FOUND);
        pv_resolver_free(r);
        assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
        (void)close(pair[0]);
        (void)close(pair[1]);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_are_answered_by_one_process),
                cmocka_unit_test(one_question_serves_all_who_wait_and_its_answer_is_kept),
                cmocka_unit_test(what_an_answer_makes_one_ask_is_answered),
                cmocka_unit_test(no_more_are_asked_at_once_than_there_are_threads),
                cmocka_unit_test(beyond_the_bound_a_name_fails_at_once),
                cmocka_unit_test(its_death_fails_all_who_wait_and_it_is_started_anew),
                cmocka_unit_test(what_it_may_not_say_ends_it),
                cmocka_unit_test(without_a_program_every_name_fails),
                cmocka_unit_test(nothing_of_ours_goes_along),
        };
        if (argc != 2)
                return 2;
        program_path = argv[1];
        return cmocka_run_group_tests_name("resolve", tests, NULL, NULL);
}
