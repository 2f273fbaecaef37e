/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor's side of a running boundary. It listens to three things: its own signals (a signalfd), the control
 * channel from init, and the pidfd of init. Besides, it serves the descriptors that its caller watches.
 *
 * Signals that ask the run to end or to change are passed on, not obeyed. What ends the run is the command's end, the
 * time limit, or the supervisor's own death, which the kernel turns into init's. That nothing is left is told by init,
 * when it has killed and waited for all there were, or by its death: the kernel lets a pid namespace's first process be
 * reaped only when all others are gone.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/syscall.h"
#include "boundary/exec.h"
#include "boundary/freeze.h"
#include "boundary/report.h"
#include "boundary/running.h"

#define GRACE_MS 2000 /* between TERM and KILL when the time is up */
#define HOLD_MS  5000 /* for all of a run to stand still */

struct watch {
        struct pv_boundary *b;
        int signals;
        bool ended, stopped, timed_out;
        int status;          /* wait status of the command, once ended */
        bool left_behind;    /* processes that had to be killed then */
        struct rusage usage; /* of all, once ended */
        uint64_t kill_at;    /* monotonic ms; 0: not yet */
};

void pv_supervise_signals(sigset_t *set)
{
        static const int taken[] = { SIGTERM, SIGHUP,  SIGINT,  SIGQUIT, SIGUSR1, SIGUSR2,
                                     SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGCHLD };
        sigemptyset(set);
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
                sigaddset(set, taken[i]);
}

void pv_supervise_kill(struct pv_boundary *b)
{
        if (b->ambient)
                (void)pv_message_send(b->control, PV_MESSAGE_SIGNAL, SIGKILL);
        else
                (void)pv_sys_pidfd_send_signal(b->init_pidfd, SIGKILL);
}

static void go_on(struct watch *w, bool with_terminal)
{
        struct pv_boundary *b = w->b;
        w->stopped = false;
        if (with_terminal && pv_tty_is_ours(&b->tty)) {
                pv_tty_note_settings(&b->tty);
                b->tty.given = true;
                (void)pv_message_send(b->control, PV_MESSAGE_FOREGROUND, 0);
        } else {
                (void)pv_message_send(b->control, PV_MESSAGE_SIGNAL_GROUP, SIGCONT);
        }
}

struct hold {
        bool told, held;
};

static void held(void *ctx, const struct pv_boundary_frozen *frozen, const struct pv_err *failure)
{
        struct hold *h = ctx;
        h->told = true;
        h->held = frozen != NULL;
        if (failure)
                pv_log_err(failure);
}

/*
 * All of a guarded run, before the person's shell has the terminal again: SIGSTOP would not do, a timer can send
 * SIGCONT. False: something does not stop, so the run stays in the foreground.
 */
static bool hold_still(struct pv_boundary *b)
{
        struct pv_err err = PV_ERR_INIT;
        struct hold h = { .told = false };
        if (!b->tty.guarded || b->tty.apart || b->freezer)
                return true;
        if (pv_boundary_freeze(b, HOLD_MS, held, &h, &err) < 0) {
                pv_log_err(&err);
                return false;
        }
        while (!h.told && b->freezer) {
                struct pv_boundary_watch *z = pv_freezer_watch(b->freezer);
                struct pollfd p = { .fd = z->fd, .events = POLLIN };
                if (poll(&p, 1, -1) > 0)
                        z->ready(z, p.revents);
        }
        return h.held;
}

static void say_why_not(void)
{
        struct pv_err why = PV_ERR_INIT;
        (void)pv_err_set(&why, PV_ERR_STATE, 0, "in the background the run stands still: it could read what you type");
        (void)pv_err_hint(&why, "fg resumes it; pvisor run --detach starts one that needs no terminal");
        pv_log_err(&why);
}

/* True once it may go on; `bg` alone does not do for a guarded run. False: there is no shell that could say so. */
static bool stop_with_group(struct pv_boundary *b, int sig)
{
        for (bool told = false;; told = true) {
                sigset_t pending;
                pv_tty_stop_with_group(sig);
                if (pv_tty_allows(&b->tty))
                        return true;
                /* What resumed it is blocked and waits for the signalfd; an orphaned group was never stopped. */
                if (sigpending(&pending) < 0 || !sigismember(&pending, SIGCONT))
                        return false;
                if (!told)
                        say_why_not();
                sig = SIGTTIN;
        }
}

/*
 * The command stopped. Wanting the terminal while we may give it: it gets it. Else we stop as well, so that the shell
 * has a job to resume. Without a terminal nobody would: then the command stays as it is, and the time limit holds.
 */
static void command_stopped(struct watch *w, int sig)
{
        struct pv_boundary *b = w->b;
        if (sig == SIGSTOP && b->freezer) /* the freezer's own, where it cannot do without */
                return;
        w->stopped = true;
        if (b->tty.fd < 0)
                return;
        bool wants = sig == SIGTTIN || sig == SIGTTOU;
        if (wants && pv_tty_is_ours(&b->tty)) {
                go_on(w, true);
                return;
        }
        bool had = b->tty.given;
        if (!hold_still(b)) {
                go_on(w, had);
                return;
        }
        pv_tty_take(&b->tty);
        bool back = stop_with_group(b, sig);
        pv_boundary_thaw(b);
        if (back) {
                go_on(w, had || wants);
        } else { /* nobody is left to resume it */
                b->told_to_end = true;
                pv_supervise_kill(b);
        }
}

