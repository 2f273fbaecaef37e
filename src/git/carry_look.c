/* SPDX-License-Identifier: Apache-2.0 */
/* What the two sides have: the host's git answers for the host, the contained one for the job. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include "base/path.h"
#include "git/carry.h"

enum {
        REFS_BYTES_MAX = 64 << 20,
        KNOWN_MAX = 2000, /* tips of the host that the pack need not lead up to */
};

static const char *const which_are_there[] = { "cat-file", "--batch-check=%(objectname) %(objecttype)", NULL };
static const char *const all_refs[] = { "for-each-ref", "--format=%(objectname)%00%(refname)%00%(symref)", NULL };
static const char *const head_name[] = { "symbolic-ref", "-q", "HEAD", NULL };
static const char *const head_id[] = { "rev-parse", "-q", "--verify", "HEAD", NULL };
static const char *const whole_head[] = { "rev-parse", "HEAD", "--symbolic-full-name", "HEAD", NULL };
static const char *const worktrees[] = { "worktree", "list", "--porcelain", NULL };

/* The answer's one line. */
static char *line_of(const struct pv_git_answer *a)
{
        if (a->exit_code != 0 || !a->text || a->len < 2 || a->text[a->len - 1] != '\n' || strlen(a->text) != a->len)
                return NULL;
        return pv_strndup(a->text, a->len - 1);
}

static void read_head(const struct pv_git_answer *name, const struct pv_git_answer *id, char **head, char out[65])
{
        pv_auto_free char *text = line_of(id);
        *head = line_of(name);
        if (text && pv_is_object_name(text))
                (void)snprintf(out, 65, "%s", text);
}

static void read_tips(struct pv_git_answer *text, struct pv_tips *out)
{
        struct pv_side side = { .answer[PV_TOPIC_REFS] = *text };
        pv_tips_read(&side, out);
}

/*
 * Blocks of lines: "worktree /path", "HEAD id", "branch refs/heads/x". The main work tree comes first, in a submodule
 * under the name of its git directory.
 */
static void read_worktrees(struct pv_carry *c, char *text)
{
        bool own = false, first = true;
        for (char *line; (line = strsep(&text, "\n"));) {
                if (pv_str_has_prefix(line, "worktree ")) {
                        own = (first && pv_streq(c->host.git_dir, c->host.common_dir)) ||
                              pv_streq(line + strlen("worktree "), c->worktree);
                        first = false;
                }
                if (pv_str_has_prefix(line, "branch ") && !own)
                        pv_strv_add(&c->elsewhere, line + strlen("branch "));
        }
}

/* Both in one question; there is no answer where no commit is, or when HEAD names something odd. */
static bool read_whole_head(struct pv_carry *c, const struct pv_git_answer *a)
{
        char *nl = a->exit_code == 0 ? strchr(a->text, '\n') : NULL, *end = nl ? strchr(nl + 1, '\n') : NULL;
        if (!end || end[1])
                return false;
        *nl = *end = '\0';
        if (!pv_is_object_name(a->text) || !(pv_streq(nl + 1, "HEAD") || pv_str_has_prefix(nl + 1, "refs/heads/")))
                return false;
        (void)snprintf(c->host_head_id, sizeof c->host_head_id, "%s", a->text);
        if (!pv_streq(nl + 1, "HEAD"))
                c->host_head = pv_strdup(nl + 1);
        return true;
}

static int ask_hosts_head(struct pv_carry *c, struct pv_err *err)
{
        pv_auto_git_answer whole = { 0 }, name = { 0 }, id = { 0 };
        const struct pv_git_call ask_whole = { .words = whole_head }, ask_name = { .words = head_name },
                                 ask_id = { .words = head_id };
        if (pv_git_host_run(&c->host, &ask_whole, &whole, NULL, err) < 0)
                return -1;
        if (read_whole_head(c, &whole))
                return 0;
        if (pv_git_host_run(&c->host, &ask_name, &name, NULL, err) < 0 ||
            pv_git_host_run(&c->host, &ask_id, &id, NULL, err) < 0)
                return -1;
        read_head(&name, &id, &c->host_head, c->host_head_id);
        return 0;
}

