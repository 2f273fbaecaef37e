/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor exec */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cmd/jobs.h"
#include "cmd/terminal.h"
#include "job/exec.h"
#include "job/run.h"

/*
 * After the command's end: what is still in its terminal or pipes comes within that time, and is not more than these
 * bytes. The rest is somebody else's, who may go on writing for ever.
 */
#define LAST_WORDS_MS  50
#define LAST_WORDS_MAX (1U << 20)

struct session {
        struct pv_terminal terminal;
        int conn, master;
        /* Each of stdio that is a socket: the command gets a pipe, and bytes are moved. */
        struct pv_pump in, out[2];
        int pipe[3];
};

static void session_fini(struct session *s)
{
        pv_terminal_close(&s->terminal);
        for (int i = 0; i < 3; i++)
                pv_fd_closep(&s->pipe[i]);
        if (s->in.to != s->master)
                pv_fd_closep(&s->in.to);
        for (int i = 0; i < 2; i++)
                if (s->out[i].from != s->master)
                        pv_fd_closep(&s->out[i].from);
        pv_fd_closep(&s->conn);
        pv_fd_closep(&s->master);
}

static int make_pipe(int *read_end, int *write_end, struct pv_err *err)
{
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a pipe");
        *read_end = p[0];
        *write_end = p[1];
        return 0;
}

/* What the command gets as its standard descriptors. */
static int choose_stdio(struct session *s, struct pv_exec_request *x, struct pv_err *err)
{
        x->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
        for (int i = 0; i < 3; i++) {
                if (x->terminal && isatty(i)) {
                        x->stdio[i] = -1;
                } else if (pv_exec_may_have(i)) {
                        x->stdio[i] = i;
                } else if (i == STDIN_FILENO) {
                        if (make_pipe(&s->pipe[0], &s->in.to, err) < 0)
                                return -1;
                        s->in.from = STDIN_FILENO;
                        x->stdio[i] = s->pipe[0];
                } else {
                        if (make_pipe(&s->out[i - 1].from, &s->pipe[i], err) < 0)
                                return -1;
                        s->out[i - 1].to = i;
                        x->stdio[i] = s->pipe[i];
                }
        }
        return 0;
}

static void take_signals(const struct session *s)
{
        for (int sig; (sig = pv_terminal_signal(&s->terminal));) {
                struct winsize size = pv_terminal_size();
                if (sig != SIGWINCH)
                        pv_exec_signal(s->conn, sig);
                else if (s->master >= 0)
                        (void)ioctl(s->master, TIOCSWINSZ, &size);
        }
}

static void move(struct pv_pump *p, short revents, int master)
{
        if (!revents || pv_pump_move(p))
                return;
        if (p->from != master && p->from > STDERR_FILENO)
                pv_fd_closep(&p->from);
        if (p->to != master && p->to > STDERR_FILENO)
                pv_fd_closep(&p->to); /* the command sees the end of its input */
        p->from = p->to = -1;
}

enum { TURN_CONN, TURN_SIGNALS, TURN_IN, TURN_OUT, TURN_ERR, TURNS };

/* One turn of at most ms. True when there was something to do. */
static bool turn(struct session *s, bool listens, int ms, bool *conn_ready)
{
        struct pollfd p[TURNS] = {
                [TURN_CONN] = { .fd = listens ? s->conn : -1, .events = POLLIN },
                [TURN_SIGNALS] = { .fd = s->terminal.signals, .events = POLLIN },
                [TURN_IN] = listens ? pv_pump_poll(&s->in) : (struct pollfd){ .fd = -1 },
                [TURN_OUT] = pv_pump_poll(&s->out[0]),
                [TURN_ERR] = pv_pump_poll(&s->out[1]),
        };
        int n = poll(p, TURNS, ms);
        if (n <= 0)
                return n < 0 && errno == EINTR;
        if (p[TURN_SIGNALS].revents)
                take_signals(s);
        move(&s->in, p[TURN_IN].revents, s->master);
        for (int i = 0; i < 2; i++)
                move(&s->out[i], p[TURN_OUT + i].revents, s->master);
        *conn_ready = p[TURN_CONN].revents;
        return true;
}