static void take_control(struct watch *w)
{
        struct pv_message c;
        while (pv_message_receive(w->b->control, &c, MSG_DONTWAIT) > 0) {
                if (c.kind == PV_MESSAGE_STOPPED) {
                        command_stopped(w, c.value);
                } else if (c.kind == PV_MESSAGE_ENDED) {
                        w->ended = w->b->ended = true;
                        w->status = c.value;
                        w->left_behind = c.number > 0;
                        w->usage = c.usage;
                } else if (c.kind == PV_MESSAGE_EXEC_ENDED) {
                        pv_exec_ended(w->b, c.number, c.value);
                }
        }
}

/* What a signal is to the command: from the terminal it is for the whole foreground group, from kill(2) for the one. */
static void pass_signal(struct pv_boundary *b, int sig, bool by_terminal)
{
        bool ends = sig == SIGTERM || sig == SIGHUP || (!by_terminal && (sig == SIGINT || sig == SIGQUIT));
        bool to_group = by_terminal || sig == SIGTSTP || sig == SIGHUP;
        b->told_to_end |= ends;
        (void)pv_message_send(b->control, to_group ? PV_MESSAGE_SIGNAL_GROUP : PV_MESSAGE_SIGNAL, sig);
        if (sig == SIGHUP) /* what is stopped would never learn of it; the kernel does the same (setpgid(2)) */
                (void)pv_message_send(b->control, PV_MESSAGE_SIGNAL_GROUP, SIGCONT);
}

void pv_boundary_signal(struct pv_boundary *b, int sig)
{
        if (sig == SIGKILL) {
                b->told_to_end = true;
                pv_supervise_kill(b);
        } else {
                pass_signal(b, sig, false);
        }
}

static void take_signal(struct watch *w, const struct signalfd_siginfo *si)
{
        int sig = (int)si->ssi_signo;
        switch (sig) {
        case SIGCHLD:
        case SIGTTIN:
        case SIGTTOU:
                return;
        case SIGCONT:
                if (w->stopped)
                        go_on(w, w->b->tty.given);
                return;
        default:
                pass_signal(w->b, sig, si->ssi_code > 0);
                return;
        }
}

static void take_signals(struct watch *w)
{
        struct signalfd_siginfo si;
        while (read(w->signals, &si, sizeof si) == sizeof si)
                take_signal(w, &si);
}

/* Milliseconds until something is due, -1 for never. */
static int due_in(const struct watch *w)
{
        uint64_t at = w->kill_at;
        if (!at && w->b->ending)
                return 0;
        if (!at && w->b->timeout_ms)
                at = w->b->started_ms + w->b->timeout_ms;
        if (!at)
                return -1;
        uint64_t now = pv_clock_monotonic_ms();
        if (now >= at)
                return 0;
        return at - now > 1000000 ? 1000000 : (int)(at - now);
}

static void time_is_up(struct watch *w)
{
        w->timed_out = true;
        if (!w->b->ending)
                pv_boundary_end(w->b, PV_END_TIMEOUT);
        if (w->kill_at) {
                pv_supervise_kill(w->b);
                w->kill_at += GRACE_MS;
                return;
        }
        w->kill_at = pv_clock_monotonic_ms() + GRACE_MS;
        (void)pv_message_send(w->b->control, PV_MESSAGE_SIGNAL_GROUP, SIGTERM);
        (void)pv_message_send(w->b->control, PV_MESSAGE_SIGNAL_GROUP, SIGCONT);
}

void pv_boundary_end(struct pv_boundary *b, enum pv_end why)
{
        if (b->ending)
                return;
        b->ending = true;
        b->end = why;
}

int pv_boundary_watch_add(struct pv_boundary *b, struct pv_boundary_watch *w)
{
        size_t i = 0;
        while (i < b->n_watches && b->watches[i])
                i++;
        if (i == PV_BOUNDARY_WATCHES)
                return -1;
        b->watches[i] = w;
        if (i == b->n_watches)
                b->n_watches++;
        return 0;
}

void pv_boundary_watch_remove(struct pv_boundary *b, struct pv_boundary_watch *w)
{
        for (size_t i = 0; i < b->n_watches; i++)
                if (b->watches[i] == w)
                        b->watches[i] = NULL;
        while (b->n_watches > 0 && !b->watches[b->n_watches - 1])
                b->n_watches--;
}

/* What the boundary itself polls for; the caller's descriptors lie behind, each at its watch's place. */
enum { POLL_INIT, POLL_CONTROL, POLL_SIGNALS, POLL_OWN };

