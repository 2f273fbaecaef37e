/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What git's configuration names in the working tree: files that git on the host reads or runs by itself, so that a
 * change of theirs is as good as a change of the configuration. Read from `git config --list`, which follows includes.
 * A value is taken for a command line: whatever word of it is a file of the tree may be the program, or its script.
 */
#include "git/configured.h"

#include <stdlib.h>
#include <string.h>
#include "base/path.h"

void pv_configured_fini(struct pv_configured *c)
{
        pv_strv_fini(&c->hooks);
        pv_strv_fini(&c->programs);
        pv_strv_fini(&c->files);
}

enum { CPU_SECONDS = 2 };

/* Adds path, absolute, as it is relative to the working tree; what lies elsewhere is nobody's change. */
static void add(struct pv_strv *out, const char *worktree, const char *path)
{
        pv_auto_free char *whole = pv_path_normalise(path);
        if (!pv_path_is_within(whole, worktree))
                return;
        const char *relative = whole + strlen(worktree);
        relative += *relative == '/';
        pv_strv_add(out, relative);
}

static int by_text(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In order and each once: a job may have written as many as the answer has room for. */
static void sort_out(struct pv_strv *list)
{
        size_t kept = 0;
        if (list->n > 1)
                qsort(list->v, list->n, sizeof *list->v, by_text);
        for (size_t i = 0; i < list->n; i++) {
                if (kept && pv_streq(list->v[kept - 1], list->v[i]))
                        free(list->v[i]);
                else
                        list->v[kept++] = list->v[i];
        }
        list->n = kept;
        if (list->v)
                list->v[kept] = NULL;
}

bool pv_configured_has(const struct pv_strv *list, const char *path)
{
        return list->n && bsearch(&path, list->v, list->n, sizeof *list->v, by_text);
}

static void read_hooks(const struct pv_git_answer *a, const char *worktree, struct pv_configured *out)
{
        if (a->exit_code != 0 || a->len < 2 || a->text[0] != '/' || memchr(a->text, '\0', a->len))
                return;
        a->text[a->len - 1] = '\0'; /* the newline */
        add(&out->hooks, worktree, a->text);
}

static void add_relative(struct pv_strv *out, const char *worktree, const char *dir, const char *path)
{
        pv_auto_free char *from = dir[0] == '/' ? pv_strdup(dir) : pv_path_join(worktree, dir);
        pv_auto_free char *whole = path[0] == '/' ? pv_strdup(path) : pv_path_join(from, path);
        add(out, worktree, whole);
}

static void add_words(struct pv_strv *out, const char *worktree, const char *value)
{
        static const char apart[] = " \t\n'\"`;|&()<>=!,";
        for (const char *p = value + strspn(value, apart); *p; p += strspn(p, apart)) {
                size_t n = strcspn(p, apart);
                pv_auto_free char *word = pv_strndup(p, n);
                if (*word != '-' && *word != '~')
                        add_relative(out, worktree, worktree, word);
                p += n;
        }
}

/* key is "section.variable" or "section.sub.section.variable", the outer parts in lower case. */
static bool runs_programs(const char *key)
{
        static const char *const sections[] = { "alias.", "pager.", "hook." };
        static const char *const variables[] = {
                ".fsmonitor",
                ".sshcommand",
                ".editor",
                ".pager",
                ".askpass",
                ".gitproxy",
                ".external",
                ".command",
                ".cmd",
                ".textconv",
                ".clean",
                ".smudge",
                ".process",
                ".driver",
                ".helper",
                ".program",
                ".difffilter",
                ".packobjectshook",
                ".uploadpack",
                ".receivepack",
                ".defaultkeycommand",
                ".alternaterefscommand",
        };
        for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
                if (pv_str_has_prefix(key, sections[i]))
                        return true;
        for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
                if (pv_str_has_suffix(key, variables[i]))
                        return true;
        return false;
}

static bool includes(const char *key)
{
        return pv_streq(key, "include.path") ||
               (pv_str_has_prefix(key, "includeif.") && pv_str_has_suffix(key, ".path"));
}

static void read_list(const struct pv_git_answer *a, const char *worktree, struct pv_configured *out)
{
        const char *p = a->text, *end = a->text ? a->text + a->len : NULL;
        const char *origin, *entry;
        while (a->exit_code == 0 && (origin = pv_git_next_field(&p, end)) && (entry = pv_git_next_field(&p, end))) {
                const char *newline = strchr(entry, '\n');
                if (!newline || !pv_str_has_prefix(origin, "file:"))
                        continue;
                pv_auto_free char *key = pv_strndup(entry, (size_t)(newline - entry));
                const char *file = origin + strlen("file:"), *slash = strrchr(file, '/');
                pv_auto_free char *dir = pv_strndup(slash ? file : ".", slash ? (size_t)(slash - file) : 1);
                if (includes(key) && newline[1] != '~')
                        add_relative(&out->files, worktree, dir, newline + 1);
                else if (runs_programs(key))
                        add_words(&out->programs, worktree, newline + 1);
        }
}

void pv_configured_put(struct pv_git_questions *ask, const char *worktree)
{
        static const char *const hooks[] = { "rev-parse", "--path-format=absolute", "--git-path", "hooks", NULL };
        static const char *const list[] = { "config", "--list", "--show-origin", "-z", NULL };
        ask->item[ask->n++] =
                (struct pv_git_question){ .worktree = worktree, .words = hooks, .cpu_seconds = CPU_SECONDS };
        ask->item[ask->n++] =
                (struct pv_git_question){ .worktree = worktree, .words = list, .cpu_seconds = CPU_SECONDS };
}

void pv_configured_take(struct pv_git_answer answers[PV_CONFIGURED_QUESTIONS], const char *worktree,
                        struct pv_configured *out)
{
        read_hooks(&answers[0], worktree, out);
        read_list(&answers[1], worktree, out);
        sort_out(&out->hooks);
        sort_out(&out->programs);
        sort_out(&out->files);
        for (size_t i = 0; i < PV_CONFIGURED_QUESTIONS; i++)
                pv_git_answer_fini(&answers[i]);
}

int pv_configured_ask(const struct pv_git_runner *runner, const char *worktree, struct pv_configured *out,
                      struct pv_err *err)
{
        struct pv_git_answer answers[PV_CONFIGURED_QUESTIONS] = { 0 };
        struct pv_git_questions ask = { .max_out = PV_CONFIGURED_MAX };
        pv_configured_put(&ask, worktree);
        if (pv_git_ask(runner, &ask, answers, err) < 0)
                return -1;
        pv_configured_take(answers, worktree, out);
        return 0;
}
