/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/man.h"

#include <ctype.h>
#include <string.h>
#include "cmd/help.h"

/* Text for roff: a '-' that can be copied, no escapes, no line that begins with a request. */
static void put_text(struct pv_str *out, const char *text)
{
        bool line_start = true;
        for (const char *c = text; *c; c++) {
                if (line_start && (*c == '.' || *c == '\''))
                        pv_str_put(out, "\\&");
                if (*c == '-')
                        pv_str_put(out, "\\-");
                else if (*c == '\\')
                        pv_str_put(out, "\\e");
                else
                        pv_str_putc(out, *c);
                line_start = *c == '\n';
        }
}

static void put_line(struct pv_str *out, const char *request, const char *text)
{
        pv_str_put(out, request);
        put_text(out, text);
        pv_str_putc(out, '\n');
}

static void put_heading(struct pv_str *out, const char *name)
{
        pv_auto_free char *upper = pv_strdup(name);
        for (char *c = upper; *c; c++)
                *c = (char)toupper((unsigned char)*c);
        pv_str_put(out, ".TH ");
        put_text(out, upper);
        pv_str_put(out, " 1 \"\" \"pVisor " PV_VERSION "\" \"pVisor\"\n");
}

static void put_paragraphs(struct pv_str *out, const char *text)
{
        for (const char *p = text; p && *p;) {
                const char *end = strstr(p, "\n\n");
                pv_auto_free char *one = pv_strndup(p, end ? (size_t)(end - p) : strlen(p));
                pv_str_put(out, p == text ? "" : ".PP\n");
                put_line(out, "", one);
                p = end ? end + 2 : NULL;
        }
}

static void put_option(struct pv_str *out, const struct pv_opt *o)
{
        pv_auto_str head = { 0 };
        if (o->letter)
                pv_str_putf(&head, "-%c, ", o->letter);
        pv_help_option(&head, o);
        pv_str_put(out, ".TP\n\\fB");
        put_text(out, head.s);
        pv_str_put(out, "\\fR\n");
        put_line(out, "", o->help);
}

static void put_options(struct pv_str *out, const struct pv_opt *table)
{
        pv_str_put(out, ".SH OPTIONS\n");
        for (const struct pv_opt *o = table; o && o->name; o++) {
                if (o->flags & PV_OPT_HIDDEN || o->type == PV_OPT_REFUSED)
                        continue;
                if (o->group)
                        put_line(out, ".SS ", o->group);
                put_option(out, o);
        }
        if (table && table->name)
                pv_str_put(out, ".SS Common options\n");
        for (const struct pv_opt *o = pv_help_common_options(); o->name; o++)
                put_option(out, o);
}

static void put_examples(struct pv_str *out, const char *const *examples)
{
        if (!examples)
                return;
        pv_str_put(out, ".SH EXAMPLES\n");
        for (const char *const *e = examples; e[0]; e += 2) {
                put_line(out, ".TP\n\\fB", e[0]);
                out->s[--out->len] = '\0';
                pv_str_put(out, "\\fR\n");
                put_line(out, "", e[1]);
        }
}

void pv_man_command(struct pv_str *out, const struct pv_command *c)
{
        pv_auto_free char *page = pv_strf("pvisor-%s", c->name);
        const char *summary = pv_command_summary(c->name);
        pv_auto_free char *name = pv_strf("%s - %s", page, summary);
        pv_auto_free char *synopsis = pv_strf("pvisor %s %s", c->name, c->usage);
        put_heading(out, page);
        put_line(out, ".SH NAME\n", name);
        put_line(out, ".SH SYNOPSIS\n", synopsis);
        if (c->about) {
                pv_str_put(out, ".SH DESCRIPTION\n");
                put_paragraphs(out, c->about);
        }
        put_options(out, c->options);
        put_examples(out, c->examples);
        pv_str_put(out, ".SH SEE ALSO\n.BR pvisor (1)\n");
}

