/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a request to the proxy. */
#include "net/http.h"

#include <string.h>
#include "net/fuzz/fuzz.h"

const struct pv_fuzz_seed pv_fuzz_seeds[] = {
        PV_FUZZ_SEED("CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\n\r\n\x16\x03\x01"),
        PV_FUZZ_SEED("CONNECT [2001:db8::1]:443 HTTP/1.0\n\n"),
        PV_FUZZ_SEED("GET http://www.example.com:8080/a?b HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\n"
                     "Proxy-Authorization: Basic eA==\r\nConnection: close, x\r\nX: y\r\n\r\nbody"),
        PV_FUZZ_SEED("POST http://[::1]/ HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
        PV_FUZZ_SEED("GET / HTTP/1.1\r\n\r\n"),
        { NULL, 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct pv_http_request r = { 0 };
        if (size > PV_HTTP_HEAD_MAX)
                return 0;
        enum pv_http_parse kind = pv_http_parse((const char *)data, size, &r);
        if (kind != PV_HTTP_CONNECT && kind != PV_HTTP_FORWARD)
                return 0;
        PV_FUZZ_HOLDS(r.head > 0 && r.head <= size && r.port > 0 && r.host[0] != '\0');
        PV_FUZZ_HOLDS(strlen(r.host) <= PV_NETRULE_NAME_MAX);
        if (kind == PV_HTTP_FORWARD) {
                pv_auto_str out = { 0 };
                pv_http_rewrite((const char *)data, &r, &out);
                PV_FUZZ_HOLDS(out.len <= 2 * size + 1024);
        }
        return 0;
}
