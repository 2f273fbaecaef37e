/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PV_BASE_CLOCK_H
#define PV_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* "2026-01-31T12:00:00.123Z" (RFC 3339, UTC) of a CLOCK_REALTIME time. */
#define PV_CLOCK_TEXT 32
void pv_clock_format(const struct timespec *t, char out[PV_CLOCK_TEXT]);
struct timespec pv_clock_now(void);
/* CLOCK_MONOTONIC in milliseconds, in microseconds. */
uint64_t pv_clock_monotonic_ms(void);
uint64_t pv_clock_monotonic_us(void);
int pv_clock_compare(const struct timespec *a, const struct timespec *b); /* < 0, 0, > 0 */
/* The kernel's boot id (proc(5), /proc/sys/kernel/random/boot_id) as 36 characters and a NUL; "" where unreadable. */
#define PV_BOOT_ID_TEXT 37
void pv_clock_boot_id(char out[PV_BOOT_ID_TEXT]);

#endif
