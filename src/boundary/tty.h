/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal. The command leads a process group of its own in the person's session (kill(0) inside must not reach
 * the supervisor), and pVisor does what a shell does for a job: it hands the foreground to that group, at the start
 * when the command talks to the terminal on both sides, else as soon as the command stops for wanting it (SIGTTIN,
 * SIGTTOU), so that `pvisor run -- git log | less` leaves the terminal to less. When the command stops, pVisor takes
 * the foreground back and stops with its own group, so that the person's shell sees a stopped job; `fg` resumes both.
 *
 * Whoever has left the terminal's session may read it at any time (job control does not hold it back), hence what the
 * person types for the shell while the run is stopped or in the background. So a guarded run, whose command is kept
 * from the person's files, holds a terminal in the foreground alone: stopped, all of it stands still (supervise.c),
 * and what is started in the background gets none: a session of its own, no input, and output that cannot be read
 * from.
 *
 * What a run that ended abnormally left of the terminal's settings (no echo, raw) is put back to what it was when the
 * command was given the terminal, as a shell does. `stty` in a run that ends by itself holds.
 */
#ifndef PV_BOUNDARY_TTY_H
#define PV_BOUNDARY_TTY_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>
#include "base/err.h"

struct pv_tty {
        int fd;         /* the controlling terminal, or -1 */
        pid_t own;      /* the supervisor's process group */
        bool given;     /* the command's group has the foreground */
        bool guarded;   /* the command must not read it in the background */
        bool apart;     /* it was started there: it has no terminal */
        int instead[3]; /* of its standard descriptors, when apart; or -1 */
        bool noted;     /* settings is what they were before the command had the terminal */
        struct termios settings;
};
#define PV_TTY_INIT                                 \
        {                                           \
                .fd = -1, .instead = { -1, -1, -1 } \
        }

enum pv_tty_flags {
        PV_TTY_STDIO = 1 << 0,   /* the command's input and output both are the terminal */
        PV_TTY_GUARDED = 1 << 1, /* as above */
        PV_TTY_REOPENS = 1 << 2, /* nothing keeps the command from opening its descriptors anew (no Landlock) */
};

/*
 * Finds the controlling terminal; without one t->fd stays -1. Sets given when the launcher is to take it. t:
 * PV_TTY_INIT.
 */
int pv_tty_open(struct pv_tty *t, const int stdio[3], unsigned flags, struct pv_err *err);
void pv_tty_close(struct pv_tty *t);

/*
 * Its path, for /dev/console in the view, when one of these descriptors is it and not apart; else NULL. The caller's.
 */
char *pv_tty_path(const struct pv_tty *t, const int stdio[3]);

/* Is the supervisor's group in the foreground? */
bool pv_tty_is_ours(const struct pv_tty *t);
/* May the command run now? */
bool pv_tty_allows(const struct pv_tty *t);
/* Before the command's group has the foreground, the first time. */
void pv_tty_note_settings(struct pv_tty *t);
/* Back to the supervisor's group, when it was given away, with its output not held up. Must: SIGTTOU blocked. */
void pv_tty_take(struct pv_tty *t);
/*
 * The settings that were noted, where the command left others. Must: the command had the foreground, all of its are
 * dead, and pv_tty_take() followed.
 */
void pv_tty_restore_settings(const struct pv_tty *t);

/*
 * In the launcher: a process group of its own (apart: a session), and the foreground for it when t->given. Must:
 * SIGTTOU blocked.
 */
int pv_tty_lead_group(const struct pv_tty *t);

/* Stops the supervisor's whole group as signal `sig` would have, until the person's shell lets it go on. */
void pv_tty_stop_with_group(int sig);

#endif
