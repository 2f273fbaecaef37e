/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's packet log: messages of netlink, in them packets that the sandbox made. */
#include "net/nflog.h"

#include "net/fuzz/fuzz.h"

const struct pv_fuzz_seed pv_fuzz_seeds[] = {
        PV_FUZZ_SEED("\x34\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x01"
                     "\x20\x00\x09\x00"
                     "\x45\x00\x00\x28\x00\x00\x40\x00\x40\x06\x00\x00\x0a\xff\x00\x01\x0b\x16\x21\x01"
                     "\x80\x00\x00\x50\x00\x00\x00\x00"),
        PV_FUZZ_SEED("\x48\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x01"
                     "\x34\x00\x09\x00"
                     "\x60\x00\x00\x00\x00\x08\x11\x40\xfd\x70\x76\x69\x73\x6f\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"
                     "\x2a\x01\x00\x5f\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"
                     "\x80\x00\x01\xbb\x00\x08\x00\x00"),
        { NULL, 0 },
};

static void take(void *ctx, const struct pv_nflog_packet *p)
{
        *(unsigned *)ctx += p->port;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        unsigned sum = 0;
        struct pv_nflog_packet p;
        pv_nflog_parse(data, size, take, &sum);
        (void)pv_nflog_parse_packet(data, size, &p);
        return 0;
}
