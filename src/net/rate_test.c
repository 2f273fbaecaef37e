/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/rate.h"

/* Bytes that pass in ten simulated seconds when as much is taken as may pass, every step microseconds. */
static uint64_t taken_in_ten_seconds(uint64_t rate, uint64_t step)
{
        struct pv_rate r;
        uint64_t sum = 0;
        pv_rate_init(&r, rate, 0);
        for (uint64_t now = 0; now <= 10000000; now += step) {
                uint64_t n = pv_rate_available(&r, now);
                pv_rate_take(&r, n);
                sum += n;
        }
        return sum;
}

static void the_rate_is_kept(void **state)
{
        static const uint64_t rates[] = { 125, 10000, 1250000, 125000000 };
        static const uint64_t steps[] = { 100, 997, 10000, 50000 };
        for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
                for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
                        uint64_t sum = taken_in_ten_seconds(rates[i], steps[k]);
                        uint64_t burst = rates[i] / 10 > PV_RATE_LEAST ? rates[i] / 10 : PV_RATE_LEAST;
                        assert_in_range(sum, 10 * rates[i] * 90 / 100, 10 * rates[i] + burst);
                }
}

static void waiting_does_not_save_up(void **state)
{
        struct pv_rate r;
        pv_rate_init(&r, 1000000, 0);
        pv_rate_take(&r, pv_rate_available(&r, 0));
        assert_int_equal(pv_rate_available(&r, 3600ULL * 1000000), 100000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_rate_is_kept),
                cmocka_unit_test(waiting_does_not_save_up),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
