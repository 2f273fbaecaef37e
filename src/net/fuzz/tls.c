/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of a connection, taken for a TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3). */
#include "net/tls.h"

#include <string.h>
#include "net/fuzz/fuzz.h"

const struct pv_fuzz_seed pv_fuzz_seeds[] = {
        PV_FUZZ_SEED("\x16\x03\x01\x00\x4b\x01\x00\x00\x47\x03\x03"
                     "0123456789abcdef0123456789abcdef"
                     "\x00"
                     "\x00\x02\x13\x01"
                     "\x01\x00"
                     "\x00\x1c"
                     "\x00\x00\x00\x14\x00\x12\x00\x00\x0f"
                     "www.example.com"
                     "\x00\x17\x00\x00"),
        PV_FUZZ_SEED("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        { NULL, 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        char name[PV_NETRULE_NAME_MAX + 1] = "", again[PV_NETRULE_NAME_MAX + 1];
        if (!pv_tls_server_name(data, size, name))
                return 0;
        PV_FUZZ_HOLDS(pv_netrule_fold_name(name, strlen(name), again) && pv_streq(name, again));
        return 0;
}
