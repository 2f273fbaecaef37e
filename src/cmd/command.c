/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/command.h"

#include <string.h>
#include "base/log.h"
#include "cmd/help.h"

struct entry {
        const char *name, *summary, *executable;
};

#define IN_MAIN   "pvisor"
#define IN_DECIDE "pvisor-decide"
#define IN_DIFF   "pvisor-diff"

#define ENTRY(executable, id, summary) { #id, summary, IN_##executable },

static const struct entry entries[] = { PV_COMMANDS(ENTRY) };

static const struct entry *find(const char *name)
{
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
                if (pv_streq(entries[i].name, name))
                        return &entries[i];
        return NULL;
}

const char *pv_command_summary(const char *name)
{
        const struct entry *e = find(name);
        return e ? e->summary : NULL;
}

const char *pv_command_executable(const char *name)
{
        const struct entry *e = find(name);
        return e ? e->executable : NULL;
}

const char *pv_command_name(size_t i)
{
        return i < sizeof entries / sizeof *entries ? entries[i].name : NULL;
}

static int hint_at_usage(const struct pv_command *c, struct pv_err *err)
{
        return pv_err_hint(err, "usage: pvisor %s %s", c->name, c->usage);
}

/*
 * A word too many is most often the program to run, without the `--` before it, or a path that an option would name:
 * then the hint is what was meant.
 */
static int too_many(const struct pv_command *c, const struct pv_args *args, struct pv_err *err)
{
        const char *word = args->words[c->max_words], *job = c->max_words ? args->words[0] : NULL;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: one word too many: %s", c->name, word);
        if (job && c->style == PV_ARGS_AND_COMMAND && !args->set_off)
                return pv_err_hint(err, "did you mean pvisor %s %s -- %s%s?", c->name, job, word,
                                   args->n > c->max_words + 1 ? " ..." : "");
        if (job && c->words == PV_COMPLETE_JOB && pv_opt_find(c->options, "path"))
                return pv_err_hint(err, "did you mean pvisor %s %s --path %s?", c->name, job, word);
        return hint_at_usage(c, err);
}

static int check_words(const struct pv_command *c, const struct pv_args *args, struct pv_err *err)
{
        if (args->n > c->max_words)
                return too_many(c, args, err);
        if (args->n >= c->min_words)
                return 0;
        const char *needed = pv_str_has_prefix(c->usage, "[options] ") ? c->usage + strlen("[options] ") : c->usage;
        const char *end = strstr(needed, " [--");
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: needs %.*s", c->name, (int)(end ? end - needed : 512), needed);
        /* The target alone: a host, a group, a port. A job's name may have a dot, too, but is then no hint worse. */
        if (c->words == PV_COMPLETE_JOB && c->min_words == 2 && args->n == 1 &&
            (strpbrk(args->words[0], ".:@") || strspn(args->words[0], "0123456789") == strlen(args->words[0])))
                return pv_err_hint(err, "did you mean pvisor %s last %s?", c->name, args->words[0]);
        return hint_at_usage(c, err);
}

static int show_help(const struct pv_command *c, struct pv_err *err)
{
        pv_auto_str text = { 0 };
        pv_help_command(&text, c);
        return pv_fd_write_all(STDOUT_FILENO, text.s, text.len, "stdout", err);
}

static int parse_and_run(const struct pv_command *c, void *options, int argc, char **argv, struct pv_err *err)
{
        static const enum pv_log_level levels[] = { PV_LOG_QUIET, PV_LOG_NORMAL, PV_LOG_VERBOSE };
        pv_auto_parsed parsed = { 0 };
        if (pv_opt_parse(c->options, c->style, argc, argv, &parsed, err) < 0)
                return -1;
        if (parsed.help)
                return show_help(c, err);
        pv_log_set_level(levels[1 + parsed.verbosity]);
        if (check_words(c, &parsed.args, err) < 0 || (c->before && c->before(c, &parsed, options, err) < 0) ||
            pv_opt_apply(&parsed, options, err) < 0)
                return -1;
        return c->run(options, &parsed.args, err);
}

int pv_command_main(const struct pv_command *c, int argc, char **argv)
{
        struct pv_err err = PV_ERR_INIT;
        void *options = pv_calloc(1, c->options_size);
        int code = parse_and_run(c, options, argc, argv, &err);
        if (code < 0) {
                pv_log_err(&err);
                code = pv_err_exit_code(&err);
        }
        pv_opt_fini(c->options, options);
        free(options);
        return code;
}
