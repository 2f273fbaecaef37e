/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/help.h"

#include <string.h>
#include <unistd.h>

#define WIDTH         80
#define OPTION_COLUMN 26 /* where an option's help begins */

void pv_help_wrap(struct pv_str *out, const char *words, size_t column, size_t indent, size_t width)
{
        bool first = true;
        for (const char *w = words; *w;) {
                size_t n = strcspn(w, " ");
                if (!first && column + 1 + n > width) {
                        pv_str_putf(out, "\n%*s", (int)indent, "");
                        column = indent;
                } else if (!first) {
                        pv_str_putc(out, ' ');
                        column++;
                }
                pv_str_put_bytes(out, w, n);
                column += n;
                first = false;
                w += n + strspn(w + n, " ");
        }
        pv_str_putc(out, '\n');
}

void pv_help_option(struct pv_str *out, const struct pv_opt *o)
{
        pv_str_putf(out, "--%s", o->name);
        if (!o->arg)
                return;
        if (o->flags & PV_OPT_ATTACHED)
                pv_str_putf(out, "[=%s]", o->arg);
        else
                pv_str_putf(out, o->flags & PV_OPT_ARG_OPTIONAL ? " [%s]" : " %s", o->arg);
}

const struct pv_opt *pv_help_common_options(void)
{
        static const struct pv_opt common[] = {
                { .name = "quiet", .letter = 'q', .help = "Say nothing but errors." },
                { .name = "verbose", .letter = 'v', .help = "Say what is done." },
                { .name = "help", .letter = 'h', .help = "Show this help." },
                { .name = NULL },
        };
        return common;
}

static void put_option(struct pv_str *out, const struct pv_opt *o)
{
        pv_auto_str head = { 0 };
        if (o->letter)
                pv_str_putf(&head, "  -%c, ", o->letter);
        else
                pv_str_put(&head, "      ");
        pv_help_option(&head, o);
        pv_str_put_bytes(out, head.s, head.len);
        if (head.len + 2 > OPTION_COLUMN)
                pv_str_putf(out, "\n%*s", OPTION_COLUMN, "");
        else
                pv_str_putf(out, "%*s", (int)(OPTION_COLUMN - head.len), "");
        pv_help_wrap(out, o->help, OPTION_COLUMN, OPTION_COLUMN, WIDTH);
}

static void put_options(struct pv_str *out, const struct pv_opt *table)
{
        const char *heading = "Options";
        bool begun = false;
        for (const struct pv_opt *o = table; o && o->name; o++) {
                if (o->flags & PV_OPT_HIDDEN || o->type == PV_OPT_REFUSED)
                        continue;
                if (o->group)
                        heading = o->group;
                if (!begun || o->group)
                        pv_str_putf(out, "%s%s:\n", "\n", heading);
                begun = true;
                put_option(out, o);
        }
        pv_str_put(out, begun ? "\nCommon options:\n" : "\nOptions:\n");
        for (const struct pv_opt *o = pv_help_common_options(); o->name; o++)
                put_option(out, o);
}

static void put_refused(struct pv_str *out, const struct pv_opt *table)
{
        pv_auto_str names = { 0 };
        for (const struct pv_opt *o = table; o && o->name; o++)
                if (o->type == PV_OPT_REFUSED && !(o->flags & PV_OPT_HIDDEN))
                        pv_str_putf(&names, "%s--%s", names.len ? " " : "", o->name);
        if (!names.len)
                return;
        pv_str_put(out, "\nKnown, and refused by this version:\n  ");
        pv_help_wrap(out, names.s, 2, 2, WIDTH);
}

static void put_paragraphs(struct pv_str *out, const char *text)
{
        for (const char *p = text; p && *p;) {
                const char *end = strstr(p, "\n\n");
                pv_auto_free char *one = pv_strndup(p, end ? (size_t)(end - p) : strlen(p));
                pv_str_putc(out, '\n');
                pv_help_wrap(out, one, 0, 0, WIDTH);
                p = end ? end + 2 : NULL;
        }
}

void pv_help_command(struct pv_str *out, const struct pv_command *c)
{
        const char *summary = pv_command_summary(c->name);
        pv_str_putf(out, "%s.\n\nUsage: pvisor %s%s%s\n", summary ? summary : c->name, c->name, *c->usage ? " " : "",
                    c->usage);
        put_paragraphs(out, c->about);
        put_options(out, c->options);
        put_refused(out, c->options);
        if (!c->examples)
                return;
        pv_str_put(out, "\nExamples:\n");
        for (const char *const *e = c->examples; e[0]; e += 2) {
                pv_str_putf(out, "  %s\n      ", e[0]);
                pv_help_wrap(out, e[1], 6, 6, WIDTH);
        }
}

void pv_help_overview(struct pv_str *out)
{
        const char *name;
        pv_str_put(out, "Run a command inside a boundary, then decide which of its changes to keep.\n\n"
                        "Usage: pvisor COMMAND [options]\n"
                        "       pvisor [options of run] -- COMMAND [ARG...]\n\nCommands:\n");
        for (size_t i = 0; (name = pv_command_name(i)); i++)
                pv_str_putf(out, "  %-12s %s\n", name, pv_command_summary(name));
        pv_str_put(out, "\nA day's work:\n"
                        "  pvisor run --safe -- claude       an agent works; nothing lands\n"
                        "  pvisor review                     what changed, what needs attention\n"
                        "  pvisor apply last --path src      take a part; --all takes the rest\n"
                        "  pvisor undo last                  take it back\n\n"
                        "`pvisor help COMMAND` shows a command's options.\n");
}

/* Commands of other executables never come here: their help is `pvisor NAME --help`, which dispatch.c asks for. */
static int run_help(const void *options, const struct pv_args *args, struct pv_err *err)
{
        pv_auto_str text = { 0 };
        if (args->n == 1)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: no such command", args->words[0]);
        pv_help_overview(&text);
        return pv_fd_write_all(STDOUT_FILENO, text.s, text.len, "stdout", err);
}

const struct pv_command pv_cmd_help = {
        .name = "help",
        .usage = "[COMMAND]",
        .max_words = 1,
        .words = PV_COMPLETE_COMMAND,
        .run = run_help,
};
