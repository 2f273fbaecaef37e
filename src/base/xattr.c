/* SPDX-License-Identifier: Apache-2.0 */
#include "base/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include "base/fd.h"
#include "base/syscall.h"

#define MARK   "user.overlay."
#define ESCAPE "user.overlay.overlay."
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
                ssize_t size = lgetxattr(path.s, p, value, sizeof value);
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
        if (proc_path(dirfd, name, &path) < 0)
                return -1;
        if (value)
                return lsetxattr(path.s, attr, value, size, 0);
        return lremovexattr(path.s, attr) < 0 && errno != ENODATA ? -1 : 0;
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
                if (pv_str_has_prefix(p, MARK))
                        *which |= pv_str_has_prefix(p, ESCAPE) ? PV_OVERLAY_ESCAPES : PV_OVERLAY_MARKS;
        return 0;
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

static int translate_all(int dirfd, const char *name, bool escaped, unsigned flags, struct pv_err *err)
{
        struct proc_path path;
        pv_auto_free char *list = NULL;
        ssize_t n = -1;
        if (proc_path(dirfd, name, &path) < 0 || (n = list_names(path.s, &list)) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "list attributes of %s", name);
        for (const char *p = list; p && p < list + n; p += strlen(p) + 1)
                if (pv_str_has_prefix(p, MARK) && pv_str_has_prefix(p, ESCAPE) == escaped &&
                    rename_attribute(path.s, p, flags, err) < 0)
                        return pv_err_wrap(err, "%s", name);
        return 0;
}

int pv_xattrs_leave_layer(int dirfd, const char *name, struct pv_err *err)
{
        /* Marks first: an unescaped name may be that of one. */
        if (translate_all(dirfd, name, false, PV_COPY_FROM_LAYER, err) < 0)
                return -1;
        return translate_all(dirfd, name, true, PV_COPY_FROM_LAYER, err);
}

int pv_xattrs_enter_layer(int dirfd, const char *name, struct pv_err *err)
{
        return translate_all(dirfd, name, false, PV_COPY_TO_LAYER, err);
}
