/* SPDX-License-Identifier: Apache-2.0 */
/* Names of references that a job chose. Private to git/carry*.c. */
#ifndef PV_GIT_CARRY_NAMES_H
#define PV_GIT_CARRY_NAMES_H

#include "git/carry.h"

#define PV_HEADS "refs/heads/"
#define PV_TAGS  "refs/tags/"
#define PV_ASIDE "refs/heads/pvisor/" /* branches that pVisor makes */
#define PV_PINS  "refs/pvisor/"       /* what keeps new objects from the host's collector meanwhile */

/* A whole name of a branch or tag that may be made on the host: stricter than git-check-ref-format(1). */
bool pv_carry_is_sane(const char *name);
/* It would have to be a directory where another one is a file, or the other way round. */
bool pv_carry_clashes(const struct pv_carry *c, const char *name);
/* What the host had at the start: NULL when that is not known, "" for nothing. */
const char *pv_carry_at_start(const struct pv_git_start *start, const char *name);

/* Lines for update-ref that take the pins away; of one that is not there, too. */
void pv_carry_put_unpins(const struct pv_carry *c, struct pv_str *out);

#endif
