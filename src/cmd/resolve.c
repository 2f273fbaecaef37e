/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/resolve.h"

#include <unistd.h>
#include "base/json.h"
#include "stage/scan.h"

static const char why_moved_on[] = "changed on the host while it was merged";

const char *pv_way_out_name(enum pv_way_out w)
{
        static const char *const name[] = {
                [PV_WAY_MERGED] = "merged",
                [PV_WAY_MARKERS] = "merged-with-markers",
                [PV_WAY_OVERWRITTEN] = "overwritten",
                [PV_WAY_SAME] = "same",
        };
        return name[w];
}

void pv_resolution_fini(struct pv_resolution *r)
{
        for (size_t i = 0; i < r->n; i++) {
                pv_fd_closep(&r->item[i].merged.fd);
                free(r->item[i].path);
        }
        free(r->item);
        free(r->moot);
        pv_changes_free(r->before);
        *r = (struct pv_resolution){ 0 };
}

struct resolving {
        struct pv_decision *d;
        const struct pv_ways_out *ways;
        enum pv_left *overwrite; /* one a change: PV_LEFT_NOT where --overwrite names it */
        struct pv_resolution *out;
        struct pv_apply_result *refused;
        struct pv_standoff_context context;
};

static void refuse(struct resolving *r, const struct pv_change *c, const char *why)
{
        pv_apply_result_add(r->refused, c->root, c->path, why);
}

static struct pv_resolved *add(struct resolving *r, const struct pv_change *c, enum pv_way_out how)
{
        struct pv_resolution *o = r->out;
        o->item = pv_realloc(o->item, o->n + 1, sizeof *o->item);
        struct pv_resolved *x = &o->item[o->n++];
        *x = (struct pv_resolved){ .root = c->root, .path = pv_strdup(c->path), .how = how, .merged = { .fd = -1 } };
        return x;
}

static int try_merge(struct resolving *r, const struct pv_change *c, const char *conflict, struct pv_err *err)
{
        pv_auto_standoff s = { .merged = { .fd = -1 } };
        if (!r->ways->merge && !r->ways->markers) {
                refuse(r, c, conflict);
                return 0;
        }
        if (pv_standoff_look(&r->context, c, &s, err) < 0)
                return -1;
        bool markers = s.verdict == PV_MERGE_MARKERS && r->ways->markers;
        if (s.verdict == PV_MERGE_SAME) {
                (void)add(r, c, PV_WAY_SAME);
        } else if (s.verdict == PV_MERGE_CLEAN || markers) {
                struct pv_resolved *x = add(r, c, markers ? PV_WAY_MARKERS : PV_WAY_MERGED);
                x->host = s.host;
                x->job = s.job;
                x->merged = s.merged;
                s.merged.fd = -1;
        } else {
                refuse(r, c, s.why);
        }
        return 0;
}

static int decide_each(struct resolving *r, struct pv_err *err)
{
        struct pv_decision *d = r->d;
        for (size_t i = 0; i < d->changes->n; i++) {
                const struct pv_change *c = &d->changes->item[i];
                const char *why = NULL;
                if (!d->selected[i] || pv_change_check(d->stage, c, &why))
                        continue;
                if (c->flags & PV_CHANGE_BLOCKED) {
                        refuse(r, c, c->why);
                        r->refused->n_blocked++;
                } else if (r->overwrite && r->overwrite[i] == PV_LEFT_NOT) {
                        (void)add(r, c, PV_WAY_OVERWRITTEN);
                } else if (try_merge(r, c, why, err) < 0) {
                        return -1;
                }
        }
        return 0;
}

/* The changes anew, with the host's present state for what they started from where a conflict was decided. */
static int compute_again(struct resolving *r, struct pv_err *err)
{
        struct pv_decision *d = r->d;
        struct pv_resolution *o = r->out;
        struct pv_changes *now = NULL;
        pv_auto_free struct pv_settled *settled = pv_calloc(o->n + 1, sizeof *settled);
        for (size_t i = 0; i < o->n; i++)
                settled[i] = (struct pv_settled){ .root = o->item[i].root,
                                                  .path = o->item[i].path,
                                                  .below = o->item[i].how == PV_WAY_OVERWRITTEN };
        if (pv_changes_compute_settled(d->stage, settled, o->n, &now, err) < 0)
                return -1;
        o->before = d->changes;
        d->changes = now;
        pv_verdicts_fini(&d->verdicts);
        pv_auto_free enum pv_left *left = pv_steal(&d->left);
        pv_freep(&d->selected);
        if (pv_verdicts_make(d->stage, now, d->result ? &d->ask_result : NULL, d->host ? &d->ask_host : NULL,
                             &d->verdicts, err) < 0)
                return -1;
        return pv_decision_select_again(d, "apply", o->before, left, err);
}

