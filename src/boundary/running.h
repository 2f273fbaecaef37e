/* SPDX-License-Identifier: Apache-2.0 */
/* A running boundary as the supervisor holds it: made by launch.c, watched by supervise.c. */
#ifndef PV_BOUNDARY_RUNNING_H
#define PV_BOUNDARY_RUNNING_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>
#include "boundary/boundary.h"
#include "boundary/cgroup.h"
#include "boundary/stdfds.h"
#include "boundary/tty.h"

/* One a command; those of commands that left something behind live on. */
#define PV_BOUNDARY_HELPERS 64

struct pv_boundary {
        pid_t init; /* host pid of the sandbox's init; 0 once reaped */
        int init_pidfd;
        int control;  /* report.h */
        bool ambient; /* no namespaces: init sweeps up the command's processes, and must live to do it */
        struct pv_tty tty;
        struct pv_stdio_flags stdio; /* as they were */
        struct pv_cgroup *cgroup;    /* or NULL */
        sigset_t old_mask;           /* of the caller, given back when the boundary is freed */
        sigset_t command_mask;       /* the command's */
        uint64_t timeout_ms, started_ms;
        int net[PV_BOUNDARY_NET_FDS]; /* of pv_boundary_network, or -1 */
        int *views;                   /* n_views descriptors or -1, and what is held besides (mounts.h) */
        size_t n_views;
        struct pv_boundary_watch *watches[PV_BOUNDARY_WATCHES]; /* NULL: a free place */
        size_t n_watches;                                       /* places used or freed */
        int helper[PV_BOUNDARY_HELPERS];                        /* pidfds of the rename helpers, or -1 */
        struct pv_exec *exec[PV_BOUNDARY_EXECS];                /* further commands; NULL: free */
        unsigned execs;                                         /* how many there were */
        bool ended;                                             /* the command has: init takes no further one */
        unsigned canary_kinds;                                  /* of those that a further command's probes try */
        char *canary_parent;                                    /* or NULL */
        struct pv_freezing *freezer;                            /* NULL: not frozen */
        bool ending;                                            /* by pv_boundary_end(), as `end` */
        enum pv_end end;
        bool told_to_end; /* the end is somebody's wish, not the command's */
};

/* Takes the pidfd of another rename helper: the freezer spares it. */
void pv_boundary_add_helper(struct pv_boundary *b, int pidfd);

/* The signals that the supervisor takes while a boundary runs; blocked from pv_boundary_start() to the end. */
void pv_supervise_signals(sigset_t *set);

/* Ends the run at once: with pid 1 all die; an ambient init kills the command and sweeps. */
void pv_supervise_kill(struct pv_boundary *b);

#endif
