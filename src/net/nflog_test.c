/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/nflog.h"

#include <netinet/in.h>
#include <stdlib.h>

static void a_v4_packet(void **state)
{
        uint8_t b[28] = { 0x46, [9] = IPPROTO_TCP, [16] = 203, 0, 113, 7, [24] = 1, 2, 0x01, 0xbb };
        struct pv_nflog_packet p;
        struct pv_netaddr want;
        assert_true(pv_nflog_parse_packet(b, sizeof b, &p));
        assert_true(pv_netaddr_parse("203.0.113.7", &want));
        assert_memory_equal(&p.to, &want, sizeof want);
        assert_int_equal(p.protocol, IPPROTO_TCP);
        assert_int_equal(p.port, 443);
        assert_true(pv_nflog_parse_packet(b, 27, &p)); /* cut behind the address */
        assert_int_equal(p.port, 0);
        b[9] = IPPROTO_ICMP;
        assert_true(pv_nflog_parse_packet(b, sizeof b, &p));
        assert_int_equal(p.port, 0);
}

static void a_v6_packet(void **state)
{
        uint8_t b[44] = { 0x60, [6] = IPPROTO_UDP, [24] = 0x20, 0x01, 0x0d, 0xb8, [39] = 9, [42] = 0, 53 };
        struct pv_nflog_packet p;
        struct pv_netaddr want;
        assert_true(pv_nflog_parse_packet(b, sizeof b, &p));
        assert_true(pv_netaddr_parse("2001:db8::9", &want));
        assert_memory_equal(&p.to, &want, sizeof want);
        assert_int_equal(p.port, 53);
}

static void anything_may_come(void **state)
{
        static uint8_t b[PV_NFLOG_SNAPSHOT];
        struct pv_nflog_packet p;
        srandom(1);
        for (int i = 0; i < 20000; i++) {
                size_t n = (size_t)random() % sizeof b;
                uint8_t *exact = malloc(n + 1); /* the sanitizer sees what is read behind it */
                for (size_t k = 0; k < n; k++)
                        exact[k] = (uint8_t)random();
                (void)pv_nflog_parse_packet(exact, n, &p);
                free(exact);
        }
        assert_false(pv_nflog_parse_packet(b, 0, &p));
        assert_false(pv_nflog_parse_packet(b, sizeof b, &p)); /* version 0 */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_v4_packet),
                cmocka_unit_test(a_v6_packet),
                cmocka_unit_test(anything_may_come),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