static bool is_what_was_read(const struct pv_change *c, const struct pv_resolved *x)
{
        return c->flags & PV_CHANGE_SETTLED && S_ISREG(c->pre.mode) && S_ISREG(c->now.mode) &&
               pv_facts_same_inode_state(&c->pre, &x->host);
}

/* Is there nothing left to publish, but perhaps a time? */
static bool is_moot(const struct pv_change *c, const struct pv_resolved *x)
{
        const unsigned matters = PV_CHANGE_MODE | PV_CHANGE_OWNER | PV_CHANGE_XATTRS | PV_CHANGE_LINKED;
        if (!c)
                return true;
        if (x->how != PV_WAY_SAME)
                return false;
        /* Hidden by a directory of the job's: the host's own, which the job never saw. */
        return c->kind == PV_CHANGE_DELETED ? c->flags & PV_CHANGE_HIDDEN
                                            : c->kind == PV_CHANGE_METADATA && !(c->flags & matters);
}

static void deselect(struct pv_decision *d, const struct pv_change *c)
{
        size_t i = (size_t)(c - d->changes->item);
        d->n_selected -= d->selected[i];
        d->selected[i] = false;
        d->left[i] = PV_LEFT_NOT; /* it leaves the stage in a moment */
}

/* Hands the merged texts to the changes they are for, and takes out what is the same on both sides. */
static void attach(struct resolving *r)
{
        struct pv_resolution *o = r->out;
        o->moot = pv_calloc(o->before->n + 1, sizeof *o->moot);
        for (size_t i = 0; i < o->n; i++) {
                struct pv_resolved *x = &o->item[i];
                struct pv_change *c = pv_changes_find(r->d->changes, x->root, x->path);
                const struct pv_change *old = pv_changes_find(o->before, x->root, x->path);
                if (is_moot(c, x)) {
                        o->moot[old - o->before->item] = true;
                        o->n_moot++;
                        x->how = PV_WAY_SAME;
                        if (c)
                                deselect(r->d, c);
                } else if (x->merged.fd >= 0 && !pv_facts_same_inode_state(&c->now, &x->job)) {
                        r->refused->moved = true; /* by the job, which goes on */
                        refuse(r, c, why_moved_on);
                } else if (x->how == PV_WAY_SAME || (x->merged.fd >= 0 && !is_what_was_read(c, x))) {
                        refuse(r, c, why_moved_on);
                } else if (x->merged.fd >= 0) {
                        c->merged = &x->merged;
                }
        }
}

static int conflict(const struct resolving *r, struct pv_err *err)
{
        size_t n = r->refused->n_conflicts;
        return pv_err_set(err, PV_ERR_CONFLICT, 0, "apply: %zu conflict%s; nothing was applied", n, n == 1 ? "" : "s");
}

static int find_overwritten(struct resolving *r, struct pv_err *err)
{
        const struct pv_select what = { .everything = true, .path = r->ways->overwrite };
        pv_auto_free char *cwd = getcwd(NULL, 0);
        if (r->ways->overwrite.n == 0 || r->d->changes->n == 0)
                return 0;
        r->overwrite = pv_calloc(r->d->changes->n + 1, sizeof *r->overwrite);
        return pv_select_run(&what, &r->d->verdicts, cwd ? cwd : "/", r->overwrite, err);
}

int pv_resolve(struct pv_decision *d, const struct pv_select *what, const struct pv_ways_out *ways,
               struct pv_resolution *out, struct pv_apply_result *refused, struct pv_err *err)
{
        struct resolving r = { .d = d,
                               .ways = ways,
                               .out = out,
                               .refused = refused,
                               .context = { .stage = d->stage, .label = d->job->id } };
        int done = pv_decision_select(d, "apply", what, err);
        if (done == 0)
                done = find_overwritten(&r, err);
        if (done == 0)
                done = decide_each(&r, err);
        free(r.overwrite);
        if (done < 0)
                return -1;
        if (refused->n_conflicts > 0)
                return conflict(&r, err);
        if (out->n == 0)
                return 0;
        if (compute_again(&r, err) < 0)
                return -1;
        attach(&r);
        return refused->n_conflicts > 0 ? conflict(&r, err) : 0;
}

int pv_resolution_settle_moot(struct pv_decision *d, const struct pv_resolution *r, struct pv_err *err)
{
        if (d->beside.job) /* under a running command nothing goes: it stays what it is, no change of the host's */
                return 0;
        return r->n_moot ? pv_drop_changes(d->stage, r->before, r->moot, err) : 0;
}

json_t *pv_resolution_json(const struct pv_resolution *r)
{
        json_t *list = json_array();
        for (size_t i = 0; i < r->n; i++)
                (void)json_array_append_new(list, json_pack("{s:i, s:o, s:s}", "root", (int)r->item[i].root, "path",
                                                            pv_json_bytes(r->item[i].path), "how",
                                                            pv_way_out_name(r->item[i].how)));
        return list;
}
