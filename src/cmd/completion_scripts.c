/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/completion_scripts.h"

#include <string.h>
#include "cmd/help.h"

/* The ids and names of this workspace's jobs, for all three shells. */
#define JOBS "pvisor list --json 2>/dev/null | sed -nE 's/^ *\"(id|name)\": \"([A-Za-z0-9._-]+)\",?$/\\2/p'"

/* The names of profiles: what stands before the first empty line. */
#define PROFILES "pvisor profile list 2>/dev/null | sed -n '/^$/q; s/^\\([^ ]*\\) .*/\\1/p'"

/* Groups of network targets, one a line. */
#define GROUPS "pvisor profile list 2>/dev/null | sed -n 's/^Groups of hosts: //p' | tr ' ' '\\n'"

#define SHELLS "bash zsh fish"

enum { LEAST_BRIEF = 20, MOST_BRIEF = 72 };

static bool is_offered(const struct pv_opt *o)
{
        return !(o->flags & PV_OPT_HIDDEN) && o->type != PV_OPT_REFUSED;
}

static bool takes_word(const struct pv_opt *o)
{
        return o->arg && !(o->flags & PV_OPT_ATTACHED);
}

/* Calls put for each option that is offered, the common ones too. */
static void each_option(const struct pv_command *c, void (*put)(struct pv_str *, const struct pv_opt *, const char *),
                        struct pv_str *out)
{
        const struct pv_opt *const tables[] = { c->options, pv_help_common_options() };
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
                for (const struct pv_opt *o = tables[t]; o && o->name; o++)
                        if (is_offered(o))
                                put(out, o, c->name);
}

/* The first sentence, short enough for a menu, without what a shell would interpret. */
static void put_brief(struct pv_str *out, const char *help)
{
        const char *end = strstr(help, ". "), *colon = strstr(help, ": ");
        size_t n = end ? (size_t)(end - help) : strlen(help);
        if (colon && (size_t)(colon - help) < n && colon - help >= LEAST_BRIEF) /* "With --commits: ..." says nothing */
                n = (size_t)(colon - help);
        for (size_t i = n; n > MOST_BRIEF && i > 0; i--) /* at a word */
                if (i <= MOST_BRIEF && help[i] == ' ')
                        n = i;
        while (n && strchr(".,;: ", help[n - 1]))
                n--;
        for (size_t i = 0; i < n; i++)
                pv_str_putc(out, strchr("'\"`$\\[]:", help[i]) ? ' ' : help[i]);
}

/*
 * bash
 */

static void bash_option(struct pv_str *out, const struct pv_opt *o, const char *command)
{
        pv_str_putf(out, " --%s", o->name);
}

static void put_choices(struct pv_str *out, const struct pv_opt *o)
{
        for (const char *const *c = o->choices; c && *c; c++)
                pv_str_putf(out, "%s%s", c == o->choices ? "" : " ", *c);
}

static const char *bash_reply(enum pv_opt_complete what)
{
        static const char *const reply[] = {
                [PV_COMPLETE_NOTHING] = ":",
                [PV_COMPLETE_FILE] = "COMPREPLY=($(compgen -f -- \"$cur\"))",
                [PV_COMPLETE_DIR] = "COMPREPLY=($(compgen -d -- \"$cur\"))",
                [PV_COMPLETE_JOB] = "_pvisor_jobs",
                [PV_COMPLETE_JOB_OR_FILE] = "_pvisor_jobs; COMPREPLY+=($(compgen -f -- \"$cur\"))",
                [PV_COMPLETE_ENV] = "COMPREPLY=($(compgen -e -- \"$cur\"))",
                [PV_COMPLETE_PROFILE] = "_pvisor_profiles",
                [PV_COMPLETE_TARGET] = "_pvisor_targets",
                [PV_COMPLETE_COMMAND] = "_pvisor_commands",
                [PV_COMPLETE_SHELL] = "COMPREPLY=($(compgen -W \"" SHELLS "\" -- \"$cur\"))",
        };
        return reply[what];
}

