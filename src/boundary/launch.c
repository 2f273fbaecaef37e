/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/boundary.h"

#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/syscall.h"
#include "boundary/command.h"
#include "boundary/init.h"
#include "boundary/mountinfo.h"
#include "boundary/mounts.h"
#include "boundary/report.h"
#include "boundary/root.h"
#include "boundary/running.h"
#include "boundary/userns.h"

/* What start prepares and the sandbox side inherits by fork. */
struct launch {
        const struct pv_boundary_spec *spec;
        struct pv_boundary *b;
        struct pv_observations *obs;
        struct pv_view view;
        struct pv_idmap ids;
        int namespaces; /* CLONE_NEW* flags; 0: ambient */
        int report[2], control[2];
};

static int namespaces_of(const struct pv_plan *p)
{
        bool sandbox = p->filesystem == PV_FS_SANDBOX;
        if (!sandbox && p->n_roots == 0 && p->net == PV_NET_AMBIENT)
                return 0;
        return CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
               (sandbox ? CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP : 0) |
               (p->net == PV_NET_DENY_ALL ? CLONE_NEWNET : 0);
}

/* fork(2) with flags; a pidfd where asked for. */
static pid_t fork_with(int flags, int *pidfd)
{
        return (pid_t)syscall(SYS_clone, (unsigned long)(flags | SIGCHLD | (pidfd ? CLONE_PIDFD : 0)), NULL, pidfd,
                              NULL, 0UL);
}

/* ---- the launcher: becomes the command ---- */

