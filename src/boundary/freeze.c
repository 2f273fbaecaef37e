/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: while a person decides on a job that runs, nothing of it may change a file; afterwards nothing of it may notice.
 * SIGSTOP and SIGCONT are noticed: a shell inside sees its children stop, a program with a handler for SIGCONT redraws,
 * what was stopped before would go on, and the sandbox's init would take it for a Ctrl-Z. A control group's freezer is
 * not noticed, but most runs have none, since moving into one costs them milliseconds.
 *
 * So the processes are held as a debugger holds them (ptrace(2): SEIZE and INTERRUPT, each thread), which no parent is
 * told of, leaves a stopped process stopped, and ends by itself when the holder dies. The holder is a process of its
 * own, the freezer, forked by the supervisor; its death, by whatever, is the thaw.
 *
 *   look: init's descendants, thread by thread, by /proc/PID/task/TID/children; each new one is seized
 *   wait: until each that is held has stopped; what it forked meanwhile is held from birth (PTRACE_O_TRACEFORK...)
 *   again, until two looks in a row find nothing new while all stand still
 *   report; reap what dies (SIGKILL works on the stopped); at the end of the channel: exit
 *
 * The rename helper and its workers are spared: a directory that they move by hand must get to its end, for the view's
 * sake and for that of the caller, which stops as soon as it is answered. So is init.
 *
 * A thread that waits for the kernel without being interruptible is waited for, but for the parent of a vfork(2): that
 * one cannot go on before its child does, which stands still.
 *
 * What is traced already (by a debugger inside), or on a host that lets nobody trace, is stopped by SIGSTOP and let go
 * on by SIGCONT; that is noticed, and does not end with a freezer that is killed. The frozen see interrupted system
 * calls as after any stop (signal(7)): some give EINTR, the most go on.
 *
 * Hostile are all that are held. They can evade for a moment, by forking behind the look; the looks are repeated for
 * that. The time for all is bounded.
 */
#include "boundary/freeze.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/syscall.h"

#define THREADS_MAX  (1U << 17)
#define VFORK_MS     2 /* what does not stop that long is looked at for why */
#define STABLE_LOOKS 2
#define MANY         32

enum hold {
        HOLD_ASKED = 1, /* seized, not seen to stop yet */
        HOLD_STOPPED,
        HOLD_SIGNALLED,   /* by SIGSTOP, the whole process */
        HOLD_WAS_STOPPED, /* cannot be traced, and stood still already */
        HOLD_GONE,
};

struct thread {
        pid_t tid; /* 0: free place */
        pid_t process;
        enum hold hold;
};

struct freezer {
        pid_t init;
        const pid_t *spared; /* 0 ends */
        int proc;            /* /proc */
        int signals;
        struct thread *table; /* open addressing; size is a power of two */
        size_t size, n;
        unsigned pending; /* HOLD_ASKED */
        bool found;       /* in this look */
        pid_t refuses;    /* 0: none */
        uint64_t deadline_ms;
};

static struct thread *find(struct freezer *f, pid_t tid)
{
        size_t i = (size_t)tid * 2654435761U & (f->size - 1);
        while (f->table[i].tid && f->table[i].tid != tid)
                i = (i + 1) & (f->size - 1);
        return &f->table[i];
}

static void grow(struct freezer *f)
{
        struct thread *old = f->table;
        size_t old_size = f->size;
        f->size = old_size ? old_size * 2 : 256;
        f->table = pv_calloc(f->size, sizeof *f->table);
        for (size_t i = 0; i < old_size; i++)
                if (old[i].tid)
                        *find(f, old[i].tid) = old[i];
        free(old);
}

static struct thread *add(struct freezer *f, pid_t tid, pid_t process)
{
        if (f->n * 2 >= f->size)
                grow(f);
        struct thread *t = find(f, tid);
        if (!t->tid) {
                *t = (struct thread){ .tid = tid, .process = process };
                f->n++;
        }
        return t;
}

static void set_hold(struct freezer *f, struct thread *t, enum hold hold)
{
        f->pending += (hold == HOLD_ASKED) - (t->hold == HOLD_ASKED);
        t->hold = hold;
}

