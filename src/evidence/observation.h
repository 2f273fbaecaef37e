/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was seen of a control: the only source of what the bundle says about safety. Plain data of fixed size,
 * since the launcher fills it inside the sandbox and it crosses to the supervisor through a pipe.
 *
 * A control counts as enforced only when it is installed and each of its probes was refused; a control in one
 * dimension never raises another.
 */
#ifndef PV_EVIDENCE_OBSERVATION_H
#define PV_EVIDENCE_OBSERVATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pv_dimension {
        PV_DIM_WORKSPACE_WRITES,
        PV_DIM_HOST_WRITES,
        PV_DIM_READS,
        PV_DIM_SENSITIVE_PATHS,
        PV_DIM_NETWORK,
        PV_DIM_CREDENTIALS,
        PV_DIM_SUBPROCESSES,
        PV_DIM_RESOURCES,
        PV_DIMENSIONS
};

enum pv_level {
        PV_LEVEL_UNKNOWN = -1, /* null in JSON */
        PV_LEVEL_UNENFORCED,
        PV_LEVEL_COOPERATIVE, /* can be bypassed */
        PV_LEVEL_ENFORCED,    /* cannot be bypassed within the threat model */
};

enum pv_outcome {
        PV_OUTCOME_NOT_RUN,   /* null in JSON */
        PV_OUTCOME_REFUSED,   /* the attempt failed as it should; sys says how */
        PV_OUTCOME_SUCCEEDED, /* the control does not hold */
        PV_OUTCOME_ABSENT,    /* the kernel lacks what the probe would try (no AF_VSOCK, say): nothing to get at
                            */
};

#define PV_PROBES_MAX   8
#define PV_LIMITS_MAX   4
#define PV_CONTROLS_MAX 40

struct pv_probe {
        char name[40];      /* "read.absolute-path" */
        char attempted[88]; /* what was tried, for people */
        enum pv_outcome outcome;
        int sys; /* errno of the refusal */
};

struct pv_observation {
        enum pv_dimension dimension;
        char control[40];   /* "projected-root", "landlock", "network-namespace", ... */
        char mechanism[96]; /* "mount namespace, read-only recursive binds, verified" */
        bool installed;
        bool partial;        /* covers a part of its dimension: cannot raise its level, but spoils it when breached */
        enum pv_level level; /* of this control alone, by the rule above */
        uint64_t requested, effective; /* PV_DIM_RESOURCES: bytes, milliseconds or a count; 0 elsewhere */
        unsigned n_probes;
        struct pv_probe probes[PV_PROBES_MAX];
        unsigned n_limits;
        char limits[PV_LIMITS_MAX][128]; /* what it does not cover, each a sentence */
};

struct pv_observations {
        unsigned n;
        struct pv_observation item[PV_CONTROLS_MAX];
};

const char *pv_dimension_name(enum pv_dimension d);  /* "workspace_writes", ... */
const char *pv_dimension_title(enum pv_dimension d); /* the same for people: "workspace writes" */
const char *pv_level_name(enum pv_level l);          /* "unenforced", ...; NULL for unknown */
const char *pv_outcome_name(enum pv_outcome o);      /* "refused", ...; NULL for not run */

/* A new control, not installed, level unenforced. NULL when the table is full (a bug: it is sized for all of
 * them). */
struct pv_observation *pv_observations_add(struct pv_observations *all, enum pv_dimension d, const char *control,
                                           const char *mechanism);
/* The control of that name and dimension, or NULL. */
struct pv_observation *pv_observations_find(struct pv_observations *all, enum pv_dimension d, const char *control);
/* Records a probe; one too many is dropped unless it succeeded, which then replaces the last (a breach is
 * never lost). */
void pv_observation_probe(struct pv_observation *o, const char *name, const char *attempted, enum pv_outcome outcome,
                          int sys);
void pv_observation_limit(struct pv_observation *o, const char *sentence);
/*
 * Sets the level from installed and the probes: at most `best`; UNENFORCED when it is not installed, a probe
 * succeeded or, for ENFORCED, none was run.
 */
void pv_observation_conclude(struct pv_observation *o, enum pv_level best);
/*
 * The highest level that an installed control reached which covers the whole of this dimension; UNENFORCED when there
 * is none, or when a probe got through a partial one. Resources are as many limits, none of which stands for another:
 * there it is the lowest level of all that were asked for.
 */
enum pv_level pv_observations_level(const struct pv_observations *all, enum pv_dimension d);
/* The first probe that succeeded where it had to be refused, or NULL. */
const struct pv_probe *pv_observations_first_breach(const struct pv_observations *all);

#endif
