/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor list */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/json.h"
#include "base/log.h"
#include "cmd/jobs.h"
#include "cmd/screen.h"
#include "cmd/terminal.h"

#define DEFAULT_COLUMNS 80
#define PIPED_COLUMNS   200 /* nobody cuts what goes into a file: but a line is one, and ends */
#define NAME_SHOWN      12
#define ID_SHOWN        24
#define STATE_SHOWN     11
#define COMMAND_LEAST   16 /* columns that a command gets before others are left out */
#define WATCH_MS        1000
#define CTRL_C          3
/* The alternate screen without a cursor. */
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[?25h\033[?1049l"

struct list_options {
        bool all, size, json, watch;
};

static const struct pv_opt options[] = {
        { .name = "all",
          .letter = 'a',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct list_options, all),
          .help = "Jobs of every workspace, not only of this one." },
        { .name = "size",
          .letter = 's',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct list_options, size),
          .help = "Measure how much each stage takes on disk now; else it is what was measured last." },
        { .name = "watch",
          .letter = 'w',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct list_options, watch),
          .help = "Show it anew every second, until q or Ctrl-C; without a terminal, one list after the other." },
        PV_OPT_JSON(struct list_options, json),
        { .name = NULL },
};

struct jobs {
        struct pv_job **v;
        size_t n, damaged;
};

static void jobs_fini(struct jobs *j)
{
        pv_job_list_free(j->v, j->n);
}

/* Keeps those of the workspace; says how many others there are. */
static size_t keep_workspace(struct jobs *j, const char *workspace)
{
        size_t kept = 0, before = j->n;
        for (size_t i = 0; i < before; i++) {
                if (pv_streq(j->v[i]->workspace, workspace))
                        j->v[kept++] = j->v[i];
                else
                        pv_job_free(j->v[i]);
        }
        j->n = kept;
        return before - kept;
}

/* UINT64_MAX where it is not known: there is no stage, or it cannot be read. */
static uint64_t stage_size(const struct pv_job *job)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_stage s = NULL;
        uint64_t bytes = 0;
        if (!job->stage_dir || pv_stage_open(job->stage_dir, PV_STAGE_LOOK, &s, &ignored) < 0 ||
            pv_stage_size(s, &bytes, &ignored) < 0)
                return UINT64_MAX;
        return bytes;
}

static void put_state(struct pv_str *b, const struct pv_job *job)
{
        pv_auto_str text = { 0 };
        pv_str_put(&text, pv_job_state_name(job->state));
        if (job->state == PV_JOB_ENDED && job->end &&
            (pv_streq(job->end, "timeout") || pv_streq(job->end, "stage-size"))) {
                pv_str_fini(&text);
                text = (struct pv_str){ 0 };
                pv_str_put(&text, job->end);
        } else if (job->state == PV_JOB_ENDED && job->exit_code > 0) {
                pv_str_putf(&text, " (%d)", job->exit_code);
        }
        pv_str_putf(b, "%-*s", STATE_SHOWN, text.s);
}

static void put_changes(struct pv_str *b, const struct pv_job *job)
{
        char text[24];
        if (!job->stage_dir)
                (void)snprintf(text, sizeof text, "-");
        else if (job->dropped)
                (void)snprintf(text, sizeof text, "dropped");
        else if (job->pending < 0) /* what never started changed nothing */
                (void)snprintf(text, sizeof text, "%s", job->state == PV_JOB_FAILED ? "-" : "?");
        else if (job->pending == 0 && job->applied > 0)
                (void)snprintf(text, sizeof text, "applied");
        else
                (void)snprintf(text, sizeof text, "%lld", job->pending);
        pv_str_putf(b, "%-8s", text);
}

/* Measured now, or last: when it ended, when something was decided, while it runs every so often. */
static uint64_t known_size(const struct pv_job *job, const struct list_options *o)
{
        if (o->size)
                return stage_size(job);
        return job->stage_dir && job->stage_bytes >= 0 ? (uint64_t)job->stage_bytes : UINT64_MAX;
}

