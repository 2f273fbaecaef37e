/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int pv_err_set(struct pv_err *e, enum pv_err_kind kind, int sys, const char *fmt, ...)
{
        va_list ap;
        e->kind = kind;
        e->sys = sys;
        e->hint[0] = '\0';
        va_start(ap, fmt);
        int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        if (sys != 0 && n >= 0 && (size_t)n < sizeof e->msg)
                (void)snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(sys));
        return -1;
}

int pv_err_wrap(struct pv_err *e, const char *fmt, ...)
{
        char old[sizeof e->msg];
        va_list ap;
        memcpy(old, e->msg, sizeof old);
        va_start(ap, fmt);
        int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof e->msg)
                (void)snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %.*s", (int)(sizeof e->msg - (size_t)n), old);
        return -1;
}

int pv_err_hint(struct pv_err *e, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(e->hint, sizeof e->hint, fmt, ap);
        va_end(ap);
        return -1;
}

void pv_err_clear(struct pv_err *e)
{
        e->kind = PV_ERR_NONE;
        e->sys = 0;
        e->msg[0] = '\0';
        e->hint[0] = '\0';
}

int pv_err_exit_code(const struct pv_err *e)
{
        static const unsigned char code[] = {
                [PV_ERR_NONE] = 0,     [PV_ERR_SYS] = 1,    [PV_ERR_INPUT] = 1,       [PV_ERR_USAGE] = 2,
                [PV_ERR_CONFLICT] = 3, [PV_ERR_NO_JOB] = 4, [PV_ERR_UNSUPPORTED] = 5, [PV_ERR_POLICY] = 6,
                [PV_ERR_BUSY] = 1,     [PV_ERR_STATE] = 1,  [PV_ERR_NOT_EXEC] = 126,  [PV_ERR_NOT_FOUND] = 127,
        };
        static_assert(sizeof code == PV_ERR_KINDS, "an exit code for each kind");
        return e->kind < PV_ERR_KINDS ? code[e->kind] : 1;
}
