/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One door of untrusted input a target. libFuzzer drives it under `./dev fuzz`; driver.c, with changes of its seeds
 * made by a fixed sequence of chance, as a unit test.
 */
#ifndef PV_NET_FUZZ_FUZZ_H
#define PV_NET_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct pv_fuzz_seed {
        const void *bytes;
        size_t n;
};
/* What is well formed; ends with NULL. */
extern const struct pv_fuzz_seed pv_fuzz_seeds[];

#define PV_FUZZ_SEED(text)               \
        {                                \
                (text), sizeof(text) - 1 \
        }

/* A property that must hold: the end of the process where it does not, with NDEBUG too. */
#define PV_FUZZ_HOLDS(condition)          \
        do {                              \
                if (!(condition))         \
                        __builtin_trap(); \
        } while (0)

#endif
