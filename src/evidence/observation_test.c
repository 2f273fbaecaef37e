/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <string.h>
#include "evidence/observation.h"

static struct pv_observation *installed(struct pv_observations *all, enum pv_dimension d, const char *name)
{
        struct pv_observation *o = pv_observations_add(all, d, name, "test");

        assert_non_null(o);
        o->installed = true;
        return o;
}

static void every_value_has_its_name(void **state)
{
        (void)state;
        for (int d = 0; d < PV_DIMENSIONS; d++)
                assert_non_null(pv_dimension_name((enum pv_dimension)d));
        assert_null(pv_dimension_name(PV_DIMENSIONS));
        assert_string_equal(pv_level_name(PV_LEVEL_ENFORCED), "enforced");
        assert_null(pv_level_name(PV_LEVEL_UNKNOWN));
        assert_string_equal(pv_outcome_name(PV_OUTCOME_REFUSED), "refused");
        assert_null(pv_outcome_name(PV_OUTCOME_NOT_RUN));
}

static void enforced_needs_installation_and_a_refused_probe(void **state)
{
        (void)state;
        struct pv_observations all = { 0 };
        struct pv_observation *o = pv_observations_add(&all, PV_DIM_READS, "root", "test");

        pv_observation_probe(o, "read", "open", PV_OUTCOME_REFUSED, 2);
        pv_observation_conclude(o, PV_LEVEL_ENFORCED);
        assert_int_equal(o->level, PV_LEVEL_UNENFORCED);

        o->installed = true;
        pv_observation_conclude(o, PV_LEVEL_ENFORCED);
        assert_int_equal(o->level, PV_LEVEL_ENFORCED);

        struct pv_observation *quiet = installed(&all, PV_DIM_READS, "unprobed");
        pv_observation_probe(quiet, "read", "open", PV_OUTCOME_NOT_RUN, 0);
        pv_observation_conclude(quiet, PV_LEVEL_ENFORCED);
        assert_int_equal(quiet->level, PV_LEVEL_UNENFORCED);
        pv_observation_conclude(quiet, PV_LEVEL_COOPERATIVE);
        assert_int_equal(quiet->level, PV_LEVEL_COOPERATIVE);
}

static void one_probe_that_succeeds_takes_the_level_away(void **state)
{
        (void)state;
        struct pv_observations all = { 0 };
        struct pv_observation *o = installed(&all, PV_DIM_NETWORK, "namespace");

        pv_observation_probe(o, "tcp4", "connect", PV_OUTCOME_REFUSED, 111);
        assert_null(pv_observations_first_breach(&all));
        pv_observation_probe(o, "tcp6", "connect", PV_OUTCOME_SUCCEEDED, 0);
        pv_observation_conclude(o, PV_LEVEL_ENFORCED);
        assert_int_equal(o->level, PV_LEVEL_UNENFORCED);
        assert_string_equal(pv_observations_first_breach(&all)->name, "tcp6");
}

static void a_control_raises_its_own_dimension_only(void **state)
{
        (void)state;
        struct pv_observations all = { 0 };
        struct pv_observation *o = installed(&all, PV_DIM_READS, "root");

        pv_observation_probe(o, "read", "open", PV_OUTCOME_REFUSED, 2);
        pv_observation_conclude(o, PV_LEVEL_ENFORCED);
        assert_int_equal(pv_observations_level(&all, PV_DIM_READS), PV_LEVEL_ENFORCED);
        assert_int_equal(pv_observations_level(&all, PV_DIM_HOST_WRITES), PV_LEVEL_UNENFORCED);
        assert_ptr_equal(pv_observations_find(&all, PV_DIM_READS, "root"), o);
        assert_null(pv_observations_find(&all, PV_DIM_HOST_WRITES, "root"));
}

