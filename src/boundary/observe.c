/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/observe.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "boundary/control.h"

static struct pv_observation *add(struct pv_observations *obs, enum pv_dimension d, const char *control,
                                  const char *mechanism)
{
        static struct pv_observation spill; /* the table is sized for all; a full one loses the record, not the run */
        struct pv_observation *o = pv_observations_add(obs, d, control, mechanism);
        if (!o)
                return &spill;
        o->installed = true;
        return o;
}

/* Does something that was asked for show it, under whatever name? What is put over it at that place does not. */
static bool is_shown(const struct pv_view *view, const char *path, bool for_writing)
{
        for (size_t i = 0; i < view->n; i++) {
                const struct pv_view_step *s = &view->v[i];
                bool shows =
                        s->op == PV_VIEW_WRITE || (!for_writing && (s->op == PV_VIEW_READ || s->op == PV_VIEW_STAGE));
                if (!shows || !pv_path_is_within(path, s->src))
                        continue;
                size_t n = s->src[1] ? strlen(s->src) : 0; /* "/" */
                pv_auto_free char *there = pv_strf("%s%s", s->dst, path + n);
                if (pv_view_at(view, there) == s)
                        return true;
        }
        return false;
}

/* A mount that was asked for lets writes through to what is staged: then nothing keeps them in the stage. */
static bool is_passed_by(const struct pv_launch *l)
{
        const struct pv_plan *p = l->spec->plan;
        for (size_t i = 0; i < p->n_roots; i++)
                if (is_shown(&l->view, p->roots[i].target, true))
                        return true;
        return false;
}

/* A part of what is staged that was asked for to land at once. */
static void limit_staging(const struct pv_launch *l, struct pv_observation *o)
{
        const struct pv_plan *p = l->spec->plan;
        for (size_t i = 0; i < l->view.n; i++) {
                const struct pv_view_step *s = &l->view.v[i];
                for (size_t k = 0; s->op == PV_VIEW_WRITE && k < p->n_roots; k++) {
                        if (!pv_path_is_within(s->src, p->roots[k].target))
                                continue;
                        pv_auto_str text = { 0 };
                        pv_str_put_safe(&text, s->dst);
                        pv_str_put(&text, " is the host's own: what is written there is not staged.");
                        pv_observation_limit(o, text.s);
                }
        }
}

static void observe_stage(const struct pv_launch *l, struct pv_observations *obs)
{
        char mechanism[96];
        size_t n = l->spec->plan->n_roots;
        if (n == 0 || is_passed_by(l))
                return;
        size_t by_fuse = 0;
        for (size_t i = 0; i < l->job.n_overlays; i++)
                by_fuse += l->job.overlays[i].by_fuse ? 1 : 0;
        const char *what = by_fuse == 0 ? "overlayfs" : by_fuse == n ? "fuse overlay" : "overlayfs and fuse overlay";
        (void)snprintf(mechanism, sizeof mechanism, "%s over %zu director%s, upper layers in the stage", what, n,
                       n == 1 ? "y" : "ies");
        struct pv_observation *o = add(obs, PV_DIM_WORKSPACE_WRITES, PV_CONTROL_STAGE, mechanism);
        limit_staging(l, o);
        if (by_fuse)
                pv_observation_limit(o, "The fuse overlay is slower than overlayfs; files of other owners look like "
                                        "one's own in it.");
        if (l->view.base == PV_VIEW_HOST)
                pv_observation_limit(o, "The host's root is there beside it: a second path to the workspace (a bind "
                                        "mount, a hard link) is not staged.");
}

static void limit_writes(const struct pv_view *view, struct pv_observation *o)
{
        for (size_t i = 0; i < view->n; i++) {
                if (view->v[i].op != PV_VIEW_WRITE)
                        continue;
                pv_auto_str s = { 0 };
                pv_str_put_safe(&s, view->v[i].dst);
                pv_str_put(&s, " is the host's own: writes, sockets and FIFOs there are real.");
                pv_observation_limit(o, s.s);
        }
}

static bool shows_shares(const struct pv_view *view)
{
        for (size_t i = 0; i < view->n; i++)
                if (view->v[i].op == PV_VIEW_READ)
                        return true;
        return false;
}

static void observe_root(const struct pv_launch *l, struct pv_observations *obs)
{
        static const char root[] = "mount namespace with a root of its own; no other host path exists in it";
        if (l->view.base != PV_VIEW_NEW_ROOT)
                return;
        if (l->spec->plan->n_roots > 0 && !is_passed_by(l))
                (void)add(obs, PV_DIM_WORKSPACE_WRITES, PV_CONTROL_ROOT, root);
        limit_writes(&l->view, add(obs, PV_DIM_HOST_WRITES, PV_CONTROL_ROOT, root));
        (void)add(obs, PV_DIM_READS, PV_CONTROL_ROOT, root);
        (void)add(obs, PV_DIM_HOST_WRITES, PV_CONTROL_RO, "read-only mounts, each verified in the mount table");
        if (shows_shares(&l->view))
                (void)add(obs, PV_DIM_HOST_WRITES, PV_CONTROL_SHARES,
                          "read mounts are overlays without an upper layer");
        (void)add(obs, PV_DIM_HOST_WRITES, PV_CONTROL_PROC,
                  "proc of the pid namespace, its machine-wide parts read-only");
}

