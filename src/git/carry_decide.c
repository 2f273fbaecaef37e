/* SPDX-License-Identifier: Apache-2.0 */
/* Which reference goes where. By the host's git, with the objects at hand: the job's has no say in it. */
#include <stdio.h>
#include <string.h>
#include "base/path.h"
#include "git/carry.h"
#include "git/carry_names.h"

/* What git cannot tell, for want of an object, is no descent. */
static int is_ancestor(struct pv_carry *c, const char *old_id, const char *new_id, bool *yes, struct pv_err *err)
{
        const char *const words[] = { "merge-base", "--is-ancestor", old_id, new_id, NULL };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        *yes = false;
        if (!*old_id || !*new_id)
                return 0;
        if (pv_git_host_run(&c->host, &call, &a, NULL, err) < 0)
                return -1;
        *yes = a.exit_code == 0;
        return 0;
}

/* What the host's branches and tags do not lead to, nor a reference that was counted before. */
static int count_commits(struct pv_carry *c, struct pv_carry_ref *r, struct pv_err *err)
{
        static const char *const words[] = { "rev-list",   "--count", "--stdin",   "--not",
                                             "--branches", "--tags",  "--remotes", NULL };
        pv_auto_str in = { 0 };
        pv_auto_git_answer a = { 0 };
        pv_str_putf(&in, "%s\n", r->new_id);
        for (const struct pv_carry_ref *other = c->ref; other < r; other++)
                if (other->dest)
                        pv_str_putf(&in, "^%s\n", other->new_id);
        const struct pv_git_call call = { .words = words, .in = in.s, .in_len = in.len };
        if (pv_git_host_run(&c->host, &call, &a, NULL, err) < 0)
                return -1;
        r->commits = strtoul(a.text ? a.text : "", NULL, 10); /* 0 of a tag that names no commit */
        return 0;
}

static void leave(struct pv_carry_ref *r, const char *why)
{
        pv_freep(&r->dest);
        r->here = r->aside = false;
        r->why = why;
}

/* A branch of its own, under a name that nobody has. */
static void put_aside(struct pv_carry *c, struct pv_carry_ref *r, const char *job, const char *why)
{
        pv_auto_free char *base = pv_strf(PV_ASIDE "%s", job);
        for (size_t i = 0; i < c->host_tips.n; i++)
                if (pv_str_has_prefix(c->host_tips.item[i].name, base) &&
                    pv_streq(c->host_tips.item[i].id, r->new_id)) {
                        leave(r, "was brought aside before");
                        return;
                }
        for (unsigned n = 1; n < 1000; n++) {
                pv_auto_free char *name = n == 1 ? pv_strdup(base) : pv_strf("%s-%u", base, n);
                bool taken = pv_tips_find(&c->host_tips, name) || pv_carry_clashes(c, name);
                for (size_t i = 0; i < c->n_refs; i++)
                        taken |= c->ref[i].dest && pv_streq(c->ref[i].dest, name);
                if (taken)
                        continue;
                free(r->dest);
                r->dest = pv_steal(&name);
                r->old_id[0] = '\0';
                r->aside = true;
                r->here = r->rewritten = false;
                r->why = why;
                return;
        }
        leave(r, "there is no name left for a branch of its own");
}

