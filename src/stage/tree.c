/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that move as one: is in them what the plan says, and what is done to each entry before and after. */
#include "stage/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"

int pv_tree_count_entries(int dirfd, const char *name, size_t *n)
{
        pv_auto_dir d = pv_dir_open(dirfd, *name ? name : ".");
        struct dirent *e;
        int more = -1;
        for (*n = 0; d && (more = pv_dir_next(d, &e)) > 0;)
                ++*n;
        return more;
}

static const struct pv_ident *side(const struct pv_item *it)
{
        return it->flags & PV_ITEM_OLD_TREE ? &it->out : &it->in;
}

/* n[k - i]: how many of the items are directly in directory k, for each k of the tree [i, end). */
static size_t *count_children(const struct pv_plan_list *p, size_t i, size_t end)
{
        size_t *n = pv_calloc(end - i, sizeof *n), *stack = pv_calloc(end - i, sizeof *stack), depth = 0;
        stack[depth++] = i;
        for (size_t k = i + 1; k < end; k++) {
                for (; depth > 1; depth--) {
                        const char *above = p->item[stack[depth - 1]].path;
                        size_t len = strlen(above);
                        if (strncmp(p->item[k].path, above, len) == 0 && p->item[k].path[len] == '/')
                                break;
                }
                n[stack[depth - 1] - i]++;
                stack[depth++] = k;
        }
        free(stack);
        return n;
}

/* One entry below a moved directory. */
static bool entry_is_exact(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, enum pv_look look,
                           const char **why)
{
        struct pv_ident have;
        bool old = it->flags & PV_ITEM_OLD_TREE, writer = false;
        int r = look == PV_LOOK_FOR_WRITERS && S_ISREG(side(it)->mode)
                        ? pv_ident_read_unwritten(at->dirfd, at->name, &have, &writer)
                        : pv_ident_read(at->dirfd, at->name, &have, NULL);
        if (writer || r < 0 || have.mode == 0) {
                *why = writer ? "open for writing on the host" : "removed on the host meanwhile";
                return false;
        }
        *why = "changed on the host meanwhile";
        return old ? pv_item_is_out(it, &have) : pv_item_is_in(e->plan, it, &have);
}

bool pv_tree_is_exact(struct pv_engine *e, size_t i, const struct pv_place *at, enum pv_look look, size_t *culprit,
                      const char **why)
{
        struct pv_plan_list *p = e->plan;
        const struct pv_item *top = &p->item[i];
        size_t end = pv_plan_list_end(p, i), skip = strlen(top->path) + (*top->path != '\0');
        struct pv_pathfd dir = { openat(at->dirfd, at->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) };
        pv_auto_walk walk;
        pv_walk_init(&walk, dir);
        pv_auto_fd dir_owner = dir.fd;
        pv_auto_free size_t *children = count_children(p, i, end);
        for (size_t k = i; k < end; k++) {
                struct pv_place here = { .dirfd = dir.fd, .name = "" };
                size_t n;
                *culprit = k;
                *why = "removed on the host meanwhile";
                if (dir.fd < 0)
                        return false;
                if (k > i && (here.dirfd = pv_walk_parent(&walk, p->item[k].path + skip, &here.name)) < 0)
                        return false;
                if (k > i && !entry_is_exact(e, &p->item[k], &here, look, why))
                        return false;
                uint32_t mode = k > i ? side(&p->item[k])->mode : (uint32_t)S_IFDIR;
                if (!S_ISDIR(mode))
                        continue;
                if (pv_tree_count_entries(here.dirfd, here.name, &n) < 0) {
                        *why = "cannot be read";
                        return false;
                }
                if (n != children[k - i]) {
                        *why = n > children[k - i] ? "holds files that the host made meanwhile"
                                                   : "lost files on the host meanwhile";
                        return false;
                }
        }
        return true;
}

