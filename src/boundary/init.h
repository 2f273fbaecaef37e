/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's init. With a pid namespace it is pid 1: it reaps, forwards what the supervisor asks for, tells how the
 * command ends, and takes everything else with it when it exits. Without one (ambient) it is the subreaper of the
 * command's processes and kills them one by one.
 */
#ifndef PV_BOUNDARY_INIT_H
#define PV_BOUNDARY_INIT_H

#include <stdbool.h>
#include <sys/types.h>
#include "boundary/rename.h"

struct pv_launch;

struct pv_init {
        pid_t command; /* as init sees it; leads its own process group */
        int control;   /* report.h */
        int tty;       /* the person's terminal, or -1 */
        int userns;    /* the command's user namespace, for further commands; -1: init's own */
        bool is_pid1;
        struct pv_rename *rename; /* NULL or unprepared: no helper to look after */
        struct pv_launch *launch; /* how the command was launched; further ones are by the same */
};

/* Runs until the command has ended or the supervisor is gone. Must: all signals be blocked. Does not return. */
_Noreturn void pv_init_run(const struct pv_init *init);

/*
 * Asks for SIGKILL when the parent dies, and looks whether it is dead already: the supervisor's end of the control
 * channel tells, since the parent's pid is 0 across a pid namespace. Must: be called after the last change of
 * credentials, which would clear it. -1: the parent is gone.
 */
int pv_init_die_with_parent(int control);

#endif
