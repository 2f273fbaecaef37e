/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to run a further command inside a boundary that runs, no wider than the first one's. Not its job: who may ask
 * (job/control.c), and what the person sees of it (cmd/exec.c).
 *
 * Nothing is joined from outside: a process that enters namespaces one by one (setns(2)) is for a moment in some of
 * them, with the person's rights in the others. Instead init, which is in them since they were made, forks another
 * launcher, and that takes the road of the first (launcher.c) from the inner user namespace on: the same steps by the
 * same code with the same plan, in init's memory since the start, which nothing inside can write.
 *
 *   supervisor                       init                            launcher
 *   canaries; the order in memory
 *   EXEC: order, report, stdio ----> fork -------------------------> inner user namespace, session, terminal
 *                                    closes them                     walls, limits, probes
 *                       <-------------------------------observations, or one error
 *                       <-------------------------------end of file-- exec
 *   started()
 *                       <----------- EXEC_ENDED
 *   ended()
 *
 * What differs from the first launch is that the hostile live already, with the launcher's own ids, in its user
 * namespace. They can kill it (it fails then); they cannot trace it, read its memory, or take a descriptor of it: like
 * init it is not dumpable until its exec, and its memory belongs to a user namespace where nobody inside has a right.
 * They can slow it down, so that the supervisor waits for nothing here. What it learns from numbers that they can
 * choose (ports, pids) is not probed again; the walls that it raises are.
 *
 * Failure: an error comes on the report channel as at the start; an end of file without observations is a launcher that
 * was killed. When the job's command ends first, init ends, and with it all others.
 */
#include "boundary/exec.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include "base/container.h"
#include "base/pass_fd.h"
#include "base/syscall.h"

/* A command line that the kernel would take at all, and more than any client's packet holds. */
#define ORDER_MAX (4U << 20)

struct pv_exec {
        struct pv_boundary_watch watch; /* of the report channel, until the exec */
        struct pv_boundary *b;
        unsigned number;
        bool started;
        struct pv_canary canary;
        struct pv_observations *obs; /* until the exec */
        struct pv_err failure;
        int terminal;
        int order[PV_MESSAGE_FDS];                    /* what goes to init, once it may; -1: gone, or not there */
        const struct pv_boundary_exec_events *events; /* NULL: nobody listens any more */
        void *ctx;
};

/*
 * The order.
 */

