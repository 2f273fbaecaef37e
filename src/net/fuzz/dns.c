/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the name server. */
#include "net/dns.h"

#include <string.h>
#include "net/fuzz/fuzz.h"

const struct pv_fuzz_seed pv_fuzz_seeds[] = {
        PV_FUZZ_SEED("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07"
                     "example\x03"
                     "com\x00\x00\x01\x00\x01"),
        PV_FUZZ_SEED("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\x01"
                     "a\x00\x00\x1c\x00\x01"
                     "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"),
        PV_FUZZ_SEED("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01"
                     "1\x01"
                     "0\x02"
                     "18\x03"
                     "198\x07"
                     "in-addr\x04"
                     "arpa\x00\x00\x0c\x00\x01"),
        PV_FUZZ_SEED("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"),
        { NULL, 0 },
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct pv_netaddr addrs[2] = { { { [10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18 } },
                                                    { { 0xfd, 0x70 } } };
        uint8_t out[4096], message[12 + 255 + 4] = { 0 };
        struct pv_dns_query q;
        struct pv_netaddr reverse;
        enum pv_dns_rcode rcode = PV_DNS_NOERROR;
        enum pv_dns_parse kind = pv_dns_parse_query(data, size, &q, &rcode);
        if (kind == PV_DNS_DROP)
                return 0;
        PV_FUZZ_HOLDS(strlen(q.name) <= PV_NETRULE_NAME_MAX && q.question <= size);
        PV_FUZZ_HOLDS(kind == PV_DNS_ERROR || q.name_ok == (q.name[0] != '\0'));
        memcpy(message, data, size < sizeof message ? size : sizeof message);
        const struct pv_dns_answer answers[] = {
                { .rcode = rcode },
                { .addrs = addrs, .n_addrs = 2, .ttl = 60 },
                { .rcode = PV_DNS_NXDOMAIN, .blocked = true },
                { .pointer = "www.example.com", .ttl = 60 },
        };
        for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
                PV_FUZZ_HOLDS(pv_dns_write_answer(message, &q, &answers[i], out, 512) <= 512);
                PV_FUZZ_HOLDS(pv_dns_write_answer(message, &q, &answers[i], out, sizeof out) <= sizeof out);
        }
        (void)pv_dns_reverse_address(q.name, &reverse);
        return 0;
}