static bool is_busy(const struct pv_carry *c)
{
        static const char *const marks[] = { "MERGE_HEAD",   "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge",
                                             "rebase-apply", "sequencer",        "BISECT_START" };
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
                pv_auto_free char *path = pv_path_join(c->host.git_dir, marks[i]);
                if (access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

bool pv_carry_still_here(const struct pv_carry *c, const char **why)
{
        static const char *const name[] = { "symbolic-ref", "-q", "HEAD", NULL };
        const struct pv_git_call call = { .words = name };
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_git_answer a = { 0 };
        if (is_busy(c)) {
                *why = "a merge, rebase, cherry-pick or bisect is under way here";
                return false;
        }
        *why = "another branch was checked out here meanwhile";
        if (pv_git_host_run(&c->host, &call, &a, NULL, &ignored) < 0)
                return false;
        if (a.len && a.text[a.len - 1] == '\n')
                a.text[a.len - 1] = '\0';
        return c->host_head ? a.exit_code == 0 && pv_streq(a.text, c->host_head) : a.exit_code != 0;
}

/* The branch that the host's work tree has checked out: its files and index have to go with it. */
static void decide_here(struct pv_carry *c, struct pv_carry_ref *r, const char *job)
{
        if (!c->job_head || !pv_streq(c->job_head, r->name))
                put_aside(c, r, job, "is checked out here, and the job's working tree is of something else");
        else if (is_busy(c))
                put_aside(c, r, job, "a merge, rebase, cherry-pick or bisect is under way here");
        else
                r->here = true;
}

static void decide_place(struct pv_carry *c, struct pv_carry_ref *r, const char *job)
{
        if (pv_strv_has(&c->elsewhere, r->dest))
                put_aside(c, r, job, "is checked out in another work tree of yours");
        else if (pv_strv_has(&c->held, r->dest))
                put_aside(c, r, job, "is in a rebase or bisect that is under way here");
        else if (c->host_head && pv_streq(c->host_head, r->dest))
                decide_here(c, r, job);
}

static void take(struct pv_carry_ref *r)
{
        free(r->dest);
        r->dest = pv_strdup(r->name);
}

static int decide_branch(struct pv_carry *c, struct pv_carry_ref *r, const char *was, const struct pv_carry_options *o,
                         struct pv_err *err)
{
        bool forward, host_forward = true, behind = false;
        bool host_moved = was && !pv_streq(was, r->old_id);
        if (!*r->old_id) {
                if (was && *was)
                        put_aside(c, r, o->job, "was deleted here meanwhile");
                else if (pv_carry_clashes(c, r->name))
                        leave(r, "its name clashes with another one here");
                else
                        take(r);
                if (r->dest && !r->aside)
                        decide_place(c, r, o->job);
                return 0;
        }
        if (is_ancestor(c, r->old_id, r->new_id, &forward, err) < 0 ||
            (!forward && is_ancestor(c, r->new_id, r->old_id, &behind, err) < 0) ||
            (host_moved && is_ancestor(c, was, r->old_id, &host_forward, err) < 0))
                return -1;
        if (forward && (!host_moved || host_forward))
                take(r);
        else if (behind && (host_moved || !was))
                leave(r, NULL); /* the host has it all, and more */
        else if (host_moved)
                put_aside(c, r, o->job, "was moved here meanwhile");
        else if (o->rewritten && was)
                take(r);
        else
                leave(r, behind ? "was moved back in the job; --rewritten does that here, too"
                                : "was rewritten in the job; --rewritten moves it here, too, --branch NAME brings it "
                                  "as another");
        r->rewritten = r->dest && !r->aside && !forward;
        if (r->dest && !r->aside)
                decide_place(c, r, o->job);
        return 0;
}

static int decide_head(struct pv_carry *c, struct pv_carry_ref *r, const char *was, const struct pv_carry_options *o,
                       struct pv_err *err)
{
        bool forward = false;
        if (c->host_head)
                put_aside(c, r, o->job, "its HEAD is on no branch");
        else if (is_ancestor(c, r->old_id, r->new_id, &forward, err) < 0)
                return -1;
        else if (forward || (o->rewritten && was && pv_streq(was, r->old_id)))
                take(r);
        else
                put_aside(c, r, o->job, "is not what follows HEAD here");
        if (r->aside || !r->dest)
                return 0;
        r->rewritten = !forward;
        if (is_busy(c))
                put_aside(c, r, o->job, "a merge, rebase, cherry-pick or bisect is under way here");
        else
                r->here = true;
        return 0;
}

/* The one of --branch: neither work tree nor index is touched, so it must not be checked out anywhere. */
static int decide_named(struct pv_carry *c, struct pv_carry_ref *r, const char *branch, struct pv_err *err)
{
        bool forward = false;
        if (pv_strv_has(&c->elsewhere, r->dest) || (c->host_head && pv_streq(c->host_head, r->dest)))
                return pv_err_set(err, PV_ERR_CONFLICT, 0, "--branch %s: is checked out here", branch);
        if (pv_strv_has(&c->held, r->dest))
                return pv_err_set(err, PV_ERR_CONFLICT, 0,
                                  "--branch %s: is in a rebase or bisect that is under way here", branch);
        if (!*r->old_id)
                return pv_carry_clashes(c, r->dest) && !pv_tips_find(&c->host_tips, r->dest)
                               ? pv_err_set(err, PV_ERR_CONFLICT, 0, "--branch %s: clashes with another name", branch)
                               : 0;
        if (is_ancestor(c, r->old_id, r->new_id, &forward, err) < 0)
                return -1;
        if (!forward) {
                (void)pv_err_set(err, PV_ERR_CONFLICT, 0,
                                 "--branch %s: is there, and has commits that the job's has not", branch);
                return pv_err_hint(err, "another name makes a new branch");
        }
        return 0;
}

/* A branch of anything else git would not make. */
static int is_commit(struct pv_carry *c, const char *id, bool *yes, struct pv_err *err)
{
        const char *const words[] = { "cat-file", "-t", id, NULL };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_run(&c->host, &call, &a, NULL, err) < 0)
                return -1;
        *yes = a.exit_code == 0 && pv_streq(a.text, "commit\n");
        return 0;
}

static int decide_ref(struct pv_carry *c, struct pv_carry_ref *r, const struct pv_git_start *start,
                      const struct pv_carry_options *o, struct pv_err *err)
{
        const char *was = pv_carry_at_start(start, r->name);
        bool commit = true;
        if (*r->new_id && !pv_str_has_prefix(r->name, PV_TAGS) && is_commit(c, r->new_id, &commit, err) < 0)
                return -1;
        if (!commit) {
                leave(r, "is no commit");
                return 0;
        }
        if (o->branch)
                return decide_named(c, r, o->branch, err);
        if (!*r->new_id) {
                leave(r, "was deleted in the job; it stays here");
                return 0;
        }
        if (pv_streq(r->name, "HEAD"))
                return decide_head(c, r, was, o, err);
        if (!pv_carry_is_sane(r->name)) {
                leave(r, "has a name that is not taken over; --branch NAME gives it another");
                return 0;
        }
        if (pv_str_has_prefix(r->name, PV_ASIDE)) {
                leave(r, "has a name of pVisor's own");
                return 0;
        }
        if (pv_str_has_prefix(r->name, PV_HEADS))
                return decide_branch(c, r, was, o, err);
        if (*r->old_id)
                leave(r, "is another one here; tags are not moved");
        else if (was && *was)
                leave(r, "was deleted here meanwhile");
        else if (pv_carry_clashes(c, r->name))
                leave(r, "its name clashes with another one here");
        else
                take(r);
        return 0;
}

/* --- the checked-out branch's paths --- */

static int by_path(const void *a, const void *b)
{
        const struct pv_carry_path *x = a, *y = b;
        return strcmp(x->path, y->path);
}

static void put_mode(char out[7], const char *mode)
{
        bool none = pv_streq(mode, "000000");
        (void)snprintf(out, 7, "%s", none ? "0" : mode);
}

/* ":mode mode id id STATUS" */
static bool read_change(const char *record, const char *path, struct pv_carry_path *out)
{
        char old_mode[8], new_mode[8], old_id[66], new_id[66], status[8];
        *out = (struct pv_carry_path){ 0 };
        if (sscanf(record, ":%7s %7s %65s %65s %7s", old_mode, new_mode, old_id, new_id, status) != 5 ||
            strlen(old_mode) != 6 || strlen(new_mode) != 6 || !pv_is_object_name(old_id) || !pv_is_object_name(new_id))
                return false;
        put_mode(out->old_mode, old_mode);
        put_mode(out->new_mode, new_mode);
        memcpy(out->old_id, old_id, strlen(old_id) + 1); /* 64 digits at most, and a NUL */
        memcpy(out->new_id, new_id, strlen(new_id) + 1);
        out->path = pv_strdup(path);
        return true;
}

/* The tree that has nothing in it, which git knows without its being stored. */
static int empty_tree(struct pv_carry *c, char out[65], struct pv_err *err)
{
        static const char *const words[] = { "hash-object", "-t", "tree", "--stdin", NULL };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_must(&c->host, &call, &a, err) < 0)
                return -1;
        a.text[strcspn(a.text, "\n")] = '\0';
        (void)snprintf(out, 65, "%s", a.text);
        return 0;
}

