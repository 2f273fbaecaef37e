/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/mask.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "base/dir.h"

#define DEPTH_MAX   32 /* directories between a tree's top and a mask */
#define LINK_ROUNDS 8  /* links that lead to links */

/* ---- sorted lists ---- */

/* '/' sorts before all else, so that what lies below one directory stands together. */
static int compare(const char *a, const char *b)
{
        while (*a && *a == *b) {
                a++;
                b++;
        }
        int x = *a == '/' ? 1 : *a ? (unsigned char)*a + 1 : 0;
        int y = *b == '/' ? 1 : *b ? (unsigned char)*b + 1 : 0;
        return x - y;
}

static int compare_items(const void *a, const void *b)
{
        return compare(*(char *const *)a, *(char *const *)b);
}

static bool is_below(const char *path, const char *base)
{
        size_t n = strlen(base);
        return strncmp(path, base, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

void pv_mask_tidy(struct pv_strv *paths)
{
        size_t kept = 0;
        if (paths->n == 0)
                return;
        qsort(paths->v, paths->n, sizeof *paths->v, compare_items);
        for (size_t i = 0; i < paths->n; i++) {
                if (kept > 0 && is_below(paths->v[i], paths->v[kept - 1]))
                        free(paths->v[i]);
                else
                        paths->v[kept++] = paths->v[i];
        }
        paths->n = kept;
        paths->v[kept] = NULL;
}

/* ---- preparing ---- */

struct prepare {
        const char *top;
        const struct pv_strv *paths;
        struct pv_strv *present;
        struct pv_strv more; /* found behind links */
};

/* The masks with this component at offset `at`: [*lo, *hi) of [lo, hi). */
static bool find_group(const struct pv_strv *paths, size_t at, const char *name, size_t *lo, size_t *hi)
{
        size_t n = strlen(name), first = *lo, end = *hi;
        while (first < end) { /* the first that does not sort before the name */
                size_t mid = first + (end - first) / 2;
                const char *s = paths->v[mid] + at;
                int c = strncmp(s, name, n) == 0 ? 0 : compare(s, name);
                if (c < 0)
                        first = mid + 1;
                else
                        end = mid;
        }
        while (first < *hi && strncmp(paths->v[first] + at, name, n) == 0 && paths->v[first][at + n] != '\0' &&
               paths->v[first][at + n] != '/')
                first++;
        *lo = first;
        for (end = first; end < *hi && is_below(paths->v[end] + at, name);)
                end++;
        *hi = end;
        return end > first;
}

/* path (relative) is a link, with masks [lo, hi) at it or behind it. */
static void follow(struct prepare *p, const char *path, size_t lo, size_t hi)
{
        pv_auto_free char *full = pv_path_join(p->top, path);
        pv_auto_free char *real = realpath(full, NULL);
        if (!real || !pv_path_is_within(real, p->top) || pv_streq(real, p->top))
                return;
        const char *rel = real + strlen(p->top) + (p->top[1] != '\0');
        for (size_t i = lo; i < hi; i++)
                pv_strv_take(&p->more, pv_strf("%s%s", rel, p->paths->v[i] + strlen(path)));
}

static int look_into(struct prepare *p, int dir, size_t at, size_t lo, size_t hi, int depth, struct pv_err *err);

static int look_at(struct prepare *p, int dir, const char *name, unsigned char type, size_t at, size_t lo, size_t hi,
                   int depth, struct pv_err *err)
{
        struct stat st;
        pv_auto_free char *path = pv_strndup(p->paths->v[lo], at + strlen(name));
        if (type == DT_UNKNOWN && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                type = (unsigned char)IFTODT(st.st_mode);
        if (type == DT_LNK)
                follow(p, path, lo, hi);
        if (pv_streq(path, p->paths->v[lo])) {
                pv_strv_take(p->present, pv_path_join(p->top, path));
                return 0;
        }
        if (type != DT_DIR)
                return 0;
        pv_auto_fd next = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) /* the command will not see into it either, or it just went */
                return errno == EACCES || errno == ENOENT ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "look at %s", path);
        return look_into(p, pv_fd_steal(&next), at + strlen(name) + 1, lo, hi, depth + 1, err);
}

/* The end of those of [lo, hi) whose component at offset `at` is that of the first. */
static size_t end_of_group(const struct pv_strv *paths, size_t at, size_t lo, size_t hi, size_t *len)
{
        const char *first = paths->v[lo] + at;
        *len = strcspn(first, "/");
        while (lo < hi && strncmp(paths->v[lo] + at, first, *len) == 0 && strcspn(paths->v[lo] + at, "/") == *len)
                lo++;
        return lo;
}

/* Few names are asked for one by one: to read a directory such as /etc costs as much as sixty of them. */
#define ASKED_FOR 48

static bool are_few(const struct pv_strv *paths, size_t at, size_t lo, size_t hi)
{
        size_t n = 0, len;
        for (; lo < hi && n <= ASKED_FOR; n++)
                lo = end_of_group(paths, at, lo, hi, &len);
        return n <= ASKED_FOR;
}

static int ask_for(struct prepare *p, int dir, size_t at, size_t lo, size_t hi, int depth, struct pv_err *err)
{
        for (size_t end, len; lo < hi; lo = end) {
                struct stat st;
                end = end_of_group(p->paths, at, lo, hi, &len);
                pv_auto_free char *name = pv_strndup(p->paths->v[lo] + at, len);
                if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    look_at(p, dir, name, (unsigned char)IFTODT(st.st_mode), at, lo, end, depth, err) < 0)
                        return -1;
        }
        return 0;
}

