/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/opt.h"

#include <string.h>
#include <sys/stat.h>
#include "base/closest.h"

/* More options than this are taken for a mistake. */
#define USES_MAX 4096

void pv_parsed_fini(struct pv_parsed *p)
{
        free(p->use);
        free(p->args.words);
        *p = (struct pv_parsed){ 0 };
}

const struct pv_opt *pv_opt_find(const struct pv_opt *table, const char *name)
{
        for (const struct pv_opt *o = table; o && o->name; o++)
                if (pv_streq(o->name, name))
                        return o;
        return NULL;
}

/* A refused row whose name ends in "-*" stands for all that begin so. */
static const struct pv_opt *find_n(const struct pv_opt *table, const char *name, size_t n)
{
        const struct pv_opt *family = NULL;
        for (const struct pv_opt *o = table; o && o->name; o++) {
                size_t len = strlen(o->name);
                if (len == n && memcmp(o->name, name, n) == 0)
                        return o;
                if (len > 2 && pv_str_has_suffix(o->name, "-*") && n >= len && memcmp(o->name, name, len - 1) == 0)
                        family = o;
        }
        return family;
}

static const struct pv_opt *find_letter(const struct pv_opt *table, char letter)
{
        for (const struct pv_opt *o = table; o && o->name; o++)
                if (o->letter == letter)
                        return o;
        return NULL;
}

bool pv_opt_was_used(const struct pv_parsed *p, const char *name)
{
        for (size_t i = 0; i < p->n_uses; i++)
                if (pv_streq(p->use[i].opt->name, name))
                        return true;
        return false;
}

static int unknown(const struct pv_opt *table, const char *word, size_t n, struct pv_err *err)
{
        pv_auto_free char *name = pv_strndup(word, n);
        struct pv_closest closest = { .word = name };
        for (const struct pv_opt *o = table; o && o->name; o++)
                if (!(o->flags & PV_OPT_HIDDEN) && o->type != PV_OPT_REFUSED)
                        pv_closest_offer(&closest, o->name);
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "--%s: no such option", name);
        return closest.best ? pv_err_hint(err, "did you mean --%s?", closest.best)
                            : pv_err_hint(err, "--help lists the options");
}

static int refused(const struct pv_opt *o, const char *shown, struct pv_err *err)
{
        (void)pv_err_set(err, o->flags & PV_OPT_LIMIT ? PV_ERR_UNSUPPORTED : PV_ERR_USAGE, 0, "%s: %s%s", shown,
                         o->help ? "not in this version: " : "no such option", o->help ? o->help : "");
        return o->instead ? pv_err_hint(err, "%s", o->instead) : -1;
}

static bool takes_argument(const struct pv_opt *o)
{
        return o->type != PV_OPT_FLAG && o->type != PV_OPT_REFUSED;
}

/* Where in argv the parser stands. */
struct cursor {
        const struct pv_opt *table;
        enum pv_args_style style;
        int argc, i;
        char **argv;
        struct pv_parsed *out;
};

static bool is_choice(const struct pv_opt *o, const char *word)
{
        for (const char *const *c = o->choices; c && *c; c++)
                if (pv_streq(*c, word))
                        return true;
        return false;
}

/* True when from argv[i] on there is nothing but options and their arguments up to a `--`. */
static bool options_until_separator(const struct cursor *at, int i)
{
        for (; i < at->argc; i++) {
                const char *w = at->argv[i];
                if (pv_streq(w, "--"))
                        return true;
                if (w[0] != '-' || w[1] == '\0')
                        return false;
                if (w[1] != '-' || strchr(w, '='))
                        continue;
                const struct pv_opt *o = pv_opt_find(at->table, w + 2);
                if (o && takes_argument(o) &&
                    (!(o->flags & PV_OPT_ARG_OPTIONAL) || i + 1 >= at->argc ||
                     (o->choices && is_choice(o, at->argv[i + 1]))))
                        i++;
        }
        return false;
}

/*
 * Whether the word after an option with an optional argument is that argument. It is one when the command is set off
 * by `--`, so that a misspelt choice is said. Else a choice is one by its spelling; a path, since `--stage make test`
 * is meant to run make, only when it has a slash in it and is no file that could be run.
 */
