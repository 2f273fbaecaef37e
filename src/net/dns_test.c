/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/dns.h"

#include <string.h>

/* A query for www.example.com as clients send it: header, labels, type, class. */
static size_t make_query(uint8_t *m, unsigned type, unsigned class)
{
        static const uint8_t head[] = { 0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0 };
        static const char name[] = "\3www\7ExAmple\3com";
        memcpy(m, head, sizeof head);
        memcpy(m + 12, name, sizeof name);
        size_t n = 12 + sizeof name;
        m[n++] = (uint8_t)(type >> 8);
        m[n++] = (uint8_t)type;
        m[n++] = (uint8_t)(class >> 8);
        m[n++] = (uint8_t) class;
        return n;
}

static void a_query_is_read_and_answered(void **state)
{
        uint8_t m[512], out[512];
        struct pv_dns_query q;
        enum pv_dns_rcode rcode;
        size_t n = make_query(m, PV_DNS_A, 1);
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_QUERY);
        assert_string_equal(q.name, "www.example.com");
        assert_true(q.recursion_desired);
        assert_false(q.edns);

        struct pv_netaddr addrs[2];
        assert_true(pv_netaddr_parse("198.18.0.7", &addrs[0]));
        assert_true(pv_netaddr_parse("fd00::7", &addrs[1]));
        struct pv_dns_answer a = { .addrs = addrs, .n_addrs = 2, .ttl = 60 };
        size_t len = pv_dns_write_answer(m, &q, &a, out, sizeof out);
        assert_int_equal(len, n + 16);
        assert_memory_equal(out, "\x12\x34\x81\x80\0\1\0\1\0\0\0\0", 12);
        assert_memory_equal(out + n, "\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc6\x12\0\7", 16);

        q.type = 15; /* MX: the name is there, nothing of that type is */
        assert_int_equal(pv_dns_write_answer(m, &q, &a, out, sizeof out), n);
        assert_memory_equal(out + 2, "\x81\x80\0\1\0\0", 6);
        a.rcode = PV_DNS_NXDOMAIN;
        q.type = PV_DNS_A;
        assert_int_equal(pv_dns_write_answer(m, &q, &a, out, sizeof out), n);
        assert_int_equal(out[3] & 15, PV_DNS_NXDOMAIN);
}

static void edns_is_seen_and_echoed(void **state)
{
        uint8_t m[512], out[1232];
        struct pv_dns_query q;
        enum pv_dns_rcode rcode;
        size_t n = make_query(m, PV_DNS_AAAA, 1);
        memcpy(m + n, "\0\0\x29\x10\0\0\0\0\0\0\0", 11);
        m[11] = 1;
        assert_int_equal(pv_dns_parse_query(m, n + 11, &q, &rcode), PV_DNS_QUERY);
        assert_true(q.edns);
        assert_int_equal(q.udp_size, PV_DNS_UDP_MAX);
        struct pv_dns_answer a = { 0 };
        assert_int_equal(pv_dns_write_answer(m, &q, &a, out, q.udp_size), n + 11);
        assert_int_equal(out[11], 1);
}

static void too_long_an_answer_is_cut_with_tc(void **state)
{
        uint8_t m[512], out[512];
        struct pv_dns_query q;
        enum pv_dns_rcode rcode;
        struct pv_netaddr addrs[40];
        for (size_t i = 0; i < 40; i++)
                assert_true(pv_netaddr_parse("fd00::1", &addrs[i]));
        size_t n = make_query(m, PV_DNS_AAAA, 1);
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_QUERY);
        struct pv_dns_answer a = { .addrs = addrs, .n_addrs = 40 };
        assert_int_equal(pv_dns_write_answer(m, &q, &a, out, sizeof out), n);
        assert_int_equal(out[2] & 2, 2);
        assert_int_equal(out[7], 0);
}