static void put_size(struct pv_str *b, const struct pv_job *job, const struct list_options *o)
{
        pv_auto_str size = { 0 };
        uint64_t bytes = known_size(job, o);
        if (bytes == UINT64_MAX)
                pv_str_putc(&size, '-');
        else
                pv_str_put_size(&size, bytes);
        pv_str_putf(b, "%9s  ", size.s);
}

/* The rest of the line: the command, cut to what fits. */
static void put_command(struct pv_str *b, const struct pv_job *job, size_t room)
{
        pv_auto_str command = { 0 };
        pv_cmd_put_argv(&command, json_object_get(json_object_get(job->request, "plan"), "argv"));
        pv_put_cut_safe(b, command.s ? command.s : "", command.len, room, "...");
}

static size_t terminal_columns(void)
{
        struct winsize w = { 0 };
        if (!isatty(STDOUT_FILENO))
                return PIPED_COLUMNS;
        return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : DEFAULT_COLUMNS;
}

/* Columns that a narrow terminal has no room for are left out, from the least to the most needed. */
struct shape {
        bool size, changes, age, name;
        int name_width;
        size_t room; /* for the command */
};

static size_t width_of(const struct shape *s)
{
        return ID_SHOWN + 2 + STATE_SHOWN + 1 + (s->age ? 6 : 0) + (s->changes ? 9 : 0) + (s->size ? 11 : 0) +
               (s->name ? (size_t)s->name_width + 2 : 0);
}

static struct shape shape_for(const struct jobs *j, size_t columns)
{
        struct shape s = { .size = true, .changes = true, .age = true, .name = true, .name_width = NAME_SHOWN };
        bool *const optional[] = { &s.size, &s.changes, &s.age, &s.name };
        size_t longest = strlen("NAME");
        for (size_t i = 0; i < j->n; i++)
                if (j->v[i]->name && strlen(j->v[i]->name) > longest)
                        longest = strlen(j->v[i]->name);
        if (columns < PIPED_COLUMNS || longest > NAME_SHOWN)
                s.name_width = (int)longest;
        /* A long name gives way before a whole column does. */
        size_t most = columns > width_of(&s) - longest + COMMAND_LEAST
                              ? columns - (width_of(&s) - longest) - COMMAND_LEAST
                              : 0;
        if (s.name_width > NAME_SHOWN && (size_t)s.name_width > most)
                s.name_width = most > NAME_SHOWN ? (int)most : NAME_SHOWN;
        for (size_t i = 0; i < sizeof optional / sizeof *optional && width_of(&s) + COMMAND_LEAST > columns; i++)
                *optional[i] = false;
        s.room = columns > width_of(&s) ? columns - width_of(&s) : 0;
        return s;
}

static void put_name(struct pv_str *b, const char *name, size_t width)
{
        pv_auto_str text = { 0 };
        size_t before = b->len;
        pv_str_put_safe(&text, name);
        pv_put_cut_safe(b, text.s ? text.s : "", text.len, width, "...");
        size_t taken = pv_columns(b->s + before, b->len - before);
        pv_str_putf(b, "%*s", (int)(width - taken) + 2, "");
}

static void put_job(struct pv_str *b, const struct pv_job *job, const struct list_options *o, const struct shape *s)
{
        pv_auto_str age = { 0 };
        pv_cmd_put_age(&age, &job->started);
        pv_str_putf(b, "%-*s  ", ID_SHOWN, job->id);
        put_state(b, job);
        pv_str_putc(b, ' ');
        if (s->age)
                pv_str_putf(b, "%4s  ", age.s);
        if (s->changes) {
                put_changes(b, job);
                pv_str_putc(b, ' ');
        }
        if (s->size)
                put_size(b, job, o);
        if (s->name)
                put_name(b, job->name ? job->name : "-", (size_t)s->name_width);
        put_command(b, job, s->room);
        pv_str_putc(b, '\n');
}

