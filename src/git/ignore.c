/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which changes git's rules ignore. Two questions whatever their number: `check-ignore --no-index` for each path and
 * each directory above one (the topmost ignored directory is what a change is folded into), then, for those that
 * match but were there before, whether the index has them: tracked files are never ignored. The index is not consulted
 * by the first question because git dies at the first path inside a submodule when it is.
 */
#include "git/classify.h"

#include <string.h>
#include <sys/stat.h>
#include "git/ask.h"
#include "git/configured.h"

enum {
        ASK_AGAIN_MAX = 8,     /* git dies at a path beyond a link; what comes after is asked again */
        RECORD_MAX = 4096 * 3, /* bytes of answer for one path: itself, the rule and the rule's file */
        /* Of the processor, for all rules on all paths: a few microseconds a path, but a pattern may cost anything. */
        CPU_SECONDS = 2,
        PATHS_A_SECOND = 10000,
};

static unsigned cpu_seconds(size_t paths)
{
        return CPU_SECONDS + (unsigned)(paths / PATHS_A_SECOND);
}

struct query {
        size_t change; /* index, or SIZE_MAX for a directory above one */
        const char *path;
        size_t len;
        bool is_dir; /* said to git by a trailing slash, since a deleted one is not there to be seen */
        bool matched;
};

struct queries {
        struct query *item;
        size_t n, cap;
};

static void queries_finip(struct queries *q)
{
        pv_freep(&q->item);
}

static void add_query(struct queries *q, struct query one)
{
        if (q->n == q->cap) {
                q->cap = q->cap ? q->cap * 2 : 256;
                q->item = pv_realloc(q->item, q->cap, sizeof *q->item);
        }
        q->item[q->n++] = one;
}

/* True when path lies below the first len bytes of dir. */
static bool is_under(const char *path, const char *dir, size_t len)
{
        return strncmp(path, dir, len) == 0 && path[len] == '/';
}

/* Adds the directories above path that the query before did not lie in. */
static void add_parents(struct queries *q, const char *path)
{
        const struct query *last = q->n ? &q->item[q->n - 1] : NULL;
        const char *last_path = last ? last->path : "";
        size_t last_len = last ? last->len : 0;
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                size_t len = (size_t)(slash - path);
                bool known = last && strncmp(path, last_path, len) == 0 && last_len >= len &&
                             (last_len == len || last_path[len] == '/');
                if (!known)
                        add_query(q, (struct query){ .change = SIZE_MAX, .path = path, .len = len, .is_dir = true });
        }
}

static void collect(struct queries *q, const struct pv_path_change *change, size_t n, const struct pv_verdict *verdict)
{
        const char *link = NULL; /* was a directory, is a link now: git refuses paths beyond it */
        for (size_t i = 0; i < n; i++) {
                const struct pv_path_change *c = &change[i];
                if (c->root != 0 || verdict[i].place != PV_PLACE_TREE || !*c->path)
                        continue;
                if (link && is_under(c->path, link, strlen(link)))
                        continue;
                link = S_ISLNK(c->new_mode) ? c->path : NULL;
                add_parents(q, c->path);
                add_query(q, (struct query){ .change = i,
                                             .path = c->path,
                                             .len = strlen(c->path),
                                             .is_dir = S_ISDIR(c->new_mode ? c->new_mode : c->old_mode) });
        }
}

/* Reads "source NUL line NUL pattern NUL path NUL" for each query from *at on; *at is left at the first without one. */
static void read_matches(struct queries *q, size_t *at, const struct pv_git_answer *a)
{
        const char *p = a->text, *end = a->text + a->len;
        for (; *at < q->n; (*at)++) {
                const char *source = pv_git_next_field(&p, end), *line = pv_git_next_field(&p, end);
                const char *pattern = pv_git_next_field(&p, end), *path = pv_git_next_field(&p, end);
                struct query *one = &q->item[*at];
                if (!source || !line || !pattern || !path)
                        return;
                if (strncmp(path, "./", 2) != 0 || strlen(path) != 2 + one->len + one->is_dir ||
                    memcmp(path + 2, one->path, one->len) != 0)
                        return;
                one->matched = *pattern && *pattern != '!';
        }
}