/* Takes dir. The masks [lo, hi) lie below it, each with its next component at offset `at`. */
static int look_into(struct prepare *p, int dir, size_t at, size_t lo, size_t hi, int depth, struct pv_err *err)
{
        if (depth <= DEPTH_MAX && are_few(p->paths, at, lo, hi)) {
                pv_auto_fd own = dir;
                return ask_for(p, own, at, lo, hi, depth, err);
        }
        pv_auto_dir d = fdopendir(dir);
        if (!d || depth > DEPTH_MAX) {
                if (!d)
                        (void)close(dir);
                return pv_err_set(err, PV_ERR_SYS, d ? ENAMETOOLONG : errno, "list what is below %s", p->top);
        }
        struct dirent *e;
        int more;
        while ((more = pv_dir_next(d, &e)) > 0) {
                size_t first = lo, end = hi;
                if (find_group(p->paths, at, e->d_name, &first, &end) &&
                    look_at(p, dirfd(d), e->d_name, e->d_type, at, first, end, depth, err) < 0)
                        return -1;
        }
        return more < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "list what is below %s", p->top) : 0;
}

/* Hidden already, itself or with what it lies in: what tidying would drop again. */
static bool is_covered(const struct pv_strv *paths, const char *path)
{
        for (size_t i = 0; i < paths->n; i++)
                if (is_below(path, paths->v[i]))
                        return true;
        return false;
}

int pv_mask_prepare(const char *dir, struct pv_strv *paths, struct pv_strv *present, struct pv_err *err)
{
        for (int round = 0; round < LINK_ROUNDS; round++) {
                pv_mask_tidy(paths);
                pv_auto_strv found = { 0 };
                struct prepare p = { .top = dir, .paths = paths, .present = &found };
                int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0)
                        return errno == ENOENT || errno == EACCES ? 0
                                                                  : pv_err_set(err, PV_ERR_SYS, errno, "open %s", dir);
                int r = look_into(&p, fd, 0, 0, paths->n, 0, err);
                size_t before = paths->n;
                for (size_t i = 0; i < p.more.n; i++)
                        if (!is_covered(paths, p.more.v[i]))
                                pv_strv_add(paths, p.more.v[i]);
                pv_strv_fini(&p.more);
                if (r < 0)
                        return -1;
                if (paths->n != before)
                        continue;
                for (size_t i = 0; i < found.n; i++)
                        pv_strv_add(present, found.v[i]);
                return 0;
        }
        return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s: links to credential stores that do not come to an end", dir);
}

/* ---- laying ---- */

/* The directories from the top to where the last mask lay, in the layer and in the lower. */
struct chain {
        const char *path;      /* of the deepest one */
        size_t end[DEPTH_MAX]; /* where the name of each ends in path */
        int layer[DEPTH_MAX], lower[DEPTH_MAX];
        struct timespec times[DEPTH_MAX][2]; /* of the lower's */
        int n;
        /* The first whiteout: the others are links of it, as the kernel's own are, which costs less than an inode. */
        int origin_dir;
        char origin[NAME_MAX + 1];
};

