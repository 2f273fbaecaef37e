/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Further commands in a sandbox that runs (`exec`). The supervisor writes an order and sends it to init with the
 * command's descriptors; init forks a launcher, which takes the same road as the first one (launcher.c). The theory of
 * operation heads exec.c.
 */
#ifndef PV_BOUNDARY_EXEC_H
#define PV_BOUNDARY_EXEC_H

#include <sys/ioctl.h>
#include "boundary/canary.h"
#include "boundary/report.h"
#include "boundary/running.h"

/* The order's fixed part: plain data between two processes of one program. Strings follow it, each with its NUL. */
struct pv_exec_order {
        unsigned number;         /* counts up from 1: of this command, in messages about it */
        unsigned argc;           /* strings: argv, then cwd, then TERM ("": the job's own) */
        bool terminal;           /* what of stdio was not given is a new terminal's */
        bool given[3];           /* a descriptor came for it */
        struct winsize size;     /* of the terminal */
        struct pv_canary canary; /* its descriptors are set by who reads the order */
};

/* The descriptors that go with it, in this order; the last two are absent (-1) where there is no such canary. */
enum { PV_EXEC_ORDER, PV_EXEC_REPORT, PV_EXEC_STDIN, PV_EXEC_STDERR = PV_EXEC_STDIN + 2 };

/* What the launcher works with. */
struct pv_exec_command {
        struct pv_exec_order order;
        char **argv; /* NULL-terminated */
        char *cwd, *term;
        int stdio[3]; /* -1: the terminal's */
        char *text;   /* what the strings point into */
};

/*
 * An order as a file in memory; the descriptor is the caller's.
 */
int pv_exec_order_write(const struct pv_exec_order *order, char *const *argv, const char *cwd, const char *term,
                        int *out, struct pv_err *err);
/* In the launcher, whose exec frees it; stdio is not set. */
int pv_exec_order_read(int fd, struct pv_exec_command *out, struct pv_err *err);
void pv_exec_command_fini(struct pv_exec_command *c);

/* From init: a command has ended. Called by the supervisor's loop. */
void pv_exec_ended(struct pv_boundary *b, unsigned number, int status);
/* Those that were asked for while the sandbox was frozen may start. */
void pv_exec_thawed(struct pv_boundary *b);
/* Forgets all that run: the boundary ends. */
void pv_exec_fini(struct pv_boundary *b);

#endif
