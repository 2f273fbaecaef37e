/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last steps of the sequence that launch.c tells, in the process that becomes the command. Each step takes
 * something away, so their order is fixed by what the later ones still need:
 *
 *   terminal, descriptors, directory    need nothing
 *   no_new_privs                        before Landlock and the filter, which ask for it
 *   Landlock                            before the rename helper is forked: it works under the same rules
 *   rename helper                       before the capabilities go: it keeps one more than the command
 *   capabilities, scope                 the scope puts the helper out of the command's reach
 *   filter                              the helper must not be under the filter whose notifications it answers
 *   closing of descriptors              the listener is handed over by then
 *   limits                              last: what stands above must not meet the workload's limits
 *   probes                              in the finished sandbox
 */
#include "boundary/launch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include "base/syscall.h"
#include "boundary/caps.h"
#include "boundary/command.h"
#include "boundary/control.h"
#include "boundary/landlock.h"
#include "boundary/limits.h"
#include "boundary/observe.h"
#include "boundary/probe.h"
#include "boundary/report.h"
#include "boundary/seccomp.h"

/* The first of the descriptors that live until the exec; all close-on-exec. */
#define FD_REPORT 3

static int place_stdio(const struct pv_launch *l, struct pv_err *err)
{
        const int *instead = l->b->tty.instead;
        int high[3];
        for (int i = 0; i < 3; i++)
                if ((high[i] = fcntl(!l->further && instead[i] >= 0 ? instead[i] : l->stdio[i], F_DUPFD_CLOEXEC,
                                     FD_REPORT)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "standard descriptor %d", i);
        for (int i = 0; i < 3; i++)
                if (dup2(high[i], i) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "standard descriptor %d", i);
        return 0;
}

/* What is still needed moves to its fixed place, all else is closed. */
static int close_inherited(struct pv_launch *l, struct pv_err *err)
{
        int *const kept[] = { &l->report[1], &l->canary.dir_fd, &l->canary.supervisor_fd, &l->share };
        return pv_launch_keep(kept, sizeof kept / sizeof *kept, FD_REPORT, err);
}

static bool is_root(const struct pv_launch *l)
{
        return geteuid() == 0 && !l->ids.deny_setgroups;
}

/* The supervisor wants to tell the helper from the workload's processes. */
static int report_helper(const struct pv_launch *l, struct pv_err *err)
{
        pv_auto_fd helper = l->renames ? pv_rename_open_helper(&l->rename) : -1;
        return helper >= 0 ? pv_report_helper(l->report[1], helper, err) : 0;
}

/* What a namespaced run gets on top: capabilities, Landlock, system calls. */
static int raise_walls(struct pv_launch *l, struct pv_err *err)
{
        const struct pv_plan *p = l->spec->plan;
        enum pv_caps_keep keep = !is_root(l)                  ? PV_CAPS_NONE
                                 : pv_launch_allows_userns(p) ? PV_CAPS_ROOT_FILES | PV_CAPS_MAP_ROOT
                                                              : PV_CAPS_ROOT_FILES;
        int listener = -1;
        if (pv_caps_no_new_privs(l->obs, err) < 0)
                return -1;
        if (l->view.base == PV_VIEW_NEW_ROOT && !p->allow_userns &&
            pv_landlock_confine(&l->view, PV_LANDLOCK_SCOPE_ABSTRACT, l->obs, err) < 0)
                return -1;
        if (l->renames && pv_rename_fork(&l->rename, keep, err) < 0)
                return -1;
        if (report_helper(l, err) < 0)
                return -1;
        if (pv_caps_drop(keep, l->obs, err) < 0 || (!p->allow_userns && pv_landlock_scope_processes(l->obs, err) < 0))
                return -1;
        unsigned options = (pv_launch_allows_userns(p) ? PV_SECCOMP_ALLOW_USERNS : 0) |
                           (p->safe ? PV_SECCOMP_NO_IO_URING : 0) | (l->renames ? PV_SECCOMP_RENAME : 0);
        if (pv_seccomp_install(options, &listener, l->obs, err) < 0)
                return -1;
        return l->renames ? pv_rename_hand_over(&l->rename, listener, err) : 0;
}

static int apply_limits(struct pv_launch *l, struct pv_err *err)
{
        unsigned flags = (pv_limits_is_hosts_root() ? PV_LIMITS_ROOT : 0) |
                         (l->namespaces ? PV_LIMITS_NO_CORE : PV_LIMITS_AMBIENT);
        return pv_limits_apply(&l->spec->plan->limits, &l->cgroup, l->pid_max, flags, l->obs, err);
}

static int got_through(const struct pv_observation *o, const struct pv_probe *probe, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s cannot be enforced here: %s: %s got through",
                         pv_dimension_title(o->dimension), o->control, probe->attempted);
        if (pv_streq(probe->name, PV_PROBE_REOPEN))
                return pv_err_hint(err, "pass the input through a pipe: cat FILE | pvisor ...");
        return -1;
}

