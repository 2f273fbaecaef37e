/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output of a command's that is kept in a file of the job: read by the supervisor, from a pipe or from a terminal's
 * other side, and written there. The command never has the file itself, in which it could take back what it said.
 *
 * What is kept is bounded: old blocks are given back to the file system (the file's beginning becomes a hole), so that
 * offsets stay what they were. Output that cannot be written (a full disk) is lost, and the command goes on.
 */
#ifndef PV_JOB_OUTPUT_H
#define PV_JOB_OUTPUT_H

#include "boundary/boundary.h"

struct pv_output {
        int from;   /* does not block; -1: nothing is kept */
        int log;    /* borrowed */
        bool owned; /* from is closed with it */
        struct pv_boundary_watch watch;
        struct pv_boundary *boundary; /* watched by; or NULL */
        uint64_t logged;              /* bytes since old ones were last let go of */
};
#define PV_OUTPUT_INIT                                      \
        {                                                   \
                .from = -1, .log = -1, .watch = {.fd = -1 } \
        }
void pv_output_fini(struct pv_output *o);

/* From a new pipe. *command is the end that the command writes to, the caller's to close when the command has it. */
int pv_output_open(struct pv_output *o, int log, int *command, struct pv_err *err);

/* Keeps what comes within pv_boundary_wait(). Must: o->from or nothing to keep; o stays where it is. */
void pv_output_serve(struct pv_output *o, struct pv_boundary *b);
/* Must: before the boundary is freed. */
void pv_output_stop(struct pv_output *o);

/*
 * When nothing of the command is left: keeps the rest. settle_ms: how long what was written may take to come through (a
 * terminal's, not a pipe's).
 */
void pv_output_drain(struct pv_output *o, int settle_ms);

#endif
