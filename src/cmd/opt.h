/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: one typed table a command, from which the command line is parsed, configuration fields are set, and help,
 * manual pages and shell completion are written (help.c, man.c, completion.c). A command's options live in a struct of
 * its own; each row names the field by offset.
 *
 * Parsing has two steps, so that other sources can come between: pv_opt_parse() turns argv into a list of
 * occurrences and the remaining words; pv_opt_apply() stores them into the struct, later ones winning.
 */
#ifndef PV_CMD_OPT_H
#define PV_CMD_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/str.h"

enum pv_opt_type {
        PV_OPT_FLAG,     /* bool; `--name`, also `--name=true|false` */
        PV_OPT_TEXT,     /* char *, owned; the last one wins */
        PV_OPT_LIST,     /* struct pv_strv; repeatable, in order */
        PV_OPT_COUNT,    /* uint64_t; decimal, at least 1 */
        PV_OPT_SIZE,     /* uint64_t bytes, at least 1; "64KiB", "4GB" */
        PV_OPT_DURATION, /* uint64_t milliseconds, at least 1; "30s", "5m" */
        PV_OPT_CHOICE,   /* int: 1 + index into choices; 0 stays "not given" */
        PV_OPT_REFUSED,  /* using it is an error: with `help` it is not in this version, and that says what it would be;
                            without, it is another tool's. "vm-*" is all of a family */
};

enum pv_opt_flags {
        PV_OPT_ARG_OPTIONAL = 1 << 0, /* TEXT becomes "" without its argument, CHOICE the first choice */
        PV_OPT_HIDDEN = 1 << 1,       /* not in help: another spelling */
        PV_OPT_LIMIT = 1 << 2,        /* REFUSED: it is a limit, so the exit code is 5 and not 2 */
        PV_OPT_CLI_ONLY = 1 << 3,     /* not a field of the configuration file */
        PV_OPT_ATTACHED = 1 << 4,     /* an optional argument is one only after '=' */
        PV_OPT_MAY_BE_EMPTY = 1 << 5, /* TEXT: "" is a value */
};

/* What a shell offers for the argument. */
enum pv_opt_complete {
        PV_COMPLETE_NOTHING,
        PV_COMPLETE_FILE,
        PV_COMPLETE_DIR,
        PV_COMPLETE_JOB,
        PV_COMPLETE_JOB_OR_FILE,
        PV_COMPLETE_ENV,
        PV_COMPLETE_PROFILE,
        PV_COMPLETE_TARGET, /* of the network: groups */
        PV_COMPLETE_COMMAND,
        PV_COMPLETE_SHELL
};

struct pv_opt {
        const char *name; /* "stage" is --stage; NULL ends the table */
        char letter;      /* 'q' is -q; 0: none */
        enum pv_opt_type type;
        const char *arg;            /* the argument's name in help, "DIR"; NULL when there is none */
        const char *help;           /* sentences without a final newline; wrapped where shown */
        size_t field;               /* offsetof() in the command's options struct */
        const char *const *choices; /* of PV_OPT_CHOICE, NULL-terminated */
        unsigned flags;             /* enum pv_opt_flags */
        /* Looks at a value before it is stored, so that an error can name where it stands. NULL: none. */
        int (*check)(const char *value, struct pv_err *err);
        uint64_t least;         /* of COUNT and SIZE, with what no program starts; 0: 1 */
        const char *least_text; /* it, as a person writes it */
        enum pv_opt_complete complete;
        const char *group;   /* heading in help; NULL: that of the row before */
        const char *instead; /* of REFUSED: the hint, what to do in its place; NULL: none */
};

/* The row of an option that people of other tools type: what to do in its place. The letter may be 0. */
#define PV_OPT_ELSEWHERE(letter_, name_, instead_)                                                                    \
        {                                                                                                             \
                .name = name_, .letter = letter_, .type = PV_OPT_REFUSED, .flags = PV_OPT_HIDDEN, .instead = instead_ \
        }

/* Where the published tool keeps jobs; every command of it that names one has this option. */
#define PV_OPT_OUTPUT_DIR \
        PV_OPT_ELSEWHERE('o', "output-dir", "leave it out: jobs are kept in one place, which $PVISOR_HOME moves")

/* The row for `--json` of a command that reads: a bool field. */
#define PV_OPT_JSON(type_, field_)                                                                                     \
        {                                                                                                              \
                .name = "json", .type = PV_OPT_FLAG, .field = offsetof(type_, field_), .help = "Write JSON to stdout." \
        }

/* How the words that are not options are understood. */
enum pv_args_style {
        PV_ARGS_MIXED,       /* options and words in any order; `--` ends the options */
        PV_ARGS_COMMAND,     /* the first word, or what follows `--`, starts a command with its own arguments */
        PV_ARGS_AND_COMMAND, /* words in any order, then after `--` a command */
};

struct pv_args {
        char **words; /* borrowed from argv; not NULL-terminated */
        size_t n;
        char **command; /* NULL-terminated, within argv; NULL when there is none */
        bool set_off;   /* a `--` stood before the command */
};

struct pv_opt_use {
        const struct pv_opt *opt;
        const char *value; /* NULL: no argument was given */
};

struct pv_parsed {
        struct pv_opt_use *use;
        size_t n_uses;
        struct pv_args args;
        bool help;     /* -h or --help */
        int verbosity; /* -q: -1, -v: 1; the last one wins */
};

/*
 * Parses argv[1..]. -h/--help, -q/--quiet and -v/--verbose are understood for every command without being in its
 * table. PV_ERR_USAGE names what is wrong and hints at the closest name; PV_ERR_UNSUPPORTED for a refused limit.
 */
int pv_opt_parse(const struct pv_opt *table, enum pv_args_style style, int argc, char **argv, struct pv_parsed *out,
                 struct pv_err *err);
void pv_parsed_fini(struct pv_parsed *p);
#define pv_auto_parsed __attribute__((cleanup(pv_parsed_fini))) struct pv_parsed

/* Stores one value, converted and checked; shown is how an error names the option ("--memory", "memory"). */
int pv_opt_set(const struct pv_opt *opt, void *target, const char *value, const char *shown, struct pv_err *err);
int pv_opt_apply(const struct pv_parsed *p, void *target, struct pv_err *err);
/* Frees what pv_opt_set() stored. */
void pv_opt_fini(const struct pv_opt *table, void *target);

const struct pv_opt *pv_opt_find(const struct pv_opt *table, const char *name);
bool pv_opt_was_used(const struct pv_parsed *p, const char *name);

#endif
