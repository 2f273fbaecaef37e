/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verb `exec` and its client. What it does: boundary/exec.c.
 *
 *   {"verb": "exec", "argv", "cwd", "term", "terminal", "rows", "columns", "given": [..]},
 *      and a descriptor for each that is given
 *   -> {"event": "started"} and the terminal's master
 *   {"signal": N} ...
 *   -> {"event": "ended", "code": as a shell has it}
 *
 * A client that goes hangs the command up, as a terminal does.
 */
#include "job/exec.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/json.h"
#include "job/verbs.h"

#define ARGS_MAX 65536

bool pv_exec_may_have(int fd)
{
        struct stat st;
        int flags = fcntl(fd, F_GETFL);
        return flags >= 0 && !(flags & O_PATH) && fstat(fd, &st) == 0 && !S_ISSOCK(st.st_mode) && !S_ISDIR(st.st_mode);
}

/*
 * The supervisor's side.
 */

struct run {
        struct pv_control_connection *c;
        unsigned number;
        bool ended;
};

static void started(void *ctx, int terminal, const struct pv_err *failure)
{
        struct run *r = ctx;
        pv_auto_fd master = terminal;
        const struct pv_job *job = pv_control_job_of(r->c)->job;
        pv_job_event(job, "exec-started",
                     json_pack("{s:i, s:o}", "number", (int)r->number, "failure",
                               failure ? pv_json_bytes(failure->msg) : json_null()));
        if (failure) {
                r->ended = true;
                pv_control_refuse(r->c, failure);
                pv_control_end(r->c);
                return;
        }
        (void)pv_control_answer(r->c, json_pack("{s:s}", "event", "started"), &master, master >= 0);
}

