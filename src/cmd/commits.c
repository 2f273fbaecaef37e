/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/commits.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/path.h"
#include "base/sha256.h"

enum { SUBMODULES_MAX = 64, REFS_SHOWN = 40 };

void pv_cmd_commits_fini(struct pv_cmd_commits *c)
{
        pv_commits_fini(&c->commits);
        free(c->also);
        free(c->as_it_was);
        *c = (struct pv_cmd_commits){ 0 };
}

/* --- which repositories --- */

/* Of a git directory other than the workspace's own: one below its modules/, or one in a work tree below. */
static bool is_module_change(const struct pv_decision *d, size_t i)
{
        const struct pv_verdict *v = &d->verdicts.item[i];
        return v->place == PV_PLACE_GIT && (v->part == PV_GIT_REFS || v->part == PV_GIT_HEAD) &&
               (strstr(d->changes->item[i].path, "modules/") || v->gitdir_len > strlen(".git"));
}

static bool any_module_changed(const struct pv_decision *d)
{
        for (size_t i = 0; i < d->changes->n; i++)
                if (is_module_change(d, i))
                        return true;
        return false;
}

/* Submodules of the host's index of one repository whose git directory is there; one may be in another. */
static int add_submodules_of(struct pv_decision *d, struct pv_commits *c, size_t parent, struct pv_err *err)
{
        static const char *const words[] = { "ls-files", "-s", "-z", "--full-name", NULL };
        const struct pv_git_call call = { .words = words };
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_must(&c->item[parent].host, &call, &a, err) < 0)
                return -1;
        for (const char *p = a.text, *end = a.text + a.len; p < end; p += strlen(p) + 1) {
                const char *tab = strchr(p, '\t');
                if (!tab || !pv_str_has_prefix(p, "160000 "))
                        continue;
                pv_auto_free char *dot_git = pv_strf("%s/%s/.git", c->item[parent].worktree, tab + 1);
                pv_auto_free char *view = pv_path_join(c->item[parent].view, tab + 1);
                pv_auto_free char *path = pv_path_join(c->item[parent].path, tab + 1);
                if (access(dot_git, F_OK) < 0)
                        continue;
                if (c->n > SUBMODULES_MAX)
                        return pv_err_set(err, PV_ERR_POLICY, 0, "commits: more than %d submodules", SUBMODULES_MAX);
                if (pv_commits_add(c, path, &d->ask_result, view, err) < 0)
                        return pv_err_wrap(err, "submodule %s", path);
        }
        return 0;
}

static int add_submodules(struct pv_decision *d, struct pv_commits *c, struct pv_err *err)
{
        if (!any_module_changed(d))
                return 0;
        for (size_t i = 0; i < c->n; i++) /* which grows meanwhile */
                if (add_submodules_of(d, c, i, err) < 0)
                        return -1;
        return 0;
}

static int add_repositories(struct pv_decision *d, struct pv_commits *c, const struct pv_carry_options *o,
                            struct pv_err *err)
{
        if (!d->result)
                return pv_err_set(err, PV_ERR_STATE, 0, "commits: git cannot be asked inside this job");
        if (pv_commits_add(c, "", &d->ask_result, pv_contained_workspace(d->result), err) < 0) {
                if (err->kind == PV_ERR_STATE)
                        (void)pv_err_hint(err,
                                          "apply --commits brings commits into a repository that is there already; "
                                          "apply --git-raw takes a git directory literally");
                return -1;
        }
        return o->branch ? 0 : add_submodules(d, c, err);
}

/* --- which files --- */

static void mark_files(const struct pv_decision *d, struct pv_cmd_commits *out)
{
        for (size_t i = 0; i < out->commits.n; i++) {
                const struct pv_carry *c = &out->commits.item[i];
                for (size_t k = 0; k < c->n_changed; k++) {
                        pv_auto_free char *path = pv_path_join(c->path, c->changed[k].path);
                        const struct pv_change *found = pv_changes_find(d->changes, 0, path);
                        size_t at = found ? (size_t)(found - d->changes->item) : 0;
                        if (found && d->verdicts.item[at].place == PV_PLACE_TREE)
                                out->also[at] = true;
                }
        }
}

/*
 * A new object of Git LFS, which the pointers in the commits name: a file named by the hash of its content. While the
 * job runs it could still write to it.
 */
static bool is_lfs_object(const struct pv_decision *d, size_t i)
{
        const struct pv_change *c = &d->changes->item[i];
        const char *name = strrchr(c->path, '/'), *below = strstr(c->path, "lfs/objects/");
        unsigned char hash[PV_SHA256_SIZE];
        char hex[2 * PV_SHA256_SIZE + 1];
        struct pv_err ignored = PV_ERR_INIT;
        if (d->verdicts.item[i].place != PV_PLACE_GIT || c->kind != PV_CHANGE_ADDED || !S_ISREG(c->now.mode) ||
            !below || (below != c->path && below[-1] != '/') || strlen(name + 1) != 2 * PV_SHA256_SIZE || d->beside.job)
                return false;
        pv_auto_fd fd = pv_change_open_staged(d->stage, c, O_RDONLY | O_NONBLOCK);
        if (fd < 0 || pv_sha256_fd(fd, hash, c->path, &ignored) < 0)
                return false;
        pv_hex(hash, sizeof hash, hex);
        return pv_streq(hex, name + 1);
}