/* Field 3 of /proc/PID/stat, proc(5); 0 when it is gone. */
static char state_of(const struct freezer *f, pid_t tid)
{
        char path[32], text[512];
        (void)snprintf(path, sizeof path, "%d/stat", (int)tid);
        pv_auto_fd fd = openat(f->proc, path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (n <= 0)
                return 0;
        text[n] = '\0';
        const char *p = strrchr(text, ')');
        return p && p[1] == ' ' ? p[2] : 0;
}

/* In vfork(2) or what is like it. It must be asked of the kernel by number: the state alone could be a slow disk's. */
static bool waits_for_child(const struct freezer *f, pid_t tid)
{
        static const long calls[] = {
#ifdef SYS_vfork
                SYS_vfork,
#endif
                SYS_clone, SYS_clone3
        };
        char path[32], text[64];
        if (state_of(f, tid) != 'D')
                return false;
        (void)snprintf(path, sizeof path, "%d/syscall", (int)tid);
        pv_auto_fd fd = openat(f->proc, path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (n <= 0)
                return false;
        text[n] = '\0';
        char *end;
        long number = strtol(text, &end, 10);
        for (size_t i = 0; end != text && i < sizeof calls / sizeof *calls; i++)
                if (number == calls[i])
                        return true;
        return false;
}

/* It cannot be traced: by signal then. */
static void stop_by_signal(struct freezer *f, struct thread *t)
{
        struct thread *leader = t->tid == t->process ? t : find(f, t->process);
        if (leader->tid && leader != t && leader->hold == HOLD_SIGNALLED) {
                set_hold(f, t, HOLD_WAS_STOPPED);
                return;
        }
        if (state_of(f, t->tid) == 'T') {
                set_hold(f, t, HOLD_WAS_STOPPED);
        } else if (kill(t->process, SIGSTOP) == 0) {
                set_hold(f, t, HOLD_SIGNALLED);
        } else {
                set_hold(f, t, HOLD_GONE);
                f->refuses = errno == ESRCH ? 0 : t->process; /* another user's, by sudo in an ambient run */
        }
}

static void hold(struct freezer *f, struct thread *t)
{
        const unsigned long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
        if (ptrace(PTRACE_SEIZE, t->tid, NULL, (void *)options) == 0) {
                (void)ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL);
                set_hold(f, t, HOLD_ASKED);
                f->found = true;
        } else if (errno == ESRCH || state_of(f, t->tid) == 'Z') {
                set_hold(f, t, HOLD_GONE);
        } else {
                stop_by_signal(f, t);
                f->found = true;
        }
}

struct pids {
        pid_t *v;
        size_t n;
};

static void pids_fini(struct pids *p)
{
        free(p->v);
}

static void pids_add(struct pids *p, pid_t pid)
{
        if ((p->n & (p->n - 1)) == 0)
                p->v = pv_realloc(p->v, p->n ? p->n * 2 : 1, sizeof *p->v);
        p->v[p->n++] = pid;
}

/* The children that one thread has made, or been given. */
static void list_children(const struct freezer *f, pid_t process, pid_t tid, struct pids *out)
{
        char path[64], text[4096];
        size_t kept = 0;
        ssize_t n;
        (void)snprintf(path, sizeof path, "%d/task/%d/children", (int)process, (int)tid);
        pv_auto_fd fd = openat(f->proc, path, O_RDONLY | O_CLOEXEC);
        while (fd >= 0 && out->n < THREADS_MAX && (n = read(fd, text + kept, sizeof text - 1 - kept)) > 0) {
                size_t len = kept + (size_t)n, from = 0;
                text[len] = '\0';
                for (char *end; (end = memchr(text + from, ' ', len - from)); from = (size_t)(end - text) + 1)
                        pids_add(out, (pid_t)strtol(text + from, NULL, 10));
                kept = len - from;
                memmove(text, text + from, kept);
        }
}

/* All threads of a process are held (unless it is init), and its children put on the list. */
static void look_at(struct freezer *f, pid_t process, struct pids *out)
{
        char path[32];
        (void)snprintf(path, sizeof path, "%d/task", (int)process);
        int fd = openat(f->proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_dir d = fd < 0 ? NULL : fdopendir(fd);
        for (struct dirent *e; d && f->n < THREADS_MAX && (e = readdir(d));) {
                pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);
                if (tid <= 0)
                        continue;
                if (process != f->init) {
                        struct thread *t = add(f, tid, process);
                        if (!t->hold || t->hold == HOLD_GONE) /* the number may be a newer one's */
                                hold(f, t);
                }
                list_children(f, process, tid, out);
        }
}

static bool is_spared(const struct freezer *f, pid_t process)
{
        for (const pid_t *p = f->spared; *p; p++)
                if (*p == process)
                        return true;
        return false;
}

static void look(struct freezer *f)
{
        __attribute__((cleanup(pids_fini))) struct pids list = { 0 };
        f->found = false;
        pids_add(&list, f->init);
        for (size_t i = 0; i < list.n && f->n < THREADS_MAX; i++)
                if (!is_spared(f, list.v[i]))
                        look_at(f, list.v[i], &list);
}

/* One change of a thread that is held. */
static void take_status(struct freezer *f, pid_t tid, int status)
{
        struct thread *t = add(f, tid, tid); /* new: a child that is held from birth */
        if (!WIFSTOPPED(status)) {
                set_hold(f, t, HOLD_GONE);
                return;
        }
        if (!t->hold) {
                (void)ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
                set_hold(f, t, HOLD_ASKED);
        }
        if (status >> 16) {
                set_hold(f, t, HOLD_STOPPED);
                return;
        }
        /* About to get a signal: it has to, else it were lost with us. Then it stops as it was asked. */
        if (ptrace(PTRACE_CONT, tid, NULL, (void *)(long)WSTOPSIG(status)) < 0)
                set_hold(f, t, HOLD_GONE);
}

/* Each wait for any of them goes through all of them: with thousands, one is asked for after the other. */
static void take_one_by_one(struct freezer *f)
{
        for (size_t i = 0, left = f->pending; left && i < f->size; i++) {
                int status;
                pid_t tid = f->table[i].tid;
                if (!tid || f->table[i].hold != HOLD_ASKED)
                        continue;
                left--;
                if (waitpid(tid, &status, __WALL | WNOHANG) == tid)
                        take_status(f, tid, status);
        }
}

static void take_changes(struct freezer *f)
{
        struct signalfd_siginfo si;
        int status;
        pid_t tid;
        while (read(f->signals, &si, sizeof si) == sizeof si)
                ;
        if (f->pending > MANY)
                take_one_by_one(f);
        while ((tid = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
                take_status(f, tid, status);
}

/* Parents of a vfork that stand still for that reason count as stopped. */
static void pass_over_vforks(struct freezer *f)
{
        for (size_t i = 0; f->pending && i < f->size; i++)
                if (f->table[i].tid && f->table[i].hold == HOLD_ASKED && waits_for_child(f, f->table[i].tid))
                        set_hold(f, &f->table[i], HOLD_STOPPED);
}

static int too_late(const struct freezer *f, struct pv_err *err)
{
        for (size_t i = 0; i < f->size; i++)
                if (f->table[i].tid && f->table[i].hold == HOLD_ASKED)
                        return pv_err_set(err, PV_ERR_BUSY, 0, "process %d does not stop", (int)f->table[i].tid);
        return pv_err_set(err, PV_ERR_BUSY, 0, "its processes do not stand still");
}

static int await_stops(struct freezer *f, struct pv_err *err)
{
        uint64_t look_closer = pv_clock_monotonic_ms() + VFORK_MS;
        for (;;) {
                take_changes(f);
                if (f->pending == 0)
                        return 0;
                uint64_t now = pv_clock_monotonic_ms();
                if (now >= f->deadline_ms)
                        return too_late(f, err);
                if (now >= look_closer) {
                        pass_over_vforks(f);
                        /* Looking at thousands takes the time that they need to stop. */
                        uint64_t took = pv_clock_monotonic_ms() - now;
                        look_closer = now + took + VFORK_MS + 8 * took;
                        if (f->pending == 0)
                                return 0;
                }
                struct pollfd p = { .fd = f->signals, .events = POLLIN };
                (void)poll(&p, 1, VFORK_MS);
        }
}

/* Those that are stopped by signal tell nobody. */
static bool signalled_stand_still(const struct freezer *f)
{
        for (size_t i = 0; i < f->size; i++) {
                const struct thread *t = &f->table[i];
                if (!t->tid || t->hold != HOLD_SIGNALLED)
                        continue;
                char state = state_of(f, t->tid);
                if (state && !strchr("TtZX", state) && !waits_for_child(f, t->tid))
                        return false;
        }
        return true;
}

static int freeze(struct freezer *f, struct pv_err *err)
{
        for (int stable = 0; stable < STABLE_LOOKS;) {
                look(f);
                bool changed = f->found;
                if (f->n >= THREADS_MAX)
                        return pv_err_set(err, PV_ERR_BUSY, 0, "it has more than %u threads", THREADS_MAX);
                if (f->refuses)
                        return pv_err_set(err, PV_ERR_SYS, EPERM, "process %d", (int)f->refuses);
                if (await_stops(f, err) < 0)
                        return -1;
                stable = changed ? 0 : stable + 1;
                if (stable >= STABLE_LOOKS && signalled_stand_still(f))
                        continue;
                /* Nobody waits for those that are stopped by signal: they may go on forking for ever. */
                if (pv_clock_monotonic_ms() >= f->deadline_ms)
                        return too_late(f, err);
                if (stable >= STABLE_LOOKS) {
                        (void)poll(NULL, 0, 1);
                        stable--;
                }
        }
        return 0;
}

static void thaw_signalled(const struct freezer *f)
{
        for (size_t i = 0; i < f->size; i++)
                if (f->table[i].tid && f->table[i].hold == HOLD_SIGNALLED)
                        (void)kill(f->table[i].process, SIGCONT);
}

static unsigned count_held(const struct freezer *f)
{
        unsigned n = 0;
        for (size_t i = 0; i < f->size; i++)
                n += f->table[i].tid && f->table[i].hold != HOLD_GONE;
        return n;
}

/* What dies has to be reaped here first, or init would wait for it. */
static void hold_until_closed(struct freezer *f, int channel)
{
        struct pollfd p[2] = { { .fd = channel, .events = POLLIN }, { .fd = f->signals, .events = POLLIN } };
        while (poll(p, 2, -1) >= 0 || errno == EINTR) {
                take_changes(f);
                if (p[0].revents)
                        return;
        }
}

void pv_freezer_main(pid_t init, const pid_t *spared, unsigned timeout_ms, int channel)
{
        struct freezer f = {
                .init = init,
                .spared = spared,
                .deadline_ms = pv_clock_monotonic_ms() + timeout_ms,
        };
        struct pv_freezer_report report = { .failure = PV_ERR_INIT };
        uint64_t start = pv_clock_monotonic_us();
        sigset_t chld, all;
        sigfillset(&all);
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        (void)sigprocmask(SIG_SETMASK, &all, NULL);
        (void)prctl(PR_SET_NAME, "pvisor-freezer", 0, 0, 0);
        f.signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
        f.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        grow(&f);
        if (f.signals < 0 || f.proc < 0)
                (void)pv_err_set(&report.failure, PV_ERR_SYS, errno, "freeze the job");
        else if (freeze(&f, &report.failure) < 0)
                (void)pv_err_wrap(&report.failure, "freeze the job");
        report.threads = count_held(&f);
        report.us = (unsigned)(pv_clock_monotonic_us() - start);
        bool failed = report.failure.kind != PV_ERR_NONE;
        if (failed)
                thaw_signalled(&f);
        if (send(channel, &report, sizeof report, MSG_NOSIGNAL) == sizeof report && !failed)
                hold_until_closed(&f, channel);
        if (!failed)
                thaw_signalled(&f);
        _exit(0);
}
