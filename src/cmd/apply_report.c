/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/apply_report.h"

#include <string.h>
#include "base/json.h"
#include "git/words.h"

#define PATHS_SHOWN    12
#define RESOLVED_SHOWN 50
#define REPOS_SHOWN    4

/* What lies below a deleted or replaced directory goes without saying. */
static bool is_told(const struct pv_decision *d, size_t i)
{
        return !(d->changes->item[i].flags & PV_CHANGE_IMPLIED);
}

static size_t count_taken(const struct pv_decision *d)
{
        size_t n = 0;
        for (size_t i = 0; i < d->changes->n; i++)
                n += d->selected[i] && is_told(d, i);
        return n;
}

/* "3 added, 2 modified, 1 deleted" of what was selected. */
static void put_kinds(struct pv_str *b, const struct pv_decision *d)
{
        static const char *const name[] = {
                [PV_CHANGE_ADDED] = "added",
                [PV_CHANGE_MODIFIED] = "modified",
                [PV_CHANGE_DELETED] = "deleted",
                [PV_CHANGE_TYPE] = "of another type",
                [PV_CHANGE_METADATA] = "with other metadata",
        };
        size_t count[sizeof name / sizeof *name] = { 0 }, shown = 0;
        for (size_t i = 0; i < d->changes->n; i++)
                count[d->changes->item[i].kind] += d->selected[i] && is_told(d, i);
        for (size_t k = 0; k < sizeof name / sizeof *name; k++)
                if (count[k])
                        pv_str_putf(b, "%s%zu %s", shown++ ? ", " : "", count[k], name[k]);
}

static void put_taken(struct pv_str *b, const struct pv_decision *d, const struct pv_apply_result *r, bool dry_run)
{
        if (d->n_selected == 0) {
                pv_str_put(b, d->changes->n ? "nothing to apply but what is left out below\n"
                                            : "nothing is staged: there is nothing to apply\n");
                return;
        }
        if (!dry_run && !r->batch[0]) {
                pv_str_put(b, "the job itself took it back meanwhile: nothing was applied\n");
                return;
        }
        pv_auto_free char *pause = pv_cmd_pause_text(&d->beside);
        pv_str_put(b, dry_run ? "would apply " : "applied ");
        pv_cmd_put_count(b, count_taken(d), "change", "changes");
        pv_str_put(b, " to ");
        pv_str_put_safe(b, d->job->workspace);
        pv_str_put(b, ": ");
        put_kinds(b, d);
        pv_str_putf(b, "%s\n", pause);
        if (d->n_along) {
                pv_str_put(b, "  with ");
                pv_cmd_put_count(b, d->n_along, "that belongs", "that belong");
                pv_str_put(b, " together with them (new directories, hard links, renames)\n");
        }
        if (r->weaker)
                pv_str_put(b, "  by copies: this filesystem cannot exchange files\n");
}

static void put_name(struct pv_str *b, const struct pv_decision *d, size_t i)
{
        pv_str_put(b, "    ");
        pv_cmd_put_path(b, d->stage, d->changes->item[i].root, d->changes->item[i].path);
}

static bool is_dir(const struct pv_decision *d, size_t i)
{
        const struct pv_path_change *c = &d->verdicts.change[i];
        return S_ISDIR(c->new_mode ? c->new_mode : c->old_mode);
}

/*
 * Why a change is left, as it is told: git's own files are told in git's words, and what it ignores as ignored, even
 * where nobody asked for them. An ignored file that somebody excluded is told as that.
 */
static enum pv_left told_as(const struct pv_decision *d, size_t i)
{
        const struct pv_verdict *v = &d->verdicts.item[i];
        if (d->left[i] != PV_LEFT_NOT_ASKED || pv_attention_host_runs(v->reasons))
                return d->left[i];
        return v->place == PV_PLACE_GIT ? PV_LEFT_GIT : v->ignored ? PV_LEFT_IGNORED : PV_LEFT_NOT_ASKED;
}

static size_t count_left(const struct pv_decision *d, enum pv_left why)
{
        size_t n = 0;
        for (size_t i = 0; i < d->changes->n; i++)
                n += told_as(d, i) == why;
        return n;
}

