/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

void pv_walk_init(struct pv_walk *w, struct pv_pathfd root)
{
        *w = (struct pv_walk){ .root = root, .deep = -1 };
}

static void cut(struct pv_walk *w, unsigned depth)
{
        pv_fd_closep(&w->deep);
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
}

/* How many open levels lead to dir (n bytes). */
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
                if (w->depth < PV_WALK_LEVELS) {
                        pv_str_put_bytes(&w->path, dir + w->path.len, end - w->path.len);
                        w->level[w->depth].end = end;
                        w->level[w->depth++].fd = next;
                } else {
                        pv_fd_closep(&w->deep);
                        w->deep = next;
                }
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
        unsigned shared = shared_levels(w, path, n);
        size_t end = shared ? w->level[shared - 1].end : 0;
        if (shared < w->depth || w->deep >= 0 || end != n)
                cut(w, shared);
        return descend(w, path, n);
}
