/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the supervisor prepares and the sandbox side inherits by fork. The three actors of a launch are launch.c (the
 * supervisor), sandbox.c (pid 1 while it builds) and launcher.c (what becomes the command).
 */
#ifndef PV_BOUNDARY_LAUNCH_H
#define PV_BOUNDARY_LAUNCH_H

#include "boundary/boundary.h"
#include "boundary/canary.h"
#include "boundary/cgroup.h"
#include "boundary/probe.h"
#include "boundary/rename.h"
#include "boundary/running.h"
#include "boundary/userns.h"
#include "boundary/view.h"

struct pv_launch {
        struct pv_boundary_spec given;
        const struct pv_boundary_spec *spec; /* that, or another command's (exec.h) */
        struct pv_boundary *b;
        struct pv_err failure;       /* of the beginning */
        struct pv_observations *obs; /* each process fills its own copy and reports it */
        struct pv_view view;
        struct pv_idmap ids;
        int namespaces; /* CLONE_NEW* flags, of those that pid 1 is born in; 0: ambient */
        bool renames;   /* something staged or copied on write: directories may need the rename helper */
        struct pv_canary canary;
        struct pv_cgroup_effect cgroup;
        struct pv_probe_identity *roots; /* of plan->roots[i].target, plan->n_roots of them */
        int report[2], control[2];       /* [0] the supervisor's end */
        /* How the network namespace is furnished: "" when it is empty. Shared; NULL: there is none. */
        struct pv_boundary_network_words *network;
        /* From here on filled by pid 1, for the launcher. */
        bool heard;                 /* of the job: */
        struct pv_boundary_job job; /* what it works with, and the canary's two descriptors */
        int stdio[3];               /* all of them */
        struct pv_rename rename;    /* when renames is set */
        int share;                  /* of pv_mounts_out */
        bool caches_lost;           /* the same */
        uint64_t pid_max;
        bool further; /* the launcher of another command, in a sandbox that runs (exec.h) */
};

/* fork(2) with CLONE_NEW* flags and, where pidfd is not NULL, a pidfd. */
pid_t pv_launch_fork(int flags, int *pidfd);

/* In the child of the supervisor, all signals blocked. Builds the sandbox, starts the launcher, becomes init. */
_Noreturn void pv_sandbox_main(struct pv_launch *l);

/*
 * In the child of pid 1, which is in the inner user namespace already. Reads one byte from go (-1: need not) once its
 * ids are mapped, confines itself and executes the command; on failure reports and exits.
 */
_Noreturn void pv_launcher_main(struct pv_launch *l, int go);

/*
 * In a child of pid 1: the launcher of a further command. userns: the inner one (-1 in an ambient run). fds: the
 * order and what came with it, exec.h. l->rename is prepared where l->renames is set.
 */
_Noreturn void pv_launcher_exec(struct pv_launch *l, int userns, int *fds);

/* May the command make user namespaces of its own? Not in a sandbox, unless it was asked for. */
bool pv_launch_allows_userns(const struct pv_plan *plan);

/*
 * Moves these descriptors (-1: there is none, its place is closed) to first, first + 1, ..., close-on-exec, whatever
 * lies there now, and closes all behind them. Each *fds[i] becomes its new number.
 */
int pv_launch_keep(int *const fds[], size_t n, int first, struct pv_err *err);

/* Reports what is known and the failure, and exits: a child past its point of no return. */
_Noreturn void pv_launch_fail(const struct pv_launch *l, const struct pv_err *err);

#endif