/* What lies below it and is left for the same reason goes with a directory. */
struct fold {
        size_t end;   /* the first change behind it */
        size_t files; /* in it */
        bool mixed;   /* something below it stands for itself */
};

static struct fold fold_of(const struct pv_decision *d, size_t i)
{
        const struct pv_path_change *dir = &d->verdicts.change[i];
        struct fold f = { .end = i + 1 };
        size_t len = strlen(dir->path);
        if (!is_dir(d, i))
                return f;
        for (; f.end < d->changes->n; f.end++) {
                const struct pv_path_change *c = &d->verdicts.change[f.end];
                if (c->root != dir->root || strncmp(c->path, dir->path, len) != 0 || (len && c->path[len] != '/'))
                        break;
                if (told_as(d, f.end) != told_as(d, i))
                        return (struct fold){ .end = i + 1, .mixed = true };
                f.files += !is_dir(d, f.end);
        }
        return f;
}

/*
 * One row: a file, an empty directory, or a directory with all that is in it. A directory that is told by what is in
 * it has none. The index to go on with; *n counts.
 */
static size_t put_left_row(struct pv_str *b, const struct pv_decision *d, size_t i, size_t *n)
{
        struct fold f = fold_of(d, i);
        if (f.mixed && d->verdicts.change[i].kind != PV_PATH_METADATA)
                return f.end;
        *n += f.files ? f.files : 1;
        put_name(b, d, i);
        if (is_dir(d, i))
                pv_str_putc(b, '/');
        if (f.files) {
                pv_str_put(b, "  ");
                pv_cmd_put_count(b, f.files, "file", "files");
        } else if (told_as(d, i) == PV_LEFT_HOST_RUNS && d->verdicts.item[i].reasons) {
                pv_str_putf(b, "  (%s)", pv_attention_info(pv_attention_first(d->verdicts.item[i].reasons))->title);
        }
        pv_str_putc(b, '\n');
        return f.end;
}

static void put_left_paths(struct pv_str *b, const struct pv_decision *d, enum pv_left why)
{
        pv_auto_str rows = { 0 };
        size_t shown = 0, more = 0, n = 0;
        for (size_t i = 0; i < d->changes->n;) {
                size_t before = rows.len;
                if (told_as(d, i) != why) {
                        i++;
                        continue;
                }
                i = put_left_row(&rows, d, i, &n);
                if (rows.len == before)
                        continue;
                if (shown < PATHS_SHOWN) {
                        shown++;
                        continue;
                }
                rows.len = before;
                rows.s[before] = '\0';
                more++;
        }
        if (n == 0)
                return;
        pv_str_putf(b, "  %zu %s\n%s", n, pv_left_text(why), rows.s);
        if (more)
                pv_str_putf(b, "    ... and %zu more\n", more);
}

static void put_fold(struct pv_str *b, const struct pv_fold *fold)
{
        pv_str_put(b, "    ");
        pv_str_put_path_n(b, fold->path, fold->len);
        pv_str_put(b, "  ");
        pv_cmd_put_count(b, fold->n, "file", "files");
        pv_str_put(b, ", ");
        pv_str_put_size(b, fold->size);
        pv_str_putc(b, '\n');
}

/* The folds of the ignored changes that are left for this reason: one a top directory. */
static size_t fold_left(const struct pv_decision *d, enum pv_left why, struct pv_fold **folds)
{
        pv_auto_free struct pv_path_change *change = pv_calloc(d->changes->n + 1, sizeof *change);
        pv_auto_free struct pv_verdict *verdict = pv_calloc(d->changes->n + 1, sizeof *verdict);
        size_t n = 0, n_folds = 0;
        for (size_t i = 0; i < d->changes->n; i++) {
                if (d->left[i] != why || told_as(d, i) != PV_LEFT_IGNORED)
                        continue;
                change[n] = d->verdicts.change[i];
                verdict[n++] = d->verdicts.item[i];
        }
        pv_fold_ignored(change, verdict, n, folds, &n_folds);
        return n_folds;
}