static int ask_host(struct pv_carry *c, struct pv_err *err)
{
        pv_auto_git_answer trees = { 0 };
        const struct pv_git_call refs = { .words = all_refs }, ask_trees = { .words = worktrees };
        if (pv_git_host_must(&c->host, &refs, &c->host_text, err) < 0 || ask_hosts_head(c, err) < 0 ||
            pv_git_host_must(&c->host, &ask_trees, &trees, err) < 0)
                return -1;
        read_tips(&c->host_text, &c->host_tips);
        read_worktrees(c, trees.text);
        return 0;
}

static bool is_carried(const char *name)
{
        return pv_str_has_prefix(name, "refs/heads/") || pv_str_has_prefix(name, "refs/tags/");
}

/* Of the others it is only counted how many are not the host's. */
static void count_others(struct pv_carry *c)
{
        for (size_t i = 0; i < c->job_tips.n; i++) {
                const struct pv_tip *t = &c->job_tips.item[i];
                const char *id = pv_tips_find(&c->host_tips, t->name);
                if (!is_carried(t->name) && !pv_str_has_prefix(t->name, "refs/remotes/") &&
                    !(id && pv_streq(id, t->id)))
                        c->other_refs++;
        }
}

/* Branches and tags alone stay. */
static void sort_out(struct pv_tips *t)
{
        size_t n = 0;
        for (size_t i = 0; i < t->n; i++)
                if (is_carried(t->item[i].name))
                        t->item[n++] = t->item[i];
        t->n = n;
}

static void put_host_ids(const struct pv_carry *c, struct pv_str *out)
{
        for (size_t i = 0; i < c->host_tips.n && i < KNOWN_MAX; i++)
                pv_str_putf(out, "%s\n", c->host_tips.item[i].id);
        if (*c->host_head_id)
                pv_str_putf(out, "%s\n", c->host_head_id);
}

/* Which of the host's tips the job's repository still has: revisions that the pack is made up to. */
static void read_known(struct pv_carry *c, const struct pv_git_answer *a)
{
        pv_auto_str known = { 0 };
        char *rest = a->text;
        for (char *line; (line = strsep(&rest, "\n"));) {
                char *type = strchr(line, ' ');
                if (!type)
                        continue;
                *type++ = '\0';
                if (pv_is_object_name(line) && (pv_streq(type, "commit") || pv_streq(type, "tag")))
                        pv_str_putf(&known, "^%s\n", line);
        }
        c->known = pv_str_steal(&known);
}

static int ask_job(struct pv_carry *c, const struct pv_git_runner *job, struct pv_err *err)
{
        static const char *const *const words[] = { all_refs, head_name, head_id, which_are_there };
        pv_auto_str ids = { 0 };
        struct pv_git_answer answer[4] = { 0 };
        put_host_ids(c, &ids);
        struct pv_git_questions q = { .in = ids.s, .in_len = ids.len, .max_out = REFS_BYTES_MAX };
        for (; q.n < sizeof words / sizeof *words; q.n++)
                q.item[q.n] = (struct pv_git_question){ .worktree = c->view, .exact_repo = true, .words = words[q.n] };
        if (pv_git_ask(job, &q, answer, err) < 0)
                return pv_err_wrap(err, "ask git inside the job");
        c->job_text = answer[0];
        bool answered = answer[0].exit_code == 0;
        read_tips(&c->job_text, &c->job_tips);
        read_head(&answer[1], &answer[2], &c->job_head, c->job_head_id);
        read_known(c, &answer[3]);
        for (size_t i = 1; i < q.n; i++)
                pv_git_answer_fini(&answer[i]);
        count_others(c);
        sort_out(&c->job_tips);
        sort_out(&c->host_tips);
        return answered ? 0
                        : pv_err_set(err, PV_ERR_STATE, 0, "git inside the job cannot read its repository%s%s",
                                     *c->path ? " " : "", c->path);
}

int pv_carry_look(struct pv_carry *c, const char *path, const char *worktree, const char *view,
                  const struct pv_git_runner *job, struct pv_err *err)
{
        *c = (struct pv_carry){ .path = pv_strdup(path), .view = pv_strdup(view) };
        if (pv_path_real(worktree, &c->worktree, err) < 0 || pv_git_host_open(c->worktree, &c->host, err) < 0)
                return -1;
        unsigned nonce;
        if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
                return pv_err_set(err, PV_ERR_SYS, errno, "getrandom");
        c->quarantine = pv_strf("pvisor-import-%08x", nonce);
        return ask_host(c, err) < 0 ? -1 : ask_job(c, job, err);
}
