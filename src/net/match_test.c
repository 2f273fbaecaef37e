/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/match.h"

struct built {
        struct pv_netrule allow[8], deny[8];
        struct pv_netpolicy policy;
};

/* One layer from lists that end with NULL. */
static struct built *build(const char *const *allow, const char *const *deny)
{
        struct built *b = pv_calloc(1, sizeof *b);
        struct pv_err e = PV_ERR_INIT;
        struct pv_netlayer *l = &b->policy.layer[0];
        *l = (struct pv_netlayer){ .name = "session", .allow = b->allow, .deny = b->deny };
        b->policy.n_layers = 1;
        for (; *allow; allow++)
                assert_int_equal(pv_netrule_parse(*allow, &b->allow[l->n_allow++], &e), 0);
        for (; *deny; deny++)
                assert_int_equal(pv_netrule_parse(*deny, &b->deny[l->n_deny++], &e), 0);
        return b;
}

static enum pv_verdict_kind at(const struct built *b, const char *name, const char *addr, uint16_t port)
{
        struct pv_netaddr a;
        if (!addr)
                return pv_match_name_port(&b->policy, name, port).kind;
        assert_true(pv_netaddr_parse(addr, &a));
        return pv_match_address(&b->policy, name, &a, port, PV_MATCH_ANYBODYS).kind;
}

#define RULES(...) ((const char *const[]){ __VA_ARGS__ __VA_OPT__(, ) NULL })

static void suffix_is_below_and_not_beside(void **state)
{
        pv_auto_free struct built *b = build(RULES("*.example.com"), RULES());
        assert_int_equal(at(b, "a.example.com", NULL, 443), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "a.b.example.com", NULL, 443), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "example.com", NULL, 443), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(at(b, "evilexample.com", NULL, 443), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(at(b, "example.com.evil.net", NULL, 443), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(at(b, ".example.com", NULL, 443), PV_VERDICT_NOT_ALLOWED);
}

static void deny_wins_and_an_allow_denies_all_else(void **state)
{
        pv_auto_free struct built *b = build(RULES("*.example.com:443"), RULES("bad.example.com"));
        assert_int_equal(at(b, "bad.example.com", NULL, 443), PV_VERDICT_DENIED);
        assert_int_equal(at(b, "good.example.com", NULL, 443), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "good.example.com", NULL, 80), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(at(b, NULL, "8.8.8.8", 443), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(pv_match_name(&b->policy, "good.example.com").kind, PV_VERDICT_ALLOWED);
        assert_int_equal(pv_match_name(&b->policy, "bad.example.com").kind, PV_VERDICT_DENIED);
}

static void without_allow_rules_what_is_not_denied_is_allowed(void **state)
{
        pv_auto_free struct built *b = build(RULES(), RULES("bad.example:25", "9.9.9.0/24"));
        assert_int_equal(at(b, "x.example", NULL, 1), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "bad.example", NULL, 25), PV_VERDICT_DENIED);
        assert_int_equal(at(b, "bad.example", NULL, 26), PV_VERDICT_ALLOWED);
        assert_int_equal(pv_match_name(&b->policy, "bad.example").kind, PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "x.example", "9.9.9.9", 1), PV_VERDICT_DENIED);
        assert_int_equal(at(b, NULL, "9.9.9.9", 1), PV_VERDICT_DENIED);
        assert_int_equal(at(b, NULL, "9.9.8.9", 1), PV_VERDICT_ALLOWED);
}

static void special_addresses_need_a_rule_by_address(void **state)
{
        static const char *const special[] = { "127.0.0.1", "10.0.0.1",         "169.254.169.254", "::1",
                                               "fe80::1",   "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0" };
        pv_auto_free struct built *by_name = build(RULES("a.example", "*"), RULES());
        pv_auto_free struct built *open = build(RULES(), RULES());
        for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
                assert_int_equal(at(by_name, "a.example", special[i], 80), PV_VERDICT_SPECIAL);
                assert_int_equal(at(open, "a.example", special[i], 80), PV_VERDICT_SPECIAL);
                assert_int_equal(at(open, NULL, special[i], 80), PV_VERDICT_SPECIAL);
        }
        assert_int_equal(at(by_name, "a.example", "93.184.216.34", 80), PV_VERDICT_ALLOWED);
        pv_auto_free struct built *explicit = build(RULES("a.example", "10.0.0.0/8:80"), RULES());
        assert_int_equal(at(explicit, "a.example", "10.1.1.1", 80), PV_VERDICT_ALLOWED);
        assert_int_equal(at(explicit, "a.example", "10.1.1.1", 81), PV_VERDICT_SPECIAL);
        assert_int_equal(at(explicit, NULL, "10.1.1.1", 80), PV_VERDICT_ALLOWED);
        assert_int_equal(at(explicit, "a.example", "192.168.1.1", 80), PV_VERDICT_SPECIAL);
        pv_auto_free struct built *wide = build(RULES("0.0.0.0/0", "::/0", "a.example"), RULES());
        for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
                assert_int_equal(at(wide, "a.example", special[i], 80), PV_VERDICT_SPECIAL);
                assert_int_equal(at(wide, NULL, special[i], 80), PV_VERDICT_SPECIAL);
        }
        assert_int_equal(at(wide, NULL, "93.184.216.34", 80), PV_VERDICT_ALLOWED);
        assert_int_equal(at(wide, NULL, "2606:2800::1", 80), PV_VERDICT_ALLOWED);
}