static bool is_optional_argument(const struct cursor *at, const struct pv_opt *o)
{
        const char *word = at->i + 1 < at->argc ? at->argv[at->i + 1] : NULL;
        struct stat st;
        if (!word || word[0] == '-' || o->flags & PV_OPT_ATTACHED)
                return false;
        if (at->style == PV_ARGS_COMMAND && options_until_separator(at, at->i + 2))
                return true;
        if (o->choices)
                return is_choice(o, word);
        if (at->style != PV_ARGS_COMMAND)
                return true;
        return strchr(word, '/') && at->i + 2 < at->argc && (stat(word, &st) < 0 || S_ISDIR(st.st_mode));
}

static int add_use(struct cursor *at, const struct pv_opt *o, const char *value, struct pv_err *err)
{
        struct pv_parsed *p = at->out;
        if (p->n_uses == USES_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "more than %d options", USES_MAX);
        p->use = pv_realloc(p->use, p->n_uses + 1, sizeof *p->use);
        p->use[p->n_uses++] = (struct pv_opt_use){ .opt = o, .value = value };
        return 0;
}

/* Common options, which no table names. True when word was one. */
static bool take_common(struct cursor *at, const char *word)
{
        if (pv_streq(word, "help"))
                at->out->help = true;
        else if (pv_streq(word, "quiet"))
                at->out->verbosity = -1;
        else if (pv_streq(word, "verbose"))
                at->out->verbosity = 1;
        else
                return false;
        return true;
}

static int parse_long(struct cursor *at, struct pv_err *err)
{
        const char *word = at->argv[at->i] + 2, *equals = strchr(word, '=');
        size_t n = equals ? (size_t)(equals - word) : strlen(word);
        const struct pv_opt *o = find_n(at->table, word, n);
        if (!o && !equals && take_common(at, word))
                return 0;
        if (!o)
                return unknown(at->table, word, n, err);
        if (o->type == PV_OPT_REFUSED) {
                pv_auto_free char *shown = pv_strf("--%.*s", (int)n, word);
                return refused(o, shown, err);
        }
        if (equals)
                return add_use(at, o, equals + 1, err);
        if (!takes_argument(o))
                return add_use(at, o, NULL, err);
        if (o->flags & PV_OPT_ARG_OPTIONAL)
                return add_use(at, o, is_optional_argument(at, o) ? at->argv[++at->i] : NULL, err);
        if (at->i + 1 >= at->argc)
                return pv_err_set(err, PV_ERR_USAGE, 0, "--%s: needs an argument: %s", o->name, o->arg);
        return add_use(at, o, at->argv[++at->i], err);
}

static int unknown_letter(char c, struct pv_err *err)
{
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "-%c: no such option", c);
        return pv_err_hint(err, "--help lists the options");
}

/* "-q", "-qv", "-nNAME", "-n NAME". */
static int parse_letters(struct cursor *at, struct pv_err *err)
{
        for (const char *c = at->argv[at->i] + 1; *c; c++) {
                const struct pv_opt *o = find_letter(at->table, *c);
                const char *common = *c == 'h' ? "help" : *c == 'q' ? "quiet" : *c == 'v' ? "verbose" : "";
                if (!o && take_common(at, common))
                        continue;
                if (!o)
                        return unknown_letter(*c, err);
                if (o->type == PV_OPT_REFUSED)
                        return refused(o, (char[]){ '-', *c, '\0' }, err);
                if (!takes_argument(o)) {
                        if (add_use(at, o, NULL, err) < 0)
                                return -1;
                        continue;
                }
                if (c[1])
                        return add_use(at, o, c + 1, err);
                if (at->i + 1 >= at->argc)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "-%c: needs an argument: %s", *c, o->arg);
                return add_use(at, o, at->argv[++at->i], err);
        }
        return 0;
}

static void take_command(struct cursor *at, int from)
{
        if (from < at->argc)
                at->out->args.command = at->argv + from;
        at->i = at->argc;
}

static void take_set_off(struct cursor *at)
{
        at->out->args.set_off = true;
        take_command(at, at->i + 1);
}

int pv_opt_parse(const struct pv_opt *table, enum pv_args_style style, int argc, char **argv, struct pv_parsed *out,
                 struct pv_err *err)
{
        struct cursor at = { .table = table, .style = style, .argc = argc, .argv = argv, .i = 1, .out = out };
        bool only_words = false;
        *out = (struct pv_parsed){ 0 };
        out->args.words = pv_calloc((size_t)argc + 1, sizeof(char *));
        for (; at.i < argc; at.i++) {
                char *word = argv[at.i];
                if (!only_words && pv_streq(word, "--")) {
                        if (style == PV_ARGS_MIXED)
                                only_words = true;
                        else
                                take_set_off(&at);
                } else if (only_words || word[0] != '-' || word[1] == '\0') {
                        if (style == PV_ARGS_COMMAND)
                                take_command(&at, at.i);
                        else
                                out->args.words[out->args.n++] = word;
                } else if ((word[1] == '-' ? parse_long : parse_letters)(&at, err) < 0) {
                        return -1;
                }
        }
        return 0;
}

