/* SPDX-License-Identifier: Apache-2.0 */
/* The reasons for attention of one change whose place and part are known. Private to git/. */
#ifndef PV_GIT_JUDGE_H
#define PV_GIT_JUDGE_H

#include "git/classify.h"
#include "git/rules.h"

/* Sets verdict->reasons and anchor_len; all is the change list that index counts in. */
void pv_judge(const struct pv_rules *rules, const struct pv_path_change *all, size_t index,
              const struct pv_classify_context *context, struct pv_verdict *verdict);

/* True when a link with this target, at path beneath a root seen at root_view, leads or may lead out of the root. */
bool pv_link_leaves(const char *root_view, const char *path, const char *target);

#endif
