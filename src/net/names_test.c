/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/names.h"

static void text_of(const struct pv_netaddr *a, const char *want)
{
        pv_auto_str s = { 0 };
        pv_netaddr_put(&s, a);
        assert_string_equal(s.s, want);
}

static void a_name_keeps_its_addresses(void **state)
{
        struct pv_names *n = pv_names_new();
        struct pv_netaddr v4, v6, again4, again6;
        assert_true(pv_names_give(n, "a.example", &v4, &v6));
        text_of(&v4, "198.18.1.0");
        text_of(&v6, "fd70:7669:736f::100");
        assert_true(pv_names_give(n, "b.example", &again4, &again6));
        text_of(&again4, "198.18.1.1");
        assert_true(pv_names_give(n, "a.example", &again4, &again6));
        assert_memory_equal(&v4, &again4, sizeof v4);
        assert_memory_equal(&v6, &again6, sizeof v6);
        assert_string_equal(pv_names_find(n, &v4), "a.example");
        assert_string_equal(pv_names_find(n, &v6), "a.example");
        pv_names_free(n);
}

static void addresses_never_given_have_no_name(void **state)
{
        static const char *const not_given[] = {
                "198.18.1.0", "198.18.0.0",          "198.19.255.255",           "198.17.1.0",
                "8.8.8.8",    "fd70:7669:736f::100", "fd70:7669:736f::ff00:100", "fd00::100"
        };
        struct pv_names *n = pv_names_new();
        for (size_t i = 0; i < sizeof not_given / sizeof *not_given; i++) {
                struct pv_netaddr a;
                assert_true(pv_netaddr_parse(not_given[i], &a));
                assert_null(pv_names_find(n, &a));
        }
        pv_names_free(n);
}

static void the_table_is_bounded_and_whole(void **state)
{
        struct pv_names *n = pv_names_new();
        struct pv_netaddr v4, v6;
        char name[32];
        for (unsigned i = 0; i < PV_NAMES_MAX; i++) {
                (void)snprintf(name, sizeof name, "n%u.example", i);
                assert_true(pv_names_give(n, name, &v4, &v6));
                assert_true(pv_names_is_synthetic(&v4) && pv_names_is_synthetic(&v6));
                assert_string_equal(pv_names_find(n, &v4), name);
                assert_string_equal(pv_names_find(n, &v6), name);
        }
        text_of(&v4, "198.19.0.255");
        assert_false(pv_names_give(n, "one.more", &v4, &v6));
        assert_true(pv_names_give(n, "n0.example", &v4, &v6));
        pv_names_free(n);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_name_keeps_its_addresses),
                cmocka_unit_test(addresses_never_given_have_no_name),
                cmocka_unit_test(the_table_is_bounded_and_whole),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