static int place_stdio(const int stdio[3], struct pv_err *err)
{
        int high[3];
        for (int i = 0; i < 3; i++)
                if ((high[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 3)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "standard descriptor %d", i);
        for (int i = 0; i < 3; i++)
                if (dup2(high[i], i) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "standard descriptor %d", i);
        return 0;
}

static int launch_command(struct launch *l, int go, struct pv_err *err)
{
        const struct pv_plan *p = l->spec->plan;
        char c;
        if (go >= 0 && read(go, &c, 1) != 1)
                return pv_err_set(err, PV_ERR_SYS, 0, "the sandbox's init died");
        if (pv_tty_lead_group(&l->b->tty) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a process group");
        if (place_stdio(l->spec->stdio, err) < 0)
                return -1;
        if (chdir(p->cwd) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start in %s", p->cwd);
        if (dup2(l->report[1], 3) < 0 || fcntl(3, F_SETFD, FD_CLOEXEC) < 0 || pv_sys_close_range(4, ~0U, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "close what was inherited");
        l->report[1] = 3;
        pv_report_observations(3, l->obs);
        (void)sigprocmask(SIG_SETMASK, &l->b->old_mask, NULL);
        return pv_command_exec(p->argv, p->env.v, err);
}

/* ---- init: builds, then watches ---- */

static int raise_loopback(struct pv_err *err)
{
        struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        pv_auto_fd fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "raise the sandbox's loopback");
        return 0;
}

static int build(struct launch *l, struct pv_err *err)
{
        struct pv_control c;
        if (!l->namespaces)
                return prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "subreaper") : 0;
        if (pv_control_receive(l->control[1], &c, 0) <= 0)
                _exit(1);
        if ((l->namespaces & CLONE_NEWNET) && raise_loopback(err) < 0)
                return -1;
        struct pv_mounts_in in = {
                .view = &l->view,
                .overlays = l->spec->overlays,
                .n_overlays = l->spec->n_overlays,
                .scratch = l->spec->scratch,
        };
        if (pv_mounts_enter(&in, l->b->views, err) < 0)
                return -1;
        for (size_t i = 0; i < l->b->n_views; i++)
                if (l->b->views[i] >= 0)
                        pv_report_view(l->report[1], i, l->b->views[i]);
        return l->view.base == PV_VIEW_NEW_ROOT ? pv_mounts_verify(&l->view, err) : 0;
}

_Noreturn static void fail_child(const struct launch *l, const struct pv_err *err)
{
        pv_report_observations(l->report[1], l->obs);
        pv_report_error(l->report[1], err);
        _exit(1);
}

static pid_t fork_launcher(struct launch *l, struct pv_err *err)
{
        int go[2] = { -1, -1 };
        if (l->namespaces && pipe2(go, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "pipe");
        pid_t pid = fork_with(l->namespaces ? CLONE_NEWUSER : 0, NULL);
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start the launcher");
        if (pid == 0) {
                if (go[1] >= 0)
                        (void)close(go[1]);
                (void)launch_command(l, go[0], err);
                fail_child(l, err);
        }
        if (l->namespaces && (pv_idmap_write(&l->ids, pid, err) < 0 || write(go[1], "", 1) != 1))
                return -1;
        return pid;
}

_Noreturn static void init_main(struct launch *l)
{
        struct pv_err err = PV_ERR_INIT;
        sigset_t all;
        sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, NULL);
        (void)close(l->report[0]);
        (void)close(l->control[0]);
        if (pv_init_die_with_parent(l->control[1]) < 0)
                _exit(1);
        if (build(l, &err) < 0)
                fail_child(l, &err);
        pid_t command = fork_launcher(l, &err);
        if (command < 0)
                fail_child(l, &err);
        struct pv_init init = {
                .command = command, .control = 3, .tty = l->b->tty.fd >= 0 ? 4 : -1, .is_pid1 = l->namespaces != 0
        };
        if (dup2(l->control[1], 3) < 0)
                _exit(1);
        if (l->b->tty.fd >= 0)
                (void)dup2(l->b->tty.fd, 4);
        (void)pv_sys_close_range(5, ~0U, 0);
        (void)pv_sys_close_range(0, 2, 0);
        pv_init_run(&init);
}

/* ---- the supervisor ---- */

static int channel(int pair[2], struct pv_err *err)
{
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a channel");
        return 0;
}

static int prepare(struct launch *l, struct pv_err *err)
{
        const struct pv_plan *p = l->spec->plan;
        l->namespaces = namespaces_of(p);
        bool stdio_is_tty = l->spec->terminal && isatty(l->spec->stdio[1]);
        pv_tty_open(&l->b->tty, stdio_is_tty ? PV_TTY_STDIO : 0);
        if (channel(l->report, err) < 0 || channel(l->control, err) < 0)
                return -1;
        if (!l->namespaces)
                return 0;
        pv_auto_mountinfo mounts = { 0 };
        pv_auto_free char *tty = pv_tty_path(&l->b->tty, l->spec->stdio);
        if (pv_idmap_prepare(&l->ids, err) < 0 || pv_mountinfo_read(&mounts, err) < 0)
                return -1;
        return pv_root_view(p, &mounts, tty, &l->view, err);
}

static int start_init(struct launch *l, struct pv_err *err)
{
        struct pv_boundary *b = l->b;
        pid_t pid = fork_with(l->namespaces, &b->init_pidfd);
        if (pid < 0)
                return l->namespaces ? pv_userns_explain(errno, err)
                                     : pv_err_set(err, PV_ERR_SYS, errno, "start a process");
        if (pid == 0)
                init_main(l);
        b->init = pid;
        pv_fd_closep(&l->report[1]);
        pv_fd_closep(&l->control[1]);
        b->control = pv_fd_steal(&l->control[0]);
        if (l->namespaces && pv_idmap_write(&l->ids, pid, err) < 0)
                return -1;
        (void)pv_control_send(b->control, PV_CONTROL_GO, 0);
        return 0;
}

static int await_exec(struct launch *l, struct pv_err *err)
{
        struct pv_boundary *b = l->b;
        if (pv_report_collect(l->report[0], l->obs, b->views, b->n_views, err) < 0)
                return -1;
        b->started_ms = pv_clock_monotonic_ms();
        return 0;
}

int pv_boundary_start(const struct pv_boundary_spec *spec, struct pv_boundary **out, struct pv_observations *obs,
                      struct pv_err *err)
{
        struct pv_boundary *b = pv_calloc(1, sizeof *b);
        struct launch l = {
                .spec = spec,
                .b = b,
                .obs = obs,
                .report = { -1, -1 },
                .control = { -1, -1 },
        };
        sigset_t set;
        pv_supervise_signals(&set);
        (void)sigprocmask(SIG_BLOCK, &set, &b->old_mask);
        b->init_pidfd = b->control = b->tty.fd = -1;
        b->timeout_ms = spec->plan->limits.timeout_ms;
        b->n_views = spec->n_overlays;
        b->views = pv_calloc(b->n_views + 1, sizeof *b->views);
        for (size_t i = 0; i < b->n_views; i++)
                b->views[i] = -1;
        int r = prepare(&l, err);
        if (r == 0)
                r = start_init(&l, err);
        if (r == 0)
                r = await_exec(&l, err);
        for (int i = 0; i < 2; i++) {
                pv_fd_closep(&l.report[i]);
                pv_fd_closep(&l.control[i]);
        }
        pv_view_fini(&l.view);
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

pid_t pv_boundary_init_pid(const struct pv_boundary *b)
{
        return b->init;
}

void pv_boundary_free(struct pv_boundary *b)
{
        if (!b)
                return;
        pv_pid_killp(&b->init);
        pv_tty_take(&b->tty);
        pv_tty_close(&b->tty);
        pv_fd_closep(&b->init_pidfd);
        pv_fd_closep(&b->control);
        for (size_t i = 0; i < b->n_views; i++)
                pv_fd_closep(&b->views[i]);
        free(b->views);
        (void)sigprocmask(SIG_SETMASK, &b->old_mask, NULL);
        free(b);
}
