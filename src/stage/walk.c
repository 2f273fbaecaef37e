/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

/* Of the levels of a deep directory the first and the last ones stay open, those in between are closed. */
#define FIRST_LEVELS 32
#define LAST_LEVELS  32

void pv_walk_init(struct pv_walk *w, struct pv_pathfd root)
{
        *w = (struct pv_walk){ .root = root };
}

static void cut(struct pv_walk *w, unsigned depth)
{
        while (w->depth > depth)
                pv_fd_closep(&w->level[--w->depth].fd);
        w->path.len = w->depth ? w->level[w->depth - 1].end : 0;
        if (w->path.s)
                w->path.s[w->path.len] = '\0';
}

void pv_walk_reset(struct pv_walk *w)
{
        cut(w, 0);
}

void pv_walk_fini(struct pv_walk *w)
{
        cut(w, 0);
        pv_str_fini(&w->path);
        free(w->level);
        w->level = NULL;
        w->cap = 0;
}

static void push(struct pv_walk *w, int fd, const char *dir, size_t end)
{
        if (w->depth == w->cap) {
                w->cap = w->cap ? 2 * w->cap : 8;
                w->level = pv_realloc(w->level, w->cap, sizeof *w->level);
        }
        pv_str_put_bytes(&w->path, dir + w->path.len, end - w->path.len);
        w->level[w->depth++] = (struct pv_walk_level){ .end = end, .fd = fd };
        if (w->depth > FIRST_LEVELS + LAST_LEVELS)
                pv_fd_closep(&w->level[w->depth - 1 - LAST_LEVELS].fd);
}

/* How many levels lead to dir (n bytes). */
static unsigned shared_levels(const struct pv_walk *w, const char *dir, size_t n)
{
        unsigned d = 0;
        while (d < w->depth) {
                size_t end = w->level[d].end;
                if (end > n || memcmp(w->path.s, dir, end) != 0 || (end < n && dir[end] != '/'))
                        break;
                d++;
        }
        return d;
}

static int open_component(int dirfd, const char *s, size_t n)
{
        char name[NAME_MAX + 1];
        if (n == 0 || n > NAME_MAX || (n <= 2 && memcmp(s, "..", n) == 0)) {
                errno = n > NAME_MAX ? ENAMETOOLONG : EINVAL;
                return -1;
        }
        memcpy(name, s, n);
        name[n] = '\0';
        return openat(dirfd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int descend(struct pv_walk *w, const char *dir, size_t n)
{
        size_t at = w->path.len;
        int fd = w->depth ? w->level[w->depth - 1].fd : w->root.fd;
        while (at < n) {
                size_t from = at ? at + 1 : 0;
                const char *slash = memchr(dir + from, '/', n - from);
                size_t end = slash ? (size_t)(slash - dir) : n;
                int next = open_component(fd, dir + from, end - from);
                if (next < 0)
                        return -1;
                push(w, next, dir, end);
                fd = next;
                at = end;
        }
        return fd;
}

int pv_walk_parent(struct pv_walk *w, const char *path, const char **name)
{
        const char *slash = strrchr(path, '/');
        size_t n = slash ? (size_t)(slash - path) : 0;
        *name = slash ? slash + 1 : *path ? path : ".";
        if (*path && (**name == '\0' || pv_streq(*name, "..") || pv_streq(*name, "."))) {
                errno = EINVAL;
                return -1;
        }
        cut(w, shared_levels(w, path, n));
        while (w->depth > 0 && w->level[w->depth - 1].fd < 0)
                cut(w, w->depth - 1);
        return descend(w, path, n);
}