static void hostile_messages_are_refused_or_dropped(void **state)
{
        uint8_t m[600] = { 0 };
        struct pv_dns_query q;
        enum pv_dns_rcode rcode;
        size_t n = make_query(m, PV_DNS_A, 1);
        for (size_t cut = 0; cut < n; cut++) /* each truncation */
                assert_int_equal(pv_dns_parse_query(m, cut, &q, &rcode), cut < 12 ? PV_DNS_DROP : PV_DNS_ERROR);
        m[2] = 0x81; /* an answer */
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_DROP);
        m[2] = 0x29; /* opcode 5, UPDATE */
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_ERROR);
        assert_int_equal(rcode, PV_DNS_NOTIMP);
        m[2] = 1;
        m[5] = 2; /* two questions */
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_ERROR);
        assert_int_equal(rcode, PV_DNS_FORMERR);
        n = make_query(m, PV_DNS_A, 3); /* CHAOS */
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_ERROR);
        assert_int_equal(rcode, PV_DNS_REFUSED);
        memcpy(m + 12, "\xc0\x0c\0\1\0\1", 6); /* a pointer to itself */
        assert_int_equal(pv_dns_parse_query(m, 18, &q, &rcode), PV_DNS_ERROR);
        assert_int_equal(rcode, PV_DNS_FORMERR);
        memcpy(m + 12, "\xc0\x14\0\1\0\1", 6); /* forwards */
        assert_int_equal(pv_dns_parse_query(m, sizeof m, &q, &rcode), PV_DNS_ERROR);
        for (size_t i = 0; i < 5; i++) { /* 320 bytes of labels */
                m[12 + 64 * i] = 63;
                memset(m + 13 + 64 * i, 'a', 63);
        }
        assert_int_equal(pv_dns_parse_query(m, sizeof m, &q, &rcode), PV_DNS_ERROR);
}

static void the_longest_name_fits_and_one_more_does_not(void **state)
{
        for (size_t last = 61; last <= 62; last++) { /* 3 * 64 + 61 = 253 characters, and 254 */
                uint8_t m[512];
                struct pv_dns_query q;
                enum pv_dns_rcode rcode;
                size_t n = 12;
                (void)make_query(m, 1, 1);
                for (size_t i = 0; i < 4; i++) {
                        size_t label = i < 3 ? 63 : last;
                        m[n++] = (uint8_t)label;
                        memset(m + n, 'a', label);
                        n += label;
                }
                memcpy(m + n, "\0\0\1\0\1", 5);
                enum pv_dns_parse got = pv_dns_parse_query(m, n + 5, &q, &rcode);
                assert_int_equal(got, last == 61 ? PV_DNS_QUERY : PV_DNS_ERROR);
                if (last == 61)
                        assert_int_equal(strlen(q.name), PV_NETRULE_NAME_MAX);
        }
}

static void odd_names_are_read_and_not_taken_for_host_names(void **state)
{
        static const char *const odd[] = { "\5a.b\0c", "\3a b", "\3\xff\xfe\xfd", "\1*", "" };
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
                uint8_t m[64];
                struct pv_dns_query q;
                enum pv_dns_rcode rcode;
                size_t len = (size_t)(unsigned char)odd[i][0] + 1;
                (void)make_query(m, 1, 1);
                memcpy(m + 12, odd[i], len);
                memcpy(m + 12 + len, "\0\0\1\0\1", len > 1 ? 5 : 0);
                if (len == 1)
                        memcpy(m + 12, "\0\0\1\0\1", 5);
                assert_int_equal(pv_dns_parse_query(m, 12 + len + 5, &q, &rcode), PV_DNS_QUERY);
                assert_false(q.name_ok);
                assert_string_equal(q.name, "");
        }
}

static void reverse_names(void **state)
{
        struct pv_netaddr a, want;
        assert_true(pv_dns_reverse_address("7.0.18.198.in-addr.arpa", &a));
        assert_true(pv_netaddr_parse("198.18.0.7", &want));
        assert_memory_equal(&a, &want, sizeof a);
        assert_true(
                pv_dns_reverse_address("1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", &a));
        assert_true(pv_netaddr_parse("2001:db8::1", &want));
        assert_memory_equal(&a, &want, sizeof a);
        static const char *const bad[] = { "in-addr.arpa", "1.2.3.in-addr.arpa",     "256.1.1.1.in-addr.arpa",
                                           "example.com",  "1.2.3.4.5.in-addr.arpa", "..1.2.in-addr.arpa",
                                           "1.ip6.arpa" };
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                assert_false(pv_dns_reverse_address(bad[i], &a));
}