static size_t fill_watches(const struct pv_boundary *b, struct pollfd *p)
{
        for (size_t i = 0; i < b->n_watches; i++) {
                const struct pv_boundary_watch *w = b->watches[i];
                p[i] = (struct pollfd){ .fd = w ? w->fd : -1, .events = w ? w->events : 0 };
        }
        return b->n_watches;
}

/* A watch that another one of this turn removed is not called: its place is empty, or has another descriptor. */
static void serve_watches(struct pv_boundary *b, const struct pollfd *p, size_t n)
{
        for (size_t i = 0; i < n && i < b->n_watches; i++) {
                struct pv_boundary_watch *w = b->watches[i];
                if (p[i].revents && w && w->fd == p[i].fd)
                        w->ready(w, p[i].revents);
        }
}

/* Until all of the sandbox are dead, but for init. */
static int watch(struct watch *w, struct pv_err *err)
{
        struct pollfd p[POLL_OWN + PV_BOUNDARY_WATCHES];
        p[POLL_INIT] = (struct pollfd){ .fd = w->b->init_pidfd, .events = POLLIN };
        p[POLL_CONTROL] = (struct pollfd){ .fd = w->b->control, .events = POLLIN };
        p[POLL_SIGNALS] = (struct pollfd){ .fd = w->signals, .events = POLLIN };
        for (;;) {
                size_t watches = fill_watches(w->b, p + POLL_OWN);
                int n = poll(p, POLL_OWN + watches, due_in(w));
                if (n < 0 && errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "watch the command");
                if (n < 0)
                        continue;
                if (p[POLL_SIGNALS].revents)
                        take_signals(w);
                if (p[POLL_CONTROL].revents)
                        take_control(w);
                if (p[POLL_CONTROL].revents & POLLHUP)
                        p[POLL_CONTROL].fd = -1; /* init is ending; its pidfd will tell */
                if (w->ended || p[POLL_INIT].revents)
                        return 0;
                serve_watches(w->b, p + POLL_OWN, watches);
                if (due_in(w) == 0)
                        time_is_up(w);
        }
}

static void fill_exit(const struct watch *w, struct pv_exit *out)
{
        int status = w->ended ? w->status : SIGKILL; /* init was killed before the command ended */
        if (WIFEXITED(status)) {
                out->end = PV_END_EXITED;
                out->code = WEXITSTATUS(status);
        } else {
                out->end = w->b->told_to_end || !w->ended ? PV_END_KILLED : PV_END_SIGNALED;
                out->code = WTERMSIG(status);
        }
        if (w->timed_out)
                out->end = w->b->end;
}

/* Was it cut short, or something of it? A shell tells how what it ran died by 128 and the signal. */
static bool is_cut_short(const struct watch *w, const struct pv_exit *end)
{
        return end->end != PV_END_EXITED || w->left_behind || (end->code > 128 && end->code < 128 + NSIG);
}

/*
 * The rest of our group (a script that called us, the other ends of a pipeline) did not see the Ctrl-C that the
 * command died of, since the terminal was the command's alone.
 */
static void pass_on_interrupt(const struct watch *w, bool had_terminal, struct pv_exit *out)
{
        if (!had_terminal || !w->ended || !WIFSIGNALED(w->status) || w->b->told_to_end)
                return;
        int sig = WTERMSIG(w->status);
        out->by_key = sig == SIGINT || sig == SIGQUIT;
        if (out->by_key)
                (void)kill(0, sig);
}

bool pv_boundary_outlasts(const struct pv_boundary *b, int ms)
{
        struct pollfd p[] = { { .fd = b->init_pidfd, .events = POLLIN }, { .fd = b->control, .events = POLLIN } };
        struct pv_message m;
        if (poll(p, 2, ms) <= 0)
                return true;
        if (p[0].revents || p[1].revents & POLLHUP)
                return false;
        return pv_message_receive(b->control, &m, MSG_DONTWAIT | MSG_PEEK) <= 0 || m.kind != PV_MESSAGE_ENDED;
}

static int reap_init(struct pv_boundary *b, struct rusage *usage, struct pv_err *err)
{
        while (wait4(b->init, NULL, 0, usage) < 0)
                if (errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "reap the sandbox's init");
        b->init = 0;
        return 0;
}

int pv_boundary_wait(struct pv_boundary *b, struct pv_exit *out, struct pv_err *err)
{
        sigset_t set;
        struct watch w = { .b = b, .signals = -1 };
        pv_supervise_signals(&set);
        pv_auto_fd sfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (sfd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "signalfd");
        w.signals = sfd;
        if (watch(&w, err) < 0)
                return -1;
        take_control(&w);
        bool had_terminal = b->tty.given;
        pv_tty_take(&b->tty);
        *out = (struct pv_exit){ .started_ms = b->started_ms, .ended_ms = pv_clock_monotonic_ms() };
        out->usage = w.usage;
        fill_exit(&w, out);
        if (had_terminal && is_cut_short(&w, out))
                pv_tty_restore_settings(&b->tty);
        if (!w.ended && reap_init(b, &out->usage, err) < 0)
                return -1;
        pass_on_interrupt(&w, had_terminal, out);
        return 0;
}
