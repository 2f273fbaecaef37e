/* SPDX-License-Identifier: Apache-2.0 */
#include "base/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include "base/fd.h"
#include "base/outer_ids.h"
#include "base/syscall.h"

#define MARK   "user.overlay."
#define ESCAPE "user.overlay.overlay."
#define ORIGIN MARK "origin"
/*
 * What is escaped looks like what is yet to be, where a program's own name begins with ESCAPE. So an entry that goes
 * into a layer notes what is left to do, and that it was done: a repeat after a crash goes on from there. Overlayfs
 * shows neither to anybody.
 */
#define ENTERING MARK "pvisor.entering"
#define ENTERED  MARK "pvisor.entered"
/* The kernel's own bounds: XATTR_LIST_MAX, XATTR_SIZE_MAX. */
#define LIST_MAX_BYTES  65536
#define VALUE_MAX_BYTES 65536

/*
 * Attributes by directory descriptor and name have system calls only since Linux 6.13; the path through /proc works
 * everywhere, and its last component is not followed.
 */
struct proc_path {
        char s[PATH_MAX + 64];
};

static int proc_path(int dirfd, const char *name, struct proc_path *out)
{
        int n = dirfd == AT_FDCWD ? snprintf(out->s, sizeof out->s, "%s", *name ? name : ".")
                : *name           ? snprintf(out->s, sizeof out->s, "/proc/self/fd/%d/%s", dirfd, name)
                                  : snprintf(out->s, sizeof out->s, "/proc/self/fd/%d/.", dirfd);
        if (n < 0 || (size_t)n >= sizeof out->s) {
                errno = ENAMETOOLONG;
                return -1;
        }
        return 0;
}

void pv_xattrs_fini(struct pv_xattrs *x)
{
        for (size_t i = 0; i < x->n; i++) {
                free(x->item[i].name);
                free(x->item[i].value);
        }
        free(x->item);
        *x = (struct pv_xattrs){ 0 };
}

static bool is_content(const char *name)
{
        if (pv_str_has_prefix(name, PV_XATTR_OWN))
                return false;
        return pv_str_has_prefix(name, "user.") || pv_streq(name, "system.posix_acl_access") ||
               pv_streq(name, "system.posix_acl_default") || pv_streq(name, "security.capability");
}

/* The name outside of what is `name` inside, or the reverse; NULL: a mark, which has none. The caller's. */
static char *translate(const char *name, unsigned flags)
{
        if (flags & PV_COPY_FROM_LAYER && pv_str_has_prefix(name, MARK))
                return pv_str_has_prefix(name, ESCAPE) ? pv_strf("%s%s", MARK, name + strlen(ESCAPE)) : NULL;
        if (flags & PV_COPY_TO_LAYER && pv_str_has_prefix(name, MARK))
                return pv_strf("%s%s", ESCAPE, name + strlen(MARK));
        return pv_strdup(name);
}

char *pv_xattr_name_in_layer(const char *name)
{
        return translate(name, PV_COPY_TO_LAYER);
}

/* All names, NUL-separated, in *list (the caller's); 0 where the filesystem has no attributes. -1 with errno. */
static ssize_t list_names(const char *path, char **list)
{
        char small[1024];
        ssize_t n = llistxattr(path, small, sizeof small);
        if (n < 0 && errno == ENOTSUP)
                return 0;
        if (n >= 0) {
                *list = memcpy(pv_calloc(1, (size_t)n + 1), small, (size_t)n);
                return n;
        }
        if (errno != ERANGE)
                return -1;
        *list = pv_calloc(1, LIST_MAX_BYTES + 1);
        return llistxattr(path, *list, LIST_MAX_BYTES);
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(((const struct pv_xattr *)a)->name, ((const struct pv_xattr *)b)->name);
}