static void mark_lfs_objects(const struct pv_decision *d, struct pv_cmd_commits *out)
{
        for (size_t i = 0; i < d->changes->n && pv_commits_any(&out->commits); i++)
                out->also[i] |= is_lfs_object(d, i);
}

/* The index file is one of the job's changes, and the host has not touched it since the job began. */
static bool index_is_as_it_was(const struct pv_decision *d, const struct pv_carry *c)
{
        const char *why;
        for (size_t i = 0; i < pv_stage_n_roots(d->stage); i++) {
                const char *top = pv_stage_root(d->stage, i)->target;
                if (!pv_path_is_within(c->host.git_dir, top))
                        continue;
                const char *below = c->host.git_dir + strlen(top);
                pv_auto_free char *path = pv_path_join(*below ? below + 1 : "", "index");
                const struct pv_change *found = pv_changes_find(d->changes, (unsigned)i, path);
                return found && pv_change_check(d->stage, found, &why);
        }
        return false;
}

int pv_cmd_commits_prepare(struct pv_decision *d, const struct pv_carry_options *o, struct pv_cmd_commits *out,
                           struct pv_err *err)
{
        pv_commits_init(&out->commits, d->stage, d->job->id);
        out->also = pv_calloc(d->changes->n + 1, sizeof *out->also);
        if (d->changes->n == 0)
                return 0;
        if (add_repositories(d, &out->commits, o, err) < 0)
                return -1;
        if (pv_commits_prepare(&out->commits, &d->ask_result, o, err) < 0) {
                pv_commits_abandon(&out->commits);
                return -1;
        }
        out->as_it_was = pv_calloc(out->commits.n + 1, sizeof *out->as_it_was);
        for (size_t i = 0; i < out->commits.n; i++)
                out->as_it_was[i] = index_is_as_it_was(d, &out->commits.item[i]);
        mark_files(d, out);
        mark_lfs_objects(d, out);
        return 0;
}

/* --- telling --- */

/* "main", "tag v1", "HEAD" */
static void put_name(struct pv_str *b, const char *name)
{
        static const struct {
                const char *prefix, *word;
        } known[] = { { "refs/heads/", "" }, { "refs/tags/", "tag " } };
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                if (pv_str_has_prefix(name, known[i].prefix)) {
                        pv_str_put(b, known[i].word);
                        name += strlen(known[i].prefix);
                        break;
                }
        pv_str_put_safe(b, name);
}

static void put_where(struct pv_str *b, const struct pv_carry *c)
{
        if (*c->path) {
                pv_str_put_path(b, c->path);
                pv_str_put(b, ": ");
        }
}

static void put_moved(struct pv_str *b, const struct pv_carry *c, const struct pv_carry_ref *r)
{
        pv_str_put(b, "  ");
        put_where(b, c);
        put_name(b, r->dest);
        if (!*r->old_id)
                pv_str_put(b, " new");
        if (r->commits)
                pv_str_putf(b, " +%zu", r->commits);
        if (*r->old_id)
                pv_str_putf(b, " (%.8s -> %.8s)%s", r->old_id, r->new_id, r->rewritten ? ", rewritten" : "");
        else
                pv_str_putf(b, " (%.8s)", r->new_id);
        if (r->here)
                pv_str_put(b, ", checked out here");
        pv_str_putc(b, '\n');
        if (!r->aside)
                return;
        pv_str_put(b, "    since ");
        put_name(b, r->name);
        pv_str_putf(b, " %s\n", r->why);
}

static void put_left(struct pv_str *b, const struct pv_carry *c, const struct pv_carry_ref *r)
{
        pv_str_put(b, "  ");
        put_where(b, c);
        put_name(b, r->name);
        pv_str_putf(b, " %s\n", r->why);
}

static size_t count(const struct pv_commits *c, bool moved)
{
        size_t n = 0;
        for (size_t i = 0; i < c->n; i++)
                for (size_t k = 0; k < c->item[i].n_refs; k++)
                        n += moved ? c->item[i].ref[k].dest != NULL : !c->item[i].ref[k].dest && c->item[i].ref[k].why;
        return n;
}