static void put_heading(struct pv_str *b, const struct shape *s)
{
        pv_str_putf(b, "%-*s  %-*s ", ID_SHOWN, "JOB", STATE_SHOWN, "STATE");
        if (s->age)
                pv_str_putf(b, "%4s  ", "AGE");
        if (s->changes)
                pv_str_putf(b, "%-8s ", "CHANGES");
        if (s->size)
                pv_str_putf(b, "%9s  ", "SIZE");
        if (s->name)
                pv_str_putf(b, "%-*s  ", s->name_width, "NAME");
        pv_str_putf(b, "%.*s\n", (int)(s->room < 16 ? s->room : 16), "COMMAND");
}

/* All jobs of the workspace of jobs[first], which is the first of them. */
static void put_workspace(struct pv_str *b, const struct jobs *j, size_t first, const struct list_options *o,
                          const struct shape *shape)
{
        const char *workspace = j->v[first]->workspace;
        if (o->all) {
                pv_str_put(b, first ? "\n" : "");
                pv_str_put_safe(b, workspace);
                pv_str_put(b, ":\n");
        }
        for (size_t i = first; i < j->n; i++)
                if (pv_streq(j->v[i]->workspace, workspace))
                        put_job(b, j->v[i], o, shape);
}

static bool is_first_of_workspace(const struct jobs *j, size_t i)
{
        for (size_t k = 0; k < i; k++)
                if (pv_streq(j->v[k]->workspace, j->v[i]->workspace))
                        return false;
        return true;
}

static void put_table(struct pv_str *b, const struct jobs *j, const struct list_options *o)
{
        const struct shape shape = shape_for(j, terminal_columns());
        put_heading(b, &shape);
        for (size_t i = 0; i < j->n; i++)
                if (is_first_of_workspace(j, i))
                        put_workspace(b, j, i, o, &shape);
}

static json_t *jobs_json(const struct jobs *j, bool with_size)
{
        json_t *list = json_array();
        for (size_t i = 0; i < j->n; i++) {
                json_t *one = pv_cmd_job_json(j->v[i]);
                if (with_size) {
                        uint64_t bytes = stage_size(j->v[i]);
                        (void)json_object_set_new(one, "size_bytes",
                                                  bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)bytes));
                }
                (void)json_array_append_new(list, one);
        }
        return json_pack("{s:o, s:I}", "jobs", list, "damaged", (json_int_t)j->damaged);
}

/* The list as text (or JSON), and what is to be said beside it. */
static int compose(const struct list_options *o, struct pv_str *out, struct pv_str *notes, struct pv_err *err)
{
        __attribute__((cleanup(jobs_fini))) struct jobs j = { 0 };
        pv_auto_free char *workspace = NULL;
        size_t others = 0;
        if (pv_job_list(&j.v, &j.n, &j.damaged, err) < 0)
                return -1;
        if (!o->all) {
                if (pv_cmd_workspace(&workspace, err) < 0)
                        return -1;
                others = keep_workspace(&j, workspace);
        }
        if (o->json) {
                pv_auto_json all = jobs_json(&j, o->size);
                pv_auto_free char *text = json_dumps(all, o->watch ? JSON_COMPACT : JSON_INDENT(2));
                pv_str_putf(out, "%s\n", text ? text : "");
                return 0;
        }
        if (j.n)
                put_table(out, &j, o);
        else
                pv_str_putf(notes, "no jobs%s%s%s\n", workspace ? " of " : "", workspace ? workspace : "",
                            others ? "" : "; `pvisor run --safe -- COMMAND` starts one");
        if (others)
                pv_str_putf(notes, "%zu of other workspaces: pvisor list --all\n", others);
        if (j.damaged)
                pv_str_putf(notes, "warning: %zu damaged and not shown: pvisor prune --damaged --dry-run names them\n",
                            j.damaged);
        return 0;
}

static void say(const struct pv_str *notes)
{
        for (const char *p = notes->s; p && *p;) {
                size_t n = strcspn(p, "\n");
                pv_log_note("%.*s", (int)n, p);
                p += n + 1;
        }
}