/* One run for the queries from `at` on, and for what is configured unless that is NULL. */
static int ask_once(const struct pv_git_runner *view, const char *worktree, struct queries *q, size_t *at,
                    struct pv_configured *configured, int *exit_code, struct pv_err *err)
{
        static const char *const words[] = { "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n", NULL };
        pv_auto_str in = { 0 };
        pv_auto_git_answer rules = { 0 };
        for (size_t i = *at; i < q->n; i++) {
                pv_str_put(&in, "./");
                pv_str_put_bytes(&in, q->item[i].path, q->item[i].len);
                if (q->item[i].is_dir)
                        pv_str_putc(&in, '/');
                pv_str_putc(&in, '\0');
        }
        struct pv_git_questions ask = { .in = in.s,
                                        .in_len = in.len,
                                        .max_out = in.len + (q->n - *at) * RECORD_MAX + PV_CONFIGURED_MAX };
        /* First, so that no rule keeps it from being answered. */
        if (configured)
                pv_configured_put(&ask, worktree);
        ask.item[ask.n++] = (struct pv_git_question){ .worktree = worktree,
                                                      .words = words,
                                                      .cpu_seconds = cpu_seconds(q->n - *at) };
        struct pv_git_answer answers[PV_CONFIGURED_QUESTIONS + 1] = { 0 };
        if (pv_git_ask(view, &ask, answers, err) < 0)
                return -1;
        rules = answers[ask.n - 1];
        bool dear = false; /* then the rules were not asked about */
        for (size_t i = 0; i + 1 < ask.n; i++)
                dear |= answers[i].exit_code == PV_GIT_TOO_DEAR;
        if (configured)
                pv_configured_take(answers, worktree, configured);
        if (dear)
                return pv_err_set(err, PV_ERR_INPUT, 0, "its configuration takes too long to read; nothing is folded");
        if (rules.exit_code == PV_GIT_TOO_DEAR)
                return pv_err_set(err, PV_ERR_INPUT, 0, "its rules take too long to match; nothing is folded");
        read_matches(q, at, &rules);
        *exit_code = rules.exit_code;
        return 0;
}

static int ask_rules(const struct pv_git_runner *view, const char *worktree, struct queries *q,
                     struct pv_configured *configured, bool *asked, struct pv_err *err)
{
        size_t at = 0;
        for (unsigned again = 0; at < q->n && again < ASK_AGAIN_MAX; again++) {
                size_t before = at;
                int exit_code = 0;
                if (ask_once(view, worktree, q, &at, again ? NULL : configured, &exit_code, err) < 0)
                        return -1;
                if (exit_code > 1 && at == 0 && before == 0)
                        return 0; /* not a repository */
                *asked = true;
                if (at < q->n)
                        at++; /* the one that git died of */
        }
        return 0;
}

static bool is_object_name(const char *s, size_t len)
{
        return (len == 40 || len == 64) && strspn(s, "0123456789abcdef") == len;
}