static void pop_to(struct chain *c, int n)
{
        while (c->n > n) {
                c->n--;
                (void)futimens(c->layer[c->n], c->times[c->n]); /* now that nothing more is put into it */
                pv_fd_closep(&c->layer[c->n]);
                pv_fd_closep(&c->lower[c->n]);
        }
}

static int whiteout(struct chain *c, int dir, const char *name, const char *path, struct pv_err *err)
{
        if (c->origin[0] && linkat(c->origin_dir, c->origin, dir, name, 0) == 0)
                return 0;
        if (mknodat(dir, name, S_IFCHR | 0600, makedev(0, 0)) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        if (!c->origin[0] && (c->origin_dir = fcntl(dir, F_DUPFD_CLOEXEC, 3)) >= 0)
                (void)snprintf(c->origin, sizeof c->origin, "%s", name);
        return 0;
}

/* Makes name in the layer look like the lower's directory of that name, and opens it. */
static int copy_parent(int layer, const struct stat *st, const char *name, const char *path, int *out,
                       struct pv_err *err)
{
        if (mkdirat(layer, name, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        pv_auto_fd fd = openat(layer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        /* An owner that is not mapped here cannot be given; such a directory is nobody's to use anyway. */
        if (fchown(fd, st->st_uid, st->st_gid) < 0 && errno != EPERM && errno != EINVAL)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        if (fchmod(fd, st->st_mode & 07777) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
        *out = pv_fd_steal(&fd);
        return 0;
}

/* How many directories of the chain lie above path. */
static int common(const struct chain *c, const char *path)
{
        int n = 0;
        while (n < c->n && strncmp(path, c->path, c->end[n]) == 0 && path[c->end[n]] == '/')
                n++;
        return n;
}

/*
 * Lays one mask. *hidden becomes how much of path is hidden: all of it, or the name of a missing parent, below which
 * no other mask is needed.
 */
static int lay_one(struct chain *c, int layer, int lower, const char *path, size_t *hidden, struct pv_err *err)
{
        pop_to(c, common(c, path));
        c->path = path;
        for (;;) {
                size_t start = c->n ? c->end[c->n - 1] + 1 : 0, end = start + strcspn(path + start, "/");
                int in_layer = c->n ? c->layer[c->n - 1] : layer, in_lower = c->n ? c->lower[c->n - 1] : lower;
                pv_auto_free char *name = pv_strndup(path + start, end - start);
                struct stat st;
                *hidden = end;
                if (path[end] == '\0')
                        return whiteout(c, in_layer, name, path, err);
                pv_auto_fd next = openat(in_lower, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (next < 0 && errno == ENOENT)
                        return whiteout(c, in_layer, name, path, err);
                if (next < 0 || fstat(next, &st) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "hide %s", path);
                if (!S_ISDIR(st.st_mode))
                        return 0;
                if (c->n == DEPTH_MAX)
                        return pv_err_set(err, PV_ERR_SYS, ENAMETOOLONG, "hide %s", path);
                c->layer[c->n] = -1;
                if (copy_parent(in_layer, &st, name, path, &c->layer[c->n], err) < 0)
                        return -1;
                c->lower[c->n] = pv_fd_steal(&next);
                c->times[c->n][0] = st.st_atim;
                c->times[c->n][1] = st.st_mtim;
                c->end[c->n++] = end;
        }
}

int pv_mask_lay(struct pv_pathfd layer, struct pv_pathfd lower, const struct pv_strv *paths, struct pv_err *err)
{
        struct chain c = { .n = 0, .origin_dir = -1 };
        size_t hidden = 0;
        int r = 0;
        for (size_t i = 0, last = 0; i < paths->n && r == 0; i++) {
                const char *path = paths->v[i];
                if (hidden > 0 && strncmp(path, paths->v[last], hidden) == 0 && path[hidden] == '/')
                        continue;
                last = i;
                r = lay_one(&c, layer.fd, lower.fd, path, &hidden, err);
        }
        pop_to(&c, 0);
        pv_fd_closep(&c.origin_dir);
        return r;
}
