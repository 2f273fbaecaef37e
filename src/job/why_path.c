/* SPDX-License-Identifier: Apache-2.0 */
/* The half of why.h that is about paths: the view of the plan is made again, and the step that decides is told. */
#include "base/path.h"
#include "boundary/root.h"
#include "job/why.h"

static const struct pv_mount *mount_at(const struct pv_plan *p, const char *dst)
{
        for (size_t i = 0; i < p->n_mounts; i++)
                if (pv_streq(p->mounts[i].dst, dst))
                        return &p->mounts[i];
        return NULL;
}

/* Whose word a step is. */
static const char *layer_of(const struct pv_plan *p, const struct pv_view_step *s)
{
        const struct pv_mount *m = mount_at(p, s->dst);
        return !m ? "base" : m->by_profile ? "profile" : "command line";
}

/* The mask of a step that hides a path; NULL: none. */
static const char *mask_of(const struct pv_view_step *s, const char *path)
{
        for (size_t i = 0; i < s->masks.n; i++) {
                pv_auto_free char *hidden = pv_path_join(s->dst, s->masks.v[i]);
                if (pv_path_is_within(path, hidden))
                        return s->masks.v[i];
        }
        return NULL;
}

static char *sentence(const struct pv_plan *p, const struct pv_view_step *s)
{
        switch (s->op) {
        case PV_VIEW_STAGE:
                return pv_strdup("is there, and what is written is staged until it is applied");
        case PV_VIEW_WRITE:
                return pv_strdup("is the host's own: what is written goes there directly");
        case PV_VIEW_COW:
        case PV_VIEW_COPY:
                return pv_strdup("is there as a copy: what is written is thrown away at the end");
        case PV_VIEW_KEPT:
        case PV_VIEW_CACHE:
                return pv_strdup("is there, and what is written is kept for later runs, apart from the host's");
        case PV_VIEW_PRIVATE:
                return pv_strdup("lies in a private directory, which is empty at the start and gone at the end");
        case PV_VIEW_SYSTEM:
        case PV_VIEW_FILE:
        case PV_VIEW_READ:
                return pv_strf("is read-only: %s", mount_at(p, s->dst) ? "it is shared so" : "a part of the system");
        case PV_VIEW_TEXT:
                return pv_strdup("is a read-only copy of yours, without the secrets in it");
        case PV_VIEW_MASK:
                return pv_strdup("is hidden by what lies over it");
        case PV_VIEW_DIR:
        case PV_VIEW_SEAL:
                return pv_strdup("is not there: the directory holds only what else is shown");
        case PV_VIEW_LINK:
                return pv_strf("is a link to %s", s->src);
        case PV_VIEW_DEVICE:
                return pv_strdup("is a device of the host");
        case PV_VIEW_PTS:
        case PV_VIEW_PROC:
                return pv_strdup("is the sandbox's own; its host-wide parts are read-only");
        case PV_VIEW_OPS:
                break;
        }
        return pv_strdup("is there");
}

static bool shows_nothing(const struct pv_view_step *s, const char *path)
{
        return s->op == PV_VIEW_MASK || ((s->op == PV_VIEW_DIR || s->op == PV_VIEW_SEAL) && !pv_streq(s->dst, path));
}

static void explain_step(const struct pv_plan *p, const struct pv_view_step *s, const char *path, struct pv_why *out)
{
        const char *mask = mask_of(s, path);
        out->layer = pv_strdup(layer_of(p, s));
        out->rule = pv_strf("%s %s", pv_view_op_name(s->op), s->dst);
        out->refused = mask || shows_nothing(s, path);
        if (mask) {
                bool home = pv_streq(s->dst, p->home) && pv_strv_has(&p->masks, mask);
                out->what = pv_strf("is hidden: %s%s", home ? "the credential store ~/" : "", home ? mask : "a secret");
                free(out->rule);
                out->rule = pv_strf("mask %s in %s", mask, s->dst);
        } else {
                out->what = sentence(p, s);
        }
        if (out->refused && pv_path_is_within(path, p->home))
                out->allow_with = pv_strf("--mount %s:read", path);
        else if (!out->refused && (mount_at(p, s->dst) ? pv_view_op_is_read_only(s->op) : s->op == PV_VIEW_COW))
                out->allow_with = pv_strf("--mount %s:stage (reviewed) or :write (direct)", path);
}

/* What no option shows. */
static bool is_own(const struct pv_plan *p, const char *path)
{
        for (size_t i = 0; i < p->hidden.n; i++)
                if (pv_path_is_within(path, p->hidden.v[i]))
                        return true;
        return false;
}

int pv_why_path(const struct pv_plan *plan, const char *path, struct pv_why *out, struct pv_err *err)
{
        pv_auto_view view = { 0 };
        pv_auto_mountinfo mounts = { 0 };
        if (is_own(plan, path)) {
                out->refused = true;
                out->what = pv_strdup("is pVisor's own, which no view shows");
                out->layer = pv_strdup("base");
                return 0;
        }
        if (plan->filesystem == PV_FS_HOST && !plan->staged) {
                out->what = pv_strdup("is not restricted: the job has the host's own file system");
                return 0;
        }
        if (pv_mountinfo_read(&mounts, err) < 0 || pv_root_view(plan, &mounts, NULL, &view, err) < 0)
                return pv_err_wrap(err, "make the view of the job again");
        const struct pv_view_step *s = pv_view_at(&view, path);
        if (s) {
                explain_step(plan, s, path, out);
        } else if (view.base == PV_VIEW_HOST) {
                out->what = pv_strdup("is the host's own: the job's file system is not restricted there");
        } else {
                out->refused = true;
                out->what = pv_strdup("is not there: the view shows only what it lists");
                out->layer = pv_strdup("base");
                out->allow_with = pv_strf("--mount %s:read (or :stage, :write)", path);
        }
        return 0;
}
