/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena: many small things that live and die together (the paths of a hundred thousand changes).
 * Zero-initialise. Allocation aborts on exhaustion, as in str.h.
 */
#ifndef PV_BASE_ARENA_H
#define PV_BASE_ARENA_H

#include <stddef.h>

struct pv_arena_block;
struct pv_arena {
        struct pv_arena_block *blocks; /* newest first */
        size_t used, size;             /* of the newest */
};

void pv_arena_fini(struct pv_arena *a);
#define pv_auto_arena __attribute__((cleanup(pv_arena_fini))) struct pv_arena

/* n bytes, not cleared, with no alignment: text only. Never NULL. */
char *pv_arena_bytes(struct pv_arena *a, size_t n);
/* A copy of n bytes with a NUL behind it. */
char *pv_arena_text(struct pv_arena *a, const char *s, size_t n);

#endif