/* What the word after an option may be; the pattern is "command:--option". */
static void bash_argument(struct pv_str *out, const struct pv_opt *o, const char *command)
{
        if (!takes_word(o))
                return;
        pv_str_putf(out, "        %s:--%s", command, o->name);
        if (o->letter)
                pv_str_putf(out, "|%s:-%c", command, o->letter);
        pv_str_put(out, ") ");
        if (o->choices) {
                pv_str_put(out, "COMPREPLY=($(compgen -W \"");
                put_choices(out, o);
                pv_str_put(out, "\" -- \"$cur\"))");
        } else {
                pv_str_put(out, bash_reply(o->complete));
        }
        pv_str_put(out, "; return ;;\n");
}

static void bash_command(struct pv_str *out, const struct pv_command *c)
{
        pv_str_putf(out, "        %s) options=\"", c->name);
        each_option(c, bash_option, out);
        pv_str_put(out, "\"; words_are='");
        pv_str_put(out, c->style == PV_ARGS_COMMAND ? "COMPREPLY=($(compgen -c -- \"$cur\"))" : bash_reply(c->words));
        pv_str_put(out, "' ;;\n");
}

void pv_completion_bash(struct pv_str *out, const struct pv_command *const *commands)
{
        const char *name;
        /* Functions, and not text that is evaluated: what they look for has quotes of its own. */
        pv_str_put(out, "# bash completion for pvisor; written from its option tables\n"
                        "_pvisor_jobs()\n{\n"
                        "        COMPREPLY=($(compgen -W \"last $(" JOBS ")\" -- \"$cur\"))\n}\n"
                        "_pvisor_profiles()\n{\n"
                        "        COMPREPLY=($(compgen -W \"none $(" PROFILES ")\" -- \"$cur\"))\n}\n"
                        "_pvisor_targets()\n{\n"
                        "        COMPREPLY=($(compgen -W \"$(" GROUPS ")\" -- \"$cur\"))\n}\n"
                        "_pvisor_commands()\n{\n"
                        "        COMPREPLY=($(compgen -W \"");
        for (size_t i = 0; (name = pv_command_name(i)); i++)
                pv_str_putf(out, "%s ", name);
        pv_str_put(out, "spawn\" -- \"$cur\"))\n}\n"
                        "_pvisor()\n{\n"
                        "        local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                        "        local command=${COMP_WORDS[1]} options= words_are=: i\n"
                        "        COMPREPLY=()\n"
                        "        [ \"$command\" = spawn ] && command=run\n"
                        "        [[ $COMP_CWORD -gt 1 && $command == -* ]] && command=run\n"
                        "        if [[ $COMP_CWORD -eq 1 && $cur != -* ]]; then\n"
                        "                _pvisor_commands\n                return\n        fi\n"
                        "        # what follows -- is a command of its own\n"
                        "        for ((i = 1; i < COMP_CWORD; i++)); do\n"
                        "                if [ \"${COMP_WORDS[i]}\" = -- ]; then\n"
                        "                        if [ $i -eq $((COMP_CWORD - 1)) ]; then\n"
                        "                                COMPREPLY=($(compgen -c -- \"$cur\"))\n"
                        "                        else\n"
                        "                                COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                        "                        fi\n"
                        "                        return\n"
                        "                fi\n"
                        "        done\n"
                        "        case \"$command:$prev\" in\n");
        for (size_t i = 0; commands[i]; i++)
                each_option(commands[i], bash_argument, out);
        pv_str_put(out, "        esac\n        [[ $command == -* ]] && command=run\n        case \"$command\" in\n");
        for (size_t i = 0; commands[i]; i++)
                bash_command(out, commands[i]);
        pv_str_put(out, "        esac\n"
                        "        if [[ $cur == -* ]]; then\n"
                        "                COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
                        "        else\n"
                        "                eval \"$words_are\"\n"
                        "        fi\n"
                        "}\n"
                        "complete -o filenames -o bashdefault -F _pvisor pvisor\n");
}

/*
 * zsh
 */

