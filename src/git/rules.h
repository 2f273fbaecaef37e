/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by name: the table of file names that run later or steer what runs. Private to git/. */
#ifndef PV_GIT_RULES_H
#define PV_GIT_RULES_H

#include <stddef.h>
#include <stdint.h>
#include "git/attention.h"

struct pv_rules; /* the table, sorted for look-up; made once a classification */
struct pv_rules *pv_rules_new(void);
void pv_rules_free(struct pv_rules *r);
static inline void pv_rules_freep(struct pv_rules **r)
{
        pv_rules_free(*r);
        *r = NULL;
}
#define pv_auto_rules __attribute__((cleanup(pv_rules_freep))) struct pv_rules *

/*
 * The reasons that the path's names give (PV_ATTENTION_BIT()s). *anchor_len: the shortest part of the path that names
 * what runs on the host by itself, where a reason does; else left alone.
 */
uint64_t pv_rules_match(const struct pv_rules *r, const char *path, size_t *anchor_len);

#endif
