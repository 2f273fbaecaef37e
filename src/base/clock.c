/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include "base/fd.h"

void pv_clock_format(const struct timespec *t, char out[PV_CLOCK_TEXT])
{
        struct tm tm;
        char date[24];
        (void)gmtime_r(&t->tv_sec, &tm);
        (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
        (void)snprintf(out, PV_CLOCK_TEXT, "%s.%03dZ", date, (int)(t->tv_nsec / 1000000) % 1000);
}

struct timespec pv_clock_now(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_REALTIME, &t);
        return t;
}

uint64_t pv_clock_monotonic_ms(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t pv_clock_monotonic_us(void)
{
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

int pv_clock_compare(const struct timespec *a, const struct timespec *b)
{
        if (a->tv_sec != b->tv_sec)
                return a->tv_sec < b->tv_sec ? -1 : 1;
        return a->tv_nsec < b->tv_nsec ? -1 : a->tv_nsec > b->tv_nsec;
}

void pv_clock_boot_id(char out[PV_BOOT_ID_TEXT])
{
        pv_auto_fd fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, out, PV_BOOT_ID_TEXT - 1) : -1;
        out[n == PV_BOOT_ID_TEXT - 1 ? n : 0] = '\0';
}
