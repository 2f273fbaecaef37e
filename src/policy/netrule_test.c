/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "policy/netrule.h"

#include <string.h>

static void what_is_written_is_understood(void **state)
{
        /* as written, as shown again */
        static const char *const good[][2] = {
                { "Example.COM.", "example.com" },
                { "*.example.com:443", "*.example.com:443" },
                { "example.com:8000-8010", "example.com:8000-8010" },
                { "203.0.113.7", "203.0.113.7" },
                { "203.0.113.7/24:80", "203.0.113.0/24:80" },
                { "2001:db8::1/32", "2001:db8::/32" },
                { "[2001:db8::1]:443", "[2001:db8::1]:443" },
                { "[2001:db8::]/32:443", "[2001:db8::]/32:443" },
                { "*", "*" },
                { "*:443", "*:443" },
                { "0.0.0.0/0", "0.0.0.0/0" },
                { "::/0", "::/0" },
                { "xn--bcher-kva.example", "xn--bcher-kva.example" },
                { "_srv.example.com", "_srv.example.com" },
        };
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
                struct pv_netrule r;
                struct pv_err e = PV_ERR_INIT;
                pv_auto_str back = { 0 };
                assert_int_equal(pv_netrule_parse(good[i][0], &r, &e), 0);
                pv_netrule_put(&back, &r);
                assert_string_equal(back.s, good[i][1]);
                struct pv_netrule again;
                pv_auto_str twice = { 0 };
                assert_int_equal(pv_netrule_parse(back.s, &again, &e), 0);
                pv_netrule_put(&twice, &again);
                assert_string_equal(twice.s, back.s);
        }
}

static void what_is_not_a_target_is_refused(void **state)
{
        static const char *const bad[] = {
                "",           ":443",
                "a..b",       ".a",
                "a b",        "example.com:",
                "a:0",        "a:65536",
                "a:10-5",     "a:1-",
                "127.1",      "10.0.0",
                "0x7f.1",     "1.2.3.4/33",
                "1.2.3.4/",   "::1/129",
                "[::1",       "[::1]x",
                "*.",         "*.*.a",
                "a*.b",       "b\xc3\xbc.example",
                "a/24",       "fe80::1%eth0",
                "1.2.3.0x4",  "user@host",
                "http://a.b",
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                struct pv_netrule r;
                struct pv_err e = PV_ERR_INIT;
                if (pv_netrule_parse(bad[i], &r, &e) != -1)
                        fail_msg("'%s' was taken", bad[i]);
                assert_int_equal(e.kind, PV_ERR_USAGE);
        }
        char label[80] = { 0 };
        struct pv_netrule r;
        struct pv_err e = PV_ERR_INIT;
        memset(label, 'a', 64);
        assert_int_equal(pv_netrule_parse(label, &r, &e), -1);
}

static void special_addresses_are_known(void **state)
{
        static const char *const special[] = {
                "127.0.0.1",
                "127.9.9.9",
                "10.1.2.3",
                "172.31.0.1",
                "192.168.0.1",
                "169.254.169.254",
                "0.0.0.0",
                "100.64.0.1",
                "224.0.0.1",
                "255.255.255.255",
                "198.18.0.1",
                "::1",
                "::",
                "fe80::1",
                "fd00::1",
                "ff02::1",
                "::ffff:127.0.0.1",
                "::127.0.0.1",
                "64:ff9b::7f00:1",
                "2002:7f00:1::",
                "::ffff:10.0.0.1",
        };
        static const char *const public[] = { "8.8.8.8",     "172.32.0.1",   "2606:4700::1111", "11.0.0.1",
                                              "100.128.0.1", "203.0.113.80", "2001:db8::1" };
        struct pv_netaddr a;
        for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
                assert_true(pv_netaddr_parse(special[i], &a));
                if (!pv_netaddr_special(&a))
                        fail_msg("%s passes for public", special[i]);
        }
        for (size_t i = 0; i < sizeof public / sizeof *public; i++) {
                assert_true(pv_netaddr_parse(public[i], &a));
                assert_null(pv_netaddr_special(&a));
        }
}

static void rates_are_bits_or_bytes(void **state)
{
        struct pv_err e = PV_ERR_INIT;
        uint64_t v = 0;
        assert_int_equal(pv_netrate_parse("10mbps", &v, &e), 0);
        assert_int_equal(v, 1250000);
        assert_int_equal(pv_netrate_parse("2mb/s", &v, &e), 0);
        assert_int_equal(v, 2000000);
        assert_int_equal(pv_netrate_parse("1Gbps", &v, &e), 0);
        assert_int_equal(v, 125000000);
        static const char *const bad[] = { "", "10", "mbps", "0mbps", "1bps", "99999999999999gbps", "10 mbps" };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                assert_int_equal(pv_netrate_parse(bad[i], &v, &e), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_written_is_understood),
                cmocka_unit_test(what_is_not_a_target_is_refused),
                cmocka_unit_test(special_addresses_are_known),
                cmocka_unit_test(rates_are_bits_or_bytes),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
