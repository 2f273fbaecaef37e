/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/launch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include "base/syscall.h"
#include "boundary/init.h"
#include "boundary/job_order.h"
#include "boundary/limits.h"
#include "boundary/mounts.h"
#include "boundary/network.h"
#include "boundary/observe.h"
#include "boundary/report.h"

/* The first of the descriptors that init lives with. */
#define FD_CONTROL 3

/* What needs privilege over the namespaces themselves, by the sysctls of a proc that the command never sees. */
static int limit_namespaces(struct pv_launch *l, int sysctl, struct pv_err *err)
{
        const struct pv_plan *p = l->spec->plan;
        if (!pv_launch_allows_userns(p) && pv_userns_allow_one(sysctl, err) < 0)
                return -1;
        if (p->allow_userns && pv_userns_allow_no_cgroups(sysctl, err) < 0)
                return -1;
        pv_userns_leave_watches(sysctl);
        return pv_limits_apply_namespace(&p->limits, sysctl, &l->pid_max, err);
}

static bool shows_shares(const struct pv_view *view)
{
        for (size_t i = 0; i < view->n; i++)
                if (view->v[i].op == PV_VIEW_READ)
                        return true;
        return false;
}

/* Waits for what comes with the job; once. */
static int hear_of_job(struct pv_launch *l, struct pv_err *err)
{
        if (l->heard)
                return 0;
        if (pv_job_order_receive(l->control[1], l->spec, &l->job, &l->canary, err) < 0)
                return -1;
        for (int i = 0; i < 3; i++)
                l->stdio[i] = l->spec->stdio[i] >= 0 ? l->spec->stdio[i] : l->job.stdio[i];
        l->heard = true;
        return 0;
}

static const struct pv_mounts_job *await_job(void *ctx, struct pv_err *err)
{
        static struct pv_mounts_job job;
        struct pv_launch *l = ctx;
        if (hear_of_job(l, err) < 0)
                return NULL;
        job = (struct pv_mounts_job){
                .overlays = l->job.overlays,
                .n_overlays = l->job.n_overlays,
                .caches = l->job.caches,
                .scratch = l->job.scratch,
                .canary = l->canary.dir[0] && shows_shares(&l->view) ? l->canary.dir : NULL,
        };
        return &job;
}

static int build_view(struct pv_launch *l, int *sysctl, struct pv_err *err)
{
        const struct pv_mounts_in in = { .view = &l->view, .ids = &l->ids, .await_job = await_job, .ctx = l };
        struct pv_mounts_out out = {
                .staged = l->b->views, .sysctl = -1, .share = -1, .held = { [0 ... PV_MOUNTS_HELD - 1] = -1 }
        };
        int r = pv_mounts_enter(&in, &out, err);
        *sysctl = out.sysctl;
        l->share = out.share;
        l->caches_lost = out.caches_lost;
        if (r < 0)
                return -1;
        for (size_t i = 0; i < l->b->n_views; i++)
                if (l->b->views[i] >= 0 && pv_report_view(l->report[1], i, l->b->views[i], err) < 0)
                        return -1;
        for (size_t i = 0; i < PV_MOUNTS_HELD; i++)
                if (out.held[i] >= 0 && pv_report_view(l->report[1], l->b->n_views + i, out.held[i], err) < 0)
                        return -1;
        return l->view.base == PV_VIEW_NEW_ROOT ? pv_mounts_verify(&l->view, err) : 0;
}

static int build(struct pv_launch *l, struct pv_err *err)
{
        pv_auto_fd sysctl = -1;
        struct pv_message m;
        if (pv_message_receive(l->control[1], &m, 0) <= 0) /* the supervisor is gone */
                return pv_err_set(err, PV_ERR_SYS, 0, "no supervisor");
        if (!l->namespaces)
                return prctl(PR_SET_CHILD_SUBREAPER, 1) < 0
                               ? pv_err_set(err, PV_ERR_SYS, errno, "become the reaper of the command's processes")
                               : hear_of_job(l, err);
        if (build_view(l, &sysctl, err) < 0 || limit_namespaces(l, sysctl, err) < 0 ||
            (l->network && (hear_of_job(l, err) < 0 || pv_network_enter(l, err) < 0)))
                return -1;
        pv_observe_sandbox(l, l->obs);
        return 0;
}

/* Further commands will join it. */
static int open_userns(pid_t pid, int *out, struct pv_err *err)
{
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
        *out = open(path, O_RDONLY | O_CLOEXEC);
        return *out < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "the launcher's user namespace") : 0;
}

static int start_launcher(struct pv_launch *l, pid_t *out, int *userns, struct pv_err *err)
{
        int go[2] = { -1, -1 };
        if (l->namespaces && pipe2(go, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a pipe");
        if (l->renames && pv_rename_prepare(&l->rename, err) < 0)
                return -1;
        pid_t pid = pv_launch_fork(l->namespaces ? CLONE_NEWUSER : 0, NULL);
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start the launcher");
        if (pid == 0) {
                if (go[1] >= 0)
                        (void)close(go[1]);
                pv_launcher_main(l, go[0]);
        }
        *out = pid;
        if (!l->namespaces)
                return 0;
        if (pv_idmap_write(&l->ids, pid, err) < 0 || open_userns(pid, userns, err) < 0)
                return -1;
        return write(go[1], "", 1) == 1 ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "wake the launcher");
}

/*
 * Nothing is left to init but the control channel, the terminal, where the rename helper's listener waits, the
 * command's user namespace, and the right over its children that it has as the maker of that. It also keeps the
 * probes' share: the last to close that waits for RCU, which must not be the launcher's exec.
 */
static int shed(struct pv_launch *l, int *userns, struct pv_err *err)
{
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct none[2] = { { 0 } };
        int *const kept[] = { &l->control[1], &l->b->tty.fd, &l->rename.to_init[1], userns, &l->share };
        if (pv_launch_keep(kept, sizeof kept / sizeof *kept, FD_CONTROL, err) < 0)
                return -1;
        l->rename.to_init[0] = -1; /* the launcher's; closed here, and its number another one's by now */
        if (pv_sys_close_range(0, 2, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "close what was inherited");
        if (l->namespaces && (syscall(SYS_capset, &head, none) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0))
                return pv_err_set(err, PV_ERR_SYS, errno, "drop init's capabilities");
        return 0;
}

void pv_launch_fail(const struct pv_launch *l, const struct pv_err *err)
{
        pv_report_observations(l->report[1], l->obs);
        pv_report_error(l->report[1], err);
        _exit(1);
}

void pv_sandbox_main(struct pv_launch *l)
{
        static struct pv_observations observations; /* large, and most of it is never touched */
        struct pv_err err = PV_ERR_INIT;
        pid_t command = -1;
        int userns = -1;
        (void)close(l->report[0]);
        (void)close(l->control[0]);
        l->obs = &observations;
        if (l->namespaces && pv_init_die_with_parent(l->control[1]) < 0)
                _exit(1);
        if (build(l, &err) < 0 || start_launcher(l, &command, &userns, &err) < 0)
                pv_launch_fail(l, &err);
        if (shed(l, &userns, &err) < 0) /* the launcher has the report: without init it ends, and that is seen */
                _exit(1);
        const struct pv_init init = {
                .command = command,
                .control = l->control[1],
                .tty = l->b->tty.fd,
                .userns = userns,
                .is_pid1 = l->namespaces != 0,
                .rename = &l->rename,
                .launch = l,
        };
        pv_init_run(&init);
}
