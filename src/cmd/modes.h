/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes that a program has set on a terminal (DEC private modes: the alternate screen, the cursor, mouse reports,
 * bracketed paste, ...; the keypad's; and how keys are told, by the protocols of kitty and xterm), found in its
 * output: so that another terminal can be set likewise when it joins, and be given back as it was.
 */
#ifndef PV_CMD_MODES_H
#define PV_CMD_MODES_H

#include <stdbool.h>
#include <stddef.h>
#include "base/str.h"

#define PV_MODES_MAX 32
struct pv_modes {
        unsigned set[PV_MODES_MAX], reset[PV_MODES_MAX]; /* those that are not as they are by default */
        size_t n_set, n_reset;
        bool keypad;             /* application mode */
        unsigned kitty, kitties; /* the flags that were pushed last, and how often more was pushed than popped */
        unsigned other_keys;     /* xterm's modifyOtherKeys */
        /* Within a sequence. */
        int state;
        char private; /* '?', '>', '<' */
        unsigned number[16];
        size_t n_numbers;
};

/* Output passes by. Sequences may be cut anywhere. */
void pv_modes_see(struct pv_modes *m, const char *bytes, size_t n);
/* Does a program draw the whole screen? */
bool pv_modes_full_screen(const struct pv_modes *m);
/* Appends what sets a fresh terminal like that; what sets it back. */
void pv_modes_put(const struct pv_modes *m, struct pv_str *out);
void pv_modes_put_undo(const struct pv_modes *m, struct pv_str *out);

#endif
