/* SPDX-License-Identifier: Apache-2.0 */
/* events.jsonl: appended to, one line and one write(2) an event, so that several writers do not mix. */
#include <fcntl.h>
#include <string.h>
#include "base/clock.h"
#include "base/json.h"
#include "job/store_internal.h"

static json_t *with_head(const char *event, const json_t *fields)
{
        char at[PV_CLOCK_TEXT];
        struct timespec now = pv_clock_now();
        pv_clock_format(&now, at);
        json_t *line = json_pack("{s:s, s:s}", "at", at, "event", event);
        if (line && fields)
                (void)json_object_update_missing(line, (json_t *)fields);
        return line;
}

void pv_job_event(const struct pv_job *job, const char *event, json_t *fields)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_json taken = fields;
        pv_auto_json line = with_head(event, taken);
        pv_auto_free char *text = line ? json_dumps(line, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
        pv_auto_fd dir = pv_job_open_dir(job, &ignored);
        if (!text || dir < 0)
                return;
        /* Non-blocking, should it have become a FIFO. */
        const int flags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
        pv_auto_fd fd = openat(dir, PV_JOB_EVENTS, flags, 0600);
        size_t n = strlen(text);
        text[n] = '\n'; /* the NUL's place; the length is passed on */
        if (fd >= 0)
                (void)pv_fd_write_all(fd, text, n + 1, PV_JOB_EVENTS, &ignored);
}
