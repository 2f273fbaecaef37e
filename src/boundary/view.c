/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/view.h"

#include <assert.h>
#include "base/path.h"

static const struct {
        const char *word;
        bool read_only;
} ops[] = {
        [PV_VIEW_DIR] = { "empty", true },        [PV_VIEW_LINK] = { "link", true },
        [PV_VIEW_PRIVATE] = { "private", false }, [PV_VIEW_SEAL] = { "sealed", true },
        [PV_VIEW_SYSTEM] = { "system", true },    [PV_VIEW_FILE] = { "file", true },
        [PV_VIEW_TEXT] = { "text", true },        [PV_VIEW_COPY] = { "copy", false },
        [PV_VIEW_READ] = { "read", true },        [PV_VIEW_WRITE] = { "write", false },
        [PV_VIEW_STAGE] = { "stage", false },     [PV_VIEW_COW] = { "discard", false },
        [PV_VIEW_KEPT] = { "kept", false },       [PV_VIEW_CACHE] = { "cache", false },
        [PV_VIEW_MASK] = { "mask", true },        [PV_VIEW_DEVICE] = { "device", true },
        [PV_VIEW_PTS] = { "pts", false },         [PV_VIEW_PROC] = { "proc", false },
};
static_assert(sizeof ops / sizeof *ops == PV_VIEW_OPS, "a row for each step");

void pv_view_fini(struct pv_view *view)
{
        for (size_t i = 0; i < view->n; i++) {
                free(view->v[i].dst);
                free(view->v[i].src);
                pv_strv_fini(&view->v[i].masks);
        }
        free(view->v);
        pv_strv_fini(&view->absent);
        *view = (struct pv_view){ 0 };
}

struct pv_view_step *pv_view_add(struct pv_view *view, enum pv_view_op op, const char *src, const char *dst)
{
        if ((view->n & (view->n - 1)) == 0)
                view->v = pv_realloc(view->v, view->n ? 2 * view->n : 1, sizeof *view->v);
        struct pv_view_step *s = &view->v[view->n++];
        *s = (struct pv_view_step){
                .op = op,
                .dst = pv_strdup(dst),
                .src = src ? pv_strdup(src) : NULL,
                .mode = 0755,
        };
        return s;
}

const char *pv_view_op_name(enum pv_view_op op)
{
        return ops[op].word;
}

bool pv_view_op_is_read_only(enum pv_view_op op)
{
        return ops[op].read_only;
}

const struct pv_view_step *pv_view_at(const struct pv_view *view, const char *path)
{
        for (size_t i = view->n; i-- > 0;)
                if (pv_path_is_within(path, view->v[i].dst))
                        return &view->v[i];
        return NULL;
}
