/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving up a batch that was cut short and that recovery cannot end: an original that may not be moved any more, a
 * damaged journal, a file system that fails. Nothing is moved or removed but the notices that keep others from the
 * target; the journal stays under another name, and the caller is told where both versions of each path lie.
 */
#include "stage/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "stage/engine.h"
#include "stage/journal.h"
#include "stage/lock.h"
#include "stage/run_batch.h"

void pv_abandoned_fini(struct pv_abandoned *a)
{
        for (size_t i = 0; i < a->n; i++) {
                free(a->item[i].path);
                free(a->item[i].other);
        }
        free(a->item);
        free(a->journal);
        *a = (struct pv_abandoned){ 0 };
}

/* The absolute path of what is there; NULL: nothing is. */
static char *absolute(const struct pv_place *at)
{
        char dir[PATH_MAX];
        struct pv_ident have;
        if (pv_ident_read(at->dirfd, at->name, &have, NULL) < 0 || have.mode == 0)
                return NULL;
        ssize_t n = readlink(pv_fd_path(at->dirfd).s, dir, sizeof dir - 1);
        if (n < 0)
                return NULL;
        dir[n] = '\0';
        return pv_path_join(dir, at->name);
}

static char *find_other(struct pv_engine *e, const struct pv_item *it)
{
        struct pv_place at;
        char *other = pv_place_counterpart(e, it, &at) == 0 ? absolute(&at) : NULL;
        if (!other && it->state != PV_ITEM_PENDING && pv_place_slot(e, it, &at) == 0)
                other = absolute(&at); /* put into the backup already */
        return other;
}

static void describe(struct pv_engine *e, struct pv_abandoned *out)
{
        struct pv_plan_list *p = e->plan;
        bool all_done; /* of no matter here */
        pv_find_states(e, &all_done);
        out->item = pv_calloc(p->n + 1, sizeof *out->item);
        for (size_t i = 0; i < p->n; i++) {
                const struct pv_item *it = &p->item[i];
                if (it->op == PV_OP_WITHIN)
                        continue; /* with its directory */
                struct pv_abandoned_path *a = &out->item[out->n++];
                *a = (struct pv_abandoned_path){ .root = it->root, .path = pv_strdup(it->path) };
                a->metadata = it->op == PV_OP_META;
                a->published = it->state != PV_ITEM_PENDING;
                a->other = a->metadata ? NULL : find_other(e, it);
        }
}

static int put_away(struct pv_stage *s, const char *id, struct pv_abandoned *out, struct pv_err *err)
{
        pv_auto_free char *name = pv_strf("abandoned-%s", *id ? id : "unreadable");
        if (renameat(pv_stage_dirfd(s).fd, PV_JOURNAL_NAME, pv_stage_dirfd(s).fd, name) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "put the journal of %s away", pv_stage_dir(s));
        out->journal = pv_path_join(pv_stage_dir(s), name);
        return 0;
}

int pv_apply_abandon(struct pv_stage *s, struct pv_abandoned *out, struct pv_err *err)
{
        struct pv_plan_list plan = { 0 };
        struct pv_err why = PV_ERR_INIT;
        pv_auto_engine e = { 0 };
        pv_auto_target_lock lock = { 0 };
        *out = (struct pv_abandoned){ 0 };
        if (faccessat(pv_stage_dirfd(s).fd, PV_JOURNAL_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_STATE, 0, "no batch of %s was cut short", pv_stage_dir(s));
        if (pv_target_lock(s, &lock, &why) < 0 && why.kind == PV_ERR_BUSY) {
                *err = why;
                return -1;
        }
        out->readable = pv_journal_read(pv_stage_dirfd(s).fd, PV_JOURNAL_NAME, &plan, &why) == 0 &&
                        plan.head.n_roots == pv_stage_n_roots(s) && pv_engine_init(&e, s, &plan, NULL, &why) == 0;
        if (out->readable) {
                e.recovering = true;
                (void)pv_engine_open_slots(&e, false, &why);
                describe(&e, out);
                (void)pv_access_restore(&e, PV_ACCESS_BEFORE, &why);
        }
        out->readable &= plan.marks & PV_MARK_READY || !*plan.head.boot;
        int r = put_away(s, plan.head.id, out, err);
        if (r == 0)
                pv_pending_clear(s);
        pv_plan_list_fini(&plan);
        return r;
}
