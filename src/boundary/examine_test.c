/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <stdlib.h>
#include "base/str.h"
#include "boundary/boundary.h"

static void every_dimension_is_looked_at(void **state)
{
        (void)state;
        struct pv_observations *obs = pv_calloc(1, sizeof *obs);
        struct pv_err err = PV_ERR_INIT;
        pv_auto_strv fix = { 0 };
        bool seen[PV_DIMENSIONS] = { false };

        if (pv_boundary_examine(obs, &fix, &err) < 0)
                fail_msg("%s", err.msg);
        for (unsigned i = 0; i < obs->n; i++)
                seen[obs->item[i].dimension] = true;
        /* Where a run does not start, the reason is told instead. */
        for (int d = 0; d < PV_DIMENSIONS; d++)
                assert_true(seen[d] || fix.n > 0);
        assert_null(pv_observations_first_breach(obs));
        free(obs);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(every_dimension_is_looked_at) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
