/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor logs */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/json.h"
#include "cmd/follow.h"
#include "cmd/jobs.h"

/* A longer line is cut in two, in JSON. */
#define JSON_LINE_MAX (1U << 20)

struct logs_options {
        bool events, raw, follow, json;
        char *tail;
        int only;
};

static const char *const streams[] = { "stdout", "stderr", NULL };
enum { ONLY_STDOUT = 1, ONLY_STDERR };

#define LINES_MAX 1000000000

static int parse_lines(const char *text, unsigned *out, struct pv_err *err)
{
        char *end = NULL;
        unsigned long n = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
        if (!end || *end || n > LINES_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "a number of lines is expected: %s", text);
        *out = (unsigned)n;
        return 0;
}

static int check_lines(const char *text, struct pv_err *err)
{
        unsigned unused;
        return parse_lines(text, &unused, err);
}

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
        { .name = "follow",
          .letter = 'f',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct logs_options, follow),
          .help = "Go on as it grows, until the job ends." },
        { .name = "tail",
          .letter = 'n',
          .type = PV_OPT_TEXT,
          .arg = "LINES",
          .field = offsetof(struct logs_options, tail),
          .check = check_lines,
          .help = "Begin with the last LINES lines (of stdout, of stderr); with --follow 0 shows only what comes." },
        { .name = "json",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct logs_options, json),
          .help = "A JSON object a line of output: {\"stream\", \"line\"}." },
        { .name = "raw",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct logs_options, raw),
          .help = "Send control characters to a terminal as they are. A file or a pipe always gets the exact bytes." },
        { .name = NULL },
};

/* A terminal's own line end (CR LF) is one, too. */
static size_t plain_length(const char *s, size_t n)
{
        size_t line = 0;
        while (line < n && s[line] != '\n' && s[line] != '\t' &&
               !(s[line] == '\r' && line + 1 < n && s[line + 1] == '\n'))
                line++;
        return line;
}

/* Lines and tabs as they are; all else that could steer a terminal is escaped. */
static void put_for_terminal(struct pv_str *b, const char *s, size_t n)
{
        while (n > 0) {
                size_t line = plain_length(s, n);
                pv_str_put_safe_n(b, s, line);
                s += line;
                n -= line;
                if (n > 0 && *s == '\r') {
                        s++;
                        n--;
                }
                if (n > 0) {
                        pv_str_putc(b, *s++);
                        n--;
                }
        }
}

/* One file of the job and where it is shown. */
struct source {
        const char *name, *stream;
        int fd, to; /* fd -1: there is no such file */
        bool escape, json;
        struct pv_str line; /* of JSON: the line that has no end yet */
};

/* A line as JSON; what is not UTF-8 as bytes, as everywhere. */
static void put_json_line(struct source *s, struct pv_str *out)
{
        json_t *text = json_stringn(s->line.s ? s->line.s : "", s->line.len);
        if (!text) {
                pv_auto_free char *hex = pv_calloc(2 * s->line.len + 1, 1);
                pv_hex(s->line.s, s->line.len, hex);
                text = json_pack("{s:s}", "bytes", hex);
        }
        pv_auto_json j = json_pack("{s:s, s:o}", "stream", s->stream, "line", text);
        pv_auto_free char *dumped = j ? json_dumps(j, JSON_COMPACT) : NULL;
        if (dumped)
                pv_str_putf(out, "%s\n", dumped);
        pv_str_fini(&s->line);
        s->line = (struct pv_str){ 0 };
}

static void put_json(struct source *s, const char *bytes, size_t n, struct pv_str *out)
{
        for (size_t i = 0, from = 0; i < n; i++) {
                bool ends = bytes[i] == '\n', cut = s->line.len + (i - from) >= JSON_LINE_MAX;
                if (ends || cut || i + 1 == n)
                        pv_str_put_bytes(&s->line, bytes + from, i - from + !ends);
                if (ends || cut)
                        put_json_line(s, out);
                if (ends || cut)
                        from = i + 1;
        }
}

/* All that is there now. */
static int copy_out(struct source *s, struct pv_err *err)
{
        char buf[65536];
        ssize_t n;
        while (s->fd >= 0 && (n = read(s->fd, buf, sizeof buf)) != 0) {
                pv_auto_str text = { 0 };
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read %s", s->name);
                if (s->json)
                        put_json(s, buf, (size_t)n, &text);
                else if (s->escape)
                        put_for_terminal(&text, buf, (size_t)n);
                else
                        pv_str_put_bytes(&text, buf, (size_t)n);
                if (text.len && pv_fd_write_all(s->to, text.s, text.len, "output", err) < 0)
                        return -1;
        }
        return 0;
}

/* The last line may have no end. */
static int finish(struct source *s, struct pv_err *err)
{
        pv_auto_str text = { 0 };
        if (copy_out(s, err) < 0)
                return -1;
        if (s->json && s->line.len)
                put_json_line(s, &text);
        return text.len ? pv_fd_write_all(s->to, text.s, text.len, "output", err) : 0;
}