static const char *zsh_action(enum pv_opt_complete what)
{
        static const char *const action[] = {
                [PV_COMPLETE_NOTHING] = " ",
                [PV_COMPLETE_FILE] = "_files",
                [PV_COMPLETE_DIR] = "_files -/",
                [PV_COMPLETE_JOB] = "_pvisor_jobs",
                [PV_COMPLETE_JOB_OR_FILE] = "_pvisor_jobs_and_files",
                [PV_COMPLETE_ENV] = "_parameters -g \"*export*\"",
                [PV_COMPLETE_PROFILE] = "_pvisor_profiles",
                [PV_COMPLETE_TARGET] = "_pvisor_targets",
                [PV_COMPLETE_COMMAND] = "_pvisor_commands",
                [PV_COMPLETE_SHELL] = "(" SHELLS ")",
        };
        return action[what];
}

static void zsh_option(struct pv_str *out, const struct pv_opt *o, const char *command)
{
        pv_str_put(out, " \\\n                        '");
        if (o->type == PV_OPT_LIST)
                pv_str_putc(out, '*');
        pv_str_putf(out, "--%s%s[", o->name, takes_word(o) ? "=" : "");
        put_brief(out, o->help);
        pv_str_putc(out, ']');
        if (takes_word(o)) {
                pv_str_put(out, o->flags & PV_OPT_ARG_OPTIONAL ? "::" : ":");
                put_brief(out, o->arg);
                pv_str_putc(out, ':');
                if (o->choices) {
                        pv_str_putc(out, '(');
                        put_choices(out, o);
                        pv_str_putc(out, ')');
                } else {
                        pv_str_put(out, zsh_action(o->complete));
                }
        }
        pv_str_putc(out, '\'');
}

static void zsh_command(struct pv_str *out, const struct pv_command *c)
{
        pv_str_putf(out, "                %s)\n                _arguments -s", c->name);
        each_option(c, zsh_option, out);
        if (c->style == PV_ARGS_COMMAND)
                pv_str_put(out, " \\\n                        '(-)1:command:_command_names -e' '*::arguments:_normal'");
        else if (c->words != PV_COMPLETE_NOTHING)
                pv_str_putf(out, " \\\n                        '*:word:%s'", zsh_action(c->words));
        pv_str_put(out, " ;;\n");
}

void pv_completion_zsh(struct pv_str *out, const struct pv_command *const *commands)
{
        const char *name;
        pv_str_put(out, "#compdef pvisor\n# zsh completion for pvisor; written from its option tables\n"
                        "_pvisor_jobs()\n{\n"
                        "        local -a jobs\n"
                        "        jobs=(last ${(f)\"$(" JOBS ")\"})\n"
                        "        compadd -a jobs\n"
                        "}\n\n_pvisor_jobs_and_files()\n{\n        _pvisor_jobs\n        _files\n"
                        "}\n\n_pvisor_profiles()\n{\n"
                        "        local -a profiles\n"
                        "        profiles=(none ${(f)\"$(" PROFILES ")\"})\n"
                        "        compadd -a profiles\n"
                        "}\n\n_pvisor_targets()\n{\n"
                        "        local -a groups\n"
                        "        groups=(${(f)\"$(" GROUPS ")\"})\n"
                        "        compadd -a groups\n"
                        "}\n\n_pvisor_commands()\n{\n"
                        "        local -a commands\n        commands=(\n");
        for (size_t i = 0; (name = pv_command_name(i)); i++) {
                pv_str_putf(out, "                '%s:", name);
                put_brief(out, pv_command_summary(name));
                pv_str_put(out, "'\n");
        }
        pv_str_put(out, "        )\n"
                        "        _describe command commands\n"
                        "}\n\n_pvisor()\n{\n"
                        "        if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
                        "                _pvisor_commands\n"
                        "                return\n"
                        "        fi\n"
                        "        local command=$words[2]\n"
                        "        if [[ $command == -* ]]; then\n"
                        "                command=run\n"
                        "        else\n"
                        "                shift words\n"
                        "                (( CURRENT-- ))\n"
                        "        fi\n"
                        "        case ${command/#%spawn/run} in\n");
        for (size_t i = 0; commands[i]; i++)
                zsh_command(out, commands[i]);
        pv_str_put(out, "        esac\n}\n\n_pvisor \"$@\"\n");
}