int pv_xattrs_read(int dirfd, const char *name, unsigned flags, struct pv_xattrs *out, struct pv_err *err)
{
        struct proc_path path;
        pv_auto_free char *list = NULL;
        ssize_t n = -1;
        if (proc_path(dirfd, name, &path) < 0 || (n = list_names(path.s, &list)) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "list attributes of %s", name);
        pv_auto_xattrs all = { 0 };
        for (const char *p = list; p && p < list + n; p += strlen(p) + 1) {
                if (!is_content(p))
                        continue;
                char *outer = translate(p, flags);
                if (!outer)
                        continue;
                all.item = pv_realloc(all.item, all.n + 1, sizeof *all.item);
                struct pv_xattr *x = &all.item[all.n++];
                *x = (struct pv_xattr){ .name = outer };
                char value[VALUE_MAX_BYTES];
                ssize_t size = pv_outer_ids_has(p) ? pv_outer_ids_get(dirfd, name, p, value, sizeof value)
                                                   : lgetxattr(path.s, p, value, sizeof value);
                if (size < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read attribute %s of %s", p, name);
                x->value = memcpy(pv_calloc(1, (size_t)size + 1), value, (size_t)size);
                x->size = (size_t)size;
        }
        if (all.n > 1)
                qsort(all.item, all.n, sizeof *all.item, compare_names);
        *out = all;
        all = (struct pv_xattrs){ 0 };
        return 0;
}

const struct pv_xattr *pv_xattrs_find(const struct pv_xattrs *x, const char *name)
{
        for (size_t i = 0; i < x->n; i++)
                if (pv_streq(x->item[i].name, name))
                        return &x->item[i];
        return NULL;
}

int pv_xattr_set(int dirfd, const char *name, const char *attr, const void *value, size_t size)
{
        struct proc_path path;
        if (pv_outer_ids_has(attr)) {
                int r = pv_outer_ids_set(dirfd, name, attr, value, size);
                return r < 0 && !value && errno == ENODATA ? 0 : r;
        }
        if (proc_path(dirfd, name, &path) < 0)
                return -1;
        if (value)
                return lsetxattr(path.s, attr, value, size, 0);
        return lremovexattr(path.s, attr) < 0 && errno != ENODATA ? -1 : 0;
}

unsigned pv_xattr_overlay_kind(const char *name)
{
        if (!pv_str_has_prefix(name, MARK))
                return 0;
        if (pv_str_has_prefix(name, ESCAPE))
                return PV_OVERLAY_ESCAPES;
        return pv_streq(name, ORIGIN) ? PV_OVERLAY_ORIGIN : PV_OVERLAY_MARKS;
}

int pv_xattrs_find_overlay(int dirfd, const char *name, unsigned *which, struct pv_err *err)
{
        struct proc_path path;
        char small[1024];
        pv_auto_free char *list = NULL;
        const char *names = small;
        /* One call on new kernels, and most entries have none: this is asked for every file of a batch. */
        ssize_t n = *name ? pv_sys_listxattrat(dirfd, name, AT_SYMLINK_NOFOLLOW, small, sizeof small) : -1;
        *which = 0;
        if (n < 0) {
                if (proc_path(dirfd, name, &path) < 0 || (n = list_names(path.s, &list)) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "list attributes of %s", name);
                names = list;
        }
        for (const char *p = names; p && p < names + n; p += strlen(p) + 1)
                *which |= pv_xattr_overlay_kind(p);
        return 0;
}

int pv_xattrs_remove_origin(int dirfd, const char *name, struct pv_err *err)
{
        struct proc_path path;
        int r = *name ? pv_sys_removexattrat(dirfd, name, AT_SYMLINK_NOFOLLOW, ORIGIN) : -1;
        if (r < 0 && (!*name || errno == ENOSYS) && proc_path(dirfd, name, &path) == 0)
                r = lremovexattr(path.s, ORIGIN);
        return r < 0 && errno != ENODATA ? pv_err_set(err, PV_ERR_SYS, errno, "%s: remove attribute " ORIGIN, name) : 0;
}

/* Gives one attribute its translated name (or takes it away). */
static int rename_attribute(const char *path, const char *from, unsigned flags, struct pv_err *err)
{
        pv_auto_free char *to = translate(from, flags);
        if (to) {
                char value[VALUE_MAX_BYTES];
                ssize_t size = lgetxattr(path, from, value, sizeof value);
                if (size < 0 || lsetxattr(path, to, value, (size_t)size, 0) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "rename attribute %s", from);
        }
        if (lremovexattr(path, from) < 0 && errno != ENODATA)
                return pv_err_set(err, PV_ERR_SYS, errno, "remove attribute %s", from);
        return 0;
}

/* How often a name is escaped. */
static size_t level_of(const char *name)
{
        static const char word[] = "overlay.";
        size_t level = 0;
        for (const char *p = name + strlen("user."); pv_str_has_prefix(p, word); p += sizeof word - 1)
                level++;
        return level;
}

static int deepest_first(const void *a, const void *b)
{
        size_t x = level_of(*(char *const *)a), y = level_of(*(char *const *)b);
        return x == y ? 0 : x > y ? -1 : 1;
}

static bool is_ours(const char *name)
{
        return pv_streq(name, ENTERING) || pv_streq(name, ENTERED);
}

/* The names below MARK, deepest first: in this order none that is escaped meets one that is yet to be. noted: ours. */
static int find_names(const char *path, const char *name, struct pv_strv *out, bool *noted, struct pv_err *err)
{
        pv_auto_free char *list = NULL;
        ssize_t n = list_names(path, &list);
        if (n < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "list attributes of %s", name);
        for (const char *p = list; p && p < list + n; p += strlen(p) + 1)
                if (is_ours(p))
                        *noted = true;
                else if (pv_str_has_prefix(p, MARK))
                        pv_strv_add(out, p);
        if (out->n > 1)
                qsort(out->v, out->n, sizeof *out->v, deepest_first);
        return 0;
}

int pv_xattrs_leave_layer(int dirfd, const char *name, struct pv_err *err)
{
        struct proc_path path;
        pv_auto_strv names = { 0 };
        bool noted = false;
        if (proc_path(dirfd, name, &path) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "list attributes of %s", name);
        if (find_names(path.s, name, &names, &noted, err) < 0)
                return -1;
        /* Marks first, and then from the least escaped on: an unescaped name may be that of one. */
        for (size_t i = names.n; i-- > 0;)
                if (rename_attribute(path.s, names.v[i], PV_COPY_FROM_LAYER, err) < 0)
                        return pv_err_wrap(err, "%s", name);
        if (noted && ((lremovexattr(path.s, ENTERED) < 0 && errno != ENODATA) ||
                      (lremovexattr(path.s, ENTERING) < 0 && errno != ENODATA)))
                return pv_err_set(err, PV_ERR_SYS, errno, "%s: remove attribute " ENTERED, name);
        return 0;
}

/* What an earlier try left to do; 0: there was none, 1, or -1. */
static int read_rest(const char *path, struct pv_strv *out)
{
        pv_auto_free char *list = pv_calloc(1, VALUE_MAX_BYTES + 1);
        ssize_t n = lgetxattr(path, ENTERING, list, VALUE_MAX_BYTES);
        if (n < 0)
                return errno == ENODATA || errno == ENOTSUP ? 0 : -1;
        for (const char *p = list; p < list + n; p += strlen(p) + 1)
                pv_strv_add(out, p);
        return 1;
}

static int write_rest(const char *path, const struct pv_strv *names, size_t from)
{
        pv_auto_str list = { 0 };
        for (size_t i = from; i < names->n; i++)
                pv_str_put_bytes(&list, names->v[i], strlen(names->v[i]) + 1);
        return lsetxattr(path, ENTERING, list.len ? list.s : "", list.len, 0);
}

/*
 * The name that is next may have been escaped already, and what was to be done at it be half done: both are harmless.
 */
static int escape(const char *path, const char *name, struct pv_err *err)
{
        if (lgetxattr(path, name, NULL, 0) < 0)
                return errno == ENODATA ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "read attribute %s", name);
        return rename_attribute(path, name, PV_COPY_TO_LAYER, err);
}

int pv_xattrs_enter_layer(int dirfd, const char *name, struct pv_err *err)
{
        struct proc_path path;
        pv_auto_strv names = { 0 };
        bool noted = false;
        int rest = proc_path(dirfd, name, &path);
        if (rest == 0 && lgetxattr(path.s, ENTERED, NULL, 0) >= 0)
                return 0;
        if (rest == 0)
                rest = read_rest(path.s, &names);
        if (rest < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read attributes of %s", name);
        if (rest == 0 && find_names(path.s, name, &names, &noted, err) < 0)
                return -1;
        if (rest == 0 && names.n == 0)
                return 0;
        for (size_t i = 0; i < names.n; i++) {
                if (write_rest(path.s, &names, i) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "%s: set attribute " ENTERING, name);
                if (escape(path.s, names.v[i], err) < 0)
                        return pv_err_wrap(err, "%s", name);
        }
        if (lsetxattr(path.s, ENTERED, "y", 1, 0) < 0 || (lremovexattr(path.s, ENTERING) < 0 && errno != ENODATA))
                return pv_err_set(err, PV_ERR_SYS, errno, "%s: set attribute " ENTERED, name);
        return 0;
}