static int follow(struct pv_follow *f, struct source *sources, size_t n, struct pv_err *err)
{
        for (bool ended = f->supervisor < 0; !ended;) {
                struct pollfd p[2];
                for (size_t i = 0; i < n; i++)
                        if (copy_out(&sources[i], err) < 0)
                                return -1;
                pv_follow_poll(f, p);
                if (poll(p, 2, -1) >= 0)
                        ended = pv_follow_take(f, p);
        }
        return 0;
}

/* Where the last n lines begin. The file grows, and what is there stays; from: the oldest that is kept. */
static int seek_tail(const struct source *s, unsigned n, struct pv_err *err)
{
        char buf[65536];
        const off_t from = lseek(s->fd, 0, SEEK_CUR), end = lseek(s->fd, 0, SEEK_END);
        off_t at = end;
        if (from < 0 || end < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read %s", s->name);
        for (bool found = n == 0; !found && at > from;) {
                size_t part = at - from < (off_t)sizeof buf ? (size_t)(at - from) : sizeof buf;
                ssize_t got = pread(s->fd, buf, part, at - (off_t)part);
                if (got != (ssize_t)part)
                        return pv_err_set(err, PV_ERR_SYS, got < 0 ? errno : EIO, "read %s", s->name);
                while (part > 0 && !found) { /* the end of the last line begins none */
                        found = buf[part - 1] == '\n' && at != end && n-- == 1;
                        part -= !found;
                        at -= !found;
                }
        }
        return lseek(s->fd, at, SEEK_SET) < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "read %s", s->name) : 0;
}

static int seek_tails(const struct logs_options *o, struct source *sources, size_t n, struct pv_err *err)
{
        unsigned lines = 0;
        if (o->tail && parse_lines(o->tail, &lines, err) < 0)
                return -1;
        for (size_t i = 0; o->tail && i < n; i++)
                if (sources[i].fd >= 0 && seek_tail(&sources[i], lines, err) < 0)
                        return -1;
        return 0;
}

static int show(struct pv_follow *f, struct source *sources, size_t n, const struct logs_options *o, struct pv_err *err)
{
        int r = seek_tails(o, sources, n, err);
        if (r == 0 && o->follow)
                r = follow(f, sources, n, err);
        for (size_t i = 0; i < n; i++) {
                if (r == 0)
                        r = finish(&sources[i], err);
                pv_fd_closep(&sources[i].fd);
                pv_str_fini(&sources[i].line);
        }
        return r;
}

static struct source open_source(struct pv_follow *f, int dir, const struct logs_options *o, const char *name,
                                 const char *stream, int to)
{
        struct source s = {
                .name = name,
                .stream = stream,
                .to = o->json ? STDOUT_FILENO : to,
                .json = o->json,
                .fd = pv_follow_file(f, dir, name),
        };
        s.escape = !o->raw && isatty(s.to);
        return s;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct logs_options *o = opts;
        struct source sources[2];
        size_t n = 0;
        pv_auto_job job = NULL;
        pv_auto_follow f = PV_FOLLOW_INIT;
        if (pv_cmd_job(args, &job, err) < 0 || pv_follow_open(&f, job, err) < 0)
                return -1;
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0)
                return -1;
        if (o->events) {
                const struct logs_options plain = { .raw = o->raw };
                sources[n++] = open_source(&f, dir, &plain, PV_JOB_EVENTS, "events", STDOUT_FILENO);
                return show(&f, sources, n, o, err);
        }
        if (o->only != ONLY_STDERR)
                sources[n++] = open_source(&f, dir, o, PV_JOB_STDOUT, "stdout", STDOUT_FILENO);
        if (o->only != ONLY_STDOUT)
                sources[n++] = open_source(&f, dir, o, PV_JOB_STDERR, "stderr", STDERR_FILENO);
        for (size_t i = 0; i < n; i++) {
                if (sources[i].fd >= 0)
                        continue;
                pv_err_set(err, PV_ERR_STATE, 0, "logs: the output of job %s was not kept: it went where pvisor's did",
                           job->id);
                return pv_err_hint(err, "pvisor run --stdio capture keeps it; --events shows what pvisor noted");
        }
        return show(&f, sources, n, o, err);
}

static const char *const examples[] = {
        "pvisor logs",
        "what the newest job printed",
        "pvisor logs -f --tail 20 fix",
        "the last lines, and what comes, until it ends",
        "pvisor logs --events fix | jq .event",
        "what happened to the job named fix",
        NULL,
};

const struct pv_command pv_cmd_logs = {
        .name = "logs",
        .usage = "[options] [JOB]",
        .about = "Prints what a job wrote while it ran detached or with --stdio capture: its standard output to "
                 "standard "
                 "output, its standard error to standard error. Of a detached job with a terminal of its own that is "
                 "all "
                 "that it showed, keys of full-screen programs included; the newest 64 MiB are kept.",
        .options = options,
        .options_size = sizeof(struct logs_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
