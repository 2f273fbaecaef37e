/* SPDX-License-Identifier: Apache-2.0 */
#include "net/rate.h"

#define MICROSECONDS 1000000u

static uint64_t capacity(const struct pv_rate *r)
{
        uint64_t tenth = r->bytes_per_second / 10;
        return tenth > PV_RATE_LEAST ? tenth : PV_RATE_LEAST;
}

void pv_rate_init(struct pv_rate *r, uint64_t bytes_per_second, uint64_t now_us)
{
        *r = (struct pv_rate){ .bytes_per_second = bytes_per_second, .filled_us = now_us };
        r->tokens = capacity(r);
}

uint64_t pv_rate_available(struct pv_rate *r, uint64_t now_us)
{
        uint64_t elapsed = now_us - r->filled_us, most = capacity(r);
        if (elapsed > 10 * MICROSECONDS)
                elapsed = 10 * MICROSECONDS; /* more than fills any bucket but the slowest; keeps the product small */
        uint64_t whole = elapsed / MICROSECONDS * r->bytes_per_second;
        uint64_t part = (uint64_t)((unsigned __int128)(elapsed % MICROSECONDS) * r->bytes_per_second / MICROSECONDS);
        if (whole + part > 0) { /* else the fraction of a byte is left to ripen */
                r->tokens = r->tokens + whole + part > most ? most : r->tokens + whole + part;
                r->filled_us = now_us;
        }
        return r->tokens;
}

void pv_rate_take(struct pv_rate *r, uint64_t n)
{
        r->tokens -= n < r->tokens ? n : r->tokens;
}
