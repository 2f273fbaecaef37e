/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int pv_engine_init(struct pv_engine *e, struct pv_stage *s, struct pv_plan_list *plan, struct pv_apply_result *result,
                   struct pv_err *err)
{
        *e = (struct pv_engine){ .s = s, .plan = plan, .result = result, .slots = PV_PATHFD_INIT };
        e->by_root = geteuid() == 0;
        e->n_layers = (unsigned)s->n_layers;
        pv_dirs_init(&e->dirs, s);
        return pv_layers_find_shared(s, &e->shared, err);
}

void pv_engine_reset_walks(struct pv_engine *e)
{
        pv_dirs_reset(&e->dirs);
}

void pv_engine_fini(struct pv_engine *e)
{
        pv_dirs_fini(&e->dirs);
        free(e->shared);
        pv_pathfd_closep(&e->slots);
        e->s = NULL;
}

void pv_hand_init(struct pv_hand *h, const struct pv_engine *e)
{
        const struct pv_batch_head *head = &e->plan->head;
        *h = (struct pv_hand){ .engine = *e, .plan = *e->plan };
        h->plan.head.root_mode = memcpy(pv_calloc(head->n_roots + 1, sizeof *head->root_mode), head->root_mode,
                                        head->n_roots * sizeof *head->root_mode);
        h->engine.plan = &h->plan;
        h->engine.result = &h->result;
        pv_dirs_init(&h->engine.dirs, e->s);
}

void pv_hand_fini(struct pv_hand *h)
{
        pv_dirs_fini(&h->engine.dirs);
        free(h->plan.head.root_mode);
        pv_apply_result_fini(&h->result);
}

void pv_hand_tell(const struct pv_hand *h, struct pv_engine *e)
{
        for (size_t i = 0; i < h->result.n_conflicts; i++)
                pv_apply_result_add(e->result, h->result.conflicts[i].root, h->result.conflicts[i].path,
                                    h->result.conflicts[i].why);
        for (uint32_t i = 0; i < e->plan->head.n_roots; i++)
                e->plan->head.root_mode[i] |= h->plan.head.root_mode[i];
}