static void a_pointer_is_answered_with_the_name(void **state)
{
        uint8_t m[512], out[512];
        struct pv_dns_query q;
        enum pv_dns_rcode rcode;
        size_t n = make_query(m, PV_DNS_PTR, 1);
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_QUERY);
        struct pv_dns_answer a = { .ttl = 60, .pointer = "a.example" };
        assert_int_equal(pv_dns_write_answer(m, &q, &a, out, sizeof out), n + 12 + 11);
        assert_memory_equal(out + n, "\xc0\x0c\0\x0c\0\1\0\0\0\x3c\0\x0b\1a\7example", 23);
        assert_int_equal(out[7], 1);
}

static void a_refusal_is_explained_to_who_knows_edns(void **state)
{
        uint8_t m[512], out[512];
        struct pv_dns_query q;
        enum pv_dns_rcode rcode;
        const struct pv_dns_answer a = { .rcode = PV_DNS_NXDOMAIN, .blocked = true };
        size_t n = make_query(m, PV_DNS_A, 1);
        assert_int_equal(pv_dns_parse_query(m, n, &q, &rcode), PV_DNS_QUERY);
        assert_int_equal(pv_dns_write_answer(m, &q, &a, out, sizeof out), n);
        q.edns = true;
        assert_int_equal(pv_dns_write_answer(m, &q, &a, out, sizeof out), n + 17);
        assert_memory_equal(out + n + 9, "\0\6\0\x0f\0\2\0\x0f", 8);
}

/* Whole random bytes, and good messages with a few wrong ones; the sanitizers watch the ends. */
static void anything_may_come(void **state)
{
        uint8_t good[512], out[PV_DNS_UDP_MAX];
        struct pv_netaddr addrs[2], a;
        assert_true(pv_netaddr_parse("198.18.0.7", &addrs[0]) && pv_netaddr_parse("fd00::7", &addrs[1]));
        size_t n = make_query(good, PV_DNS_A, 1);
        memcpy(good + n, "\0\0\x29\x10\0\0\0\0\0\0\0", 11);
        good[11] = 1;
        n += 11;
        srandom(3);
        for (int i = 0; i < 100000; i++) {
                size_t len = i % 2 ? n : (size_t)random() % 64;
                uint8_t *m = pv_calloc(len ? len : 1, 1);
                if (i % 2)
                        memcpy(m, good, len);
                for (size_t k = i % 2 ? (size_t)random() % 4 : len; k-- > 0;)
                        m[(size_t)random() % len] = (uint8_t)random();
                struct pv_dns_query q;
                enum pv_dns_rcode rcode = PV_DNS_NOERROR;
                enum pv_dns_parse kind = pv_dns_parse_query(m, len, &q, &rcode);
                const struct pv_dns_answer answer = { .rcode = kind == PV_DNS_ERROR ? rcode : PV_DNS_NOERROR,
                                                      .addrs = addrs,
                                                      .n_addrs = 2,
                                                      .pointer = "a.example",
                                                      .blocked = true };
                if (kind != PV_DNS_DROP)
                        assert_in_range(pv_dns_write_answer(m, &q, &answer, out, q.udp_size), 12, q.udp_size);
                if (kind == PV_DNS_QUERY)
                        (void)pv_dns_reverse_address(q.name, &a);
                free(m);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_query_is_read_and_answered),
                cmocka_unit_test(edns_is_seen_and_echoed),
                cmocka_unit_test(too_long_an_answer_is_cut_with_tc),
                cmocka_unit_test(hostile_messages_are_refused_or_dropped),
                cmocka_unit_test(the_longest_name_fits_and_one_more_does_not),
                cmocka_unit_test(odd_names_are_read_and_not_taken_for_host_names),
                cmocka_unit_test(reverse_names),
                cmocka_unit_test(a_pointer_is_answered_with_the_name),
                cmocka_unit_test(a_refusal_is_explained_to_who_knows_edns),
                cmocka_unit_test(anything_may_come),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
