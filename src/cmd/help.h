/* SPDX-License-Identifier: Apache-2.0 */
/* What --help shows, written from the tables. */
#ifndef PV_CMD_HELP_H
#define PV_CMD_HELP_H

#include "base/str.h"
#include "cmd/command.h"

/* `pvisor NAME --help`, for 80 columns. */
void pv_help_command(struct pv_str *out, const struct pv_command *c);
/* `pvisor help`: all commands. */
void pv_help_overview(struct pv_str *out);
/* Appends words broken into lines of at most width, continued at this indentation; the first begins at column. */
void pv_help_wrap(struct pv_str *out, const char *words, size_t column, size_t indent, size_t width);
/* "--stage [DIR]" */
void pv_help_option(struct pv_str *out, const struct pv_opt *o);
/* The options that every command has, in the form of a table. */
const struct pv_opt *pv_help_common_options(void);

#endif