int pv_engine_open_slots(struct pv_engine *e, bool make, struct pv_err *err)
{
        const char *id = e->plan->head.kind == PV_BATCH_UNDO ? e->plan->head.of : e->plan->head.id;
        int stage = pv_stage_dirfd(e->s).fd;
        if (make && mkdirat(stage, "backup", 0700) < 0 && errno != EEXIST)
                return pv_err_set(err, PV_ERR_SYS, errno, "make backup/");
        pv_auto_fd backup = openat(stage, "backup", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (backup < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open backup/");
        if (make && mkdirat(backup, id, 0700) < 0 && errno != EEXIST)
                return pv_err_set(err, PV_ERR_SYS, errno, "make backup/%s", id);
        pv_pathfd_closep(&e->slots);
        e->slots.fd = openat(backup, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return e->slots.fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "open backup/%s", id) : 0;
}

int pv_place_target(struct pv_engine *e, const struct pv_item *it, struct pv_place *out)
{
        out->dirfd = pv_dirs_target(&e->dirs, it->root, it->path, &out->name);
        return out->dirfd < 0 ? -1 : 0;
}

int pv_place_layer(struct pv_engine *e, uint32_t root, uint32_t layer, const char *path, struct pv_place *out)
{
        out->dirfd = pv_dirs_layer(&e->dirs, root, layer, path, &out->name);
        return out->dirfd < 0 ? -1 : 0;
}

static int place_in_slots(struct pv_engine *e, struct pv_place *out)
{
        out->name = out->buf;
        out->dirfd = e->slots.fd;
        if (out->dirfd < 0)
                errno = ENOENT;
        return out->dirfd < 0 ? -1 : 0;
}

int pv_place_slot(struct pv_engine *e, const struct pv_item *it, struct pv_place *out)
{
        const char *slash = strrchr(it->path, '/');
        if (it->flags & PV_ITEM_GROUPED)
                (void)snprintf(out->buf, sizeof out->buf, "%x.d/%s", it->slot, slash ? slash + 1 : it->path);
        else
                (void)snprintf(out->buf, sizeof out->buf, "%x", it->slot);
        return place_in_slots(e, out);
}

int pv_place_job(struct pv_engine *e, const struct pv_item *it, struct pv_place *out)
{
        (void)snprintf(out->buf, sizeof out->buf, "%x.job", it->slot);
        return place_in_slots(e, out);
}

int pv_place_group(struct pv_engine *e, const struct pv_item *it, struct pv_place *out)
{
        (void)snprintf(out->buf, sizeof out->buf, "%x.d", it->slot);
        return place_in_slots(e, out);
}

int pv_place_counterpart(struct pv_engine *e, const struct pv_item *it, struct pv_place *out)
{
        const char *last;
        switch ((enum pv_at)it->at) {
        case PV_AT_LAYER:
                return pv_place_layer(e, it->root, it->layer, it->path, out);
        case PV_AT_SLOT:
                return pv_place_slot(e, it, out);
        case PV_AT_BESIDE:
                (void)snprintf(out->buf, sizeof out->buf, PV_BESIDE_PREFIX "%s-%x", e->plan->head.id, it->slot);
                out->name = out->buf;
                out->dirfd = pv_dirs_target(&e->dirs, it->root, it->path, &last);
                return out->dirfd < 0 ? -1 : 0;
        }
        errno = EINVAL;
        return -1;
}

struct listed {
        unsigned root;
        const char *path;
};

static int order_listed(const void *a, const void *b)
{
        const struct listed *x = a, *y = b;
        return x->root != y->root ? (x->root > y->root) - (x->root < y->root) : strcmp(x->path, y->path);
}

bool pv_apply_result_has(const struct pv_apply_result *r, unsigned root, const char *path)
{
        const struct listed wanted = { .root = root, .path = path };
        return tfind(&wanted, &r->listed, order_listed);
}

void pv_apply_result_add(struct pv_apply_result *r, unsigned root, const char *path, const char *why)
{
        if (!r || pv_apply_result_has(r, root, path))
                return;
        struct pv_conflict c = { .root = root, .path = pv_strdup(path), .why = why };
        struct listed *l = pv_calloc(1, sizeof *l);
        *l = (struct listed){ .root = root, .path = c.path };
        if (!tsearch(l, &r->listed, order_listed))
                abort(); /* out of memory, as in the other small allocations */
        if (r->n_conflicts == r->cap)
                r->conflicts = pv_realloc(r->conflicts, r->cap = r->cap ? 2 * r->cap : 16, sizeof *r->conflicts);
        r->conflicts[r->n_conflicts++] = c;
}

void pv_apply_result_fini(struct pv_apply_result *r)
{
        for (size_t i = 0; i < r->n_conflicts; i++)
                free(r->conflicts[i].path);
        free(r->conflicts);
        tdestroy(r->listed, free);
        *r = (struct pv_apply_result){ 0 };
}

/*
 * Moves one directory of the access list from one mode to the other. One that is not there (yet, any more), or whose
 * mode somebody else changed, is passed over.
 */
static int set_access(struct pv_engine *e, const struct pv_access *a, uint32_t from, uint32_t to, struct pv_err *err)
{
        struct pv_item it = { .root = a->root, .path = a->path };
        struct pv_place at;
        int r = a->layer < 0 ? pv_place_target(e, &it, &at)
                             : pv_place_layer(e, a->root, (uint32_t)a->layer, a->path, &at);
        struct stat st;
        if (r < 0 || fstatat(at.dirfd, at.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT || errno == ENOTDIR ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "open %s", a->path);
        if (!S_ISDIR(st.st_mode) || (st.st_mode & 07777) != (from & 07777))
                return 0;
        if (fchmodat(at.dirfd, at.name, to & 07777, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "change the mode of %s", a->path);
        return 0;
}

static uint32_t mode_of(const struct pv_engine *e, const struct pv_access *a, enum pv_access_when when)
{
        const struct pv_item *it =
                when == PV_ACCESS_AFTER && a->layer < 0 ? pv_plan_list_find(e->plan, a->root, a->path) : NULL;
        return it && it->op == PV_OP_META ? it->meta->mode[1] & 07777 : a->mode;
}

/* Afterwards there is nothing left to do in the target, but for the copies that lie beside it. */
static bool is_needed(const struct pv_engine *e, const struct pv_access *a, enum pv_access_when when)
{
        return when == PV_ACCESS_BEFORE || a->layer >= 0 || e->plan->head.root_mode[a->root] & PV_ROOT_BESIDE;
}

int pv_access_open(struct pv_engine *e, enum pv_access_when when, struct pv_err *err)
{
        for (size_t i = 0; i < e->plan->n_access; i++) {
                const struct pv_access *a = &e->plan->access[i];
                uint32_t mode = mode_of(e, a, when);
                if (is_needed(e, a, when) && set_access(e, a, mode, mode | S_IRWXU, err) < 0)
                        return -1;
        }
        return 0;
}

int pv_access_restore(struct pv_engine *e, enum pv_access_when when, struct pv_err *err)
{
        int r = 0;
        for (size_t i = e->plan->n_access; i-- > 0;) { /* one that fails does not keep the others open */
                const struct pv_access *a = &e->plan->access[i];
                uint32_t mode = mode_of(e, a, when);
                if (is_needed(e, a, when) && set_access(e, a, mode | S_IRWXU, mode, err) < 0)
                        r = -1;
        }
        return r;
}