/*
 * fish
 */

static void fish_option(struct pv_str *out, const struct pv_opt *o, const char *command)
{
        pv_str_putf(out, "complete -c pvisor -n '__fish_seen_subcommand_from %s%s' -l %s", command,
                    pv_streq(command, "run") ? " spawn" : "", o->name);
        if (o->letter)
                pv_str_putf(out, " -s %c", o->letter);
        if (takes_word(o)) {
                pv_str_put(out, o->flags & PV_OPT_ARG_OPTIONAL ? "" : " -r");
                if (o->choices) {
                        pv_str_put(out, " -f -a '");
                        put_choices(out, o);
                        pv_str_putc(out, '\'');
                } else if (o->complete == PV_COMPLETE_JOB) {
                        pv_str_put(out, " -f -a '(__pvisor_jobs)'");
                } else if (o->complete == PV_COMPLETE_PROFILE) {
                        pv_str_put(out, " -f -a '(__pvisor_profiles)'");
                } else if (o->complete == PV_COMPLETE_TARGET) {
                        pv_str_put(out, " -f -a '(__pvisor_targets)'");
                } else if (o->complete == PV_COMPLETE_ENV) {
                        pv_str_put(out, " -f -a '(set -nx)'");
                } else if (o->complete == PV_COMPLETE_DIR) {
                        pv_str_put(out, " -f -a '(__fish_complete_directories)'");
                } else {
                        pv_str_put(out, o->complete == PV_COMPLETE_NOTHING ? " -f" : "");
                }
        }
        pv_str_put(out, " -d '");
        put_brief(out, o->help);
        pv_str_put(out, "'\n");
}

/* What a command's words may be; NULL: nothing that fish would not offer by itself. */
static const char *fish_words(enum pv_opt_complete what)
{
        static const char *const words[] = {
                [PV_COMPLETE_JOB] = "(__pvisor_jobs)",
                [PV_COMPLETE_JOB_OR_FILE] = "(__pvisor_jobs)",
                [PV_COMPLETE_PROFILE] = "(__pvisor_profiles)",
                [PV_COMPLETE_COMMAND] = "(__pvisor_commands)",
                [PV_COMPLETE_SHELL] = SHELLS,
        };
        return what < sizeof words / sizeof *words ? words[what] : NULL;
}

void pv_completion_fish(struct pv_str *out, const struct pv_command *const *commands)
{
        const char *name;
        pv_str_put(out, "# fish completion for pvisor; written from its option tables\n"
                        "function __pvisor_jobs\n        echo last\n        " JOBS "\nend\n"
                        "function __pvisor_profiles\n        echo none\n        " PROFILES "\nend\n"
                        "function __pvisor_targets\n        " GROUPS "\nend\n"
                        "function __pvisor_commands\n");
        for (size_t i = 0; (name = pv_command_name(i)); i++)
                pv_str_putf(out, "        echo %s\n", name);
        pv_str_put(out, "end\n");
        for (size_t i = 0; (name = pv_command_name(i)); i++) {
                pv_str_putf(out, "complete -c pvisor -n __fish_use_subcommand -f -a %s -d '", name);
                put_brief(out, pv_command_summary(name));
                pv_str_put(out, "'\n");
        }
        for (size_t i = 0; commands[i]; i++) {
                each_option(commands[i], fish_option, out);
                if (fish_words(commands[i]->words))
                        pv_str_putf(out, "complete -c pvisor -n '__fish_seen_subcommand_from %s'%s -a '%s'\n",
                                    commands[i]->name, commands[i]->words == PV_COMPLETE_JOB_OR_FILE ? "" : " -f",
                                    fish_words(commands[i]->words));
                if (commands[i]->style == PV_ARGS_COMMAND)
                        pv_str_putf(out,
                                    "complete -c pvisor -n '__fish_seen_subcommand_from %s spawn' -f -a "
                                    "'(__fish_complete_subcommand)'\n",
                                    commands[i]->name);
        }
}