static const char overview[] = "Runs a command, most often a coding agent, inside a boundary; keeps its file changes "
                               "in a stage until a person "
                               "accepts them; and leaves a record that says which limits were really in force.\n\n"
                               "JOB is `last` (the newest of this workspace, and what is meant when nothing is said), "
                               "an id or a unique part of "
                               "one, a --name, or a stage directory.";

static void put_pairs(struct pv_str *out, const char *heading, const char *const (*pairs)[2], size_t n)
{
        pv_str_putf(out, ".SH %s\n", heading);
        for (size_t i = 0; i < n; i++) {
                put_line(out, ".TP\n", pairs[i][0]);
                put_line(out, "", pairs[i][1]);
        }
}

void pv_man_overview(struct pv_str *out)
{
        static const char *const codes[][2] = {
                { "0", "Done." },
                { "1", "Failed." },
                { "2", "Wrong usage." },
                { "3", "Conflict: the target was changed meanwhile; nothing was changed." },
                { "4", "No such job." },
                { "5", "A required limit cannot be enforced here." },
                { "6", "Refused by policy." },
        };
        static const char *const files[][2] = {
                { "$PVISOR_HOME, $XDG_STATE_HOME/pvisor, ~/.local/state/pvisor",
                  "The job store: the first that is set." },
                { "$XDG_CONFIG_HOME/pvisor/config.yaml, ~/.config/pvisor/config.yaml",
                  "Options of run that always apply: YAML, the options' names without the dashes." },
                { "groups.yaml, profiles/NAME.yaml beside it",
                  "Groups of network targets and profiles of agents of your own." },
        };
        static const char *const variables[][2] = {
                { "PVISOR_HOME", "The job store; see below." },
                { "NO_COLOR", "When it is set and not empty: no colours." },
                { "PVISOR_PAGER, PAGER", "What pages long output on a terminal; empty or cat: nothing does." },
        };
        static const char *const day[] = {
                "pvisor run --safe -- claude",
                "an agent works unattended; nothing lands",
                "pvisor review",
                "what changed, what needs attention, which limits held",
                "pvisor diff last src",
                "the changes as a patch",
                "pvisor inspect last -- make test",
                "try the result, contained, over a layer that is thrown away",
                "pvisor apply last --path src",
                "take a part",
                "pvisor apply --commits",
                "take the commits, and the files that they changed",
                "pvisor undo",
                "take it back",
                "pvisor drop",
                "throw away the rest",
                NULL,
        };
        const char *name;
        put_heading(out, "pvisor");
        put_line(out, ".SH NAME\n", "pvisor - run a command inside a boundary, then decide on its changes");
        put_line(out, ".SH SYNOPSIS\n", "pvisor COMMAND [options]");
        put_line(out, ".br\n", "pvisor [options of run] -- COMMAND [ARG...]");
        pv_str_put(out, ".SH DESCRIPTION\n");
        put_paragraphs(out, overview);
        pv_str_put(out, ".SH COMMANDS\n");
        for (size_t i = 0; (name = pv_command_name(i)); i++) {
                pv_str_put(out, ".TP\n.BR pvisor\\-");
                put_text(out, name);
                pv_str_put(out, " (1)\n");
                put_line(out, "", pv_command_summary(name));
        }
        put_line(out, ".SH EXIT STATUS\n", "Those of run are in pvisor-run(1).");
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
                put_line(out, ".TP\n", codes[i][0]);
                put_line(out, "", codes[i][1]);
        }
        put_pairs(out, "ENVIRONMENT", variables, sizeof variables / sizeof *variables);
        put_pairs(out, "FILES", files, sizeof files / sizeof *files);
        put_examples(out, day);
        pv_str_put(out, ".SH SEE ALSO\n.BR pvisor\\-run (1),\n.BR pvisor\\-review (1),\n.BR pvisor\\-apply (1)\n");
}
