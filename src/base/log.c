/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdio.h>
#include "base/str.h"

static enum pv_log_level log_level = PV_LOG_NORMAL;

void pv_log_set_level(enum pv_log_level level)
{
        log_level = level;
}

enum pv_log_level pv_log_get_level(void)
{
        return log_level;
}

/* One write a line, so that lines of several processes do not mix. */
static void put_line(const char *prefix, const char *text)
{
        pv_auto_str line = { 0 };
        struct pv_err ignored = PV_ERR_INIT;
        pv_str_put(&line, prefix);
        pv_str_put_safe(&line, text);
        pv_str_putc(&line, '\n');
        (void)pv_fd_write_all(STDERR_FILENO, line.s, line.len, "stderr", &ignored);
}

static void __attribute__((format(printf, 2, 0))) put_formatted(const char *prefix, const char *fmt, va_list ap)
{
        char *text = NULL;
        if (vasprintf(&text, fmt, ap) < 0)
                return;
        put_line(prefix, text);
        free(text);
}

#define LOG_FUNCTION(name, least, prefix)         \
        void name(const char *fmt, ...)           \
        {                                         \
                va_list ap;                       \
                if (log_level < (least))          \
                        return;                   \
                va_start(ap, fmt);                \
                put_formatted((prefix), fmt, ap); \
                va_end(ap);                       \
        }

LOG_FUNCTION(pv_log_note, PV_LOG_NORMAL, "pvisor: ")
LOG_FUNCTION(pv_log_debug, PV_LOG_VERBOSE, "pvisor: ")
LOG_FUNCTION(pv_log_warn, PV_LOG_NORMAL, "pvisor: warning: ")

void pv_log_err(const struct pv_err *err)
{
        put_line("pvisor: ", err->msg);
        if (err->hint[0])
                put_line("hint: ", err->hint);
}
