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

static int check_words(const struct pv_command *c, const struct pv_args *args, struct pv_err *err)
{
        if (args->n > c->max_words)
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: one word too many: %s", c->name, args->words[c->max_words]);
        else if (args->n < c->min_words)
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: something is missing", c->name);
        else
                return 0;
        return pv_err_hint(err, "usage: pvisor %s %s", c->name, c->usage);
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