/* What fits on the screen, drawn over what was there. */
static void put_screen(struct pv_str *out, const struct pv_str *text, const struct pv_str *notes)
{
        struct winsize w = pv_terminal_size();
        size_t rows = w.ws_row > 2 ? w.ws_row - 1U : 22, columns = w.ws_col ? w.ws_col : DEFAULT_COLUMNS;
        pv_str_put(out, "\033[H");
        for (int i = 0; i < 2; i++) {
                for (const char *p = i ? notes->s : text->s; p && *p && rows > 0; rows--) {
                        size_t n = strcspn(p, "\n");
                        pv_auto_str safe = { 0 };
                        if (i) /* the list is safe already */
                                pv_str_put_safe_n(&safe, p, n);
                        else
                                pv_str_put_bytes(&safe, p, n);
                        if (safe.len) /* one that the terminal broke would push the others off the screen */
                                pv_put_cut_safe(out, safe.s, safe.len, columns, "");
                        pv_str_put(out, "\033[K\r\n");
                        p += n + (p[n] == '\n');
                }
        }
        pv_str_put(out, "\033[J");
}

/* Waits a second. True: enough. */
static bool wait_a_second(const struct pv_terminal *t, int *code)
{
        struct pollfd p[2] = { { .fd = t->signals, .events = POLLIN },
                               { .fd = t->raw ? STDIN_FILENO : -1, .events = POLLIN } };
        char key = 0;
        if (poll(p, 2, WATCH_MS) <= 0)
                return false;
        for (int sig; (sig = pv_terminal_signal(t));)
                if (sig != SIGWINCH)
                        *code = 128 + sig;
        if (p[1].revents && read(STDIN_FILENO, &key, 1) <= 0)
                return true;
        if (key == CTRL_C)
                *code = 128 + SIGINT;
        return *code || key == 'q' || key == 'Q';
}

static int watch(const struct list_options *o, struct pv_err *err)
{
        pv_auto_terminal t = PV_TERMINAL_INIT;
        bool screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !o->json;
        int code = 0, r = 0;
        if (pv_terminal_open(&t, err) < 0)
                return -1;
        if (screen) {
                pv_terminal_raw(&t);
                r = pv_fd_write_all(STDOUT_FILENO, ENTER, strlen(ENTER), "output", err);
        }
        while (r == 0) {
                pv_auto_str text = { 0 };
                pv_auto_str notes = { 0 };
                pv_auto_str out = { 0 };
                r = compose(o, &text, &notes, err);
                if (r == 0 && screen)
                        put_screen(&out, &text, &notes);
                else if (r == 0 && !text.len)
                        say(&notes);
                if (r == 0)
                        r = pv_cmd_print(screen ? &out : &text, err);
                if (r == 0 && wait_a_second(&t, &code))
                        break;
        }
        struct pv_err ignored = PV_ERR_INIT;
        if (screen)
                (void)pv_fd_write_all(STDOUT_FILENO, LEAVE, strlen(LEAVE), "output", &ignored);
        return r < 0 ? -1 : code;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct list_options *o = opts;
        pv_auto_str text = { 0 };
        pv_auto_str notes = { 0 };
        (void)args;
        if (o->watch)
                return watch(o, err);
        if (compose(o, &text, &notes, err) < 0)
                return -1;
        say(&notes);
        return pv_cmd_print(&text, err);
}

static const char *const examples[] = {
        "pvisor list",
        "the jobs of this workspace, newest first",
        "pvisor list --watch",
        "how they go on",
        "pvisor list --all --json",
        "every job, for a program",
        NULL,
};

const struct pv_command pv_cmd_list = {
        .name = "list",
        .usage = "[options]",
        .about =
                "Lists jobs, newest first: state, age, how many changes are still staged, name and command. A job is "
                "running, ended (with its exit code when that is not 0), lost (its supervisor was killed; its stage is "
                "whole) or failed (pVisor could not start it).",
        .options = options,
        .options_size = sizeof(struct list_options),
        .style = PV_ARGS_MIXED,
        .max_words = 0,
        .examples = examples,
        .run = run,
};
