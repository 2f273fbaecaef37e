/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which changes a person means: --all, --path, --include, --exclude, --ignored, --git-raw. The same rules for apply,
 * drop and diff.
 *
 * - --path P takes what is at or below P; P is absolute, or relative to the current directory when that lies in the
 *   workspace, else (or where nothing matches there) to the workspace.
 * - --include and --exclude take globs: without '/' they match the last name at any depth, with '/' the whole path;
 *   `*` and `?` stay within a name, `**` spans names, and a matched directory stands for what is below it.
 * - Left out unless named: what runs on the host by itself (git/attention.h), ignored files (--ignored takes them), a
 *   git directory (--git-raw takes it literally). Naming is a --path at or below the marked file or directory itself,
 *   or an --include without wildcards: `--path .claude` and `--path .git/hooks/pre-commit` name, `--path .` does not.
 */
#ifndef PV_CMD_SELECT_H
#define PV_CMD_SELECT_H

#include <stdbool.h>
#include "base/err.h"
#include "base/str.h"
#include "cmd/verdicts.h"

struct pv_select {
        bool all, ignored, git_raw;
        struct pv_strv path, include, exclude;
        bool host_runs;   /* diff: what runs on the host by itself is shown like the rest */
        bool everything;  /* drop: nothing is left out for what it is; the lists alone decide */
        const bool *also; /* apply --commits: files that go with the commits, one a change; or NULL */
};
void pv_select_fini(struct pv_select *s);

/* Why a change was not selected. */
enum pv_left {
        PV_LEFT_NOT, /* it is selected */
        PV_LEFT_NOT_ASKED,
        PV_LEFT_EXCLUDED,
        PV_LEFT_HOST_RUNS,
        PV_LEFT_IGNORED,
        PV_LEFT_GIT,
        PV_LEFT_TOGETHER, /* without what is left out, this would lose it: struct pv_halves */
        PV_LEFTS
};
/* A clause for people: "ignored by git; --ignored takes it". */
const char *pv_left_text(enum pv_left why);

/*
 * Fills left[0..v->n). cwd is the real path of the current directory. PV_ERR_USAGE: nothing was asked for, a
 * --path names no change (the hint lists near ones), a glob is malformed.
 */
int pv_select_run(const struct pv_select *sel, const struct pv_verdicts *v, const char *cwd, enum pv_left *left,
                  struct pv_err *err);

/* The glob language above. A trailing '/' or nothing behind a match: what is below matches too. */
bool pv_glob_matches(const char *glob, const char *path);

#endif