static void a_partial_control_spoils_but_never_raises(void **state)
{
        (void)state;
        struct pv_observations all = { 0 };
        struct pv_observation *part = installed(&all, PV_DIM_NETWORK, "socket families");

        part->partial = true;
        pv_observation_probe(part, "vsock", "socket", PV_OUTCOME_REFUSED, 97);
        pv_observation_conclude(part, PV_LEVEL_ENFORCED);
        assert_int_equal(pv_observations_level(&all, PV_DIM_NETWORK), PV_LEVEL_UNENFORCED);

        struct pv_observation *whole = installed(&all, PV_DIM_NETWORK, "namespace");
        pv_observation_probe(whole, "tcp4", "connect", PV_OUTCOME_REFUSED, 111);
        pv_observation_conclude(whole, PV_LEVEL_ENFORCED);
        assert_int_equal(pv_observations_level(&all, PV_DIM_NETWORK), PV_LEVEL_ENFORCED);

        pv_observation_probe(part, "packet", "socket", PV_OUTCOME_SUCCEEDED, 0);
        pv_observation_conclude(part, PV_LEVEL_ENFORCED);
        assert_int_equal(pv_observations_level(&all, PV_DIM_NETWORK), PV_LEVEL_UNENFORCED);
}

static void no_limit_of_a_resource_stands_for_another(void **state)
{
        (void)state;
        struct pv_observations all = { 0 };
        struct pv_observation *files = installed(&all, PV_DIM_RESOURCES, "open-files");

        pv_observation_probe(files, "raise", "setrlimit", PV_OUTCOME_REFUSED, 1);
        pv_observation_conclude(files, PV_LEVEL_ENFORCED);
        assert_int_equal(pv_observations_level(&all, PV_DIM_RESOURCES), PV_LEVEL_ENFORCED);
        pv_observation_conclude(installed(&all, PV_DIM_RESOURCES, "memory"), PV_LEVEL_COOPERATIVE);
        assert_int_equal(pv_observations_level(&all, PV_DIM_RESOURCES), PV_LEVEL_COOPERATIVE);
        (void)pv_observations_add(&all, PV_DIM_RESOURCES, "processes", "none");
        assert_int_equal(pv_observations_level(&all, PV_DIM_RESOURCES), PV_LEVEL_UNENFORCED);
}

static void full_tables_lose_no_breach_and_overflow_nothing(void **state)
{
        (void)state;
        struct pv_observations all = { 0 };
        struct pv_observation *o = installed(&all, PV_DIM_READS, "root");
        char longer[400];

        memset(longer, 'x', sizeof longer - 1);
        longer[sizeof longer - 1] = '\0';
        for (int i = 0; i < PV_PROBES_MAX + 3; i++)
                pv_observation_probe(o, longer, longer, PV_OUTCOME_REFUSED, 1);
        assert_int_equal(o->n_probes, PV_PROBES_MAX);
        pv_observation_probe(o, "last", "open", PV_OUTCOME_SUCCEEDED, 0);
        assert_string_equal(pv_observations_first_breach(&all)->name, "last");
        assert_int_equal(strlen(o->probes[0].name), sizeof o->probes[0].name - 1);

        for (int i = 0; i < PV_LIMITS_MAX + 3; i++)
                pv_observation_limit(o, longer);
        assert_int_equal(o->n_limits, PV_LIMITS_MAX);

        while (all.n < PV_CONTROLS_MAX)
                assert_non_null(pv_observations_add(&all, PV_DIM_READS, "more", "test"));
        assert_null(pv_observations_add(&all, PV_DIM_READS, "one too many", "test"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_value_has_its_name),
                cmocka_unit_test(enforced_needs_installation_and_a_refused_probe),
                cmocka_unit_test(one_probe_that_succeeds_takes_the_level_away),
                cmocka_unit_test(a_control_raises_its_own_dimension_only),
                cmocka_unit_test(a_partial_control_spoils_but_never_raises),
                cmocka_unit_test(no_limit_of_a_resource_stands_for_another),
                cmocka_unit_test(full_tables_lose_no_breach_and_overflow_nothing),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