/* The tracked ones among the matches are none. */
static int ask_index(const struct pv_git_runner *view, const char *worktree, struct queries *q,
                     const struct pv_path_change *change, struct pv_err *err)
{
        static const char *const words[] = { "cat-file", "--batch-check=%(objectname)", "-z", NULL };
        pv_auto_str in = { 0 };
        pv_auto_free struct query **asked = pv_calloc(q->n, sizeof *asked);
        size_t n = 0;
        for (size_t i = 0; i < q->n; i++) {
                struct query *one = &q->item[i];
                if (!one->matched || one->change == SIZE_MAX || change[one->change].kind == PV_PATH_ADDED)
                        continue;
                one->matched = false; /* until git says that it is not in the index */
                if (memchr(one->path, '\n', one->len))
                        continue;
                pv_str_put(&in, ":0:./");
                pv_str_put_bytes(&in, one->path, one->len);
                pv_str_putc(&in, '\0');
                asked[n++] = one;
        }
        if (n == 0)
                return 0;
        pv_auto_git_answer a = { 0 };
        struct pv_git_questions ask = {
                .item = { { .worktree = worktree, .words = words, .cpu_seconds = cpu_seconds(n) } },
                .n = 1,
                .in = in.s,
                .in_len = in.len,
                .max_out = in.len + n * 80
        };
        if (pv_git_ask(view, &ask, &a, err) < 0)
                return -1;
        const char *p = a.text, *end = a.text + a.len;
        for (size_t i = 0; i < n && p < end; i++) {
                const char *nl = memchr(p, '\n', (size_t)(end - p));
                if (!nl)
                        break;
                asked[i]->matched = !is_object_name(p, (size_t)(nl - p));
                p = nl + 1;
        }
        return 0;
}

/* Sets the verdicts: the topmost matched directory above a match is its fold. */
static void conclude(const struct queries *q, struct pv_verdict *verdict)
{
        const struct query *top = NULL;
        for (size_t i = 0; i < q->n; i++) {
                const struct query *one = &q->item[i];
                if (top && !is_under(one->path, top->path, top->len))
                        top = NULL;
                if (one->change != SIZE_MAX && one->matched) {
                        verdict[one->change].ignored = true;
                        verdict[one->change].ignored_len = top ? top->len : one->len;
                }
                if (!top && one->matched)
                        top = one;
        }
}

int pv_ignore_ask(const struct pv_git_runner *view, const char *workspace_view, const struct pv_path_change *change,
                  size_t n, struct pv_verdict *verdict, struct pv_configured *configured, bool *asked,
                  struct pv_err *err)
{
        __attribute__((cleanup(queries_finip))) struct queries q = { 0 };
        *asked = false;
        collect(&q, change, n, verdict);
        if (q.n == 0) {
                *asked = true;
                return 0;
        }
        if (ask_rules(view, workspace_view, &q, configured, asked, err) < 0)
                return -1;
        if (*asked && ask_index(view, workspace_view, &q, change, err) < 0)
                return -1;
        conclude(&q, verdict);
        return 0;
}

/* The length of the longest directory that both lie in (or are). */
static size_t common_dir(const char *a, size_t a_len, const char *b, size_t b_len)
{
        size_t common = 0;
        for (size_t i = 0; i <= a_len && i <= b_len; i++) {
                bool a_ends = i == a_len || a[i] == '/', b_ends = i == b_len || b[i] == '/';
                if (a_ends && b_ends)
                        common = i;
                if (i == a_len || i == b_len || a[i] != b[i])
                        break;
        }
        return common;
}

void pv_fold_ignored(const struct pv_path_change *change, const struct pv_verdict *verdict, size_t n,
                     struct pv_fold **out, size_t *n_out)
{
        struct pv_fold *fold = NULL;
        size_t n_folds = 0;
        for (size_t i = 0; i < n; i++) {
                const struct pv_path_change *c = &change[i];
                if (!verdict[i].ignored)
                        continue;
                struct pv_fold *last = n_folds ? &fold[n_folds - 1] : NULL;
                size_t len = last && last->root == c->root
                                     ? common_dir(last->path, last->len, c->path, verdict[i].ignored_len)
                                     : 0;
                if (len == 0) {
                        fold = pv_realloc(fold, n_folds + 1, sizeof *fold);
                        last = &fold[n_folds++];
                        *last = (struct pv_fold){ .root = c->root, .path = c->path, .len = verdict[i].ignored_len };
                        len = last->len;
                }
                last->len = len;
                last->n += !S_ISDIR(c->new_mode ? c->new_mode : c->old_mode);
                last->n_deleted += c->kind == PV_PATH_DELETED;
                last->size += S_ISREG(c->new_mode) ? c->size : 0;
        }
        *out = fold;
        *n_out = n_folds;
}
