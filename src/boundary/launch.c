/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to run one command inside the boundary that a plan describes, to say truly which controls hold, and to leave
 * nothing running. Not its job: what the plan should be (policy/), what the stage holds (stage/), the record (job/).
 *
 * Actors. The supervisor (this process: the person's, in the host's namespaces, trusted) forks init, which becomes pid
 * 1 of the sandbox: trusted code, all capabilities in the outer user namespace and none outside it. Init builds the
 * sandbox, forks the launcher into the inner user namespace, and from then on only reaps. The launcher is trusted
 * until it executes the command; the command and all that comes of it are hostile.
 *
 *   supervisor                     init (pid 1)                      launcher
 *   view
 *   fork ------------------------> own namespaces
 *   cgroup, id maps
 *   GO --------------------------> mounts of the machine's own
 *   the caller makes the job       directories...
 *   canaries
 *   JOB -------------------------> ...and of the job's layers,
 *   the maker of the network       pivot_root, verify, namespace limits
 *                       <--views--
 *   NETWORK ---------------------> joins it
 *                                  fork ---------------------------> inner user namespace
 *                                  id maps, one byte --------------> group, terminal, descriptors, directory,
 *                                  closes all but control            capabilities, Landlock, filter, limits,
 *                                  and terminal; reaps               probes
 *                       <---------------observations, or one error--
 *                       <------------------------------end of file-- exec
 *   watches
 *
 * Two channels (report.h). What is said on the report channel before the exec is believed, and after the exec nobody
 * has it any more: it is close-on-exec in the launcher and init closed its copy. The control channel is held by
 * supervisor and init alone.
 *
 * Invariants. Nothing hostile runs before the last control is in: there is one exec, and a step that fails before it
 * ends the launcher. A step that confines, closes or verifies is never downgraded. All death runs downwards: init gets
 * SIGKILL when the supervisor dies (PR_SET_PDEATHSIG; it looks at the control channel for a supervisor that died
 * before that was set), and the kernel kills a pid namespace with its init. So whichever process is killed when, no
 * process of the sandbox remains.
 *
 * Ambient runs (nothing asked that needs a namespace) take the same road without namespaces: init is the subreaper
 * then. It must outlive the supervisor for a moment, to sweep up what the command left: it asks for no signal on its
 * parent's death, but watches the control channel.
 *
 * Init builds before there is a job (pv_boundary_begin), since making one takes as long as half of the view. Until it
 * has heard of the job it knows no path of it, so that a job's record can name init before that touches anything of the
 * job. A failure of the beginning is kept until pv_boundary_start(): what goes wrong with the job is said first, and
 * there is a record for what goes wrong with the boundary.
 *
 * Failure: the first child that fails reports one struct pv_err and exits; the supervisor finds that, or an end of
 * file without an exec (init is dead then), kills init and returns the error. Cleaning up is the kernel's: mounts,
 * namespaces and the scratch file system end with the last process, canaries and control group are removed here.
 *
 * Limits: with --filesystem host a process of another user (sudo) cannot be swept up; the terminal is the person's
 * own, so that the command may write to it what it wants.
 */
#include "boundary/launch.h"

#include <linux/magic.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/process.h"
#include "base/syscall.h"
#include "boundary/exec.h"
#include "boundary/job_order.h"
#include "boundary/network.h"
#include "boundary/landlock.h"
#include "boundary/mounts.h"
#include "base/mountinfo.h"
#include "boundary/report.h"
#include "boundary/root.h"
#include "boundary/stdfds.h"

pid_t pv_launch_fork(int flags, int *pidfd)
{
        return (pid_t)syscall(SYS_clone, (unsigned long)(flags | SIGCHLD | (pidfd ? CLONE_PIDFD : 0)), NULL, pidfd,
                              NULL, 0UL);
}

static int namespaces_of(const struct pv_plan *p)
{
        bool sandbox = p->filesystem == PV_FS_SANDBOX;
        if (!sandbox && p->n_roots == 0 && (p->net == PV_NET_AMBIENT || p->net == PV_NET_PROXY))
                return 0;
        return CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
               (sandbox ? CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP : 0);
}