/*
 * Refuses the run when a required dimension is not enforced, when a probe got through one that should hold, or when
 * nothing at all holds the processes that it was to be limited to.
 */
static int check_required(const struct pv_launch *l, struct pv_err *err)
{
        const struct pv_plan *p = l->spec->plan;
        if (l->spec->skip_probes || l->spec->survey)
                return 0;
        const struct pv_observation *processes = pv_observations_find(l->obs, PV_DIM_RESOURCES, PV_LIMIT_PROCESSES);
        if (processes && !processes->installed && l->namespaces && !l->further)
                return pv_limits_refuse_processes(err);
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                if (!p->required[d] || pv_observations_level(l->obs, (enum pv_dimension)d) == PV_LEVEL_ENFORCED)
                        continue;
                for (unsigned i = 0; i < l->obs->n; i++) {
                        const struct pv_observation *o = &l->obs->item[i];
                        for (unsigned k = 0; (int)o->dimension == d && k < o->n_probes; k++)
                                if (o->probes[k].outcome == PV_OUTCOME_SUCCEEDED)
                                        return got_through(o, &o->probes[k], err);
                }
                /* Of a further command's controls some were probed by the first and are not again. */
                if (!l->further) {
                        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s cannot be enforced here",
                                         pv_dimension_title((enum pv_dimension)d));
                        return pv_err_hint(err, "`pvisor doctor` says what this machine would need for it");
                }
        }
        return 0;
}

static char *const *environment(const struct pv_launch *l)
{
        static char *const none[] = { NULL };
        const struct pv_boundary_network *n = l->spec->network;
        struct pv_strv env = { 0 };
        if (!n || !n->adapt)
                return l->spec->plan->env.v ? l->spec->plan->env.v : none;
        for (size_t i = 0; i < l->spec->plan->env.n; i++)
                pv_strv_add(&env, l->spec->plan->env.v[i]);
        n->adapt(n->ctx, l->network, &env);
        return env.v ? env.v : none; /* gone with the exec */
}

static int become_command(struct pv_launch *l, int go, struct pv_err *err)
{
        const struct pv_plan *p = l->spec->plan;
        char byte;
        if (go >= 0 && read(go, &byte, 1) != 1)
                return pv_err_set(err, PV_ERR_SYS, 0, "the sandbox's init died");
        if (!l->namespaces && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "tie the command to its init");
        if (!l->further && pv_tty_lead_group(&l->b->tty) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a process group");
        if (place_stdio(l, err) < 0)
                return -1;
        if (chdir(p->cwd) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start in %s", p->cwd);
        if ((l->namespaces && raise_walls(l, err) < 0) || close_inherited(l, err) < 0)
                return -1;
        pv_observe_inheritance(l, l->obs);
        if (apply_limits(l, err) < 0)
                return -1;
        char share[32];
        (void)snprintf(share, sizeof share, "/proc/self/fd/%d", l->share);
        const struct pv_probe_spec probes = {
                .plan = p,
                .canary = &l->canary,
                .roots = l->roots,
                .stores = &l->view.absent,
                .share = l->share >= 0 ? share : NULL,
                .read_only = l->view.base == PV_VIEW_NEW_ROOT ? "/usr" : NULL,
                .share_fd = l->share,
                .cgroup = l->cgroup.dir,
                .keep_fd = FD_REPORT,
                .skip = l->spec->skip_probes,
        };
        pv_probe_run(&probes, l->obs);
        if (check_required(l, err) < 0)
                return -1;
        pv_report_observations(l->report[1], l->obs);
        (void)sigprocmask(SIG_SETMASK, &l->b->command_mask, NULL);
        return pv_command_exec(p->argv, environment(l), err);
}

void pv_launcher_main(struct pv_launch *l, int go)
{
        struct pv_err err = PV_ERR_INIT;
        (void)become_command(l, go, &err);
        pv_launch_fail(l, &err);
}
