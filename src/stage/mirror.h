/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of an upper that a command goes on writing to, in two passes: one while it runs, which copies most, and a last
 * one while it stands still, which copies again what is not what it was. Inside src/stage.
 */
#ifndef PV_STAGE_MIRROR_H
#define PV_STAGE_MIRROR_H

#include <stdbool.h>
#include "base/err.h"

struct pv_mirror;

/* from: a directory; to: one that does not exist yet, whose parent does. *out is the caller's. */
int pv_mirror_new(const char *from, const char *to, struct pv_mirror **out, struct pv_err *err);
void pv_mirror_free(struct pv_mirror *m);

/* What is changed or goes meanwhile is left for the last pass. */
void pv_mirror_begin(struct pv_mirror *m);
/* The command stands still. Marks, whiteouts, hard links and times are kept as they are. */
int pv_mirror_finish(struct pv_mirror *m, struct pv_err *err);

#endif
