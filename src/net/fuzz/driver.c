/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where there is no libFuzzer: every seed as it is, cut at every place, and changed at a few, the same way in each
 * run.
 */
#include "net/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS  100000
#define LONGEST 4096
#define CHANGES 8

static uint32_t next_chance(uint32_t *state)
{
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        return *state;
}

/* A buffer of exactly that size, so that a sanitizer sees the first byte behind it. */
static void feed(const uint8_t *bytes, size_t n)
{
        uint8_t *exact = malloc(n ? n : 1);
        if (!exact)
                abort();
        memcpy(exact, bytes, n);
        (void)LLVMFuzzerTestOneInput(exact, n);
        free(exact);
}

static size_t change(uint8_t *b, size_t n, uint32_t *chance)
{
        static const uint8_t telling[] = { 0,   1,   0x3f, 0x40, 0x7f, 0x80, 0xc0, 0xff,
                                           ':', '[', ']',  ',',  ';',  '=',  '.',  '*' };
        uint32_t at = next_chance(chance), what = next_chance(chance);
        if (n == 0)
                return n;
        switch (next_chance(chance) % 5) {
        case 0:
                b[at % n] = (uint8_t)what;
                return n;
        case 1:
                b[at % n] = telling[what % sizeof telling];
                return n;
        case 2:
                b[at % n] ^= (uint8_t)(1U << what % 8);
                return n;
        case 3: /* a part of it once more */
                if (2 * n > LONGEST)
                        return n;
                at %= (uint32_t)n;
                memmove(b + n, b + at, n - at);
                return 2 * n - at;
        default:
                return at % (n + 1);
        }
}

int main(void)
{
        uint8_t b[LONGEST];
        uint32_t chance = 2463534242U;
        size_t n_seeds = 0;
        for (; pv_fuzz_seeds[n_seeds].bytes; n_seeds++)
                for (size_t n = 0; n <= pv_fuzz_seeds[n_seeds].n; n++)
                        feed(pv_fuzz_seeds[n_seeds].bytes, n);
        for (unsigned i = 0; n_seeds > 0 && i < ROUNDS; i++) {
                const struct pv_fuzz_seed *s = &pv_fuzz_seeds[i % n_seeds];
                size_t n = s->n < LONGEST / 2 ? s->n : LONGEST / 2;
                memcpy(b, s->bytes, n);
                for (unsigned k = next_chance(&chance) % CHANGES; k < CHANGES; k++)
                        n = change(b, n, &chance);
                feed(b, n);
        }
        return 0;
}
