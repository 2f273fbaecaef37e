/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boundary on Linux: starts a command inside it and watches it end. The theory of operation heads launch.c.
 *
 * The caller is the trusted supervisor: single-threaded, in the host's namespaces, with the person's own rights (root
 * or not). Everything that is hostile starts behind the last control.
 */
#ifndef PV_BOUNDARY_BOUNDARY_H
#define PV_BOUNDARY_BOUNDARY_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include "base/err.h"
#include "base/path.h"
#include "evidence/observation.h"
#include "policy/plan.h"

/*
 * The inside of the network namespace of a PV_NET_RULES plan, which the caller furnishes: the boundary makes the
 * namespace and knows nothing of rules. Both functions run in processes of their own, trusted, before anything hostile:
 * the one has nothing of the other's memory but the words.
 */
#define PV_BOUNDARY_NET_FDS    64
#define PV_BOUNDARY_NET_LIMITS 2
/* What the observation says of it. */
struct pv_boundary_network_words {
        char mechanism[96];
        char limit[PV_BOUNDARY_NET_LIMITS][128]; /* sentences; "" ends */
        uint16_t proxy; /* the port inside of the proxy that the command has to be told of; 0: none */
};
struct pv_boundary_network {
        /*
         * In a process that ends afterwards, in the fresh namespace and the user namespace that owns it, otherwise in
         * the host's; may fork. Fills at most
         * PV_BOUNDARY_NET_FDS of fd[] (-1 before) with what the supervisor gets, and says how it is done in words
         * (zeroed before).
         */
        int (*enter)(void *ctx, int *fd, struct pv_boundary_network_words *words, struct pv_err *err);
        /* In the launcher: what the command's environment needs besides. */
        void (*adapt)(void *ctx, const struct pv_boundary_network_words *words, struct pv_strv *env);
        void *ctx;
};

/* What is known before there is a job; what is pointed at is borrowed until the start. */
struct pv_boundary_spec {
        const sigset_t *mask; /* of signals that the command finds blocked; NULL: the caller's */
        const struct pv_plan *plan;
        int stdio[3];  /* descriptors that become 0, 1, 2; borrowed; -1: comes with the job, and is no terminal */
        bool terminal; /* stdio[0] is the person's terminal: hand over its foreground group */
        const struct pv_boundary_network *network; /* of a PV_NET_RULES plan; else NULL */
        bool survey;                               /* `doctor`: to see how far it comes, rather than to be refused */
        bool skip_probes;                          /* `inspect`, contained git: probes are recorded as not run */
};

/* What comes with the job. */
struct pv_boundary_job {
        const struct pv_overlay *overlays; /* one a staged root, in the order of plan->roots */
        size_t n_overlays;
        const char *scratch; /* a directory of this job alone, made when it is needed (throw-away layers where tmpfs
                                lacks user xattrs); removed by the caller afterwards; NULL: there is none */
        int stdio[3];        /* where the specification has -1; borrowed */
        const struct pv_cache_layer *caches; /* of a plan with caches; NULL: they are as the rest of HOME */
        /* The sandbox's first process waits: nothing of it has seen anything of the job yet. NULL: nobody asks. */
        void (*born)(void *ctx, pid_t init);
        void *ctx; /* of born */
};

struct pv_launch;   /* a boundary that was begun: its first process builds, and waits to hear of the job; opaque */
struct pv_boundary; /* a running boundary; opaque */

/*
 * Begins to build the sandbox, beside the caller, who makes the job meanwhile. What goes wrong is said by
 * pv_boundary_start(). Changes nothing outside of itself but for a control group.
 */
struct pv_launch *pv_boundary_begin(const struct pv_boundary_spec *spec);

/* The host pid of its first process; 0: it did not come so far. */
pid_t pv_boundary_begun_pid(const struct pv_launch *begun);

/* Nothing came of the job. NULL is fine. */
void pv_boundary_forget(struct pv_launch *begun);

/*
 * Has the sandbox finished, every control installed, the probes run and the command exec'd. Takes begun, and returns
 * once the command was exec'd (the launcher's pipe closed on exec) with *out owned by the caller and obs filled, or
 * fails with nothing left running; obs is filled as far as known on failure too. An unsandboxed, unstaged plan
 * (ambient) goes through here too: nothing is installed but what the plan asks for, and obs says so.
 * PV_ERR_UNSUPPORTED: a required dimension is not enforced here (names it and the reason); PV_ERR_NOT_EXEC and
 * PV_ERR_NOT_FOUND: the command; PV_ERR_SYS: set-up failed.
 */
int pv_boundary_start(struct pv_launch *begun, const struct pv_boundary_job *job, struct pv_boundary **out,
                      struct pv_observations *obs, struct pv_err *err);

enum pv_end {
        PV_END_EXITED,
        PV_END_SIGNALED,
        PV_END_TIMEOUT,
        PV_END_KILLED,     /* by `pvisor kill` or because the supervisor was told to end */
        PV_END_STAGE_SIZE, /* its stage grew too large */
};

struct pv_exit {
        enum pv_end end;
        int code;    /* exit code, or the signal's number */
        bool by_key; /* a key of the terminal (Ctrl-C) sent the signal: shells want to see it in our own end, too */
        struct rusage usage;
        uint64_t started_ms, ended_ms; /* CLOCK_MONOTONIC */
};

/*
 * A descriptor of the caller's that is served while pv_boundary_wait() watches; what is said on it is none of the
 * boundary's business. Embedded in its owner.
 */
