/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard output as a person sees it: colours on a terminal only, a pager when there is more than fits. Text is
 * handed over piece by piece; the first screenful is held back until it is clear whether a pager is needed.
 */
#ifndef PV_CMD_SCREEN_H
#define PV_CMD_SCREEN_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/str.h"

enum pv_colour_choice { PV_COLOUR_AUTO, PV_COLOUR_ALWAYS = 1, PV_COLOUR_NEVER, PV_COLOUR_AUTO_SAID };
/* For a PV_OPT_CHOICE row: "always", "never", "auto". */
extern const char *const pv_colour_choices[];

/* The rows of a command's options for --color (an int) and --no-pager (a bool). */
#define PV_OPT_COLOUR(type_, field_)                                                                         \
        {                                                                                                    \
                .name = "color", .type = PV_OPT_CHOICE, .arg = "WHEN", .field = offsetof(type_, field_),     \
                .choices = pv_colour_choices, .help = "Use colours: always, never, or auto (on a terminal)." \
        }
#define PV_OPT_NO_PAGER(type_, field_)                                                     \
        {                                                                                  \
                .name = "no-pager", .type = PV_OPT_FLAG, .field = offsetof(type_, field_), \
                .help = "Do not page long output."                                         \
        }

struct pv_screen {
        bool terminal; /* standard output is one: what is written must be safe for it */
        bool colour;
        unsigned columns; /* 80 unless a terminal says otherwise */
        unsigned rows;    /* 0: do not page */
        bool pages;       /* a pager may be started */
        int fd;           /* where text goes: standard output, or the pager's pipe */
        pid_t pager;      /* 0: none */
        bool gone;        /* the reader closed its end: what follows is dropped */
        struct pv_str held;
        size_t held_lines;
};

/* NO_COLOR, TERM=dumb and a redirected output mean no colours unless `always` was said. */
void pv_screen_init(struct pv_screen *s, enum pv_colour_choice colour, bool no_pager);
/* Writes and empties text. 0, or -1: standard output cannot be written. A pager that was quit is no error. */
int pv_screen_write(struct pv_screen *s, struct pv_str *text, struct pv_err *err);
/* Writes what is held and waits for the pager to end. */
int pv_screen_close(struct pv_screen *s, struct pv_err *err);

enum pv_style {
        PV_STYLE_PLAIN,
        PV_STYLE_BOLD,
        PV_STYLE_DIM,
        PV_STYLE_RED,
        PV_STYLE_GREEN,
        PV_STYLE_YELLOW,
        PV_STYLE_CYAN,
        PV_STYLE_RED_BOLD,
        PV_STYLES
};
/* The escape sequence that begins a style, or ends all; "" without colours. */
const char *pv_style_on(const struct pv_screen *s, enum pv_style style);
const char *pv_style_off(const struct pv_screen *s);
/* Text of our own in a style. */
void pv_put_styled(struct pv_str *b, const struct pv_screen *s, enum pv_style style, const char *text);

/*
 * Columns that n bytes of safe text take on a terminal: one a character (double-width characters count as one too:
 * good enough to line up a list).
 */
size_t pv_columns(const char *s, size_t n);
/*
 * Appends outside text made safe, cut in the middle with "..." when it would take more than max columns: the end of a
 * path tells more than its middle.
 */
void pv_put_fitted(struct pv_str *b, const char *s, size_t max);
/* The same for text that is safe already. */
void pv_put_fitted_safe(struct pv_str *b, const char *safe, size_t max);

/* n bytes of safe text; what would take more than max columns is cut at the end, with the mark ("..." or "") there. */
void pv_put_cut_safe(struct pv_str *b, const char *safe, size_t n, size_t max, const char *mark);

#endif
