/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>
#include "base/str.h"

#define BLOCK_SIZE ((size_t)64 * 1024)

struct pv_arena_block {
        struct pv_arena_block *next;
        char bytes[];
};

void pv_arena_fini(struct pv_arena *a)
{
        for (struct pv_arena_block *b = a->blocks, *next; b; b = next) {
                next = b->next;
                free(b);
        }
        *a = (struct pv_arena){ 0 };
}

char *pv_arena_bytes(struct pv_arena *a, size_t n)
{
        if (!a->blocks || n > a->size - a->used) {
                size_t size = n > BLOCK_SIZE ? n : BLOCK_SIZE;
                struct pv_arena_block *b = pv_realloc(NULL, 1, sizeof *b + size);
                b->next = a->blocks;
                a->blocks = b;
                a->used = 0;
                a->size = size;
        }
        char *p = a->blocks->bytes + a->used;
        a->used += n;
        return p;
}

char *pv_arena_text(struct pv_arena *a, const char *s, size_t n)
{
        char *p = pv_arena_bytes(a, n + 1);
        memcpy(p, s, n);
        p[n] = '\0';
        return p;
}
