/* SPDX-License-Identifier: Apache-2.0 */
#include "net/own.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include "base/str.h"

#define LOOK_MS 2000

static bool take(const struct ifaddrs *i, struct pv_netaddr *out)
{
        if (!i->ifa_addr || (i->ifa_flags & IFF_LOOPBACK))
                return false;
        *out = (struct pv_netaddr){ { [10] = 0xff, [11] = 0xff } };
        if (i->ifa_addr->sa_family == AF_INET)
                memcpy(out->b + 12, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, 4);
        else if (i->ifa_addr->sa_family == AF_INET6)
                memcpy(out->b, &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr, 16);
        else
                return false;
        return true;
}

static bool look(struct pv_own *o)
{
        struct ifaddrs *all;
        if (getifaddrs(&all) < 0)
                return false;
        o->n = 0;
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
                struct pv_netaddr a;
                if (!take(i, &a))
                        continue;
                o->v = pv_realloc(o->v, o->n + 1, sizeof *o->v);
                o->v[o->n++] = a;
        }
        freeifaddrs(all);
        return true;
}

bool pv_own_has(struct pv_own *o, const struct pv_netaddr *a, uint64_t now_ms)
{
        if (now_ms >= o->until_ms) {
                if (!look(o))
                        return true;
                o->until_ms = now_ms + LOOK_MS;
        }
        for (size_t i = 0; i < o->n; i++)
                if (memcmp(&o->v[i], a, sizeof *a) == 0)
                        return true;
        return false;
}

void pv_own_fini(struct pv_own *o)
{
        free(o->v);
        *o = (struct pv_own){ 0 };
}
