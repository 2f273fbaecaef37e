/* SPDX-License-Identifier: Apache-2.0 */
/* The stage's changes with what git/ says of each: what review, diff, apply and drop decide on. */
#ifndef PV_CMD_VERDICTS_H
#define PV_CMD_VERDICTS_H

#include <stdbool.h>
#include "base/err.h"
#include "git/classify.h"
#include "stage/change.h"

struct pv_verdicts {
        size_t n;                      /* as many as there are changes, in their order */
        struct pv_path_change *change; /* borrows from the changes */
        struct pv_verdict *item;
        const struct pv_root **root; /* the stage's */
        size_t n_roots;
        struct pv_configured configured;
        bool ignore_known; /* git was asked; else nothing counts as ignored */
        bool git_refused;  /* a staged file that git would read is none: git must not be asked about anything */
        char no_git[160];  /* with !ignore_known: why, a clause for people; else "" */
};
void pv_verdicts_fini(struct pv_verdicts *v);

/*
 * Classifies all changes. view and base: git over the staged view and over what the host has, each may be NULL (without
 * view nothing is ignored; base is asked only where the configuration, or what it includes, was changed, and where the
 * view's git gives no answer). A git that fails or is missing is not an error: see ignore_known. The stage and the
 * changes must outlive *out.
 */
int pv_verdicts_make(struct pv_stage *s, const struct pv_changes *changes, const struct pv_git_runner *view,
                     const struct pv_git_runner *base, struct pv_verdicts *out, struct pv_err *err);

#endif
