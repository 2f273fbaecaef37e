/* SPDX-License-Identifier: Apache-2.0 */
/* Names in patches: git's C-style quoting (git-config(1), core.quotePath). */
#ifndef PV_CMD_QUOTE_H
#define PV_CMD_QUOTE_H

#include "base/str.h"

/*
 * Appends prefix and path as `git diff` writes them: in double quotes with escapes when the path has a quote, a
 * backslash, a control character or a byte that is not ASCII; as they are otherwise. What comes out is ASCII without
 * control characters, thus safe for a terminal too.
 */
void pv_quote_name(struct pv_str *b, const char *prefix, const char *path);

/*
 * Appends a line's content for a terminal: tabs and backslashes as they are, all else that could move the cursor or
 * change colours as pv_str_put_safe() writes it.
 */
void pv_put_safe_line(struct pv_str *b, const char *s, size_t n);

#endif