static int list_paths(struct pv_carry *c, const struct pv_carry_ref *r, struct pv_err *err)
{
        char base[65];
        (void)snprintf(base, sizeof base, "%s", r->old_id);
        if (!*base && empty_tree(c, base, err) < 0)
                return -1;
        const char *const words[] = {
                "diff-tree", "-r",      "-z", "--raw", "--no-renames", "--no-abbrev", "--no-ext-diff",
                base,        r->new_id, "--", NULL
        };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        size_t cap = 0;
        const char *record, *path;
        if (pv_git_host_must(&c->host, &call, &a, err) < 0)
                return -1;
        const char *p = a.text, *end = a.text + a.len;
        while ((record = pv_git_next_field(&p, end)) && (path = pv_git_next_field(&p, end))) {
                if (c->n_changed == PV_CARRY_PATHS_MAX)
                        return pv_err_set(err, PV_ERR_POLICY, 0, "commits: they change more than %d paths",
                                          PV_CARRY_PATHS_MAX);
                if (c->n_changed == cap) {
                        cap = cap ? cap * 2 : 64;
                        c->changed = pv_realloc(c->changed, cap, sizeof *c->changed);
                }
                if (!read_change(record, path, &c->changed[c->n_changed]))
                        return pv_err_set(err, PV_ERR_INPUT, 0, "git diff-tree: an answer that cannot be read");
                c->n_changed++;
        }
        if (c->n_changed)
                qsort(c->changed, c->n_changed, sizeof *c->changed, by_path);
        return 0;
}

int pv_carry_decide(struct pv_carry *c, const struct pv_git_start *start, const struct pv_carry_options *o,
                    struct pv_err *err)
{
        if (pv_carry_read_held(c, err) < 0)
                return -1;
        for (size_t i = 0; i < c->n_refs; i++) {
                struct pv_carry_ref *r = &c->ref[i];
                if (decide_ref(c, r, start, o, err) < 0 || (r->dest && count_commits(c, r, err) < 0))
                        return -1;
        }
        const struct pv_carry_ref *here = pv_carry_here(c);
        return here ? list_paths(c, here, err) : 0;
}
