/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands. Each lives in a file of its own (review.c defines pv_cmd_review) as data and one function; it is named
 * once, in the list below, with the executable that it lives in. `pvisor` execs the others from libexec/pvisor/, so
 * that `run` does not pay for what they load.
 *
 * To add one: write src/cmd/NAME.c like version.c, add its line here, its file to meson.build.
 */
#ifndef PV_CMD_COMMAND_H
#define PV_CMD_COMMAND_H

#include "base/err.h"
#include "cmd/opt.h"

/*
 * X(EXECUTABLE, name, "summary for the list of commands, without a full stop"), in the order of `pvisor help`. MAIN is
 * bin/pvisor, DECIDE and DIFF are libexec/pvisor/pvisor-decide and pvisor-diff.
 */
/* clang-format off */
#define PV_COMMANDS(X)                                                            \
        X(MAIN,   run,        "Run a command; --safe puts it inside a boundary") \
        X(MAIN,   list,       "List jobs")                                        \
        X(DECIDE, status,     "Show one job")                                     \
        X(MAIN,   logs,       "Show what a job printed")                          \
        X(MAIN,   attach,     "Watch a detached job's terminal, and type into it")    \
        X(MAIN,   exec,       "Run another command in a running job")             \
        X(MAIN,   kill,       "End a running job")                                \
        X(DECIDE, allow,      "Let a running job reach more of the network")      \
        X(DECIDE, publish,    "Make a port of a running job reachable here")      \
        X(DECIDE, review,     "Show what a job did and what needs attention")     \
        X(DECIDE, why,        "Say which rule refuses something, and what allows it") \
        X(DIFF,   diff,       "Show the changes of a job as a patch")             \
        X(DECIDE, inspect,    "Run a command in a job's result, contained")       \
        X(DECIDE, apply,      "Take a job's changes into the workspace")          \
        X(DECIDE, undo,       "Take an applied batch back")                       \
        X(DECIDE, drop,       "Throw a job's changes away")                       \
        X(DECIDE, checkpoint, "Freeze what a job has staged, under a name")       \
        X(DECIDE, fork,       "Start a job on what another one has staged")       \
        X(DECIDE, prune,      "Remove old jobs")                                  \
        X(MAIN,   login,      "Log an agent in, inside a boundary")               \
        X(DECIDE, profile,    "List and show the profiles of agents")             \
        X(DECIDE, doctor,     "Say which limits this machine can enforce")        \
        X(DECIDE, completion, "Print the completion script for a shell")          \
        X(MAIN,   help,       "Show help for a command")                          \
        X(MAIN,   version,    "Show the version")
/* clang-format on */

struct pv_command {
        const char *name;
        const char *usage;            /* what follows "pvisor NAME": "[options] [JOB] [PATH...]" */
        const char *about;            /* paragraphs for --help and the manual page, separated by "\n\n" */
        const struct pv_opt *options; /* NULL: none but the common ones */
        size_t options_size;          /* of the struct that the rows point into; zeroed before parsing */
        enum pv_args_style style;
        size_t min_words, max_words; /* how many words besides options and a command; checked before run */
        enum pv_opt_complete words;  /* what a shell offers for them */
        /* Pairs: a command line and what it does; ends with NULL. */
        const char *const *examples;

        /*
         * Fills the struct from elsewhere before the command line is applied, which therefore wins. May be NULL.
         */
        int (*before)(const struct pv_command *self, const struct pv_parsed *parsed, void *options, struct pv_err *err);
        /*
         * Does the work. Returns the exit code, or -1 with err set, which the caller prints and turns into a code.
         */
        int (*run)(const void *options, const struct pv_args *args, struct pv_err *err);
};

/* Parses argv (argv[0] is the command's name) and runs: the exit code. Errors are printed. */
int pv_command_main(const struct pv_command *c, int argc, char **argv);

/* The summary of a command of any executable; NULL: no such command. */
const char *pv_command_summary(const char *name);
/* The executable that a command lives in ("pvisor", "pvisor-decide", ...); NULL: no such command. */
const char *pv_command_executable(const char *name);
/* The i-th name of all executables' commands in the order of help, NULL after the last. */
const char *pv_command_name(size_t i);

/*
 * The main() of an executable whose commands these are (NULL-terminated): finds argv[1] among them, or among those of
 * another executable and execs that. The exit code.
 */
int pv_dispatch(const struct pv_command *const *own, int argc, char **argv);

#define PV_COMMAND_DECLARE(executable, id, summary) extern const struct pv_command pv_cmd_##id;
PV_COMMANDS(PV_COMMAND_DECLARE)
#undef PV_COMMAND_DECLARE

#endif