static void private_ips_are_private_and_not_loopback_or_metadata(void **state)
{
        pv_auto_free struct built *b = build(RULES("a.example"), RULES());
        b->policy.allow_private_ips = true;
        assert_int_equal(at(b, "a.example", "10.0.0.1", 80), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "a.example", "fd00::1", 80), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "a.example", "127.0.0.1", 80), PV_VERDICT_SPECIAL);
        assert_int_equal(at(b, "a.example", "::1", 80), PV_VERDICT_SPECIAL);
        assert_int_equal(at(b, "a.example", "169.254.169.254", 80), PV_VERDICT_SPECIAL);
        assert_int_equal(at(b, "b.example", "10.0.0.1", 80), PV_VERDICT_NOT_ALLOWED);
}

static void layers_intersect(void **state)
{
        pv_auto_free struct built *user = build(RULES("*.example.com"), RULES("c.example.com"));
        pv_auto_free struct built *session = build(RULES("a.example.com", "c.example.com", "x.example.net"), RULES());
        struct pv_netpolicy *p = &user->policy;
        p->layer[0].name = "user";
        p->layer[p->n_layers++] = session->policy.layer[0];
        assert_int_equal(at(user, "a.example.com", NULL, 1), PV_VERDICT_ALLOWED);
        assert_int_equal(at(user, "b.example.com", NULL, 1), PV_VERDICT_NOT_ALLOWED);
        assert_string_equal(pv_match_name_port(p, "b.example.com", 1).layer, "session");
        assert_string_equal(pv_match_name_port(p, "x.example.net", 1).layer, "user");
        assert_int_equal(at(user, "c.example.com", NULL, 1), PV_VERDICT_DENIED);
}

static void a_limit_holds_by_name_or_address(void **state)
{
        struct pv_netrule one;
        struct pv_netlimit l = { .bytes_per_second = 1, .rules = { &one, 1 } };
        struct pv_err e = PV_ERR_INIT;
        assert_int_equal(pv_netrule_parse("host.example:443", &one, &e), 0);
        assert_true(pv_match_limit(&l, "host.example", NULL, 443));
        assert_false(pv_match_limit(&l, "host.example", NULL, 80));
        assert_false(pv_match_limit(&l, "other.example", NULL, 443));
        assert_int_equal(pv_netrule_parse("*", &one, &e), 0);
        assert_true(pv_match_limit(&l, NULL, NULL, 443));
}

/* Adds a grant to a policy that allows nothing but a.example, and denies what bad says. */
static void grant(struct built *b, const char *text)
{
        struct pv_err e = PV_ERR_INIT;
        uint64_t rate = 0;
        assert_int_equal(pv_netrules_add(&b->policy.granted, text, NULL, &rate, &e), 0);
}

static void a_grant_is_what_it_names_and_denials_win(void **state)
{
        pv_auto_free struct built *b = build(RULES("a.example"), RULES("bad.example", "9.9.9.0/24:25"));
        assert_int_equal(at(b, "b.example", NULL, 443), PV_VERDICT_NOT_ALLOWED);
        grant(b, "b.example:443");
        grant(b, "10.0.0.5:5432");
        grant(b, "*.bad.example");
        grant(b, "bad.example");
        assert_int_equal(at(b, "b.example", NULL, 443), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "b.example", NULL, 80), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(at(b, "b.example", "8.8.8.8", 443), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "b.example", "10.0.0.9", 443), PV_VERDICT_SPECIAL);
        assert_int_equal(at(b, NULL, "10.0.0.5", 5432), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "a.example", "10.0.0.5", 5432), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "bad.example", NULL, 443), PV_VERDICT_DENIED);
        assert_int_equal(at(b, "x.bad.example", NULL, 443), PV_VERDICT_ALLOWED);
        assert_int_equal(pv_match_name(&b->policy, "b.example").kind, PV_VERDICT_ALLOWED);
        pv_netrules_fini(&b->policy.granted);
}