static void put_list(struct pv_str *b, const struct pv_commits *c, bool moved)
{
        size_t shown = 0;
        for (size_t i = 0; i < c->n; i++)
                for (size_t k = 0; k < c->item[i].n_refs && shown < REFS_SHOWN; k++) {
                        const struct pv_carry_ref *r = &c->item[i].ref[k];
                        if (moved ? !r->dest : r->dest || !r->why)
                                continue;
                        (moved ? put_moved : put_left)(b, &c->item[i], r);
                        shown++;
                }
        if (count(c, moved) > shown)
                pv_str_putf(b, "  ... and %zu more\n", count(c, moved) - shown);
}

void pv_cmd_commits_report(const struct pv_cmd_commits *c, bool dry_run, struct pv_str *out)
{
        if (count(&c->commits, true) == 0) {
                pv_str_put(out, "no commits to bring over\n");
        } else {
                pv_str_put(out, dry_run ? "commits that would be brought over:\n" : "commits brought over:\n");
                put_list(out, &c->commits, true);
        }
        if (count(&c->commits, false)) {
                pv_str_put(out, "references left in the job:\n");
                put_list(out, &c->commits, false);
        }
        for (size_t i = 0; i < c->commits.n; i++)
                if (c->commits.item[i].other_refs)
                        pv_str_putf(out, "  %zu of other kinds (stash, notes, ...); they are never brought over\n",
                                    c->commits.item[i].other_refs);
}

/* The remote that git push would take; the caller's, or NULL. */
static char *remote_of(const struct pv_carry *c)
{
        static const char *const words[] = { "remote", NULL };
        const struct pv_git_call call = { .words = words };
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_git_answer a = { 0 };
        if (pv_git_host_run(&c->host, &call, &a, NULL, &ignored) < 0 || a.exit_code != 0 || !a.len)
                return NULL;
        if (strstr(a.text, "origin\n"))
                return pv_strdup("origin");
        return pv_strndup(a.text, strcspn(a.text, "\n"));
}

void pv_cmd_commits_next(const struct pv_cmd_commits *c, struct pv_str *out)
{
        for (size_t i = 0; i < c->commits.n; i++) {
                const struct pv_carry *item = &c->commits.item[i];
                pv_auto_free char *remote = remote_of(item);
                for (size_t k = 0; k < item->n_refs; k++) {
                        const struct pv_carry_ref *r = &item->ref[k];
                        if (!r->dest || !pv_str_has_prefix(r->dest, "refs/heads/"))
                                continue;
                        const char *name = r->dest + strlen("refs/heads/");
                        pv_auto_free char *in = *item->path ? pv_strf("-C %s ", item->path) : pv_strdup("");
                        if (!r->here) {
                                pv_str_put(out, "  git ");
                                pv_str_put_safe(out, in);
                                pv_str_put(out, "diff HEAD...");
                                pv_str_put_safe(out, name);
                                pv_str_put(out, "     what it brings\n");
                        }
                        if (r->aside)
                                continue;
                        if (r->here && *r->old_id && r->commits) {
                                pv_str_put(out, "  git ");
                                pv_str_put_safe(out, in);
                                pv_str_putf(out,
                                            "rebase --exec 'git commit -q --amend --no-edit -S' %.8s     sign them\n",
                                            r->old_id);
                        }
                        if (!remote)
                                continue;
                        pv_str_put(out, "  git ");
                        pv_str_put_safe(out, in);
                        pv_str_put(out, "push ");
                        pv_str_put_safe(out, remote);
                        pv_str_putc(out, ' ');
                        pv_str_put_safe(out, name);
                        pv_str_putc(out, '\n');
                }
        }
}

json_t *pv_cmd_commits_json(const struct pv_cmd_commits *c)
{
        json_t *list = json_array();
        for (size_t i = 0; i < c->commits.n; i++) {
                const struct pv_carry *item = &c->commits.item[i];
                for (size_t k = 0; k < item->n_refs; k++) {
                        const struct pv_carry_ref *r = &item->ref[k];
                        if (!r->dest && !r->why)
                                continue;
                        (void)json_array_append_new(
                                list, json_pack("{s:o, s:o, s:o, s:s?, s:s?, s:I, s:b, s:b, s:b, s:s?}", "repository",
                                                pv_json_bytes(item->path), "name", pv_json_bytes(r->name), "to",
                                                pv_json_bytes(r->dest), "old", *r->old_id ? r->old_id : NULL, "new",
                                                *r->new_id ? r->new_id : NULL, "commits", (json_int_t)r->commits,
                                                "checked_out", r->here, "aside", r->aside, "rewritten", r->rewritten,
                                                "why", r->why));
                }
        }
        return list;
}

int pv_cmd_commits_refused(const struct pv_cmd_commits *c, struct pv_err *err)
{
        for (size_t i = 0; i < c->commits.n; i++)
                for (size_t k = 0; k < c->commits.item[i].n_refs; k++) {
                        const struct pv_carry_ref *r = &c->commits.item[i].ref[k];
                        if (!r->dest && r->why && *r->new_id)
                                return pv_err_set(err, PV_ERR_CONFLICT, 0, "apply: %s %s", r->name, r->why);
                }
        return 0;
}
