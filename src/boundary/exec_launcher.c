/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher of a further command: what comes before the road that it shares with the first one (launcher.c). */
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include "base/syscall.h"
#include "boundary/exec.h"
#include "boundary/launch.h"

/* Init lives without 0, 1 and 2: what came may lie there, where the command's own will. */
static int lift_fds(int *fds, struct pv_err *err)
{
        for (size_t i = 0; i < PV_MESSAGE_FDS; i++)
                if (fds[i] >= 0 && (fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "exec: keep a descriptor");
        return 0;
}

/* Takes what came with the order to its places. */
static void sort_fds(struct pv_exec_command *x, const int *fds)
{
        size_t n = PV_EXEC_STDIN;
        for (int i = 0; i < 3; i++)
                x->stdio[i] = x->order.given[i] ? fds[n++] : -1;
        struct pv_canary *c = &x->order.canary;
        bool has_process = c->supervisor_fd >= 0, has_dir = c->dir_fd >= 0;
        pv_canary_clear(c);
        c->supervisor_fd = has_process ? fds[n++] : -1;
        c->dir_fd = has_dir ? fds[n] : -1;
}

/*
 * A terminal of the view's own, where the command finds it by its name. What is at /dev/ptmx by now is not taken on
 * trust: only a terminal multiplexer knows the number of its slave.
 */
static int open_terminal(struct pv_launch *l, struct pv_exec_command *x, struct pv_err *err)
{
        unsigned number;
        int unlocked = 0;
        pv_auto_fd master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (master < 0 || ioctl(master, TIOCGPTN, &number) < 0 || ioctl(master, TIOCSPTLCK, &unlocked) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: a terminal");
        pv_auto_fd slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (slave < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: a terminal");
        (void)ioctl(master, TIOCSWINSZ, &x->order.size);
        for (int i = 0; i < 3; i++)
                if (x->stdio[i] < 0 && (x->stdio[i] = fcntl(slave, F_DUPFD_CLOEXEC, 3)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "exec: a terminal");
        return pv_report_terminal(l->report[1], master, err);
}

/* A terminal's type is that of the person who looks, not of the one who started the job. */
static void set_term(struct pv_plan *plan, const char *term)
{
        struct pv_strv env = { 0 };
        for (size_t i = 0; i < plan->env.n; i++)
                if (!pv_str_has_prefix(plan->env.v[i], "TERM="))
                        pv_strv_add(&env, plan->env.v[i]);
        pv_strv_take(&env, pv_strf("TERM=%s", term));
        plan->env = env;
}

/* The same plan and specification but for what was ordered; all of it is gone with the exec. */
static void adapt_plan(struct pv_launch *l, const struct pv_exec_command *x)
{
        struct pv_plan *plan = pv_calloc(1, sizeof *plan);
        struct pv_boundary_spec *spec = pv_calloc(1, sizeof *spec);
        *spec = *l->spec;
        *plan = *l->spec->plan;
        plan->argv = x->argv;
        if (x->term[0])
                set_term(plan, x->term);
        if (x->cwd[0] == '/' && chdir(x->cwd) == 0)
                plan->cwd = x->cwd;
        for (int i = 0; i < 3; i++)
                l->stdio[i] = x->stdio[i];
        spec->plan = plan;
        spec->terminal = false;
        l->spec = spec;
}

static int join(struct pv_launch *l, int userns, const int *fds, struct pv_err *err)
{
        static struct pv_exec_command x;
        if (l->namespaces && setns(userns, CLONE_NEWUSER) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: the command's user namespace");
        if (pv_exec_order_read(fds[PV_EXEC_ORDER], &x, err) < 0)
                return -1;
        sort_fds(&x, fds);
        if (setsid() < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "exec: a session");
        if (x.order.terminal && open_terminal(l, &x, err) < 0)
                return -1;
        for (int i = 0; i < 3; i++)
                if (x.stdio[i] < 0)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "exec: standard descriptor %d is missing", i);
        adapt_plan(l, &x);
        l->canary = x.order.canary;
        l->share = -1;
        l->further = true;
        return 0;
}

void pv_launcher_exec(struct pv_launch *l, int userns, int *fds)
{
        struct pv_err err = PV_ERR_INIT;
        (void)close(l->control[1]);
        bool lifted = lift_fds(fds, &err) == 0;
        l->report[1] = fds[PV_EXEC_REPORT];
        if (lifted && join(l, userns, fds, &err) == 0)
                pv_launcher_main(l, -1);
        pv_launch_fail(l, &err);
}
