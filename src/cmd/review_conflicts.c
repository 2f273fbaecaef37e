/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in the way of applying: who changed what, since when, and what can be done about it. */
#include <sys/stat.h>
#include "base/clock.h"
#include "base/json.h"
#include "cmd/jobs.h"
#include "cmd/review.h"
#include "cmd/standoff.h"

enum {
        CONFLICTS_SHOWN = 20,
        LOOKED_AT_MAX = 200, /* as JSON: both sides of more are not read */
};

void pv_review_find_conflicts(struct pv_review *r)
{
        const struct pv_changes *c = r->look.changes;
        r->conflict = pv_calloc(c->n + 1, sizeof *r->conflict);
        for (size_t i = 0; i < c->n; i++) {
                const struct pv_verdict *v = &r->look.verdicts.item[i];
                const char *why = NULL;
                if (c->item[i].flags & PV_CHANGE_BLOCKED)
                        r->conflict[i] = c->item[i].why;
                else if (!pv_change_check_among(r->look.stage, c, &c->item[i], &why))
                        r->conflict[i] = why ? why : "changed on the host";
                r->n_conflicts += r->conflict[i] && v->place == PV_PLACE_TREE && !v->ignored;
                if (v->place == PV_PLACE_GIT)
                        continue;
                r->n_touched++;
                r->n_host_changed += r->conflict[i] && !(c->item[i].flags & PV_CHANGE_BLOCKED);
        }
}

/* No version of the two can be chosen: there is nothing to look at, or no directory to put it in. */
static bool has_no_way_out(const struct pv_review *r, size_t i)
{
        return r->look.changes->item[i].flags & PV_CHANGE_BLOCKED || r->conflict[i] == pv_change_no_directory;
}

static int look(const struct pv_review *r, size_t i, struct pv_standoff *out)
{
        struct pv_err ignored = PV_ERR_INIT;
        const struct pv_standoff_context x = { .stage = r->look.stage, .label = r->look.job->id };
        return pv_standoff_look(&x, &r->look.changes->item[i], out, &ignored);
}

enum phase { BEFORE, DURING, AFTER, NO_PHASE };

/* When the host last changed it, against the job's time. What is gone tells no time. */
static enum phase phase_of(const struct pv_review *r, const struct pv_standoff *s)
{
        const struct pv_job *j = r->look.job;
        if (!pv_facts_exist(&s->host) || j->started.tv_sec == 0)
                return NO_PHASE;
        if (j->ended.tv_sec && pv_clock_compare(&s->host.ctime, &j->ended) >= 0)
                return AFTER;
        return pv_clock_compare(&s->host.ctime, &j->started) >= 0 ? DURING : BEFORE;
}

/* --- text --- */

static void put_lines(struct pv_str *b, size_t added, size_t deleted)
{
        pv_str_putf(b, "+%zu -%zu", added, deleted);
}

static void put_host(const struct pv_review *r, const struct pv_standoff *s, struct pv_str *b)
{
        static const char *const act[] = {
                [PV_HOST_MODIFIED] = "you changed it",
                [PV_HOST_METADATA] = "you changed its mode, owner or attributes",
                [PV_HOST_ADDED] = "you made it too",
                [PV_HOST_DELETED] = "you deleted it",
                [PV_HOST_TYPE] = "you made something else of it",
                [PV_HOST_UNKNOWN] = "you changed it, as it seems",
        };
        static const char *const phase[] = {
                [BEFORE] = "", [DURING] = ", while the job ran", [AFTER] = ", after the job had ended", [NO_PHASE] = ""
        };
        pv_str_put(b, act[s->act]);
        enum phase p = phase_of(r, s);
        if (p != NO_PHASE) {
                pv_str_putc(b, ' ');
                pv_cmd_put_age(b, &s->host.ctime);
                pv_str_put(b, " ago");
        }
        pv_str_put(b, phase[p]);
        if (s->counted && s->base_known && s->act != PV_HOST_METADATA) {
                pv_str_put(b, " (");
                put_lines(b, s->host_added, s->host_deleted);
                pv_str_putc(b, ')');
        }
}

static void put_job(const struct pv_change *c, const struct pv_standoff *s, struct pv_str *b)
{
        if (!pv_facts_exist(&c->now)) {
                pv_str_put(b, "; the job deleted it");
                return;
        }
        pv_str_put(b, c->kind == PV_CHANGE_METADATA ? "; the job changed its mode, owner or attributes"
                      : S_ISREG(c->now.mode)        ? "; the job wrote "
                                                    : "; the job made something else of it");
        if (c->kind == PV_CHANGE_METADATA || !S_ISREG(c->now.mode))
                return;
        if (s->counted)
                put_lines(b, s->job_added, s->job_deleted);
        else
                pv_str_put_size(b, c->now.size);
        if (s->counted && !s->base_known)
                pv_str_put(b, " against yours");
}

