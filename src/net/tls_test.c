/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/tls.h"

#include <string.h>

#define NAME "WWW.example.com"

/* Record, ClientHello, an extension before the server's name. */
static size_t make_hello(uint8_t *b)
{
        static const uint8_t extensions[] = "\0\x17\0\0" /* another one, empty */
                                            "\0\0\0\x14\0\x12\0\0\x0f" NAME;
        size_t n = 5 + 4;
        memcpy(b + n, "\3\3", 2);
        memset(b + n + 2, 7, 32);
        n += 34;
        memcpy(b + n, "\1s\0\2\x13\1\1\0", 8); /* session, ciphers, compression */
        n += 8;
        b[n] = 0;
        b[n + 1] = sizeof extensions - 1;
        memcpy(b + n + 2, extensions, sizeof extensions - 1);
        n += 2 + sizeof extensions - 1;
        memcpy(b, "\x16\3\1\0", 4);
        b[4] = (uint8_t)(n - 5);
        memcpy(b + 5, "\1\0\0", 3);
        b[8] = (uint8_t)(n - 9);
        return n;
}

static void the_name_is_found(void **state)
{
        uint8_t b[256];
        char name[PV_NETRULE_NAME_MAX + 1];
        size_t n = make_hello(b);
        assert_true(pv_tls_server_name(b, n, name));
        assert_string_equal(name, "www.example.com");
        for (size_t cut = 0; cut < n; cut++)
                assert_false(pv_tls_server_name(b, cut, name));
        memcpy(b + n - 3, "\0om", 3);
        assert_false(pv_tls_server_name(b, n, name));
        assert_false(pv_tls_server_name((const uint8_t *)"GET / HTTP/1.1\r\n\r\n", 18, name));
}

static void anything_may_come(void **state)
{
        uint8_t good[256], b[256];
        char name[PV_NETRULE_NAME_MAX + 1];
        size_t n = make_hello(good);
        srandom(2);
        for (int i = 0; i < 50000; i++) {
                memcpy(b, good, n);
                for (int k = (int)(random() % 4); k >= 0; k--)
                        b[(size_t)random() % n] = (uint8_t)random();
                size_t len = (size_t)random() % (n + 1);
                uint8_t *exact =
                        pv_calloc(len + 1, 1); /* one byte more than is given: reading it would not be seen ... */
                memcpy(exact + 1, b, len);     /* ... so the end is the allocation's */
                (void)pv_tls_server_name(exact + 1, len, name);
                free(exact);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_name_is_found),
                cmocka_unit_test(anything_may_come),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
