/* SPDX-License-Identifier: Apache-2.0 */
/* Where a path is in a git directory (gitrepository-layout(5)). Private to git/. */
#ifndef PV_GIT_GITDIR_H
#define PV_GIT_GITDIR_H

#include <stdbool.h>
#include <stddef.h>
#include "git/classify.h"

/* Finds the first component `.git` (in any case: some file systems do not tell them apart). *len: up to its end. */
bool pv_gitdir_find(const char *path, size_t *len);
/* The part that inside, a path relative to a git directory, belongs to; "" is the directory itself. */
enum pv_git_part pv_gitdir_part(const char *inside);

#endif