static int set_flag(const char *value, bool *out)
{
        if (!value || pv_streq(value, "true"))
                *out = true;
        else if (pv_streq(value, "false"))
                *out = false;
        else
                return -1;
        return 0;
}

static int parse_count(const char *text, uint64_t *out)
{
        uint64_t n = 0;
        if (!*text)
                return -1;
        for (const char *c = text; *c; c++)
                if (*c < '0' || *c > '9' || __builtin_mul_overflow(n, 10, &n) ||
                    __builtin_add_overflow(n, (uint64_t)(*c - '0'), &n))
                        return -1;
        *out = n;
        return 0;
}

static int set_number(const struct pv_opt *o, uint64_t *out, const char *value, const char *shown, struct pv_err *err)
{
        uint64_t n = 0;
        if (o->type == PV_OPT_COUNT && parse_count(value, &n) < 0)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: not a number: %s", shown, value);
        if ((o->type == PV_OPT_SIZE && pv_parse_size(value, &n, err) < 0) ||
            (o->type == PV_OPT_DURATION && pv_parse_duration(value, &n, err) < 0))
                return pv_err_wrap(err, "%s", shown);
        if (n == 0)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: must be more than 0", shown);
        if (n < o->least)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s %s: too little for any program to start; the least is %s",
                                  shown, value, o->least_text);
        *out = n;
        return 0;
}

static int set_choice(const struct pv_opt *o, int *out, const char *value, const char *shown, struct pv_err *err)
{
        pv_auto_str all = { 0 };
        for (int i = 0; o->choices[i]; i++) {
                if (pv_streq(o->choices[i], value)) {
                        *out = 1 + i;
                        return 0;
                }
                pv_str_putf(&all, "%s%s", i ? ", " : "", o->choices[i]);
        }
        return pv_err_set(err, PV_ERR_USAGE, 0, "%s: not one of %s: %s", shown, all.s, value);
}

int pv_opt_set(const struct pv_opt *o, void *target, const char *value, const char *shown, struct pv_err *err)
{
        void *field = (char *)target + o->field;
        if (!value && o->type == PV_OPT_CHOICE)
                value = o->choices[0];
        if (!value && o->type == PV_OPT_TEXT)
                value = "";
        else if (value && !*value && o->type != PV_OPT_FLAG && !(o->flags & PV_OPT_MAY_BE_EMPTY))
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: is empty", shown);
        if (o->check && o->check(value, err) < 0)
                return pv_err_wrap(err, "%s", shown);
        switch (o->type) {
        case PV_OPT_FLAG:
                return set_flag(value, field) == 0
                               ? 0
                               : pv_err_set(err, PV_ERR_USAGE, 0, "%s: not true or false: %s", shown, value);
        case PV_OPT_TEXT:
                free(*(char **)field);
                *(char **)field = pv_strdup(value);
                return 0;
        case PV_OPT_LIST:
                pv_strv_add(field, value);
                return 0;
        case PV_OPT_COUNT:
        case PV_OPT_SIZE:
        case PV_OPT_DURATION:
                return set_number(o, field, value, shown, err);
        case PV_OPT_CHOICE:
                return set_choice(o, field, value, shown, err);
        case PV_OPT_REFUSED:
                break;
        }
        return refused(o, shown, err);
}

int pv_opt_apply(const struct pv_parsed *p, void *target, struct pv_err *err)
{
        for (size_t i = 0; i < p->n_uses; i++) {
                pv_auto_free char *shown = pv_strf("--%s", p->use[i].opt->name);
                if (pv_opt_set(p->use[i].opt, target, p->use[i].value, shown, err) < 0)
                        return -1;
        }
        return 0;
}

void pv_opt_fini(const struct pv_opt *table, void *target)
{
        for (const struct pv_opt *o = table; o && o->name; o++) {
                void *field = (char *)target + o->field;
                if (o->type == PV_OPT_TEXT) {
                        free(*(char **)field);
                        *(char **)field = NULL;
                } else if (o->type == PV_OPT_LIST) {
                        pv_strv_fini(field);
                }
        }
}
