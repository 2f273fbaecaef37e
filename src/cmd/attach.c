/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor attach */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cmd/follow.h"
#include "cmd/jobs.h"
#include "cmd/keys.h"
#include "cmd/modes.h"
#include "cmd/terminal.h"
#include "job/attach.h"

#define DEFAULT_KEYS "ctrl-p,ctrl-q"
/* How much of what was said before is looked through for the terminal's modes, and shown when it is no full screen. */
#define MODES_LOOK ((off_t)16 << 20)
#define SHOWN      2048

struct attach_options {
        char *detach_keys;
};

static const struct pv_opt options[] = {
        { .name = "detach-keys",
          .type = PV_OPT_TEXT,
          .arg = "KEYS",
          .flags = PV_OPT_MAY_BE_EMPTY,
          .field = offsetof(struct attach_options, detach_keys),
          .help = "What to type to leave the job running: keys with commas between, ctrl-X for control and X. Default: "
                  "ctrl-p,ctrl-q; \"\": nothing." },
        { .name = NULL },
};

struct window {
        struct pv_terminal terminal;
        struct pv_follow follow;
        struct pv_keys keys;
        struct pv_modes modes;
        struct pv_str typed; /* not taken by the job's terminal yet */
        int log, master;
        bool detached, ended, no_input;
        int signal;
};

static void window_fini(struct window *w)
{
        pv_auto_str back = { 0 };
        struct pv_err ignored = PV_ERR_INIT;
        if (w->terminal.raw) {
                bool own_screen = pv_modes_full_screen(&w->modes); /* the one before has its cursor where it was */
                pv_modes_put_undo(&w->modes, &back);
                pv_str_put(&back, own_screen ? "" : "\r\n");
                (void)pv_fd_write_all(STDOUT_FILENO, back.s, back.len, "output", &ignored);
        }
        pv_terminal_close(&w->terminal);
        pv_follow_close(&w->follow);
        pv_str_fini(&w->typed);
        pv_fd_closep(&w->log);
        pv_fd_closep(&w->master);
}

/* What the job has said since; all of it. */
static int show_more(struct window *w, struct pv_err *err)
{
        char buf[65536];
        ssize_t n;
        while ((n = read(w->log, buf, sizeof buf)) > 0) {
                pv_modes_see(&w->modes, buf, (size_t)n);
                if (pv_fd_write_all(STDOUT_FILENO, buf, (size_t)n, "output", err) < 0)
                        return -1;
        }
        return n < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "read %s", PV_JOB_STDOUT) : 0;
}

/* The first whole line of the last bytes that were said. */
static const char *last_lines(const char *bytes, size_t n, size_t *shown)
{
        const char *from = n > SHOWN ? bytes + n - SHOWN : bytes;
        const char *line = n > SHOWN ? memchr(from, '\n', SHOWN) : NULL;
        from = line ? line + 1 : from;
        *shown = (size_t)(bytes + n - from);
        return from;
}

/*
 * What came before: the modes that it left the terminal in, for a full-screen program, which draws itself anew; else
 * its last lines.
 */
static int show_before(struct window *w, struct pv_err *err)
{
        char buf[65536], last[SHOWN + 1];
        size_t kept = 0;
        ssize_t n;
        off_t end = lseek(w->log, 0, SEEK_END);
        off_t from = lseek(w->log, end > MODES_LOOK ? end - MODES_LOOK : 0, SEEK_DATA);
        if (from < 0)
                (void)lseek(w->log, 0, SEEK_END);
        while ((n = read(w->log, buf, sizeof buf)) > 0) {
                size_t len = (size_t)n, take = len < sizeof last ? len : sizeof last;
                size_t keep = kept + take > sizeof last ? sizeof last - take : kept;
                pv_modes_see(&w->modes, buf, len);
                memmove(last, last + kept - keep, keep);
                memcpy(last + keep, buf + len - take, take);
                kept = keep + take;
        }
        pv_auto_str out = { 0 };
        if (pv_modes_full_screen(&w->modes) || kept == 0) {
                pv_modes_put(&w->modes, &out);
        } else {
                size_t shown;
                const char *lines = last_lines(last, kept, &shown);
                pv_str_put_bytes(&out, lines, shown);
                pv_modes_put(&w->modes, &out);
        }
        return out.len ? pv_fd_write_all(STDOUT_FILENO, out.s, out.len, "output", err) : 0;
}

static void set_size(const struct window *w)
{
        struct winsize size = pv_terminal_size();
        if (size.ws_row && size.ws_col)
                (void)ioctl(w->master, TIOCSWINSZ, &size);
}

/* A size that is another one makes the program draw itself anew (SIGWINCH); it may be this one already. */
static void redraw(const struct window *w)
{
        struct winsize size = pv_terminal_size(), had;
        if (!size.ws_row || !size.ws_col)
                return;
        if (ioctl(w->master, TIOCGWINSZ, &had) == 0 && had.ws_row == size.ws_row && had.ws_col == size.ws_col) {
                had.ws_row = size.ws_row > 1 ? size.ws_row - 1 : size.ws_row + 1;
                (void)ioctl(w->master, TIOCSWINSZ, &had);
        }
        set_size(w);
}

static void read_keys(struct window *w)
{
        char buf[4096];
        ssize_t n = read(STDIN_FILENO, buf, sizeof buf);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
                w->no_input = true;
        if (n > 0)
                w->detached = pv_keys_see(&w->keys, buf, (size_t)n, &w->typed);
}

