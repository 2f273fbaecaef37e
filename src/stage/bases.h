/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed files were before: the text of preimages, kept so that a conflict can be merged three ways when the
 * host has changed the file since. One file a root, roots/<n>/bases, appended to when a run is sealed and when changes
 * land; a text is found by its SHA-256, which is checked again. Only a help: what cannot be kept (no room, not text,
 * too large) is left out, and the conflict then has no base.
 */
#ifndef PV_STAGE_BASES_H
#define PV_STAGE_BASES_H

#include <stdbool.h>
#include "stage/facts.h"
#include "stage/stage.h"

#define PV_BASE_FILE_MAX (1U << 20) /* a larger file is not kept */

/* For keeping: opened at the first use, one at a time. s and root outlive it. */
struct pv_bases;
struct pv_bases *pv_bases_new(const struct pv_stage *s, size_t root);
/* The same, in a file that only notes of a start go to (notes.h), since they are taken while others write. */
struct pv_bases *pv_bases_new_start(const struct pv_stage *s, size_t root);
/* Hashes the regular file dirfd/name into f, as pv_facts_hash(), and keeps it when it is text. 0, or -1 with errno. */
int pv_bases_hash_and_keep(struct pv_bases *b, int dirfd, const char *name, struct pv_facts *f);
/* Writes what is left; b may be NULL. */
void pv_bases_free(struct pv_bases *b);

/*
 * Finds a text by its hash, in this stage or in those that it stands on. *out (len bytes, the caller's) stays NULL when
 * it was not kept.
 */
int pv_bases_find(const struct pv_stage *s, size_t root, const unsigned char sha256[PV_SHA256_SIZE], char **out,
                  size_t *len, struct pv_err *err);

/* git's own rule for text: no NUL among the first 8,000 bytes. */
bool pv_bases_is_text(const char *bytes, size_t n);

#endif
