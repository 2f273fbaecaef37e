/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor logs */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "cmd/jobs.h"

/* An event's line is ours, but may be damaged; what is longer is cut where it is shown. */
#define LINE_MAX_SHOWN 4096

struct logs_options {
        bool events, raw;
        int only;
};

static const char *const streams[] = { "stdout", "stderr", NULL };
enum { ONLY_STDOUT = 1, ONLY_STDERR };

static const struct pv_opt options[] = {
        { .name = "events",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct logs_options, events),
          .help = "The job's events (events.jsonl) instead of its output." },
        { .name = "only",
          .type = PV_OPT_CHOICE,
          .arg = "STREAM",
          .field = offsetof(struct logs_options, only),
          .choices = streams,
          .help = "Only stdout or stderr." },
        { .name = "raw",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct logs_options, raw),
          .help = "Send control characters to a terminal as they are. A file or a pipe always gets the exact bytes." },
        { .name = NULL },
};

/* Lines and tabs as they are; all else that could steer a terminal is escaped. */
static void put_for_terminal(struct pv_str *b, const char *s, size_t n)
{
        while (n > 0) {
                size_t line = 0;
                while (line < n && s[line] != '\n' && s[line] != '\t')
                        line++;
                pv_str_put_safe_n(b, s, line);
                if (line < n)
                        pv_str_putc(b, s[line++]);
                s += line;
                n -= line;
        }
}

static int copy_out(int from, int to, bool escape, const char *name, struct pv_err *err)
{
        char buf[65536];
        ssize_t n;
        while ((n = read(from, buf, sizeof buf)) > 0) {
                pv_auto_str text = { 0 };
                if (escape)
                        put_for_terminal(&text, buf, (size_t)n);
                else
                        pv_str_put_bytes(&text, buf, (size_t)n);
                if (pv_fd_write_all(to, text.s, text.len, "output", err) < 0)
                        return -1;
        }
        return n < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "read %s", name) : 0;
}

/* *missing is set when there is no such file. */
static int show_file(int dir, const char *name, int to, bool raw, bool *missing, struct pv_err *err)
{
        pv_auto_fd fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0 && errno == ENOENT) {
                *missing = true;
                return 0;
        }
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", name);
        return copy_out(fd, to, !raw && isatty(to), name, err);
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct logs_options *o = opts;
        bool no_out = false, no_err = false;
        pv_auto_job job = NULL;
        if (pv_cmd_job(args, &job, err) < 0)
                return -1;
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0)
                return -1;
        if (o->events)
                return show_file(dir, PV_JOB_EVENTS, STDOUT_FILENO, o->raw, &no_out, err);
        if (o->only != ONLY_STDERR && show_file(dir, PV_JOB_STDOUT, STDOUT_FILENO, o->raw, &no_out, err) < 0)
                return -1;
        if (o->only != ONLY_STDOUT && show_file(dir, PV_JOB_STDERR, STDERR_FILENO, o->raw, &no_err, err) < 0)
                return -1;
        if (no_out || no_err) {
                pv_err_set(err, PV_ERR_STATE, 0, "logs: the output of job %s was not kept: it went where pvisor's did",
                           job->id);
                return pv_err_hint(err, "pvisor run --stdio capture keeps it; --events shows what pvisor noted");
        }
        return 0;
}

static const char *const examples[] = {
        "pvisor logs",
        "what the newest job printed (run with --stdio capture)",
        "pvisor logs --events fix | jq .event",
        "what happened to the job named fix",
        NULL,
};

const struct pv_command pv_cmd_logs = {
        .name = "logs",
        .usage = "[options] [JOB]",
        .about = "Prints what a job wrote while it ran with --stdio capture: its standard output to standard output, "
                 "its "
                 "standard error to standard error.",
        .options = options,
        .options_size = sizeof(struct logs_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
