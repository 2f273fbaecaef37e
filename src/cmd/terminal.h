/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The person's terminal while a program elsewhere has it (exec, attach): raw, so that every key goes there; its size is
 * passed on; and what comes and goes is moved by pumps.
 */
#ifndef PV_CMD_TERMINAL_H
#define PV_CMD_TERMINAL_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <termios.h>
#include "base/err.h"

struct pv_terminal {
        bool raw;
        int signals; /* a signalfd: what would end us (the terminal must be given back first), and the size's change */
        struct termios before;
        sigset_t mask;
};
#define PV_TERMINAL_INIT      \
        {                     \
                .signals = -1 \
        }

/* Takes the signals. */
int pv_terminal_open(struct pv_terminal *t, struct pv_err *err);
/* Standard input becomes raw. Not a terminal is silence. */
void pv_terminal_raw(struct pv_terminal *t);
/* As it was. */
void pv_terminal_cook(struct pv_terminal *t);
/* Gives all back. Idempotent. */
void pv_terminal_close(struct pv_terminal *t);
#define pv_auto_terminal __attribute__((cleanup(pv_terminal_close))) struct pv_terminal

/* The next signal that came, 0 for none. */
int pv_terminal_signal(const struct pv_terminal *t);
/* The size of standard output's terminal (of standard input's where that is none); zeros when neither is one. */
struct winsize pv_terminal_size(void);

/* Moves bytes one way; what could not be written yet waits. Zero-initialise but for the descriptors. */
struct pv_pump {
        int from, to;   /* -1: ended */
        size_t n, at;   /* bytes in buf, written of them */
        uint64_t moved; /* bytes written in all */
        char buf[16384];
};
/* Which descriptor waits for what; fd -1: nothing. */
struct pollfd pv_pump_poll(const struct pv_pump *p);
/* Reads and writes what goes now. False when the pump has ended: nothing more will come, or nobody takes it. */
bool pv_pump_move(struct pv_pump *p);

#endif