/* Attributes of an entry whose mode forbids its owner to write. */
static int with_write_permission(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at,
                                 int (*change)(int, const char *, struct pv_err *), struct pv_err *err)
{
        bool open_up = !e->by_root && !S_ISLNK(it->in.mode) && !(it->in.mode & S_IWUSR);
        if (open_up && fchmodat(at->dirfd, at->name, (it->in.mode & 07777) | S_IWUSR, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "change the mode of %s", it->path);
        int r = change(at->dirfd, at->name, err);
        if (open_up && fchmodat(at->dirfd, at->name, it->in.mode & 07777, 0) < 0 && r == 0)
                r = pv_err_set(err, PV_ERR_SYS, errno, "change the mode of %s", it->path);
        return r;
}

int pv_item_prepare(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, struct pv_err *err)
{
        if (it->flags & PV_ITEM_MARKS &&
            with_write_permission(
                    e, it, at, it->flags & PV_ITEM_ORIGIN ? pv_xattrs_remove_origin : pv_xattrs_leave_layer, err) < 0)
                return -1;
        if (it->flags & PV_ITEM_TIMES) {
                struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, e->plan->head.when };
                if (utimensat(at->dirfd, at->name, t, AT_SYMLINK_NOFOLLOW) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "set the time of %s", it->path);
        }
        return 0;
}

static int mark_opaque(int dirfd, const char *name, struct pv_err *err)
{
        if (pv_xattr_set(dirfd, name, PV_OVERLAY_OPAQUE, "y", 1) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "mark %s opaque", name);
        return 0;
}

int pv_item_restore(struct pv_engine *e, const struct pv_item *it, const struct pv_place *at, struct pv_err *err)
{
        if (it->state == PV_ITEM_DONE && it->flags & PV_ITEM_ESCAPES &&
            with_write_permission(e, it, at, pv_xattrs_enter_layer, err) < 0)
                return -1;
        if (it->flags & PV_ITEM_OPAQUE && with_write_permission(e, it, at, mark_opaque, err) < 0)
                return -1;
        struct stat st;
        if (fstatat(at->dirfd, at->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "restore %s", it->path);
        if (it->flags & PV_ITEM_TIMES) {
                struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, it->staged_mtime };
                if (utimensat(at->dirfd, at->name, t, AT_SYMLINK_NOFOLLOW) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "set the time of %s", it->path);
        }
        if (!S_ISLNK(st.st_mode) && (st.st_mode & 07777) != (it->in.mode & 07777) &&
            fchmodat(at->dirfd, at->name, it->in.mode & 07777, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "restore the mode of %s", it->path);
        return 0;
}

/* Calls each() for the directory at `at` and every WITHIN item that goes in with it. */
static int for_tree(struct pv_engine *e, size_t i, const struct pv_place *at,
                    int (*each)(struct pv_engine *, const struct pv_item *, const struct pv_place *, struct pv_err *),
                    struct pv_err *err)
{
        struct pv_plan_list *p = e->plan;
        if (each(e, &p->item[i], at, err) < 0)
                return -1;
        if (!(p->item[i].flags & PV_ITEM_MOVED_TREE) || !S_ISDIR(p->item[i].in.mode))
                return 0;
        size_t end = pv_plan_list_end(p, i), skip = strlen(p->item[i].path) + (*p->item[i].path != '\0');
        struct pv_pathfd dir = { openat(at->dirfd, at->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) };
        if (dir.fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", p->item[i].path);
        pv_auto_walk walk;
        pv_walk_init(&walk, dir);
        pv_auto_fd dir_owner = dir.fd;
        int r = 0;
        for (size_t k = i + 1; k < end && r == 0; k++) {
                struct pv_item *it = &p->item[k];
                struct pv_place here;
                if (it->flags & PV_ITEM_OLD_TREE || !(it->flags & (PV_ITEM_TIMES | PV_ITEM_MARKS | PV_ITEM_OPAQUE)))
                        continue;
                it->state = p->item[i].state;
                here.dirfd = pv_walk_parent(&walk, it->path + skip, &here.name);
                r = here.dirfd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "open %s", it->path) : each(e, it, &here, err);
        }
        return r;
}

int pv_tree_prepare(struct pv_engine *e, size_t i, const struct pv_place *at, struct pv_err *err)
{
        return for_tree(e, i, at, pv_item_prepare, err);
}

int pv_tree_restore(struct pv_engine *e, size_t i, const struct pv_place *at, struct pv_err *err)
{
        return for_tree(e, i, at, pv_item_restore, err);
}
