/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to bring commits that a job made into the host's repository as git would have brought them from another
 * machine. Non-job: configuration, hooks, remotes, stash, notes: they stay where they are.
 *
 * Actors: the job's git runs inside the job's boundary and may say anything. The host's git (host.h) runs outside, on
 * the host's own repository, and sees of the job nothing but the bytes of a pack and names that were checked here. The
 * host's other programs, git above all, go on working at any time.
 *
 * The sequence, for each repository; the caller keeps a record (carry_record.c) from before the second step on:
 *
 *  1. look      both sides name their references
 *     compare   what differs and is the job's doing: the host's references at the job's start tell (start.h)
 *  2. import    pack inside -> pipe -> `index-pack --strict` into a quarantine below the host's objects/; then every
 *               object that the new tips need must be there, which is looked for while the next step goes on.
 *               Nothing else of the repository has changed.
 *  3. decide    with the objects at hand, by the host's git: a branch moves when that is a fast-forward of what the
 *               host has; what the host moved meanwhile goes aside, to a branch of its own
 *  4. lock      the index, as git does, and look at the entries that will be set
 *     admit     the quarantine's pack is renamed into place, pinned by references below refs/pvisor/ and a .keep
 *     (files)   the caller publishes the working tree's files: all or nothing
 *  5. move      references by compare-and-swap, in one transaction, which drops the pins, too
 *     index     the entries of what landed
 *     unlock
 *
 * A crash before the files are published is taken back: pins, quarantine and lock go. After it, step 5 is done again;
 * each of its parts may be repeated. Objects are only ever added: nothing here deletes one that was admitted.
 *
 * Garbage collection on the host may run at any time: new objects are pinned before it is checked that all that they
 * need is there, so that either the check fails or the collector sees them.
 */
#include "git/carry.h"

#include <stdio.h>
#include <string.h>
#include "git/carry_names.h"

void pv_carry_fini(struct pv_carry *c)
{
        for (size_t i = 0; i < c->n_refs; i++) {
                free(c->ref[i].name);
                free(c->ref[i].dest);
        }
        for (size_t i = 0; i < c->n_changed; i++)
                free(c->changed[i].path);
        free(c->ref);
        free(c->changed);
        free(c->path);
        free(c->worktree);
        free(c->view);
        free(c->host_head);
        free(c->job_head);
        free(c->known);
        free(c->quarantine);
        pv_tips_fini(&c->host_tips);
        pv_tips_fini(&c->job_tips);
        pv_git_answer_fini(&c->host_text);
        pv_git_answer_fini(&c->job_text);
        pv_strv_fini(&c->elsewhere);
        pv_strv_fini(&c->held);
        pv_git_running_fini(&c->looking);
        pv_git_host_fini(&c->host);
        *c = (struct pv_carry){ 0 };
}

bool pv_carry_any(const struct pv_carry *c)
{
        for (size_t i = 0; i < c->n_refs; i++)
                if (c->ref[i].dest)
                        return true;
        return false;
}

const struct pv_carry_ref *pv_carry_here(const struct pv_carry *c)
{
        for (size_t i = 0; i < c->n_refs; i++)
                if (c->ref[i].here)
                        return &c->ref[i];
        return NULL;
}

/* --- comparing --- */

static int add(struct pv_carry *c, const char *name, const char *old_id, const char *new_id, struct pv_err *err)
{
        if (c->n_refs == PV_CARRY_REFS_MAX)
                return pv_err_set(err, PV_ERR_POLICY, 0,
                                  "commits: more than %d references differ; name one with --branch", PV_CARRY_REFS_MAX);
        c->ref = pv_realloc(c->ref, c->n_refs + 1, sizeof *c->ref);
        struct pv_carry_ref *r = &c->ref[c->n_refs++];
        *r = (struct pv_carry_ref){ .name = pv_strdup(name) };
        (void)snprintf(r->old_id, sizeof r->old_id, "%s", old_id ? old_id : "");
        (void)snprintf(r->new_id, sizeof r->new_id, "%s", new_id ? new_id : "");
        return 0;
}

/* The host's references lead to it. An object that merely is there still, as after a reset, is not had any more. */
static int is_reachable(struct pv_carry *c, const char *id, bool *yes, struct pv_err *err)
{
        const char *const words[] = { "rev-list", "--max-count=1", id, "--not", "--exclude=" PV_PINS "*", "--all", "--",
                                      NULL };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_run(&c->host, &call, &a, NULL, err) < 0)
                return -1;
        *yes = a.exit_code == 0 && a.len == 0;
        return 0;
}

