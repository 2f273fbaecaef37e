/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `pvisor review`, in the order in which a person reads them. Each appends to out. */
#ifndef PV_CMD_REVIEW_H
#define PV_CMD_REVIEW_H

#include <jansson.h>
#include "cmd/look.h"
#include "cmd/renames.h"
#include "cmd/screen.h"
#include "git/words.h"

enum {
        PV_REVIEW_ROWS_MAX = 200, /* paths, unless all are asked for; deletions are always listed */
        PV_REVIEW_FOLD_FROM = 20, /* a new directory of more files is one line */
        PV_REVIEW_REPOS_MAX = 8,
};

struct pv_review {
        struct pv_look look;
        struct pv_renames renames;
        const char **conflict; /* one a change: why it cannot be applied now (static), or NULL */
        size_t n_conflicts;    /* of what a plain apply would take */
        size_t n_touched;      /* outside of git directories */
        size_t n_host_changed; /* of those: the host changed them since the stage was taken, or may have */
        json_t *bundle;
        struct pv_screen screen;
        bool all_paths, verbose;
        bool has_commits; /* apply --commits would find something */
        size_t n_commits; /* so many, as far as they were counted */
};

/* review_conflicts.c */
void pv_review_find_conflicts(struct pv_review *r);
void pv_review_put_conflicts(const struct pv_review *r, struct pv_str *out);
json_t *pv_review_conflicts_json(const struct pv_review *r);
json_t *pv_review_host_changed_json(const struct pv_review *r);
/* review_changes.c */
void pv_review_put_changes(const struct pv_review *r, struct pv_str *out);
/* review_attention.c */
void pv_review_put_attention(const struct pv_review *r, struct pv_str *out);
json_t *pv_review_attention_json(const struct pv_review *r);
/* review_git.c */
/* Fills has_commits and n_commits, too. */
void pv_review_put_git(struct pv_review *r, struct pv_str *out);
/* review_limits.c */
void pv_review_put_profile(const struct pv_review *r, struct pv_str *out);
void pv_review_put_limits(const struct pv_review *r, struct pv_str *out);
void pv_review_put_network(const struct pv_review *r, struct pv_str *out);

/* A section's heading; note is dim behind it, may be NULL. */
void pv_review_put_heading(const struct pv_review *r, struct pv_str *out, enum pv_style style, const char *title,
                           const char *note);
/* The path of a change as the person knows it: relative to the workspace, absolute elsewhere. The caller's. */
char *pv_review_path(const struct pv_review *r, size_t i);

#endif
