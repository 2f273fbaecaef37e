/* SPDX-License-Identifier: Apache-2.0 */
/* Token buckets: how many bytes may pass now. Limits stack: a flow takes from every bucket that holds it. */
#ifndef PV_NET_RATE_H
#define PV_NET_RATE_H

#include <stddef.h>
#include <stdint.h>

struct pv_rate {
        uint64_t bytes_per_second; /* not 0 */
        uint64_t tokens;           /* bytes; at most a tenth of a second's worth, at least PV_RATE_LEAST */
        uint64_t filled_us;        /* CLOCK_MONOTONIC of the last fill */
};

#define PV_RATE_LEAST 4096 /* bytes: the smallest bucket, so that a slow limit still moves whole segments */

void pv_rate_init(struct pv_rate *r, uint64_t bytes_per_second, uint64_t now_us);
/* Bytes that may pass now, after filling up to now. */
uint64_t pv_rate_available(struct pv_rate *r, uint64_t now_us);
/* Takes n bytes, at most what pv_rate_available() said. */
void pv_rate_take(struct pv_rate *r, uint64_t n);

#endif
