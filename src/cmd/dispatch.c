/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command that argv names, here or in another executable of this installation. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/closest.h"
#include "base/log.h"
#include "base/place.h"
#include "base/str.h"
#include "cmd/command.h"

static const struct pv_command *find_own(const struct pv_command *const *own, const char *name)
{
        for (; *own; own++)
                if (pv_streq((*own)->name, name))
                        return *own;
        return NULL;
}

/* Returns only on failure. */
static int exec_other(const char *executable, char **argv, struct pv_err *err)
{
        pv_auto_free char *path = NULL;
        if (pv_place_program(executable, &path, err) < 0)
                return -1;
        (void)execv(path, argv);
        return pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
}

/* What people of other tools call a command, and some of its ways. */
static const struct {
        const char *word, *line;
} elsewhere[] = {
        { "ls", "list" },
        { "ps", "list" },
        { "jobs", "list" },
        { "rm", "drop" },
        { "discard", "drop" },
        { "reject", "drop" },
        { "delete", "drop" },
        { "stop", "kill" },
        { "suspend", "kill" },
        { "resume", "run --continue JOB -- COMMAND" },
        { "continue", "run --continue JOB -- COMMAND" },
        { "start", "run" },
        { "shell", "exec JOB -- bash" },
        { "enter", "exec JOB -- bash" },
        { "revert", "undo" },
        { "restore", "undo" },
        { "rollback", "undo" },
        { "show", "review" },
        { "merge", "apply JOB --merge" },
        { "accept", "apply" },
        { "commit", "apply JOB --commits" },
        { "clean", "prune" },
        { "gc", "prune" },
        { "snapshot", "checkpoint" },
        { "branch", "fork" },
        { "port", "publish" },
        { "grant", "allow" },
        { "log", "logs" },
        { "explain", "why" },
        { "check", "doctor" },
};

/* Commands of the published tool that this version has not got, and what to do in their place. */
static const struct {
        const char *word, *what, *instead;
} absent[] = {
#define IMAGES \
        "images and containers", "`pvisor run --safe -- COMMAND` confines a program of this machine, without an image"
        { "build", IMAGES },
        { "images", IMAGES },
        { "pull", IMAGES },
        { "rmi", IMAGES },
        { "network", "networks of containers",
          "`pvisor run --safe --overlaynet-allow HOST --publish PORT -- COMMAND`" },
        { "cache", "stores of images", "`pvisor prune --caches` removes what runs kept of ~/.cache, ~/.npm, ..." },
        { "daemon", "a service", "nothing needs one: `pvisor run --detach -- COMMAND` works in the background" },
        { "replay", "replaying what an agent did", "`pvisor fork JOB@CHECKPOINT -- COMMAND` goes on from what it had" },
        { "tui", "a full-screen interface", "`pvisor run --detach`, `pvisor attach`, `pvisor list --watch`" },
        { "feature", "switches for experiments", "`pvisor help run` has all options" },
};

static int not_in_this_version(const char *word, struct pv_err *err)
{
        for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
                if (pv_streq(absent[i].word, word)) {
                        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: not in this version: %s", word, absent[i].what);
                        (void)pv_err_hint(err, "%s; to run a program of that name: pvisor run --safe -- %s ...",
                                          absent[i].instead, word);
                        return -1;
                }
        return 0;
}

static const char *meant_by(const char *word)
{
        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
                if (pv_streq(elsewhere[i].word, word))
                        return elsewhere[i].line;
        struct pv_closest closest = { .word = word };
        const char *name;
        for (size_t i = 0; (name = pv_command_name(i)); i++)
                pv_closest_offer(&closest, name);
        return closest.best;
}

static int unknown_command(const char *word, struct pv_err *err)
{
        const char *meant = meant_by(word);
        if (not_in_this_version(word, err) < 0)
                return -1;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: no such command", word);
        if (meant)
                return pv_err_hint(err, "did you mean `pvisor %s`? to run a program: pvisor run --safe -- %s ...",
                                   meant, word);
        return pv_err_hint(err, "to run it as a program: pvisor run --safe -- %s ...; `pvisor help` lists the commands",
                           word);
}

/* Runs command `name` with argv, whose first word is replaced by the name. */
static int run_named(const struct pv_command *const *own, const char *name, int argc, char **argv, struct pv_err *err)
{
        const struct pv_command *c = find_own(own, name);
        const char *executable = pv_command_executable(name);
        if (c)
                return pv_command_main(c, argc, argv);
        if (!executable)
                return unknown_command(name, err);
        pv_auto_free char **next = pv_calloc((size_t)argc + 2, sizeof(char *));
        next[0] = (char *)executable;
        next[1] = (char *)name;
        memcpy(next + 2, argv + 1, (size_t)argc * sizeof(char *)); /* with the NULL */
        return exec_other(executable, next, err);
}

static int help_of(const struct pv_command *const *own, const char *name, char **asked, struct pv_err *err)
{
        const char *real = pv_streq(name, "spawn") ? "run" : name;
        if (pv_command_executable(real))
                return run_named(own, real, 2, asked, err);
        const char *meant = meant_by(name);
        if (not_in_this_version(name, err) < 0)
                return -1;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "help: %s: no such command", name);
        return meant ? pv_err_hint(err, "did you mean `pvisor %s`?", meant)
                     : pv_err_hint(err, "`pvisor help` lists the commands");
}

/*
 * Options before `run` are its own: `pvisor -q run -- make`. Of the other commands' names several are programs, which
 * the shorter form may well be meant to run (`pvisor --safe diff a b`).
 */
static void put_name_first(int argc, char **argv)
{
        int at = 1;
        while (at < argc && argv[at][0] == '-' && !pv_streq(argv[at], "--"))
                at++;
        if (at == argc || !(pv_streq(argv[at], "run") || pv_streq(argv[at], "spawn")))
                return;
        char *name = argv[at];
        memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
        argv[1] = name;
}

static int dispatch(const struct pv_command *const *own, int argc, char **argv, struct pv_err *err)
{
        char help[] = "--help";
        char *asked[] = { argv[0], help, NULL };
        bool helps = argc > 1 && (pv_streq(argv[1], "--help") || pv_streq(argv[1], "-h") || pv_streq(argv[1], "help"));
        if (helps && argc == 3 && argv[2][0] != '-')
                return help_of(own, argv[2], asked, err);
        if (argc < 2 || pv_streq(argv[1], "--help") || pv_streq(argv[1], "-h"))
                return run_named(own, "help", 1, argv, err);
        if (pv_streq(argv[1], "--version") || pv_streq(argv[1], "-V"))
                return run_named(own, "version", 1, argv, err);
        put_name_first(argc, argv);
        if (argv[1][0] == '-')
                return run_named(own, "run", argc, argv, err);
        if (pv_streq(argv[1], "spawn"))
                return run_named(own, "run", argc - 1, argv + 1, err);
        return run_named(own, argv[1], argc - 1, argv + 1, err);
}

/* Whoever started us may have closed 0, 1 or 2: the next file opened would be taken for a standard stream. */
static void ensure_standard_streams(void)
{
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
                        _exit(1);
}

int pv_dispatch(const struct pv_command *const *own, int argc, char **argv)
{
        struct pv_err err = PV_ERR_INIT;
        ensure_standard_streams();
        /* A write beyond `ulimit -f` is then EFBIG, and what was begun is taken back; the command gets its default. */
        (void)signal(SIGXFSZ, SIG_IGN);
        int code = dispatch(own, argc, argv, &err);
        if (code >= 0)
                return code;
        pv_log_err(&err);
        return pv_err_exit_code(&err);
}