static void a_grant_that_a_denial_holds_whole_is_found(void **state)
{
        static const struct {
                const char *grant;
                bool denied;
        } cases[] = {
                { "bad.example", true },
                { "bad.example:443", true },
                { "x.bad.example", false },
                { "*.worse.example", true },
                { "a.worse.example:1", true },
                { "worse.example", false },
                { "*.example", false },
                { "9.9.9.9:25", true },
                { "9.9.9.9", false },
                { "9.9.9.0/25:25", true },
                { "9.9.0.0/16:25", false },
                { "one.example:81-90", true },
                { "one.example:80-90", false },
                { "*:7", true },
                { "any.example:7", true },
                { "8.8.8.8:7", true },
                { "*", false },
        };
        pv_auto_free struct built *b =
                build(RULES(), RULES("bad.example", "*.worse.example", "9.9.9.0/24:25", "one.example:81-99", "*:7"));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct pv_netrule r;
                struct pv_err e = PV_ERR_INIT;
                const char *layer = NULL;
                assert_int_equal(pv_netrule_parse(cases[i].grant, &r, &e), 0);
                assert_int_equal(pv_match_denial(&b->policy, &r, &layer) != NULL, cases[i].denied);
                assert_int_equal(layer != NULL, cases[i].denied);
        }
}

static void parts_of_the_long_form_hold(void **state)
{
        pv_auto_free struct built *b = build(RULES(), RULES());
        struct pv_err e = PV_ERR_INIT;
        pv_auto_strv allow = { 0 }, deny = { 0 };
        struct pv_netpolicy *p = &b->policy;
        p->n_layers = 0;
        pv_strv_add(&allow, "host=db.example;ports=5432;allow_private_ips=true");
        pv_strv_add(&allow, "host=proxy-only.example;transports=tcp");
        pv_strv_add(&allow, "host=looked-up.example;transports=dns");
        pv_strv_add(&deny, "host=*.secret.example;transports=dns");
        assert_int_equal(
                pv_netpolicy_add_layer(p, &(struct pv_netlayer_texts){ "session", &allow, &deny, false }, NULL, &e), 0);
        assert_int_equal(at(b, "db.example", "10.0.0.5", 5432), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "db.example", "127.0.0.1", 5432), PV_VERDICT_SPECIAL);
        assert_int_equal(pv_match_name(p, "proxy-only.example").kind, PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(at(b, "proxy-only.example", NULL, 80), PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "proxy-only.example", "10.0.0.5", 80), PV_VERDICT_SPECIAL);
        assert_int_equal(pv_match_name(p, "looked-up.example").kind, PV_VERDICT_ALLOWED);
        assert_int_equal(at(b, "looked-up.example", NULL, 80), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(pv_match_name(p, "a.secret.example").kind, PV_VERDICT_DENIED);
        pv_netpolicy_fini(p);
}

static void a_closed_layer_allows_nothing(void **state)
{
        pv_auto_free struct built *b = build(RULES(), RULES());
        b->policy.layer[0].closed = true;
        assert_int_equal(at(b, "a.example", NULL, 443), PV_VERDICT_NOT_ALLOWED);
        assert_int_equal(at(b, NULL, "8.8.8.8", 443), PV_VERDICT_NOT_ALLOWED);
        grant(b, "a.example");
        assert_int_equal(at(b, "a.example", NULL, 443), PV_VERDICT_ALLOWED);
        pv_netrules_fini(&b->policy.granted);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(suffix_is_below_and_not_beside),
                cmocka_unit_test(deny_wins_and_an_allow_denies_all_else),
                cmocka_unit_test(without_allow_rules_what_is_not_denied_is_allowed),
                cmocka_unit_test(special_addresses_need_a_rule_by_address),
                cmocka_unit_test(private_ips_are_private_and_not_loopback_or_metadata),
                cmocka_unit_test(layers_intersect),
                cmocka_unit_test(a_limit_holds_by_name_or_address),
                cmocka_unit_test(a_grant_is_what_it_names_and_denials_win),
                cmocka_unit_test(a_grant_that_a_denial_holds_whole_is_found),
                cmocka_unit_test(parts_of_the_long_form_hold),
                cmocka_unit_test(a_closed_layer_allows_nothing),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
