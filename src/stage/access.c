/* SPDX-License-Identifier: Apache-2.0 */
/* Which directories must be opened up for the moves of a plan, seen before anything moves. */
#include "stage/build.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "stage/beside.h"

static void add_access(struct pv_plan_list *p, uint32_t root, int32_t layer, const char *path, size_t n, uint32_t mode)
{
        for (size_t i = 0; i < p->n_access; i++)
                if (p->access[i].root == root && p->access[i].layer == layer && strlen(p->access[i].path) == n &&
                    memcmp(p->access[i].path, path, n) == 0)
                        return;
        p->access = pv_realloc(p->access, p->n_access + 1, sizeof *p->access);
        p->access[p->n_access++] =
                (struct pv_access){ .root = root, .layer = layer, .mode = mode & 07777, .path = pv_strndup(path, n) };
}

static size_t parent_length(const char *path)
{
        const char *slash = strrchr(path, '/');
        return slash ? (size_t)(slash - path) : 0;
}

/* Looks at the directory open as fd, which is the parent of the item's path. */
static int need_write(struct pv_plan_list *p, const struct pv_item *it, int32_t layer, int fd, struct pv_err *err)
{
        struct stat st;
        if (faccessat(fd, "", W_OK | X_OK, AT_EACCESS | AT_EMPTY_PATH) == 0)
                return 0;
        int denied = errno;
        if (denied != EACCES || fstatat(fd, "", &st, AT_EMPTY_PATH) < 0 || st.st_uid != geteuid())
                return pv_err_set(err, PV_ERR_SYS, denied, "no change can be made in the directory of %s", it->path);
        add_access(p, it->root, layer, it->path, parent_length(it->path), st.st_mode);
        return 0;
}

static bool same_parent(const struct pv_item *a, const struct pv_item *b)
{
        size_t n = parent_length(a->path);
        return a->root == b->root && parent_length(b->path) == n && memcmp(a->path, b->path, n) == 0;
}

static int look_at_parents(struct pv_engine *e, struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        if (pv_place_target(e, it, &at) == 0 && need_write(e->plan, it, -1, at.dirfd, err) < 0)
                return -1;
        for (unsigned k = 0; k < e->n_layers; k++)
                if (!e->shared[k] && pv_place_layer(e, it->root, k, it->path, &at) == 0 &&
                    need_write(e->plan, it, (int32_t)k, at.dirfd, err) < 0)
                        return -1;
        return 0;
}

/*
 * After an undo the top layer gets directories that look like the target's: those that forbid writing stay open until
 * what goes into them is there.
 */
static void look_at_directories_above(struct pv_engine *e, const struct pv_item *it)
{
        for (const char *slash = strchr(it->path, '/'); slash; slash = strchr(slash + 1, '/')) {
                pv_auto_free char *path = pv_strndup(it->path, (size_t)(slash - it->path));
                struct pv_item dir = { .root = it->root, .path = path };
                struct pv_place at;
                struct stat st;
                if (!e->shared[e->n_layers - 1] && pv_place_target(e, &dir, &at) == 0 &&
                    fstatat(at.dirfd, at.name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IRWXU) != S_IRWXU)
                        add_access(e->plan, it->root, (int32_t)e->n_layers - 1, path, strlen(path), st.st_mode);
        }
}

/* A directory is itself written to when it moves, and a new one when its entries follow it. */
static void look_at_directories(struct pv_engine *e, struct pv_item *it)
{
        if (S_ISDIR(it->in.mode) && it->op != PV_OP_REMOVE && (it->in.mode & 0300) != 0300) {
                it->flags |= PV_ITEM_OPEN_IN;
                if (it->flags & PV_ITEM_SHALLOW && !(it->flags & PV_ITEM_MOVED_TREE))
                        add_access(e->plan, it->root, -1, it->path, strlen(it->path), it->in.mode);
        }
        if (S_ISDIR(it->out.mode) && it->op != PV_OP_PLACE && (it->out.mode & 0300) != 0300)
                it->flags |= PV_ITEM_OPEN_OUT;
}

/* A mark is an attribute, and needs write permission for the directory itself (xattr(7)). */
void pv_build_access_for_marks(struct pv_engine *e)
{
        for (size_t i = 0; i < e->plan->n; i++) {
                const struct pv_item *it = &e->plan->item[i];
                if ((it->in.mode & 0200) == 0 && pv_beside_is_marked(e, it))
                        add_access(e->plan, it->root, (int32_t)it->layer, it->path, strlen(it->path), it->in.mode);
        }
}

void pv_build_forget_access(struct pv_plan_list *p, size_t n)
{
        while (p->n_access > n)
                free(p->access[--p->n_access].path);
}

int pv_build_access(struct pv_engine *e, struct pv_err *err)
{
        const struct pv_item *last = NULL;
        for (size_t i = 0; !e->by_root && i < e->plan->n; i++) {
                struct pv_item *it = &e->plan->item[i];
                if (it->op == PV_OP_WITHIN || *it->path == '\0')
                        continue;
                if (it->op != PV_OP_META)
                        look_at_directories(e, it);
                if (!last || !same_parent(last, it)) {
                        if (e->plan->head.kind == PV_BATCH_UNDO)
                                look_at_directories_above(e, it);
                        if (look_at_parents(e, it, err) < 0)
                                return -1;
                }
                last = it;
        }
        return 0;
}
