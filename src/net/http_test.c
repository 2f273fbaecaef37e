/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "net/http.h"

#include <string.h>

static enum pv_http_parse parse(const char *text, struct pv_http_request *r)
{
        return pv_http_parse(text, strlen(text), r);
}

static void connect_names_host_and_port(void **state)
{
        struct pv_http_request r;
        assert_int_equal(parse("CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\nTLS", &r), PV_HTTP_CONNECT);
        assert_string_equal(r.host, "example.com");
        assert_int_equal(r.port, 443);
        assert_int_equal(r.head, 45);
        assert_int_equal(parse("CONNECT [2001:db8::1]:8443 HTTP/1.1\r\n\r\n", &r), PV_HTTP_CONNECT);
        assert_string_equal(r.host, "2001:db8::1");
        assert_int_equal(r.port, 8443);
}

static void a_forwarded_request_is_rewritten(void **state)
{
        static const char text[] =
                "GET http://user:pw@example.com:8080/a?b HTTP/1.1\r\nHost: evil\r\nProxy-Authorization: x\r\n"
                "Connection: keep-alive\r\nAccept: */*\r\n\r\n";
        struct pv_http_request r;
        pv_auto_str out = { 0 };
        assert_int_equal(parse(text, &r), PV_HTTP_FORWARD);
        assert_string_equal(r.host, "example.com");
        pv_http_rewrite(text, &r, &out);
        assert_string_equal(out.s,
                            "GET /a?b HTTP/1.1\r\nHost: example.com:8080\r\nAccept: */*\r\nConnection: close\r\n\r\n");
        out.len = 0;
        assert_int_equal(parse("GET http://example.com HTTP/1.0\n\n", &r), PV_HTTP_FORWARD);
        pv_http_rewrite("GET http://example.com HTTP/1.0\n\n", &r, &out);
        assert_string_equal(out.s, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n");
}

static void what_is_no_proxy_request_is_refused(void **state)
{
        static const char *const bad[] = {
                "\r\n\r\n",
                "GET\r\n\r\n",
                "CONNECT a:0 HTTP/1.1\r\n\r\n",
                "CONNECT a:65536 HTTP/1.1\r\n\r\n",
                "CONNECT :443 HTTP/1.1\r\n\r\n",
                "CONNECT a:4x HTTP/1.1\r\n\r\n",
                "CONNECT a:443\r\n\r\n",
                "GET ftp://a/ HTTP/1.1\r\n\r\n",
                "CONNECT [::1:443 HTTP/1.1\r\n\r\n",
                "GET http:///x HTTP/1.1\r\n\r\n",
                "CONNECT [::1]443 HTTP/1.1\r\n\r\n",
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        };
        struct pv_http_request r;
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                if (parse(bad[i], &r) != PV_HTTP_BAD)
                        fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(parse("GET / HTTP/1.1\r\nHost: a\r\n\r\n", &r), PV_HTTP_NOT_PROXY);
        assert_int_equal(parse("CONNECT a:1 HTTP/1.1\r\nHost", &r), PV_HTTP_MORE);
        pv_auto_free char *big = pv_calloc(PV_HTTP_HEAD_MAX + 1, 1);
        memset(big, 'a', PV_HTTP_HEAD_MAX);
        assert_int_equal(parse(big, &r), PV_HTTP_BAD);
}

/* Good requests with a few wrong bytes, cut anywhere; the sanitizers watch the ends. */
static void anything_may_come(void **state)
{
        static const char *const good[] = {
                "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: a\r\n\r\nrest",
                "GET http://u:p@h.example:81/p?q#f HTTP/1.1\nHost: x\nProxy-X: y\nConnection: a\n\n",
        };
        srandom(4);
        for (int i = 0; i < 100000; i++) {
                const char *from = good[i % 2];
                size_t n = (size_t)random() % (strlen(from) + 1);
                char *b = pv_calloc(n ? n : 1, 1);
                memcpy(b, from, n);
                for (size_t k = (size_t)random() % 4; n > 0 && k-- > 0;)
                        b[(size_t)random() % n] = (char)(random() % 3 ? "\r\n :[]@/?#"[random() % 10] : random());
                struct pv_http_request r;
                if (pv_http_parse(b, n, &r) == PV_HTTP_FORWARD) {
                        pv_auto_str out = { 0 };
                        pv_http_rewrite(b, &r, &out);
                        assert_true(out.len > 0);
                }
                free(b);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(connect_names_host_and_port),
                cmocka_unit_test(a_forwarded_request_is_rewritten),
                cmocka_unit_test(what_is_no_proxy_request_is_refused),
                cmocka_unit_test(anything_may_come),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