/* What the option would take, and what nobody asked for, apart. */
static void put_left_ignored(struct pv_str *b, const struct pv_decision *d, enum pv_left why)
{
        pv_auto_free struct pv_fold *folds = NULL;
        size_t n = fold_left(d, why, &folds), files = 0;
        if (n == 0)
                return;
        for (size_t i = 0; i < n; i++)
                files += folds[i].n;
        pv_str_putf(b, "  %zu %s\n", files, why == PV_LEFT_IGNORED ? pv_left_text(why) : "ignored by git");
        for (size_t i = 0; i < n && i < PATHS_SHOWN; i++)
                put_fold(b, &folds[i]);
        if (n > PATHS_SHOWN)
                pv_str_putf(b, "    ... and %zu more directories\n", n - PATHS_SHOWN);
}

static void put_ref(struct pv_str *b, const struct pv_git_ref *ref)
{
        static const char heads[] = "refs/heads/";
        pv_str_put(b, "    ");
        pv_str_put_safe(b, pv_str_has_prefix(ref->name, heads) ? ref->name + strlen(heads) : ref->name);
        if (ref->kind == PV_GIT_REF_DELETED)
                pv_str_put(b, " deleted");
        else if (ref->counted && ref->ahead)
                pv_str_putf(b, " +%zu", ref->ahead);
        else
                pv_str_put(b, ref->kind == PV_GIT_REF_ADDED ? " new" : " moved");
        for (size_t i = 0; i < ref->subjects.n; i++) {
                pv_str_put(b, i ? ", " : ": ");
                pv_str_put_safe(b, ref->subjects.v[i]);
        }
        pv_str_putc(b, '\n');
}

static char *join_part(const char *base, const char *rest, size_t n)
{
        pv_auto_free char *part = pv_strndup(rest, n);
        return n ? pv_path_join(base, part) : pv_strdup(base);
}

static void put_repo(struct pv_str *b, const struct pv_decision *d, const struct pv_git_repo *repo)
{
        pv_auto_git_words words = { 0 };
        const struct pv_path_change *first = &d->verdicts.change[repo->first];
        if (!repo->refs && !repo->head)
                return;
        pv_auto_free char *worktree =
                join_part(first->root_kind == PV_ROOT_GIT_DIR ? pv_contained_workspace(d->result) : first->root_view,
                          first->path, repo->path_len);
        pv_git_words_make(&d->ask_result, &d->ask_host, worktree, repo, &words);
        for (size_t i = 0; words.known && i < words.n_refs; i++)
                put_ref(b, &words.ref[i]);
        if (words.n_refs_more)
                pv_str_putf(b, "    ... and %zu more references\n", words.n_refs_more);
}

/* Commits by their names, never objects and index bytes as files. Git is asked only when references moved. */
static void put_left_git(struct pv_str *b, const struct pv_decision *d, const struct pv_cmd_commits *commits)
{
        pv_auto_free struct pv_git_repo *repos = NULL;
        pv_auto_str words = { 0 };
        size_t n = 0, more = 0;
        if (count_left(d, PV_LEFT_GIT) == 0)
                return;
        if (commits)
                return; /* told already */
        pv_git_repos_find(d->verdicts.change, d->verdicts.item, d->verdicts.n, REPOS_SHOWN, &repos, &n, &more);
        for (size_t i = 0; i < n && d->result && d->host; i++)
                put_repo(&words, d, &repos[i]);
        pv_str_putf(b, "  git's own directory; %s--git-raw takes it literally\n",
                    words.len ? "--commits brings commits over, " : "");
        pv_str_put(b, words.s ? words.s : "");
}

/* With --commits what is left of git's own directory was told in git's words. */
static bool any_left(const struct pv_decision *d, const struct pv_cmd_commits *commits)
{
        size_t left = d->changes->n - d->n_selected;
        return left > (commits ? count_left(d, PV_LEFT_GIT) : 0);
}

static void put_left(struct pv_str *b, const struct pv_decision *d, const struct pv_cmd_commits *commits)
{
        if (!any_left(d, commits))
                return;
        pv_str_put(b, "left staged:\n");
        put_left_paths(b, d, PV_LEFT_HOST_RUNS);
        put_left_git(b, d, commits);
        put_left_ignored(b, d, PV_LEFT_IGNORED);
        put_left_ignored(b, d, PV_LEFT_NOT_ASKED);
        put_left_paths(b, d, PV_LEFT_EXCLUDED);
        put_left_paths(b, d, PV_LEFT_TOGETHER);
        put_left_paths(b, d, PV_LEFT_NOT_ASKED);
}