static bool keeps_caches(const struct pv_launch *l)
{
        for (size_t i = 0; i < l->view.n; i++)
                if (l->view.v[i].op == PV_VIEW_CACHE)
                        return l->job.caches && !l->caches_lost;
        return false;
}

/* Where HOME is the workspace's, or was asked for without --safe, nothing keeps credential stores out of sight. */
static void observe_home(const struct pv_launch *l, struct pv_observations *obs)
{
        const struct pv_plan *p = l->spec->plan;
        char mechanism[96];
        if (l->view.base != PV_VIEW_NEW_ROOT || p->home_mode == PV_HOME_HOST ||
            (p->home_mode == PV_HOME_EMPTY && !p->safe && is_shown(&l->view, p->home, false)))
                return;
        if (p->home_mode == PV_HOME_COW)
                (void)snprintf(mechanism, sizeof mechanism, "a throw-away view of HOME, %zu credential stores hidden",
                               p->masks.n);
        else
                (void)snprintf(mechanism, sizeof mechanism, "HOME is a private empty directory");
        struct pv_observation *o = add(obs, PV_DIM_SENSITIVE_PATHS, PV_CONTROL_HOME, mechanism);
        if (p->n_state)
                pv_observation_limit(
                        o, "The agent's state is pVisor's own: all runs of the agent have it and can change it.");
        if (p->caches.n)
                pv_observation_limit(o, keeps_caches(l)
                                                ? "What is written to caches is there in later runs of this workspace."
                                                : "Caches are not kept: HOME has mounts below it, or the job store "
                                                  "takes no upper layer.");
}

static void observe_network(const struct pv_launch *l, struct pv_observations *obs)
{
        const struct pv_boundary_network_words *w = l->network;
        struct pv_observation *o =
                add(obs, PV_DIM_NETWORK, PV_CONTROL_NETNS,
                    w->mechanism[0] ? w->mechanism : "network namespace with a loopback of its own only");
        for (size_t i = 0; i < PV_BOUNDARY_NET_LIMITS && w->limit[i][0]; i++)
                pv_observation_limit(o, w->limit[i]);
}

static void observe_namespaces(const struct pv_launch *l, struct pv_observations *obs)
{
        if (l->network)
                observe_network(l, obs);
        if (l->namespaces & CLONE_NEWPID)
                (void)add(obs, PV_DIM_SUBPROCESSES, PV_CONTROL_PIDNS,
                          "pid namespace: dies as one with its first process and the supervisor");
        if (l->namespaces & CLONE_NEWIPC)
                (void)add(obs, PV_DIM_SUBPROCESSES, PV_CONTROL_IPCNS, "IPC namespace");
        if (l->namespaces & CLONE_NEWUSER)
                (void)add(obs, PV_DIM_SUBPROCESSES, PV_CONTROL_USERNS,
                          "two user namespaces; the inner one owns no other namespace");
}

/* A hole that was made on purpose is told as any other: as an attempt that succeeds. */
static void observe_services(const struct pv_launch *l, struct pv_observations *obs)
{
        const struct pv_plan *p = l->spec->plan;
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                struct pv_observation *o = NULL;
                for (size_t i = 0; i < p->n_services; i++) {
                        char attempted[sizeof o->probes[0].attempted];
                        if (!(p->services[i].opens & 1U << d))
                                continue;
                        if (!o)
                                o = add(obs, (enum pv_dimension)d, PV_CONTROL_SERVICE,
                                        "let in by the person (--i-know, --device)");
                        o->partial = true;
                        (void)snprintf(attempted, sizeof attempted, "%s, at %s", p->services[i].what,
                                       p->services[i].path);
                        pv_observation_probe(o, p->services[i].device ? "host-device" : "host-service", attempted,
                                             PV_OUTCOME_SUCCEEDED, 0);
                }
        }
}

void pv_observe_sandbox(const struct pv_launch *l, struct pv_observations *obs)
{
        observe_stage(l, obs);
        observe_root(l, obs);
        observe_home(l, obs);
        observe_namespaces(l, obs);
        observe_services(l, obs);
}

/* Nothing makes a program use it: there is no probe that could be refused. */
static void observe_proxy(struct pv_observations *obs)
{
        struct pv_observation *o = add(obs, PV_DIM_NETWORK, PV_CONTROL_PROXY, "HTTP proxy that the environment names");
        pv_observation_limit(o, "A program that does not use the proxy reaches the host's network as it is.");
        pv_observation_conclude(o, PV_LEVEL_COOPERATIVE);
}

/* Nothing keeps a pipe from being opened anew: Landlock is asked for files that have a path alone. */
static bool is_writable_pipe(int fd)
{
        struct stat st;
        char path[32];
        if (fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
                return false;
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        pv_auto_fd again = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        return again >= 0;
}

void pv_observe_inheritance(const struct pv_launch *l, struct pv_observations *obs)
{
        const struct pv_plan *p = l->spec->plan;
        if (p->net == PV_NET_PROXY)
                observe_proxy(obs);
        struct pv_observation *fds = add(obs, PV_DIM_CREDENTIALS, PV_CONTROL_FDS,
                                         "close_range(2): standard descriptors alone are inherited");
        if (is_writable_pipe(STDIN_FILENO))
                pv_observation_limit(fds, "Stdin is a pipe that the command can write to, too: who else reads it may "
                                          "read that.");
        if (p->filesystem == PV_FS_SANDBOX)
                (void)add(obs, PV_DIM_CREDENTIALS, PV_CONTROL_ENV, "variables by allow-list and --pass-env");
}
