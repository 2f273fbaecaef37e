/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The questions become one shell script, whose every word is quoted. After each answer the script prints a mark that
 * is new each time, so that nothing that was written before can contain it by accident or on purpose. A program that
 * git runs for the agent meanwhile could read and print it, as it could print anything: answers are never trusted.
 */
#include "git/ask.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { MARK_BYTES = 16, MARK_TEXT = 2 * MARK_BYTES + 1 };

static void put_quoted(struct pv_str *b, const char *word)
{
        pv_str_put(b, " '");
        for (const char *p = word; *p; p++) {
                if (*p == '\'')
                        pv_str_put(b, "'\\''");
                else
                        pv_str_putc(b, *p);
        }
        pv_str_putc(b, '\'');
}

static void put_question(struct pv_str *b, const struct pv_git_question *q, const char *mark, bool last)
{
        pv_str_putf(b, "(ulimit -S -t %u; g -C", q->cpu_seconds ? q->cpu_seconds : PV_GIT_CPU_SECONDS);
        put_quoted(b, q->worktree);
        if (q->exact_repo)
                pv_str_put(b, " --git-dir=.git");
        for (size_t i = 0; q->words[i]; i++)
                put_quoted(b, q->words[i]);
        if (q->with_known)
                pv_str_put(b, " $k");
        pv_str_putf(b, ")%s\nr=$?\nprintf '\\n%s %%s\\n' $r\n[ $r != %d ] || exit 0\n", last ? "" : " </dev/null", mark,
                    PV_GIT_TOO_DEAR);
}

static char *make_script(const struct pv_git_questions *q, const char *mark)
{
        pv_auto_str b = { 0 };
        pv_str_put(&b, "command -v git >/dev/null || exit 127\n"
                       "g() { git --no-pager --no-optional-locks --no-replace-objects -c 'safe.directory=*' "
                       "-c core.fsmonitor=false \"$@\"; }\n");
        pv_str_putf(&b, "k='%s'\n", q->known ? q->known : "");
        for (size_t i = 0; i < q->n; i++)
                put_question(&b, &q->item[i], mark, i + 1 == q->n);
        return pv_str_steal(&b);
}

/* Cuts the whole output into answers at the marks. */
static void split(const char *text, size_t len, const char *mark, size_t n, struct pv_git_answer *answers)
{
        const char *p = text, *end = text + len;
        pv_auto_free char *line = pv_strf("\n%s ", mark);
        for (size_t i = 0; i < n; i++) {
                answers[i] = (struct pv_git_answer){ .text = NULL, .exit_code = 128 };
                const char *at = memmem(p, (size_t)(end - p), line, strlen(line));
                size_t answer_len = at ? (size_t)(at - p) : 0;
                answers[i].text = pv_calloc(answer_len + 1, 1);
                if (!at)
                        continue;
                memcpy(answers[i].text, p, answer_len);
                answers[i].len = answer_len;
                if (sscanf(at + strlen(line), "%3d", &answers[i].exit_code) != 1)
                        answers[i].exit_code = 128;
                const char *nl = memchr(at + 1, '\n', (size_t)(end - at - 1));
                p = nl ? nl + 1 : end;
        }
}

int pv_git_ask(const struct pv_git_runner *runner, const struct pv_git_questions *q, struct pv_git_answer *answers,
               struct pv_err *err)
{
        unsigned char random[MARK_BYTES];
        char mark[MARK_TEXT];
        char shell[] = "sh", option[] = "-c";
        pv_auto_free char *text = NULL;
        size_t len = 0;
        int exit_code = 0;
        if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
                return pv_err_set(err, PV_ERR_SYS, errno, "getrandom");
        pv_hex(random, sizeof random, mark);
        pv_auto_free char *script = make_script(q, mark);
        char *argv[] = { shell, option, script, NULL };
        size_t room = q->n * (MARK_TEXT + 8);
        if (runner->run(runner->ctx, argv, q->in, q->in_len, q->max_out + room, &text, &len, &exit_code, err) < 0)
                return -1;
        if (exit_code == 127)
                return pv_err_set(err, PV_ERR_NOT_FOUND, 0, "git");
        split(text, len, mark, q->n, answers);
        return 0;
}

const char *pv_git_next_field(const char **p, const char *end)
{
        const char *nul = *p < end ? memchr(*p, '\0', (size_t)(end - *p)) : NULL;
        if (!nul)
                return NULL;
        const char *field = *p;
        *p = nul + 1;
        return field;
}