int pv_launch_keep(int *const fds[], size_t n, int first, struct pv_err *err)
{
        int after = first + (int)n;
        for (size_t i = 0; i < n; i++) /* above all places first: one may lie in another's */
                if (*fds[i] >= 0 && (*fds[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, after)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "keep a descriptor");
        for (size_t i = 0; i < n; i++) {
                int place = first + (int)i;
                if (*fds[i] < 0)
                        (void)close(place);
                else if ((*fds[i] = dup3(*fds[i], place, O_CLOEXEC)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "keep a descriptor");
        }
        if (pv_sys_close_range((unsigned)after, ~0U, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "close what was inherited");
        return 0;
}

bool pv_launch_allows_userns(const struct pv_plan *plan)
{
        return plan->allow_userns || (plan->filesystem == PV_FS_HOST && !plan->safe && !plan->strict);
}

static int channel(int pair[2], struct pv_err *err)
{
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a channel");
        return 0;
}

/* Shown by its own path or another: a probe would find it, rightly. */
static bool is_shown(const struct pv_view *view, const char *path)
{
        for (size_t i = 0; i < view->n; i++) {
                const struct pv_view_step *s = &view->v[i];
                if (s->src && s->op != PV_VIEW_LINK && s->op != PV_VIEW_TEXT && pv_path_is_within(path, s->src))
                        return true;
        }
        return false;
}

/*
 * The canaries' directory lies in memory, where making and removing four inodes costs next to nothing, or else in the
 * job's own directory, which no view shows. A supervisor that is killed in these milliseconds leaves three empty files
 * behind, until another one sweeps them up.
 */
static int open_canary_paths(struct pv_launch *l, unsigned kinds, const char *own, struct pv_err *err)
{
        static const char memory[] = "/dev/shm";
        struct pv_err full = PV_ERR_INIT;
        struct statfs fs;
        if (statfs(memory, &fs) == 0 && fs.f_type == TMPFS_MAGIC && !is_shown(&l->view, memory) &&
            pv_canary_open(&l->canary, kinds, memory, &full) == 0) {
                l->b->canary_parent = pv_strdup(memory);
                return 0;
        }
        if (mkdir(own, 0700) < 0 && errno != EEXIST)
                return pv_err_set(err, PV_ERR_SYS, errno, "make directory %s", own);
        l->b->canary_parent = pv_strdup(own);
        return pv_canary_open(&l->canary, kinds, own, err);
}

/* scratch: the job's own directory; or NULL. */
static int open_canaries(struct pv_launch *l, const char *scratch, struct pv_err *err)
{
        unsigned kinds = 0;
        if (l->spec->skip_probes)
                return 0;
        if (l->network)
                kinds |= PV_CANARY_ABSTRACT | PV_CANARY_NETWORK;
        l->b->canary_kinds = kinds & PV_CANARY_ABSTRACT;
        if (l->view.base == PV_VIEW_NEW_ROOT && scratch) {
                kinds |= PV_CANARY_PATHS | PV_CANARY_ABSTRACT;
                l->b->canary_kinds = kinds & ~(unsigned)PV_CANARY_NETWORK;
                return open_canary_paths(l, kinds, scratch, err);
        }
        return pv_canary_open(&l->canary, kinds, NULL, err);
}

/* The targets as they are on the host: a probe compares them with what the view shows. */
static int identify_roots(struct pv_launch *l, struct pv_err *err)
{
        const struct pv_plan *p = l->spec->plan;
        l->roots = pv_calloc(p->n_roots + 1, sizeof *l->roots);
        for (size_t i = 0; i < p->n_roots; i++) {
                struct stat st;
                if (stat(p->roots[i].target, &st) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "look at %s", p->roots[i].target);
                l->roots[i] = (struct pv_probe_identity){ .dev = st.st_dev, .ino = st.st_ino };
        }
        return 0;
}

static bool has_layers(const struct pv_view *view)
{
        for (size_t i = 0; i < view->n; i++)
                if (view->v[i].op == PV_VIEW_STAGE || view->v[i].op == PV_VIEW_COW)
                        return true;
        return false;
}

static int prepare(struct pv_launch *l, struct pv_err *err)
{
        const struct pv_boundary_spec *s = l->spec;
        l->namespaces = namespaces_of(s->plan);
        l->b->ambient = l->namespaces == 0;
        unsigned tty_flags = (s->terminal && isatty(s->stdio[1]) ? PV_TTY_STDIO : 0) |
                             (s->plan->filesystem == PV_FS_SANDBOX ? PV_TTY_GUARDED : 0) |
                             (s->plan->allow_userns || pv_landlock_abi() < 1 ? PV_TTY_REOPENS : 0);
        if (l->namespaces && pv_stdio_check(s->plan, s->stdio, err) < 0)
                return -1;
        if (pv_tty_open(&l->b->tty, s->stdio, tty_flags, err) < 0 || channel(l->report, err) < 0 ||
            channel(l->control, err) < 0 || pv_cgroup_open(&s->plan->limits, &l->b->cgroup, err) < 0)
                return -1;
        l->cgroup = pv_cgroup_effect(l->b->cgroup);
        if (!l->namespaces)
                return 0;
        pv_auto_mountinfo mounts = { 0 };
        pv_auto_free char *tty = pv_tty_path(&l->b->tty, s->stdio);
        if (pv_idmap_prepare(&l->ids, err) < 0 || pv_mountinfo_read(&mounts, err) < 0 ||
            pv_root_view(s->plan, &mounts, tty, &l->view, err) < 0)
                return -1;
        l->renames = has_layers(&l->view);
        if (pv_network_is_apart(s->plan) && pv_network_prepare(l, err) < 0)
                return -1;
        return identify_roots(l, err);
}

/* Nothing that the terminal sends reaches the child, from its first instruction on. */
static pid_t fork_init(struct pv_launch *l)
{
        sigset_t all;
        sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, NULL);
        pid_t pid = pv_launch_fork(l->namespaces, &l->b->init_pidfd);
        if (pid == 0)
                pv_sandbox_main(l);
        int why = errno;
        (void)sigprocmask(SIG_SETMASK, &l->b->old_mask, NULL);
        errno = why;
        return pid;
}

static int start_init(struct pv_launch *l, struct pv_err *err)
{
        struct pv_boundary *b = l->b;
        pid_t pid = fork_init(l);
        if (pid < 0)
                return l->namespaces ? pv_userns_explain(errno, err)
                                     : pv_err_set(err, PV_ERR_SYS, errno, "start a process");
        b->init = pid;
        pv_fd_closep(&l->report[1]);
        pv_fd_closep(&l->control[1]);
        b->control = pv_fd_steal(&l->control[0]);
        if (b->cgroup && pv_cgroup_enter(b->cgroup, pid, err) < 0)
                return -1;
        if (l->namespaces && pv_idmap_write(&l->ids, pid, err) < 0)
                return -1;
        (void)pv_message_send(b->control, PV_MESSAGE_GO, 0);
        return 0;
}

/* What init waits for before it shows anything of the job's. */
static int tell_of_job(struct pv_launch *l, const struct pv_boundary_job *job, struct pv_err *err)
{
        if (l->namespaces && open_canaries(l, job->scratch, err) < 0)
                return -1;
        if (job->born)
                job->born(job->ctx, l->b->init);
        if (pv_job_order_send(l->b->control, job, &l->canary, err) < 0)
                return -1;
        return l->network ? pv_network_make(l, err) : 0;
}

/*
 * The end of the report with nobody left to report: init or the launcher was killed before the exec. After the
 * observations, the launcher's last words, it was the command's doing: that it never started must not be said.
 */
static int check_alive(const struct pv_launch *l, struct pv_err *err)
{
        const struct pv_boundary *b = l->b;
        struct pv_message m;
        int r = pv_message_receive(b->control, &m, MSG_DONTWAIT | MSG_PEEK);
        if (r == 0 && l->obs->n == 0)
                return pv_err_set(err, PV_ERR_SYS, 0, "the sandbox's init was killed while it was set up");
        return 0;
}

/* The signals that end a command which runs, and a start; one that the command finds blocked waits for it. */
static int open_ending_signals(const sigset_t *blocked)
{
        static const int signals[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT };
        sigset_t ending;
        sigemptyset(&ending);
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
                if (!pv_signal_is_ignored(signals[i]) && !(blocked && sigismember(blocked, signals[i])))
                        sigaddset(&ending, signals[i]);
        return signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * Waits for the next report. What would have ended a command that runs ends one that does not yet: a file system that
 * does not answer while the view is built must not hold the person.
 */
static int await_report(const struct pv_launch *l, int signals, struct pv_err *err)
{
        struct pollfd p[2] = { { .fd = l->report[0], .events = POLLIN }, { .fd = signals, .events = POLLIN } };
        while (poll(p, 2, -1) < 0)
                if (errno != EINTR)
                        return pv_err_set(err, PV_ERR_SYS, errno, "wait for the sandbox");
        /* A report may be the command's start: the signal is then the command's. */
        return p[0].revents ? 0 : pv_err_set(err, PV_ERR_SYS, EINTR, "set up the sandbox");
}

/*
 * The observations are the launcher's last word before the exec: from then on a signal is the command's, which may run
 * for a while before the end of the report comes (init has not closed its copy yet).
 */
static int collect_reports(struct pv_launch *l, const struct pv_report_sink *sink, struct pv_err *err)
{
        struct pv_err failure = PV_ERR_INIT;
        pv_auto_fd signals = open_ending_signals(l->given.mask);
        int r;
        do {
                if (sink->obs->n == 0 && await_report(l, signals, err) < 0)
                        return -1;
                r = pv_report_take(l->report[0], sink, 0, &failure);
        } while (r > 0);
        if (r < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read the launcher's report");
        if (failure.kind == PV_ERR_NONE)
                return 0;
        *err = failure;
        return -1;
}

static int await_exec(struct pv_launch *l, struct pv_err *err)
{
        struct pv_boundary *b = l->b;
        const struct pv_report_sink sink = {
                .obs = l->obs,
                .views = b->views,
                .n_views = b->n_views + PV_MOUNTS_HELD,
                .net = b->net,
                .helper = &b->helper[0],
        };
        if (collect_reports(l, &sink, err) < 0) {
                if (err->kind == PV_ERR_UNSUPPORTED && err->sys == EPERM && !err->hint[0])
                        (void)pv_userns_explain(EPERM, err);
                return -1;
        }
        b->started_ms = pv_clock_monotonic_ms();
        return check_alive(l, err);
}

static struct pv_boundary *new_boundary(const struct pv_boundary_spec *spec)
{
        struct pv_boundary *b = pv_calloc(1, sizeof *b);
        (void)sigprocmask(SIG_BLOCK, NULL, &b->old_mask);
        b->command_mask = spec->mask ? *spec->mask : b->old_mask;
        b->init_pidfd = b->control = -1;
        b->tty = (struct pv_tty)PV_TTY_INIT;
        pv_stdio_note_flags(&b->stdio);
        for (size_t i = 0; i < PV_BOUNDARY_HELPERS; i++)
                b->helper[i] = -1;
        b->timeout_ms = spec->plan->limits.timeout_ms;
        for (size_t i = 0; i < PV_BOUNDARY_NET_FDS; i++)
                b->net[i] = -1;
        b->n_views = spec->plan->n_roots;
        b->views = pv_calloc(b->n_views + PV_MOUNTS_HELD, sizeof *b->views);
        for (size_t i = 0; i < b->n_views + PV_MOUNTS_HELD; i++)
                b->views[i] = -1;
        return b;
}

static void launch_free(struct pv_launch *l)
{
        pv_canary_close(&l->canary);
        for (int i = 0; i < 2; i++) {
                pv_fd_closep(&l->report[i]);
                pv_fd_closep(&l->control[i]);
        }
        if (l->network)
                (void)munmap(l->network, sizeof *l->network);
        pv_view_fini(&l->view);
        free(l->roots);
        free(l);
}

struct pv_launch *pv_boundary_begin(const struct pv_boundary_spec *spec)
{
        struct pv_launch *l = pv_calloc(1, sizeof *l);
        *l = (struct pv_launch){
                .given = *spec,
                .spec = &l->given,
                .b = new_boundary(spec),
                .failure = PV_ERR_INIT,
                .canary = PV_CANARY_INIT,
                .report = { -1, -1 },
                .control = { -1, -1 },
                .share = -1,
                .rename = PV_RENAME_INIT,
        };
        if (prepare(l, &l->failure) == 0)
                (void)start_init(l, &l->failure);
        return l;
}

pid_t pv_boundary_begun_pid(const struct pv_launch *begun)
{
        return begun->b->init;
}

void pv_boundary_forget(struct pv_launch *begun)
{
        if (!begun)
                return;
        pv_boundary_free(begun->b);
        launch_free(begun);
}

/* The supervisor's signals are the run's from here on. */
static int finish(struct pv_launch *l, const struct pv_boundary_job *job, struct pv_err *err)
{
        sigset_t set;
        pv_supervise_signals(&set);
        (void)sigprocmask(SIG_BLOCK, &set, NULL);
        if (l->failure.kind != PV_ERR_NONE) {
                *err = l->failure;
                return -1;
        }
        return tell_of_job(l, job, err) < 0 ? -1 : await_exec(l, err);
}

int pv_boundary_start(struct pv_launch *begun, const struct pv_boundary_job *job, struct pv_boundary **out,
                      struct pv_observations *obs, struct pv_err *err)
{
        struct pv_boundary *b = begun->b;
        begun->obs = obs;
        int r = finish(begun, job, err);
        launch_free(begun);
        if (r < 0) {
                pv_boundary_free(b);
                return -1;
        }
        *out = b;
        return 0;
}

struct pv_pathfd pv_boundary_view(const struct pv_boundary *b, size_t i)
{
        return (struct pv_pathfd){ i < b->n_views ? b->views[i] : -1 };
}

int pv_boundary_take_net_fd(struct pv_boundary *b, size_t i)
{
        return i < PV_BOUNDARY_NET_FDS ? pv_fd_steal(&b->net[i]) : -1;
}

pid_t pv_boundary_init_pid(const struct pv_boundary *b)
{
        return b->init;
}

/* Losing the control channel, init kills and sweeps; it is another user's process at worst that outlasts that. */
static void end_ambient(struct pv_boundary *b)
{
        pv_fd_closep(&b->control);
        while (b->init > 0 && waitpid(b->init, NULL, 0) < 0 && errno == EINTR)
                ;
        b->init = 0;
}

static void close_views(struct pv_boundary *b, size_t n)
{
        for (size_t i = 0; i < n; i++)
                pv_fd_closep(&b->views[i]);
}

void pv_boundary_dissolve(struct pv_boundary *b)
{
        pv_tty_take(&b->tty);
        pv_tty_close(&b->tty);
        close_views(b, b->n_views); /* first: else it would be us who dissolves the overlays */
        pv_fd_closep(&b->control);
}

void pv_boundary_free(struct pv_boundary *b)
{
        if (!b)
                return;
        pv_boundary_thaw(b);
        pv_exec_fini(b);
        if (b->ambient)
                end_ambient(b);
        close_views(b, b->n_views + PV_MOUNTS_HELD); /* while init dissolves what is its own */
        pv_pid_killp(&b->init);
        pv_cgroup_free(b->cgroup);
        bool had_terminal = b->tty.given; /* until here: nobody waited for its end */
        pv_tty_take(&b->tty);
        if (had_terminal)
                pv_tty_restore_settings(&b->tty);
        pv_tty_close(&b->tty);
        if (!b->ambient)
                pv_stdio_restore_flags(&b->stdio);
        pv_fd_closep(&b->init_pidfd);
        pv_fd_closep(&b->control);
        for (size_t i = 0; i < PV_BOUNDARY_HELPERS; i++)
                pv_fd_closep(&b->helper[i]);
        free(b->canary_parent);
        for (size_t i = 0; i < PV_BOUNDARY_NET_FDS; i++)
                pv_fd_closep(&b->net[i]);
        free(b->views);
        (void)sigprocmask(SIG_SETMASK, &b->old_mask, NULL);
        free(b);
}
