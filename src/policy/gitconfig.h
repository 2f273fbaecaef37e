/* SPDX-License-Identifier: Apache-2.0 */
/* One value of a git configuration file, without running git and without following its includes. */
#ifndef PV_POLICY_GITCONFIG_H
#define PV_POLICY_GITCONFIG_H

/*
 * The last value of [section] key (no subsection) in dir/name; NULL when there is none, or no such regular file. The
 * caller's. Quotes, escapes and comments as in git-config(1); a value over several lines counts as none.
 */
char *pv_gitconfig_get(const char *dir, const char *name, const char *section, const char *key);

#endif