static void put_outcome(const struct pv_change *c, const struct pv_standoff *s, struct pv_str *b)
{
        if (s->verdict == PV_MERGE_NONE && (!pv_facts_exist(&c->now) || !pv_facts_exist(&s->host))) {
                pv_str_put(b, ": only one of the two can stay");
                return;
        }
        pv_str_put(b, s->verdict == PV_MERGE_CLEAN  ? ": they fit together"
                      : s->verdict == PV_MERGE_SAME ? ": nothing is left to do"
                                                    : ": ");
        if (s->verdict == PV_MERGE_MARKERS || s->verdict == PV_MERGE_NONE)
                pv_str_put(b, s->why);
}

/* How many of the conflicts that were shown can be decided, and how many by putting both sides together. */
struct ways {
        size_t any, fit;
        bool only_blocked;
};

static void put_conflict(const struct pv_review *r, size_t i, struct pv_str *out, struct ways *ways)
{
        pv_auto_standoff s = { .merged = { .fd = -1 } };
        pv_auto_free char *path = pv_review_path(r, i);
        pv_str_put(out, "  ! ");
        pv_put_fitted(out, path, 40);
        pv_str_putf(out, "  %s\n", r->conflict[i]);
        if (has_no_way_out(r, i) || look(r, i, &s) < 0)
                return;
        ways->any++;
        pv_str_put(out, "      ");
        put_host(r, &s, out);
        put_job(&r->look.changes->item[i], &s, out);
        put_outcome(&r->look.changes->item[i], &s, out);
        pv_str_putc(out, '\n');
        ways->fit += s.verdict == PV_MERGE_CLEAN || s.verdict == PV_MERGE_SAME;
}

static void put_ways_out(const struct pv_review *r, const struct ways *ways, struct pv_str *out)
{
        const char *job = r->look.job->name ? r->look.job->name : r->look.job->id;
        if (ways->only_blocked) {
                pv_str_putf(out, "  ways out: apply --exclude PATTERN leaves it staged; pvisor drop %s --path PATH\n",
                            job);
                return;
        }
        if (ways->any == 0) {
                pv_str_putf(out, "  ways out: make the host what it was, or pvisor drop %s --path PATH keeps yours\n",
                            job);
                return;
        }
        pv_str_put(out, "  ways out, each taken back by pvisor undo:\n");
        if (ways->fit)
                pv_str_putf(out, "    pvisor apply %s --all --merge      put together what fits together\n", job);
        pv_str_putf(out,
                    "    pvisor apply %s --all --markers    and write both versions where it does not\n"
                    "    pvisor apply %s --overwrite PATH   take the job's; yours is kept for undo\n",
                    job, job);
}

/* Of the conflicts that are told: what cannot be applied whatever the host has. */
static size_t count_blocked(const struct pv_review *r)
{
        size_t n = 0;
        for (size_t i = 0; i < r->look.changes->n; i++) {
                const struct pv_verdict *v = &r->look.verdicts.item[i];
                n += r->look.changes->item[i].flags & PV_CHANGE_BLOCKED && v->place == PV_PLACE_TREE && !v->ignored;
        }
        return n;
}

void pv_review_put_conflicts(const struct pv_review *r, struct pv_str *out)
{
        size_t shown = 0;
        struct ways ways = { 0 };
        if (r->n_conflicts == 0)
                return;
        ways.only_blocked = count_blocked(r) == r->n_conflicts;
        pv_auto_free char *title =
                pv_strf("%zu %s%s %s", r->n_conflicts, ways.only_blocked ? "path" : "conflict",
                        r->n_conflicts == 1 ? "" : "s", ways.only_blocked ? "not to be applied" : "with the host now");
        pv_review_put_heading(r, out, PV_STYLE_RED_BOLD, title, "apply refuses these, whole");
        if (!ways.only_blocked)
                pv_str_putf(out,
                            "  the host changed %zu of the %zu paths that the job touched; elsewhere nobody looked\n",
                            r->n_host_changed, r->n_touched);
        for (size_t i = 0; i < r->look.changes->n && shown < CONFLICTS_SHOWN; i++) {
                const struct pv_verdict *v = &r->look.verdicts.item[i];
                if (!r->conflict[i] || v->place == PV_PLACE_GIT || v->ignored)
                        continue;
                put_conflict(r, i, out, &ways);
                shown++;
        }
        if (shown < r->n_conflicts)
                pv_str_putf(out, "    ... and %zu more\n", r->n_conflicts - shown);
        put_ways_out(r, &ways, out);
}