int pv_exec_order_write(const struct pv_exec_order *order, char *const *argv, const char *cwd, const char *term,
                        int *out, struct pv_err *err)
{
        pv_auto_str s = { 0 };
        struct pv_exec_order head = *order;
        head.argc = 0;
        pv_str_put_bytes(&s, &head, sizeof head);
        for (; argv[head.argc]; head.argc++)
                pv_str_put_bytes(&s, argv[head.argc], strlen(argv[head.argc]) + 1);
        pv_str_put_bytes(&s, cwd, strlen(cwd) + 1);
        pv_str_put_bytes(&s, term, strlen(term) + 1);
        memcpy(s.s, &head, sizeof head);
        pv_auto_fd fd = memfd_create("pvisor-exec", MFD_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: memory for the order");
        if (pv_fd_write_all(fd, s.s, s.len, "exec: the order", err) < 0)
                return -1;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: the order");
        *out = pv_fd_steal(&fd);
        return 0;
}

int pv_exec_order_read(int fd, struct pv_exec_command *out, struct pv_err *err)
{
        pv_auto_free char *text = NULL;
        size_t len = 0, at = sizeof out->order;
        if (pv_fd_read_all(fd, ORDER_MAX, "exec: the order", &text, &len, err) < 0)
                return -1;
        if (len < sizeof out->order)
                return pv_err_set(err, PV_ERR_INPUT, 0, "exec: half an order");
        memcpy(&out->order, text, sizeof out->order);
        size_t n = (size_t)out->order.argc + 2;
        pv_auto_free char **strings = n <= len ? pv_calloc(n + 1, sizeof *strings) : NULL;
        for (size_t i = 0; strings && i < n && at < len; i++) {
                strings[i] = text + at;
                at += strlen(text + at) + 1;
        }
        if (!strings || !strings[n - 1] || n < 3)
                return pv_err_set(err, PV_ERR_INPUT, 0, "exec: half an order");
        out->term = strings[n - 1];
        out->cwd = strings[n - 2];
        strings[n - 2] = NULL;
        out->argv = pv_steal(&strings);
        out->text = pv_steal(&text);
        return 0;
}

void pv_exec_command_fini(struct pv_exec_command *c)
{
        free(c->argv);
        free(c->text);
}

/*
 * The supervisor's side.
 */

static void close_order(struct pv_exec *x)
{
        for (size_t i = 0; i < PV_MESSAGE_FDS; i++)
                pv_fd_closep(&x->order[i]);
}

static void exec_free(struct pv_exec *x)
{
        struct pv_boundary *b = x->b;
        for (size_t i = 0; i < PV_BOUNDARY_EXECS; i++)
                if (b->exec[i] == x)
                        b->exec[i] = NULL;
        pv_boundary_watch_remove(b, &x->watch);
        pv_fd_closep(&x->watch.fd);
        pv_fd_closep(&x->terminal);
        close_order(x);
        pv_canary_close(&x->canary);
        free(x->obs);
        free(x);
}

static struct pv_exec *find(const struct pv_boundary *b, unsigned number)
{
        for (size_t i = 0; i < PV_BOUNDARY_EXECS; i++)
                if (b->exec[i] && b->exec[i]->number == number)
                        return b->exec[i];
        return NULL;
}

/* The end of the report: the command runs, or never will. */
static void conclude(struct pv_exec *x)
{
        const struct pv_boundary_exec_events *events = x->events;
        void *ctx = x->ctx;
        pv_boundary_watch_remove(x->b, &x->watch);
        pv_fd_closep(&x->watch.fd);
        pv_canary_close(&x->canary);
        if (x->failure.kind == PV_ERR_NONE && x->obs->n == 0)
                (void)pv_err_set(&x->failure, PV_ERR_SYS, 0, "exec: the launcher was killed");
        x->started = true;
        if (x->failure.kind == PV_ERR_NONE) {
                if (events)
                        events->started(ctx, pv_fd_steal(&x->terminal), NULL);
                return;
        }
        struct pv_err failure = x->failure;
        exec_free(x);
        if (events)
                events->started(ctx, -1, &failure);
}

/* Reads what there is. True when that was the end. */
static bool read_report(struct pv_exec *x)
{
        int helper = -1, r;
        const struct pv_report_sink sink = { .obs = x->obs, .helper = &helper, .terminal = &x->terminal };
        while ((r = pv_report_take(x->watch.fd, &sink, MSG_DONTWAIT, &x->failure)) > 0)
                ;
        bool more = r < 0 && (errno == EAGAIN || errno == EINTR);
        if (helper >= 0)
                pv_boundary_add_helper(x->b, helper);
        return !more;
}

static void report_ready(struct pv_boundary_watch *w, short revents)
{
        struct pv_exec *x = PV_CONTAINER_OF(w, struct pv_exec, watch);
        (void)revents;
        if (read_report(x))
                conclude(x);
}

void pv_exec_ended(struct pv_boundary *b, unsigned number, int status)
{
        struct pv_exec *x = find(b, number);
        /* Dead, it has closed the report, even if that was not looked at yet. */
        if (x && !x->started) {
                (void)read_report(x);
                conclude(x);
                x = find(b, number);
        }
        if (!x)
                return;
        const struct pv_boundary_exec_events *events = x->events;
        void *ctx = x->ctx;
        exec_free(x);
        if (events)
                events->ended(ctx, status);
}

static int open_canaries(const struct pv_boundary *b, struct pv_canary *c, struct pv_err *err)
{
        if (b->canary_kinds == 0)
                return 0;
        return pv_canary_open(c, (enum pv_canary_kinds)b->canary_kinds, b->canary_parent, err);
}

static int send_order(struct pv_exec *x, struct pv_err *err)
{
        const struct pv_message m = { .kind = PV_MESSAGE_EXEC, .number = x->number };
        size_t n = 0;
        while (n < PV_MESSAGE_FDS && x->order[n] >= 0)
                n++;
        int r = pv_message_send_fds(x->b->control, &m, x->order, n);
        int sys = errno;
        close_order(x);
        if (r == 0)
                return 0;
        (void)pv_err_set(err, PV_ERR_STATE, sys, "exec: the sandbox's init");
        return pv_pass_hint(err);
}

/* The order's file and the descriptors that go with it, in x->order. report is taken. */
static int prepare_order(struct pv_exec *x, const struct pv_boundary_exec *spec, int report, struct pv_err *err)
{
        struct pv_exec_order order = {
                .number = x->number,
                .terminal = spec->terminal,
                .size = spec->size,
                .canary = x->canary,
        };
        int lent[PV_MESSAGE_FDS];
        size_t n = 0;
        x->order[PV_EXEC_REPORT] = report;
        order.canary.supervisor = 0; /* a number: inside, somebody else may have it */
        for (int i = 0; i < 3; i++) {
                order.given[i] = spec->stdio[i] >= 0;
                if (order.given[i])
                        lent[n++] = spec->stdio[i];
        }
        if (x->canary.supervisor_fd >= 0)
                lent[n++] = x->canary.supervisor_fd;
        if (x->canary.dir_fd >= 0)
                lent[n++] = x->canary.dir_fd;
        for (size_t i = 0; i < n; i++)
                if ((x->order[PV_EXEC_STDIN + i] = fcntl(lent[i], F_DUPFD_CLOEXEC, 3)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "exec: keep a descriptor");
        return pv_exec_order_write(&order, spec->argv, spec->cwd ? spec->cwd : "", spec->term ? spec->term : "",
                                   &x->order[PV_EXEC_ORDER], err);
}

void pv_exec_thawed(struct pv_boundary *b)
{
        struct pv_err err = PV_ERR_INIT;
        for (size_t i = 0; i < PV_BOUNDARY_EXECS; i++) {
                struct pv_exec *x = b->exec[i];
                if (!x || x->order[PV_EXEC_ORDER] < 0 || !x->events->is_wanted(x->ctx))
                        continue; /* who does not want it any more has it forgotten */
                if (send_order(x, &err) < 0)
                        x->failure = err; /* its report ends, too */
        }
}

static int start(struct pv_exec *x, const struct pv_boundary_exec *spec, struct pv_err *err)
{
        int pair[2];
        if (open_canaries(x->b, &x->canary, err) < 0)
                return -1;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: make a channel");
        x->watch.fd = pair[0];
        if (prepare_order(x, spec, pair[1], err) < 0)
                return -1;
        if (pv_boundary_watch_add(x->b, &x->watch) < 0)
                return pv_err_set(err, PV_ERR_BUSY, 0, "exec: too much is watched already");
        return x->b->freezer ? 0 : send_order(x, err); /* nothing new may run while it is frozen */
}

int pv_boundary_exec(struct pv_boundary *b, const struct pv_boundary_exec *spec,
                     const struct pv_boundary_exec_events *events, void *ctx, unsigned *number, struct pv_err *err)
{
        size_t place = 0;
        while (place < PV_BOUNDARY_EXECS && b->exec[place])
                place++;
        if (b->ended)
                return pv_err_set(err, PV_ERR_STATE, 0, "the job's command has ended");
        if (place == PV_BOUNDARY_EXECS)
                return pv_err_set(err, PV_ERR_BUSY, 0, "%d other commands run in the job already", PV_BOUNDARY_EXECS);
        struct pv_exec *x = pv_calloc(1, sizeof *x);
        *x = (struct pv_exec){
                .watch = { .fd = -1, .events = POLLIN, .ready = report_ready },
                .b = b,
                .number = ++b->execs,
                .canary = PV_CANARY_INIT,
                .obs = pv_calloc(1, sizeof *x->obs),
                .terminal = -1,
                .order = { -1, -1, -1, -1, -1, -1, -1, -1 },
                .events = events,
                .ctx = ctx,
        };
        if (start(x, spec, err) < 0) {
                exec_free(x);
                return -1;
        }
        b->exec[place] = x;
        *number = x->number;
        return 0;
}

void pv_boundary_exec_signal(struct pv_boundary *b, unsigned number, int sig)
{
        if (find(b, number))
                (void)pv_message_send_about(b->control, PV_MESSAGE_EXEC_SIGNAL, number, sig);
}

void pv_boundary_exec_forget(struct pv_boundary *b, unsigned number)
{
        struct pv_exec *x = find(b, number);
        if (x && x->order[PV_EXEC_ORDER] >= 0)
                exec_free(x); /* init does not know of it */
        else if (x)
                x->events = NULL;
}

void pv_exec_fini(struct pv_boundary *b)
{
        for (size_t i = 0; i < PV_BOUNDARY_EXECS; i++)
                if (b->exec[i])
                        exec_free(b->exec[i]);
}