static int shell_code(int status)
{
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void ended(void *ctx, int status)
{
        struct run *r = ctx;
        int code = shell_code(status);
        r->ended = true;
        pv_job_event(pv_control_job_of(r->c)->job, "exec-ended",
                     json_pack("{s:i, s:i}", "number", (int)r->number, "exit_code", code));
        (void)pv_control_answer(r->c, json_pack("{s:s, s:i}", "event", "ended", "code", code), NULL, 0);
        pv_control_end(r->c);
}

static bool is_wanted(void *ctx)
{
        const struct run *r = ctx;
        return !pv_control_is_gone(r->c);
}

static int take_packet(struct pv_control_connection *c, void *own, const json_t *request, struct pv_err *err)
{
        const struct run *r = own;
        int64_t sig = 0;
        if (pv_json_get_int(request, "signal", 1, NSIG - 1, &sig, err) < 0)
                return -1;
        pv_boundary_exec_signal(pv_control_job_of(c)->boundary, r->number, (int)sig);
        return 0;
}

static void closed(struct pv_control_connection *c, void *own)
{
        struct run *r = own;
        struct pv_boundary *b = pv_control_job_of(c)->boundary;
        if (!r->ended) {
                pv_boundary_exec_signal(b, r->number, SIGHUP);
                pv_boundary_exec_signal(b, r->number, SIGCONT); /* what is stopped would never learn of it */
                pv_boundary_exec_forget(b, r->number);
        }
        free(r);
}

struct request {
        struct pv_strv argv;
        char *cwd, *term;
        int fds[3];
        struct pv_boundary_exec spec;
};

static void request_fini(struct request *r)
{
        pv_strv_fini(&r->argv);
        free(r->cwd);
        free(r->term);
        for (int i = 0; i < 3; i++)
                pv_fd_closep(&r->fds[i]);
}
#define auto_request __attribute__((cleanup(request_fini))) struct request

static int parse_texts(const json_t *j, struct request *r, struct pv_err *err)
{
        json_t *argv = NULL, *arg;
        size_t i;
        if (pv_json_get_array(j, "argv", ARGS_MAX, &argv, err) < 0)
                return -1;
        json_array_foreach(argv, i, arg)
        {
                char *text = NULL;
                if (pv_json_get_bytes(arg, &text, err) < 0)
                        return pv_err_wrap(err, "argv");
                pv_strv_take(&r->argv, text);
        }
        if (r->argv.n == 0)
                return pv_err_set(err, PV_ERR_USAGE, 0, "exec: no command");
        json_t *cwd = json_object_get(j, "cwd"), *term = json_object_get(j, "term");
        if ((cwd && pv_json_get_bytes(cwd, &r->cwd, err) < 0) || (term && pv_json_get_bytes(term, &r->term, err) < 0))
                return pv_err_wrap(err, "exec");
        return 0;
}

/* A descriptor for each of stdio that is given; none that is more than bytes. */
static int take_stdio(struct pv_control_connection *c, const json_t *j, struct request *r, struct pv_err *err)
{
        const json_t *given = json_object_get(j, "given");
        size_t n = 0;
        for (size_t i = 0; i < 3; i++) {
                if (!json_is_true(json_array_get(given, i))) {
                        if (r->spec.terminal)
                                continue;
                        return pv_err_set(err, PV_ERR_USAGE, 0, "exec: standard descriptor %zu is missing", i);
                }
                r->fds[i] = pv_control_take_fd(c, n++);
                if (!pv_exec_may_have(r->fds[i]))
                        return pv_err_set(err, PV_ERR_POLICY, 0,
                                          "exec: standard descriptor %zu is a socket or a directory", i);
        }
        return 0;
}

static int parse(struct pv_control_connection *c, const json_t *j, struct request *r, struct pv_err *err)
{
        int64_t rows = 0, columns = 0;
        r->spec.terminal = json_is_true(json_object_get(j, "terminal"));
        if (r->spec.terminal && (pv_json_get_int(j, "rows", 0, UINT16_MAX, &rows, err) < 0 ||
                                 pv_json_get_int(j, "columns", 0, UINT16_MAX, &columns, err) < 0))
                return -1;
        if (parse_texts(j, r, err) < 0 || take_stdio(c, j, r, err) < 0)
                return -1;
        r->spec.size = (struct winsize){ .ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns };
        r->spec.argv = r->argv.v;
        r->spec.cwd = r->cwd;
        r->spec.term = r->term;
        for (int i = 0; i < 3; i++)
                r->spec.stdio[i] = r->fds[i];
        return 0;
}

static int serve(struct pv_control_connection *c, const json_t *request, struct pv_err *err)
{
        static const struct pv_boundary_exec_events events = {
                .started = started,
                .ended = ended,
                .is_wanted = is_wanted,
        };
        static const struct pv_control_keeper keeper = { .packet = take_packet, .closed = closed };
        const struct pv_control_job *j = pv_control_job_of(c);
        auto_request r = { .fds = { -1, -1, -1 } };
        if (parse(c, request, &r, err) < 0)
                return -1;
        pv_auto_free struct run *run = pv_calloc(1, sizeof *run);
        run->c = c;
        if (pv_boundary_exec(j->boundary, &r.spec, &events, run, &run->number, err) < 0)
                return -1;
        pv_job_event(j->job, "exec",
                     json_pack("{s:i, s:O, s:b}", "number", (int)run->number, "argv", json_object_get(request, "argv"),
                               "terminal", r.spec.terminal));
        pv_control_keep(c, &keeper, pv_steal(&run));
        return 0;
}

const struct pv_control_verb pv_control_exec = { "exec", serve };

/*
 * The client's side.
 */

static json_t *request_json(const struct pv_exec_request *x)
{
        json_t *j = pv_control_request("exec");
        json_t *argv = json_array(), *given = json_array();
        for (size_t i = 0; x->argv[i]; i++)
                (void)json_array_append_new(argv, pv_json_bytes(x->argv[i]));
        for (int i = 0; i < 3; i++)
                (void)json_array_append_new(given, json_boolean(x->stdio[i] >= 0));
        (void)json_object_set_new(j, "argv", argv);
        (void)json_object_set_new(j, "given", given);
        if (x->cwd)
                (void)json_object_set_new(j, "cwd", pv_json_bytes(x->cwd));
        if (x->term)
                (void)json_object_set_new(j, "term", pv_json_bytes(x->term));
        pv_auto_json terminal = json_pack("{s:b, s:i, s:i}", "terminal", x->terminal, "rows", x->size.ws_row, "columns",
                                          x->size.ws_col);
        (void)json_object_update(j, terminal);
        return j;
}

int pv_exec_begin(const struct pv_job *job, const struct pv_exec_request *x, int *conn, int *terminal,
                  struct pv_err *err)
{
        int fds[3], got[PV_CONTROL_FDS_MAX];
        size_t n = 0;
        pv_auto_fd dir = pv_job_open_dir(job, err);
        if (dir < 0)
                return -1;
        for (int i = 0; i < 3; i++)
                if (x->stdio[i] >= 0)
                        fds[n++] = x->stdio[i];
        for (size_t i = 0; i < PV_CONTROL_FDS_MAX; i++)
                got[i] = -1;
        /* A frozen job starts it when it is let go. */
        const struct pv_control_call with = { .fds = fds, .n_fds = n, .got = got, .patience_ms = 60000 };
        if (pv_control_begin(dir, request_json(x), &with, conn, NULL, err) < 0)
                return -1;
        *terminal = got[0];
        for (size_t i = 1; i < PV_CONTROL_FDS_MAX; i++)
                pv_fd_closep(&got[i]);
        return 0;
}

void pv_exec_signal(int conn, int sig)
{
        struct pv_err ignored = PV_ERR_INIT;
        (void)pv_control_send(conn, json_pack("{s:i}", "signal", sig), NULL, 0, &ignored);
}

int pv_exec_end(int conn, int *code, struct pv_err *err)
{
        pv_auto_json answer = NULL;
        int64_t n = 0;
        if (pv_control_receive(conn, &answer, NULL, err) < 0 ||
            pv_json_get_int(answer, "code", 0, UINT8_MAX, &n, err) < 0)
                return -1;
        *code = (int)n;
        return 0;
}