/* --- JSON --- */

static json_t *side_json(const char *act, const struct pv_facts *f)
{
        bool there = pv_facts_exist(f);
        return json_pack("{s:s, s:o, s:o}", "act", act, "size",
                         there && S_ISREG(f->mode) ? json_integer((json_int_t)f->size) : json_null(), "mode",
                         there ? json_sprintf("%06o", (unsigned)f->mode) : json_null());
}

static json_t *lines_json(const struct pv_standoff *s)
{
        if (!s->counted)
                return json_null();
        return json_pack("{s:s, s:I, s:I, s:I, s:I}", "from", s->base_known ? "base" : "host", "job_added",
                         (json_int_t)s->job_added, "job_deleted", (json_int_t)s->job_deleted, "host_added",
                         (json_int_t)s->host_added, "host_deleted", (json_int_t)s->host_deleted);
}

static json_t *command_json(const struct pv_review *r, size_t i, const char *option, bool takes_path)
{
        pv_auto_free char *path = pv_review_path(r, i);
        json_t *argv = json_pack("[s, s, s]", "pvisor", "apply", r->look.job->id);
        if (!takes_path) {
                (void)json_array_append_new(argv, json_string("--path"));
                (void)json_array_append_new(argv, pv_json_bytes(path));
        }
        (void)json_array_append_new(argv, json_string(option));
        if (takes_path)
                (void)json_array_append_new(argv, pv_json_bytes(path));
        return argv;
}

static json_t *ways_json(const struct pv_review *r, size_t i, const struct pv_standoff *s)
{
        json_t *ways = json_array();
        if (has_no_way_out(r, i))
                return ways;
        if (s->verdict == PV_MERGE_CLEAN || s->verdict == PV_MERGE_SAME)
                (void)json_array_append_new(ways, command_json(r, i, "--merge", false));
        if (s->verdict == PV_MERGE_MARKERS)
                (void)json_array_append_new(ways, command_json(r, i, "--markers", false));
        (void)json_array_append_new(ways, command_json(r, i, "--overwrite", true));
        return ways;
}

static json_t *when_json(const struct pv_review *r, const struct pv_standoff *s)
{
        static const char *const name[] = {
                [BEFORE] = "before", [DURING] = "during", [AFTER] = "after", [NO_PHASE] = NULL
        };
        enum phase p = phase_of(r, s);
        return json_pack("{s:o, s:s?}", "at", p == NO_PHASE ? json_null() : pv_cmd_time(&s->host.ctime), "phase",
                         name[p]);
}

static json_t *conflict_json(const struct pv_review *r, size_t i, size_t looked)
{
        static const char *const kind[] = { [PV_CHANGE_ADDED] = "added",
                                            [PV_CHANGE_MODIFIED] = "modified",
                                            [PV_CHANGE_DELETED] = "deleted",
                                            [PV_CHANGE_TYPE] = "type",
                                            [PV_CHANGE_METADATA] = "metadata" };
        const struct pv_change *c = &r->look.changes->item[i];
        pv_auto_standoff s = { .merged = { .fd = -1 } };
        json_t *j = json_pack("{s:i, s:o, s:s}", "root", (int)c->root, "path", pv_json_bytes(c->path), "why",
                              r->conflict[i]);
        if (looked >= LOOKED_AT_MAX || c->flags & PV_CHANGE_BLOCKED || look(r, i, &s) < 0)
                return j;
        json_t *host = side_json(pv_host_act_name(s.act), &s.host), *when = when_json(r, &s);
        (void)json_object_update(host, when);
        json_decref(when);
        (void)json_object_set_new(j, "host", host);
        (void)json_object_set_new(j, "job", side_json(kind[c->kind], &c->now));
        (void)json_object_set_new(j, "lines", lines_json(&s));
        (void)json_object_set_new(j, "base_known", json_boolean(s.base_known));
        (void)json_object_set_new(j, "merge", json_string(pv_merge_verdict_name(s.verdict)));
        (void)json_object_set_new(j, "merge_why", s.why ? json_string(s.why) : json_null());
        (void)json_object_set_new(j, "ways_out", ways_json(r, i, &s));
        return j;
}

json_t *pv_review_conflicts_json(const struct pv_review *r)
{
        json_t *list = json_array();
        for (size_t i = 0; i < r->look.changes->n; i++)
                if (r->conflict[i])
                        (void)json_array_append_new(list, conflict_json(r, i, json_array_size(list)));
        return list;
}

json_t *pv_review_host_changed_json(const struct pv_review *r)
{
        return json_pack("{s:I, s:I}", "paths", (json_int_t)r->n_host_changed, "of", (json_int_t)r->n_touched);
}