struct pv_boundary_watch {
        int fd;       /* -1: parked */
        short events; /* of poll(2); may be changed at any time */
        /*
         * Mustn't wait: the command's own signals and end are waiting meanwhile. May add and remove watches, itself
         * too.
         */
        void (*ready)(struct pv_boundary_watch *w, short revents);
};
#define PV_BOUNDARY_WATCHES 256
/* -1: there are PV_BOUNDARY_WATCHES already. */
int pv_boundary_watch_add(struct pv_boundary *b, struct pv_boundary_watch *w);
/* Not watched is silence. */
void pv_boundary_watch_remove(struct pv_boundary *b, struct pv_boundary_watch *w);

/* Sends a signal to the command as kill(2) of the supervisor would have; one that ends is noted as told to end. */
void pv_boundary_signal(struct pv_boundary *b, int sig);

/* A further command in the same boundary. */
struct pv_boundary_exec {
        char *const *argv;
        const char *cwd;     /* where it starts if the view has it, else where the job's own command did; or NULL */
        const char *term;    /* TERM for it; NULL: the job's */
        int stdio[3];        /* borrowed; -1: of a terminal that is made inside (with `terminal`) */
        bool terminal;       /* make one: its controlling terminal, which the view's /dev/pts has */
        struct winsize size; /* of that */
};
struct pv_boundary_exec_events {
        /*
         * It was exec'd: failure is NULL, terminal the master of its terminal (the callee's from now on) or -1. Else
         * what went wrong, as pv_boundary_start() would have said it; nothing follows then.
         */
        void (*started)(void *ctx, int terminal, const struct pv_err *failure);
        void (*ended)(void *ctx, int status); /* of wait(2) */
        /* Does who asked for it still wait? Asked before a command is started that a freeze had held up. */
        bool (*is_wanted)(void *ctx);
};
#define PV_BOUNDARY_EXECS 32 /* at a time */
/*
 * Joins the running boundary: same view, limits, walls, network and environment; every wall is raised anew for it, by
 * the launcher's own road, and probed. It dies with the job. events (static) are called within pv_boundary_wait(), none
 * when the job ends before. *number names it.
 */
int pv_boundary_exec(struct pv_boundary *b, const struct pv_boundary_exec *x,
                     const struct pv_boundary_exec_events *events, void *ctx, unsigned *number, struct pv_err *err);
/* To its process group. */
void pv_boundary_exec_signal(struct pv_boundary *b, unsigned number, int sig);
/* No more events of it. */
void pv_boundary_exec_forget(struct pv_boundary *b, unsigned number);

/* Ends the run as the time limit does (TERM, grace, KILL), and records it as this end. The first one counts. */
void pv_boundary_end(struct pv_boundary *b, enum pv_end why);

struct pv_boundary_frozen {
        unsigned threads; /* that stand still */
        unsigned us;      /* how long that took */
};
/* frozen is NULL on failure: nothing is frozen then. */
typedef void pv_boundary_frozen_fn(void *ctx, const struct pv_boundary_frozen *frozen, const struct pv_err *failure);
/*
 * Stops every process of the sandbox but pVisor's own, so that they do not notice afterwards; what was stopped stays
 * stopped. done is called once, within pv_boundary_wait(), when they stand still or did not after timeout_ms (not when
 * it is thawed before). PV_ERR_BUSY: it is frozen already.
 */
int pv_boundary_freeze(struct pv_boundary *b, unsigned timeout_ms, pv_boundary_frozen_fn *done, void *ctx,
                       struct pv_err *err);
/* Lets them go on. Not frozen is silence. */
void pv_boundary_thaw(struct pv_boundary *b);

/*
 * Watches until the command has ended and nothing of the sandbox lives any more: forwards signals, keeps the
 * terminal's foreground right (stop, continue), enforces the time limit (TERM, grace, KILL).
 */
int pv_boundary_wait(struct pv_boundary *b, struct pv_exit *out, struct pv_err *err);

/* Waits that long at most, and takes nothing from pv_boundary_wait(). Does the command go on? */
bool pv_boundary_outlasts(const struct pv_boundary *b, int ms);

/*
 * A descriptor of the mounted view of root i (plan->roots order), which outlives the sandbox's processes: for the
 * stage's comparison of the view with the host at stop. Borrowed; fd -1 when there is none.
 */
struct pv_pathfd pv_boundary_view(const struct pv_boundary *b, size_t i);

/* What pv_boundary_network.enter() opened as fd[i], or -1. The caller's from now on. */
int pv_boundary_take_net_fd(struct pv_boundary *b, size_t i);

/*
 * After pv_boundary_wait(): the views are closed and what is left of the sandbox (its mounts, its pid 1) is dissolved
 * while the caller goes on; pv_boundary_free() waits for that.
 */
void pv_boundary_dissolve(struct pv_boundary *b);

/* The host pid of the sandbox's pid 1, for the job's record. */
pid_t pv_boundary_init_pid(const struct pv_boundary *b);

/* Kills what may still run and releases everything. */
void pv_boundary_free(struct pv_boundary *b);

/*
 * What this host can enforce, found by trying each facility in a child (doctor): fills obs as a `--safe` run would.
 * `fix` gets one line a missing facility: what is missing, why, and the command or setting that brings it.
 */
int pv_boundary_examine(struct pv_observations *obs, struct pv_strv *fix, struct pv_err *err);

#endif