/* Then what git ignores was taken like the rest. */
static void put_unknown(struct pv_str *b, const struct pv_decision *d)
{
        if (!d->verdicts.ignore_known && d->verdicts.no_git[0]) {
                pv_str_put(b, "  (what git ignores is not known: ");
                pv_str_put_safe(b, d->verdicts.no_git);
                pv_str_put(b, ")\n");
        }
}

static void put_next(struct pv_str *b, const struct pv_decision *d, const struct pv_cmd_commits *commits, bool dry_run)
{
        const char *id = d->job->id;
        bool left = any_left(d, commits), taken = d->n_selected || (commits && pv_commits_any(&commits->commits));
        if (dry_run || (!taken && !left))
                return;
        pv_str_put(b, "next:\n");
        if (commits && taken)
                pv_cmd_commits_next(commits, b);
        if (taken)
                pv_str_putf(b, "  pvisor undo %s     take it back\n", id);
        if (left)
                pv_str_putf(b, "  pvisor review %s   see what is left\n", id);
        if (left && !d->beside.job)
                pv_str_putf(b, "  pvisor drop %s     throw the rest away\n", id);
}

/* What was decided of each conflict, path by path: these are the ones to look at. */
static void put_resolved(struct pv_str *b, const struct pv_decision *d, const struct pv_resolution *resolved)
{
        static const char *const told[] = {
                [PV_WAY_MERGED] = "merged with yours",
                [PV_WAY_MARKERS] = "both versions written, between conflict markers: edit it",
                [PV_WAY_OVERWRITTEN] = "overwritten; yours is kept for undo",
                [PV_WAY_SAME] = "nothing to do: it is as the host has it",
        };
        for (size_t i = 0; i < resolved->n && i < RESOLVED_SHOWN; i++) {
                pv_str_put(b, "  ");
                pv_cmd_put_path(b, d->stage, resolved->item[i].root, resolved->item[i].path);
                pv_str_putf(b, ": %s\n", told[resolved->item[i].how]);
        }
        if (resolved->n > RESOLVED_SHOWN)
                pv_str_putf(b, "  ... and %zu more (--json lists all)\n", resolved->n - RESOLVED_SHOWN);
}

int pv_apply_report(const struct pv_apply_outcome *o, struct pv_err *err)
{
        pv_auto_str text = { 0 };
        if (o->commits)
                pv_cmd_commits_report(o->commits, o->dry_run, &text);
        if (!o->commits || o->decision->n_selected)
                put_taken(&text, o->decision, o->result, o->dry_run);
        put_resolved(&text, o->decision, o->resolved);
        put_left(&text, o->decision, o->commits);
        put_unknown(&text, o->decision);
        put_next(&text, o->decision, o->commits, o->dry_run);
        return pv_cmd_print(&text, err);
}

json_t *pv_apply_report_json(const struct pv_apply_outcome *o)
{
        const struct pv_decision *d = o->decision;
        const struct pv_apply_result *r = o->result;
        const char *id = o->commits ? o->commits->commits.id : "";
        const char *batch = r->batch[0] ? r->batch : id[0] ? id : NULL;
        return json_pack("{s:s, s:s?, s:b, s:b, s:o, s:o, s:I, s:b, s:b, s:o, s:o, s:o, s:o, s:o*}", "job", d->job->id,
                         "batch", batch, "dry_run", o->dry_run, "refused", o->refused, "selected",
                         pv_decision_selected_json(d), "left", pv_decision_left_json(d), "applied",
                         (json_int_t)r->applied, "weaker", r->weaker, "partly", r->partly, "ignore_known",
                         json_boolean(d->verdicts.ignore_known), "conflicts", pv_cmd_conflicts_json(d->stage, r),
                         "resolved", pv_resolution_json(o->resolved), "paused_ms", pv_cmd_pause_json(&d->beside),
                         "commits", o->commits ? pv_cmd_commits_json(o->commits) : NULL);
}
