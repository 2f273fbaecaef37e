/* SPDX-License-Identifier: Apache-2.0 */
#include "net/names.h"

#include <string.h>
#include "base/hash.h"

/*
 * Name i has the address prefix + FIRST + i. FIRST leaves the first addresses of the range to pVisor itself (the
 * resolver's address, for one). The table from name to index is open addressing over twice as many slots as names.
 */
#define FIRST       256u
#define SLOTS_FIRST 256u

struct pv_names {
        char **name; /* by index, owned */
        size_t n, cap;
        uint32_t *slot; /* index + 1, 0 is free; n_slots is a power of two */
        size_t n_slots;
        uint64_t key; /* of the hash: the sandbox must not choose collisions */
};

static const uint8_t v4_net[16] = { [10] = 0xff, [11] = 0xff, [12] = 198, [13] = 18 };
static const uint8_t v6_net[16] = { 0xfd, 0x70, 0x76, 0x69, 0x73, 0x6f };

struct pv_names *pv_names_new(void)
{
        struct pv_names *n = pv_calloc(1, sizeof *n);
        n->n_slots = SLOTS_FIRST;
        n->slot = pv_calloc(n->n_slots, sizeof *n->slot);
        if (getentropy(&n->key, sizeof n->key) < 0)
                n->key = (uintptr_t)n ^ (uint64_t)getpid() << 32;
        return n;
}

void pv_names_free(struct pv_names *n)
{
        if (!n)
                return;
        for (size_t i = 0; i < n->n; i++)
                free(n->name[i]);
        free(n->name);
        free(n->slot);
        free(n);
}

/* FNV-1a with a secret start and a final mix. */
static size_t hash(const struct pv_names *n, const char *name)
{
        uint64_t h = pv_hash_text(PV_HASH_START ^ n->key, name);
        h = (h ^ h >> 29) * (n->key | 1);
        return (size_t)(h ^ h >> 32);
}

/* The slot that holds name, or the free one where it belongs. */
static uint32_t *slot_of(const struct pv_names *n, const char *name)
{
        for (size_t i = hash(n, name);; i++) {
                uint32_t *s = &n->slot[i & (n->n_slots - 1)];
                if (*s == 0 || pv_streq(n->name[*s - 1], name))
                        return s;
        }
}

static void grow(struct pv_names *n)
{
        free(n->slot);
        n->n_slots *= 2;
        n->slot = pv_calloc(n->n_slots, sizeof *n->slot);
        for (size_t i = 0; i < n->n; i++)
                *slot_of(n, n->name[i]) = (uint32_t)i + 1;
}

static struct pv_netaddr address_of(const uint8_t net[16], uint32_t index)
{
        struct pv_netaddr a;
        uint32_t low = index + FIRST;
        memcpy(a.b, net, sizeof a.b);
        a.b[13] = (uint8_t)(a.b[13] + (low >> 16)); /* FIRST + PV_NAMES_MAX reaches one bit beyond 16: the /15 */
        a.b[14] = (uint8_t)(low >> 8);
        a.b[15] = (uint8_t)low;
        return a;
}

bool pv_names_give(struct pv_names *n, const char *name, struct pv_netaddr *v4, struct pv_netaddr *v6)
{
        uint32_t *s = slot_of(n, name);
        if (*s == 0) {
                if (n->n == PV_NAMES_MAX)
                        return false;
                if (n->n == n->cap) {
                        n->cap = n->cap ? 2 * n->cap : 64;
                        n->name = pv_realloc(n->name, n->cap, sizeof *n->name);
                }
                n->name[n->n++] = pv_strdup(name);
                *s = (uint32_t)n->n;
                if (2 * n->n > n->n_slots) {
                        grow(n);
                        s = slot_of(n, name);
                }
        }
        *v4 = address_of(v4_net, *s - 1);
        *v6 = address_of(v6_net, *s - 1);
        return true;
}

bool pv_names_is_synthetic(const struct pv_netaddr *a)
{
        return (memcmp(a->b, v4_net, 13) == 0 && (a->b[13] & 0xfe) == 18) || memcmp(a->b, v6_net, 12) == 0;
}

const char *pv_names_find(const struct pv_names *n, const struct pv_netaddr *a)
{
        if (!pv_names_is_synthetic(a))
                return NULL;
        const uint8_t *net = pv_netaddr_is_v4(a) ? v4_net : v6_net;
        if (net == v6_net && a->b[12] != 0)
                return NULL;
        uint32_t low = (uint32_t)(a->b[13] - net[13]) << 16 | (uint32_t)a->b[14] << 8 | a->b[15];
        return low >= FIRST && low - FIRST < n->n ? n->name[low - FIRST] : NULL;
}
