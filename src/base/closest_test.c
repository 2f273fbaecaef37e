/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "base/closest.h"

#include <string.h>

static const char *closest(const char *word)
{
        static const char *const names[] = { "run", "list", "logs", "exec", "kill", "drop", "review", "apply", "why" };
        struct pv_closest c = { .word = word };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                pv_closest_offer(&c, names[i]);
        return c.best;
}

static void a_slip_finds_its_word(void **state)
{
        static const char *const slips[][2] = {
                { "rnu", "run" },    { "runn", "run" },      { "lsit", "list" },  { "ls", "list" },
                { "exce", "exec" },  { "reveiw", "review" }, { "rev", "review" }, { "Review", "review" },
                { "aply", "apply" }, { "log", "logs" },
        };
        for (size_t i = 0; i < sizeof slips / sizeof *slips; i++) {
                assert_non_null(closest(slips[i][0]));
                assert_string_equal(closest(slips[i][0]), slips[i][1]);
        }
}

static void another_word_finds_none(void **state)
{
        static const char *const words[] = { "", "x", "rm", "tui", "pull", "claude", "network", "stop" };
        char huge[4096];
        memset(huge, 'r', sizeof huge - 1);
        huge[sizeof huge - 1] = '\0';
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                assert_null(closest(words[i]));
        assert_null(closest(huge));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_slip_finds_its_word),
                cmocka_unit_test(another_word_finds_none),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
