/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a git configuration file, without running git and without following its includes. */
#ifndef PV_POLICY_GITCONFIG_H
#define PV_POLICY_GITCONFIG_H

#include <stdbool.h>

/* section and key in lower case; sub: of [section "sub"], or NULL; value NULL: over several lines, or damaged. */
typedef void pv_gitconfig_entry(void *ctx, const char *section, const char *sub, const char *key, const char *value);

/* Calls each for each entry of dir/name, in order. False: no such regular file. */
bool pv_gitconfig_each(const char *dir, const char *name, pv_gitconfig_entry *each, void *ctx);

/*
 * The last value of [section] key (no subsection) in dir/name; NULL when there is none, or no such regular file. The
 * caller's. Quotes, escapes and comments as in git-config(1); a value over several lines counts as none.
 */
char *pv_gitconfig_get(const char *dir, const char *name, const char *section, const char *key);

#endif
