/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pVisor's own words to the person, on stderr, one line each, escaped for a terminal. Only cmd/ and job/ speak;
 * other modules return errors. The one piece of file-scope state here is the level.
 */
#ifndef PV_BASE_LOG_H
#define PV_BASE_LOG_H

#include <stdarg.h>
#include "base/err.h"

enum pv_log_level { PV_LOG_QUIET, PV_LOG_NORMAL, PV_LOG_VERBOSE };

void pv_log_set_level(enum pv_log_level level);
enum pv_log_level pv_log_get_level(void);
/* "pvisor: text"; silent under -q. */
void pv_log_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Only with -v. */
void pv_log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "pvisor: warning: text"; silent under -q. */
void pv_log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "pvisor: msg" and "hint: hint"; never silent. */
void pv_log_err(const struct pv_err *err);

#endif
