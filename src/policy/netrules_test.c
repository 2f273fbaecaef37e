/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"

#include <string.h>
#include "policy/netpolicy.h"

/* The rules of a text as pvisor would write them, with a space between; the error where there is one. */
static char *read_text(const char *text, const struct pv_groups *groups, uint64_t *rate)
{
        pv_auto_netrules rules = { 0 };
        pv_auto_str out = { 0 };
        struct pv_err err = PV_ERR_INIT;
        if (pv_netrules_add(&rules, text, groups, rate, &err) < 0) {
                assert_int_equal(err.kind, PV_ERR_USAGE);
                return pv_strdup(err.msg);
        }
        for (size_t i = 0; i < rules.n; i++) {
                pv_str_put(&out, i ? " " : "");
                pv_netrule_put(&out, &rules.v[i]);
        }
        return pv_str_steal(&out);
}

static void one_text_may_be_several_rules(void **state)
{
        static const struct {
                const char *text, *rules;
                uint64_t rate;
        } good[] = {
                { "example.com", "example.com", 0 },
                { "example.com:443", "example.com:443", 0 },
                { "example.com:80,443,8000-8010", "example.com:80 example.com:443 example.com:8000-8010", 0 },
                { "[2001:db8::1]:80,443", "[2001:db8::1]:80 [2001:db8::1]:443", 0 },
                { "host=example.com", "example.com", 0 },
                { "host=2001:db8::/32;ports=1-9", "[2001:db8::]/32:1-9", 0 },
                { "host=*.example.com;ports=80,443;transports=tcp,udp", "*.example.com:80 *.example.com:443", 0 },
                { "host=a.example;transports=tcp", "host=a.example;transports=tcp", 0 },
                { "host=a.example;transports=udp", "host=a.example;transports=dns", 0 },
                { "host=a.example;allow_private_ips=true;rate=8mbps;ports=5432",
                  "host=a.example;ports=5432;allow_private_ips=true", 1000000 },
        };
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
                uint64_t rate = 1, again = 0;
                pv_auto_free char *got = read_text(good[i].text, NULL, &rate);
                assert_string_equal(got, good[i].rules);
                assert_int_equal(rate, good[i].rate);
                if (!strchr(got, ' ')) { /* what is written is read again */
                        pv_auto_free char *twice = read_text(got, NULL, &again);
                        assert_string_equal(twice, got);
                }
        }
}

static void what_is_wrong_is_named(void **state)
{
        static const char *const bad[][2] = {
                { "ports=80", "needs a host" },
                { "host=a.example;port=0", "'0' is no port" },
                { "host=a.example;ports=80,", "'' is no port" },
                { "host=a.example;transports=sctp", "'sctp' is neither" },
                { "host=a.example;allow_private_ips=yes", "not true or false" },
                { "host=a.example;rate=fast", "is not a rate" },
                { "host=a.example;transports=tcp,tcp,tcp,tcp,dns", "transports: more than" },
                { "host=a.example;ports=80;port=443", "ports: is given twice" },
                { "host=a.example;host=b.example", "host: is given twice" },
                { "host=a.example;colour=red", "no such field" },
                { "host=a.example;x", "not KEY=VALUE" },
                { "host=", "is empty" },
                { "host=a b", "not a host name" },
                { "example.com:80,0", "'0' is no port" },
                { "@npm", "cannot be named here" },
        };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                uint64_t rate = 0;
                pv_auto_free char *got = read_text(bad[i][0], NULL, &rate);
                assert_non_null(strstr(got, bad[i][1]));
        }
}

static void a_group_is_its_targets(void **state)
{
        char *targets[] = { (char[]){ "a.example:443" }, (char[]){ "*.b.example" } };
        struct pv_group one = { .name = (char[]){ "work" }, .file = (char[]){ "f" }, .targets = { targets, 2 } };
        struct pv_groups groups = { &one, 1 };
        uint64_t rate = 0;
        pv_auto_free char *plain = read_text("@work", &groups, &rate);
        assert_string_equal(plain, "a.example:443 *.b.example");
        pv_auto_free char *more = read_text("host=@work;transports=tcp;rate=8bps", &groups, &rate);
        assert_string_equal(more, "host=a.example;ports=443;transports=tcp host=*.b.example;transports=tcp");
        assert_int_equal(rate, 1);
        pv_auto_free char *ports = read_text("host=@work;ports=1", &groups, &rate);
        assert_non_null(strstr(ports, "ports of its own"));
        pv_auto_free char *unknown = read_text("@wrok", &groups, &rate);
        assert_non_null(strstr(unknown, "no such group"));
}

static void a_rate_is_a_limit(void **state)
{
        struct pv_netpolicy p = { 0 };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_strv allow = { 0 };
        pv_strv_add(&allow, "host=a.example;ports=80,443;rate=16bps");
        assert_int_equal(pv_netpolicy_add_layer(&p, &(struct pv_netlayer_texts){ "command line", &allow, NULL, false },
                                                NULL, &err),
                         0);
        assert_int_equal(p.layer[0].n_allow, 2);
        assert_int_equal(p.n_limits, 1);
        assert_int_equal(p.limits[0].rules.n, 2);
        assert_int_equal(p.limits[0].bytes_per_second, 2);
        assert_int_equal(pv_netpolicy_add_layer(&p, &(struct pv_netlayer_texts){ "configuration", NULL, &allow, false },
                                                NULL, &err),
                         -1);
        pv_netpolicy_fini(&p);
}

static void more_is_allowed_up_to_what_a_record_holds(void **state)
{
        struct pv_netpolicy p = { 0 };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_strv allow = { 0 }, more = { 0 };
        for (int i = 0; i < PV_NETPOLICY_RULES - 1; i++)
                pv_strv_take(&allow, pv_strf("a%d.example", i));
        pv_strv_add(&more, "a0.example");
        pv_strv_add(&more, "b.example");
        const struct pv_netlayer_texts texts = { "command line", &allow, NULL, false };
        assert_int_equal(pv_netpolicy_add_layer(&p, &texts, NULL, &err), 0);
        assert_int_equal(pv_netpolicy_allow_more(&p, &p.layer[0], &more, NULL, &err), 0);
        assert_int_equal(pv_netpolicy_allow_more(&p, &p.layer[0], &more, NULL, &err), 0);
        assert_int_equal(p.layer[0].n_allow, PV_NETPOLICY_RULES);
        pv_strv_add(&more, "c.example");
        assert_int_equal(pv_netpolicy_allow_more(&p, &p.layer[0], &more, NULL, &err), -1);
        assert_non_null(strstr(err.msg, "more than 1024 rules"));
        pv_netpolicy_fini(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(one_text_may_be_several_rules),
                cmocka_unit_test(what_is_wrong_is_named),
                cmocka_unit_test(a_group_is_its_targets),
                cmocka_unit_test(a_rate_is_a_limit),
                cmocka_unit_test(more_is_allowed_up_to_what_a_record_holds),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