static void write_keys(struct window *w)
{
        ssize_t n = write(w->master, w->typed.s, w->typed.len);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
                n = (ssize_t)w->typed.len; /* nobody will read it */
        if (n <= 0)
                return;
        memmove(w->typed.s, w->typed.s + n, w->typed.len - (size_t)n);
        w->typed.len -= (size_t)n;
}

static void take_signals(struct window *w)
{
        for (int sig; (sig = pv_terminal_signal(&w->terminal));) {
                if (sig == SIGWINCH)
                        set_size(w);
                else
                        w->signal = sig;
        }
}

enum { TURN_SIGNALS, TURN_KEYS, TURN_FOLLOW, TURNS = TURN_FOLLOW + 2 };

static int turn(struct window *w, struct pv_err *err)
{
        struct pollfd p[TURNS] = { { .fd = w->terminal.signals, .events = POLLIN } };
        if (w->typed.len)
                p[TURN_KEYS] = (struct pollfd){ .fd = w->master, .events = POLLOUT };
        else
                p[TURN_KEYS] = (struct pollfd){ .fd = w->no_input ? -1 : STDIN_FILENO, .events = POLLIN };
        pv_follow_poll(&w->follow, p + TURN_FOLLOW);
        if (poll(p, TURNS, -1) < 0)
                return errno == EINTR ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "attach");
        if (p[TURN_SIGNALS].revents)
                take_signals(w);
        if (p[TURN_KEYS].revents && w->typed.len)
                write_keys(w);
        else if (p[TURN_KEYS].revents)
                read_keys(w);
        w->ended = pv_follow_take(&w->follow, p + TURN_FOLLOW);
        return show_more(w, err);
}

static int look_in(struct window *w, const struct pv_job *job, struct pv_err *err)
{
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0 || pv_attach(job, &w->master, err) < 0 || pv_follow_open(&w->follow, job, err) < 0)
                return -1;
        w->log = pv_follow_file(&w->follow, dir, PV_JOB_STDOUT);
        if (w->log < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s", PV_JOB_STDOUT);
        if (pv_terminal_open(&w->terminal, err) < 0)
                return -1;
        pv_terminal_raw(&w->terminal);
        if (show_before(w, err) < 0)
                return -1;
        redraw(w);
        w->ended = w->follow.supervisor < 0;
        while (!w->ended && !w->detached && !w->signal)
                if (turn(w, err) < 0)
                        return -1;
        return show_more(w, err);
}

/* How it ended, as the supervisor's own end tells. */
static int say_end(const struct pv_job *job, int *code, struct pv_err *err)
{
        pv_auto_str said = { 0 };
        pv_auto_job now = NULL;
        if (pv_cmd_job_named(job->id, &now, err) < 0)
                return -1;
        *code = now->exit_code >= 0 ? now->exit_code : 128 + SIGKILL;
        if (now->state == PV_JOB_LOST)
                pv_log_note("%s: lost: its supervisor was killed", job->id);
        pv_cmd_put_closing(&said, now, "", PV_CMD_CLOSING_ALL);
        if (pv_log_get_level() == PV_LOG_QUIET || !said.len)
                return 0;
        return pv_fd_write_all(STDERR_FILENO, said.s, said.len, "stderr", err);
}

static int attach(const struct pv_job *job, const struct pv_keys *keys, bool *ended, int *code, struct pv_err *err)
{
        __attribute__((cleanup(window_fini))) struct window w = {
                .terminal = PV_TERMINAL_INIT,
                .follow = PV_FOLLOW_INIT,
                .keys = *keys,
                .log = -1,
                .master = -1,
        };
        if (look_in(&w, job, err) < 0)
                return -1;
        *ended = w.ended;
        *code = w.signal ? 128 + w.signal : 0;
        return 0;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct attach_options *o = opts;
        struct pv_keys keys;
        pv_auto_job job = NULL;
        bool ended = false;
        int code = 0;
        if (pv_keys_parse(o->detach_keys ? o->detach_keys : DEFAULT_KEYS, &keys, err) < 0 ||
            pv_cmd_job(args, &job, err) < 0)
                return -1;
        if (pv_cmd_need_running(job, "attach", err) < 0)
                return -1;
        if (attach(job, &keys, &ended, &code, err) < 0)
                return -1;
        if (ended)
                return say_end(job, &code, err) < 0 ? -1 : code;
        pv_log_note("detached from %s, which goes on: pvisor attach %s", job->id, job->name ? job->name : job->id);
        return code;
}

static const char *const examples[] = {
        "pvisor run --detach --safe --name fix -- claude",
        "start an agent that nobody has to watch",
        "pvisor attach fix",
        "watch it, and speak with it; Ctrl-P Ctrl-Q leaves it running",
        "pvisor attach --detach-keys ctrl-a,d fix",
        "with other keys",
        NULL,
};

const struct pv_command pv_cmd_attach = {
        .name = "attach",
        .usage = "[options] [JOB]",
        .about = "Shows the terminal of a detached job in this one, and gives it what is typed. Full-screen programs "
                 "are "
                 "drawn anew; the window's size follows, that of the last window when there are several. --detach-keys "
                 "(Ctrl-P Ctrl-Q) leave the job running, as does closing this terminal. A window that is slow, stopped "
                 "or "
                 "killed holds up nobody.\n\n"
                 "When the job's command ends, attach exits as it did. A job that was not detached from a terminal has "
                 "none of its own: `pvisor logs -f` follows what is captured of it.",
        .options = options,
        .options_size = sizeof(struct attach_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