static int converse(struct session *s, int *code, struct pv_err *err)
{
        bool ready = false;
        while (!ready)
                (void)turn(s, true, -1, &ready);
        int r = pv_exec_end(s->conn, code, err);
        uint64_t enough = s->out[0].moved + s->out[1].moved + LAST_WORDS_MAX;
        while ((s->out[0].from >= 0 || s->out[1].from >= 0) && s->out[0].moved + s->out[1].moved < enough &&
               turn(s, false, LAST_WORDS_MS, &ready))
                ;
        return r;
}

static int execute(const struct pv_job *job, char *const *argv, int *code, struct pv_err *err)
{
        __attribute__((cleanup(session_fini))) struct session s = {
                .terminal = PV_TERMINAL_INIT,
                .conn = -1,
                .master = -1,
                .in = { .from = -1, .to = -1 },
                .out = { { .from = -1, .to = -1 }, { .from = -1, .to = -1 } },
                .pipe = { -1, -1, -1 },
        };
        pv_auto_free char *cwd = getcwd(NULL, 0);
        struct pv_exec_request x = { .argv = argv, .cwd = cwd, .size = pv_terminal_size() };
        if (choose_stdio(&s, &x, err) < 0 || pv_terminal_open(&s.terminal, err) < 0)
                return -1;
        x.term = x.terminal ? getenv("TERM") : NULL;
        if (pv_exec_begin(job, &x, &s.conn, &s.master, err) < 0)
                return -1;
        for (int i = 0; i < 3; i++)
                pv_fd_closep(&s.pipe[i]);
        if (s.master >= 0) {
                s.in.from = x.stdio[0] < 0 ? STDIN_FILENO : -1;
                s.in.to = s.master;
                s.out[0].from = s.master;
                s.out[0].to = STDOUT_FILENO;
                pv_terminal_raw(&s.terminal);
        }
        if (converse(&s, code, err) == 0)
                return 0;
        if (err->kind != PV_ERR_STATE)
                return -1;
        /* Its init took the command with it. */
        pv_err_clear(err);
        pv_terminal_close(&s.terminal);
        pv_log_note("exec: job %s ended, and the command with it", job->id);
        *code = 128 + SIGKILL;
        return 0;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        pv_auto_job job = NULL;
        int code = 0;
        (void)opts;
        if (!args->command || !args->command[0]) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "exec: no command");
                return pv_err_hint(err, "pvisor exec JOB -- COMMAND");
        }
        if (pv_cmd_job(args, &job, err) < 0)
                return -1;
        if (pv_cmd_need_running(job, "exec", err) < 0)
                return -1;
        if (execute(job, args->command, &code, err) == 0)
                return code;
        pv_log_err(err);
        return err->kind == PV_ERR_STATE ? pv_err_exit_code(err) : pv_run_exit_code(err);
}

static const char *const examples[] = {
        "pvisor exec last -- ps aux",
        "what runs in there",
        "pvisor exec fix -- bash",
        "a shell beside the agent, on a terminal of its own",
        "pvisor exec fix -- git log -3 | less",
        "its output as it comes",
        NULL,
};

const struct pv_command pv_cmd_exec = {
        .name = "exec",
        .usage = "[JOB] -- COMMAND [ARG...]",
        .about =
                "Runs another command in a running job: in the same view, under the same limits, with the same network "
                "and environment; nothing can be added to them. It starts in the directory where you stand when the "
                "job "
                "has it too, else where the job's command did.\n\n"
                "When standard input and output are a terminal, the command gets one of its own: full-screen programs, "
                "Ctrl-C and the window's size work. Else it gets your standard descriptors as they are (a socket by "
                "way "
                "of a pipe), and signals are passed on. It is hung up when pvisor exec dies, and killed when the job's "
                "own command ends. What it changes is the job's: `pvisor review` shows it with the rest.\n\n"
                "Exits as the command did; errors before its start have the codes of `pvisor run`; 1: the job does not "
                "run (any more).",
        .options = NULL,
        .options_size = 1,
        .style = PV_ARGS_AND_COMMAND,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
