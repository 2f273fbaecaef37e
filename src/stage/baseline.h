/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The baseline of a root: the preimage of each path of a walk, from the record where there is one, else taken from the
 * host now and doubted by the rules of the conflict check (baseline.c).
 */
#ifndef PV_STAGE_BASELINE_H
#define PV_STAGE_BASELINE_H

#include "stage/preimage.h"
#include "stage/scan.h"

struct pv_baseline;

enum pv_baseline_flags {
        PV_BASELINE_HASH = 1 << 0, /* hash what is taken now: for sealing */
        PV_BASELINE_KEEP = 1 << 1, /* and keep texts, for merging */
};

/* view: the still-mounted view of the root, the channel to its server, or {-1}. *out is the caller's. */
int pv_baseline_open(struct pv_stage *s, size_t root, struct pv_pathfd view, unsigned flags, struct pv_baseline **out,
                     struct pv_err *err);
void pv_baseline_close(struct pv_baseline *b);

/*
 * What was applied or undone while the command runs, and the walk has passed without an entry of that path, is given
 * to `passed` from now on, in the order of the walk: for sealing, which keeps it.
 */
typedef int pv_baseline_passed(void *ctx, const char *path, const struct pv_preimage *p, struct pv_err *err);
void pv_baseline_on_passed(struct pv_baseline *b, pv_baseline_passed *passed, void *ctx);
/* At the end of the walk: the rest of it. */
int pv_baseline_pass_rest(struct pv_baseline *b, struct pv_err *err);

/*
 * The preimage of the walk's entry; the walk's order is required. The text of a link is valid until the next call.
 * 0, or -1 with err.
 */
int pv_baseline_resolve(struct pv_baseline *b, const struct pv_scan_entry *e, struct pv_preimage *out,
                        struct pv_err *err);

/*
 * The file of a root's preimages, and the one of them as they were when the layer of this number was frozen; relative
 * to the stage's directory. The caller's.
 */
char *pv_baseline_file(size_t root);
/* The file of what landed while the command runs. */
char *pv_landed_file(size_t root);
char *pv_baseline_snapshot(size_t root, unsigned number);

#endif
