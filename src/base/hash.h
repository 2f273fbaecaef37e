/* SPDX-License-Identifier: Apache-2.0 */
/* FNV-1a, 64 bits: places in a table, no proof of anything. A table of names that an outsider picks wants a secret. */
#ifndef PV_BASE_HASH_H
#define PV_BASE_HASH_H

#include <stdint.h>

#define PV_HASH_START 0xcbf29ce484222325ULL

/* start: PV_HASH_START, or that with a secret or a number mixed in. */
static inline uint64_t pv_hash_text(uint64_t start, const char *s)
{
        uint64_t h = start;
        for (; *s; s++)
                h = (h ^ (unsigned char)*s) * 0x100000001b3ULL;
        return h;
}

#endif