/* The job did not move it, or it was brought over and the host has it yet. */
static int is_settled(struct pv_carry *c, const struct pv_git_start *start, const char *name, const char *id, bool *yes,
                      struct pv_err *err)
{
        const char *was = pv_carry_at_start(start, name);
        *yes = was && pv_streq(was, id);
        if (!*yes || pv_str_has_prefix(name, PV_TAGS) || !pv_tips_find(&start->learned, name))
                return 0;
        return is_reachable(c, id, yes, err);
}

static int compare_refs(struct pv_carry *c, const struct pv_git_start *start, struct pv_err *err)
{
        for (size_t i = 0; i < c->job_tips.n; i++) {
                const struct pv_tip *t = &c->job_tips.item[i];
                const char *host = pv_tips_find(&c->host_tips, t->name);
                bool settled;
                if (host && pv_streq(host, t->id))
                        continue;
                if (is_settled(c, start, t->name, t->id, &settled, err) < 0)
                        return -1;
                if (!settled && add(c, t->name, host, t->id, err) < 0)
                        return -1;
        }
        for (size_t i = 0; i < c->host_tips.n; i++) {
                const struct pv_tip *t = &c->host_tips.item[i];
                const char *was = pv_carry_at_start(start, t->name);
                if (pv_tips_find(&c->job_tips, t->name) || (was && !*was))
                        continue;
                if (add(c, t->name, t->id, NULL, err) < 0)
                        return -1;
        }
        return 0;
}

static bool is_a_tip(const struct pv_tips *t, const char *id)
{
        for (size_t i = 0; i < t->n; i++)
                if (pv_streq(t->item[i].id, id))
                        return true;
        return false;
}

/* Commits on a detached HEAD belong to no branch. */
static int compare_head(struct pv_carry *c, const struct pv_git_start *start, struct pv_err *err)
{
        bool both = !c->host_head, settled;
        if (c->job_head || !*c->job_head_id)
                return 0;
        if (both ? pv_streq(c->host_head_id, c->job_head_id)
                 : is_a_tip(&c->job_tips, c->job_head_id) || is_a_tip(&c->host_tips, c->job_head_id))
                return 0;
        if (is_settled(c, start, "HEAD", c->job_head_id, &settled, err) < 0)
                return -1;
        return settled ? 0 : add(c, "HEAD", both ? c->host_head_id : NULL, c->job_head_id, err);
}

/* --branch: what the job has checked out, or the one branch that it changed. */
static int compare_one(struct pv_carry *c, const struct pv_git_start *start, const char *branch, struct pv_err *err)
{
        pv_auto_free char *dest = pv_strf(PV_HEADS "%s", branch);
        const char *name = c->job_head ? c->job_head : "HEAD", *id = c->job_head_id;
        size_t with_commits = 0;
        if (!pv_carry_is_sane(dest))
                return pv_err_set(err, PV_ERR_USAGE, 0, "--branch %s: not a good name of a branch", branch);
        if (compare_refs(c, start, err) < 0 || compare_head(c, start, err) < 0)
                return -1;
        size_t only = 0;
        bool has_head = false;
        for (size_t i = 0; i < c->n_refs; i++) {
                has_head |= *c->ref[i].new_id && pv_streq(c->ref[i].name, name);
                if (*c->ref[i].new_id && !pv_str_has_prefix(c->ref[i].name, PV_TAGS)) {
                        only = i;
                        with_commits++;
                }
        }
        if (!has_head && with_commits == 1) {
                name = c->ref[only].name;
                id = c->ref[only].new_id;
        } else if (!has_head && with_commits > 1) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "--branch %s: the job changed several branches", branch);
                return pv_err_hint(err, "without --branch each is brought under its own name");
        }
        struct pv_carry_ref one = { .name = pv_strdup(name), .dest = pv_strdup(dest) };
        (void)snprintf(one.new_id, sizeof one.new_id, "%s", id);
        const char *host = pv_tips_find(&c->host_tips, dest);
        (void)snprintf(one.old_id, sizeof one.old_id, "%s", host ? host : "");
        for (size_t i = 0; i < c->n_refs; i++)
                free(c->ref[i].name);
        c->n_refs = 0;
        if ((!has_head && with_commits == 0) || pv_streq(one.old_id, one.new_id)) {
                free(one.name);
                free(one.dest);
                return 0;
        }
        c->ref = pv_realloc(c->ref, 1, sizeof *c->ref);
        c->ref[c->n_refs++] = one;
        return 0;
}

int pv_carry_compare(struct pv_carry *c, const struct pv_git_start *start, const struct pv_carry_options *o,
                     struct pv_err *err)
{
        if (o->branch)
                return compare_one(c, start, o->branch, err);
        return compare_refs(c, start, err) < 0 ? -1 : compare_head(c, start, err);
}
