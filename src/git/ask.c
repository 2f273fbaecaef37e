/* SPDX-License-Identifier: Apache-2.0 */
#include "git/ask.h"

#include <string.h>

int pv_git_ask(const struct pv_git_runner *runner, const struct pv_git_question *q, struct pv_git_answer *out,
               struct pv_err *err)
{
        static const char *const before[] = {
                "git", "--no-pager",           "--no-optional-locks", "--no-replace-objects", "-c", "safe.directory=*",
                "-c",  "core.fsmonitor=false",
        };
        pv_auto_strv argv = { 0 };
        for (size_t i = 0; i < sizeof before / sizeof *before; i++)
                pv_strv_add(&argv, before[i]);
        pv_strv_add(&argv, "-C");
        pv_strv_add(&argv, q->worktree);
        if (q->exact_repo)
                pv_strv_add(&argv, "--git-dir=.git");
        for (size_t i = 0; q->words[i]; i++)
                pv_strv_add(&argv, q->words[i]);
        return runner->run(runner->ctx, argv.v, q->in, q->in_len, q->max_out, &out->text, &out->len, &out->exit_code,
                           err);
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
