/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/dir.h"
#include "base/syscall.h"

/* openat2 says EAGAIN while somebody renames above the path: again, but not for ever. */
#define RESOLVE_TRIES 64

int pv_path_open_root(const char *path, struct pv_pathfd *out, struct pv_err *err)
{
        int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open directory %s", path);
        out->fd = fd;
        return 0;
}

int pv_path_openat(struct pv_pathfd root, const char *rel, int flags, mode_t mode)
{
        struct open_how how = {
                .flags = (unsigned)(flags | O_CLOEXEC),
                .mode = flags & (O_CREAT | __O_TMPFILE) ? mode : 0,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        for (int i = 0; i < RESOLVE_TRIES; i++) {
                int fd = pv_sys_openat2(root.fd, *rel ? rel : ".", &how);
                if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
                        return fd;
        }
        return -1;
}

int pv_path_open_parent(struct pv_pathfd root, const char *rel, struct pv_pathfd *parent, const char **name)
{
        const char *slash = strrchr(rel, '/');
        const char *last = slash ? slash + 1 : rel;
        if (*last == '\0' || pv_streq(last, ".") || pv_streq(last, "..")) {
                errno = EINVAL;
                return -1;
        }
        pv_auto_free char *dir = slash ? pv_strndup(rel, (size_t)(slash - rel)) : pv_strdup(".");
        int fd = pv_path_openat(root, dir, O_RDONLY | O_DIRECTORY, 0);
        if (fd < 0)
                return -1;
        parent->fd = fd;
        *name = last;
        return 0;
}

bool pv_path_is_within(const char *path, const char *base)
{
        size_t n = strlen(base);
        if (n == 1 && base[0] == '/')
                return path[0] == '/';
        return strncmp(path, base, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

char *pv_path_normalise(const char *absolute)
{
        pv_auto_str out = { 0 };
        for (const char *p = absolute; *p;) {
                p += strspn(p, "/");
                size_t n = strcspn(p, "/");
                if (n == 2 && p[0] == '.' && p[1] == '.') {
                        while (out.len > 0 && out.s[--out.len] != '/')
                                ;
                } else if (n > 0 && !(n == 1 && p[0] == '.')) {
                        pv_str_putc(&out, '/');
                        pv_str_put_bytes(&out, p, n);
                }
                p += n;
        }
        if (out.len == 0)
                pv_str_putc(&out, '/');
        return pv_str_steal(&out);
}

char *pv_path_join(const char *base, const char *name)
{
        size_t n = strlen(base);
        if (n == 0)
                return pv_strdup(name);
        while (n > 0 && base[n - 1] == '/')
                n--;
        name += strspn(name, "/");
        return pv_strf("%.*s/%s", (int)n, base, name);
}

int pv_path_real(const char *path, char **out, struct pv_err *err)
{
        char *r = realpath(path, NULL);
        if (!r)
                return pv_err_set(err, PV_ERR_SYS, errno, "resolve %s", path);
        *out = r;
        return 0;
}

char *pv_path_real_existing(const char *absolute)
{
        pv_auto_free char *head = pv_strdup(absolute);
        for (;;) {
                pv_auto_free char *real = realpath(head, NULL);
                char *slash = strrchr(head, '/');
                if (real)
                        return absolute[strlen(head)] ? pv_path_join(real, absolute + strlen(head) + 1)
                                                      : pv_steal(&real);
                if (!slash || slash == head)
                        return pv_strdup(absolute);
                *slash = '\0';
        }
}

bool pv_path_is_or_holds(const struct stat *dir, const char *path)
{
        pv_auto_free char *there = pv_strdup(path), *at = NULL;
        while (!(at = realpath(there, NULL))) {
                char *slash = strrchr(there, '/');
                if (!slash || slash == there)
                        return false;
                *slash = '\0';
        }
        for (struct stat st;;) {
                if (stat(at, &st) == 0 && st.st_dev == dir->st_dev && st.st_ino == dir->st_ino)
                        return true;
                char *slash = strrchr(at, '/');
                if (slash == at)
                        return false; /* whoever mounts "/" knows */
                *slash = '\0';
        }
}

/* Of what is there mkdir(2) says EEXIST, but EROFS or EACCES where it could not make it either. */
static int make_dir(const char *path, mode_t mode, struct pv_err *err)
{
        struct stat st;
        if (mkdir(path, mode) == 0)
                return 0;
        int why = errno;
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
                return 0;
        return pv_err_set(err, PV_ERR_SYS, why == EEXIST ? ENOTDIR : why, "make directory %s", path);
}

int pv_path_make_dirs(const char *path, mode_t mode, struct pv_err *err)
{
        pv_auto_free char *p = pv_strdup(path);
        for (char *s = p + strspn(p, "/");; s++) {
                s += strcspn(s, "/");
                char c = *s;
                *s = '\0';
                if (*p && make_dir(p, mode, err) < 0)
                        return -1;
                *s = c;
                if (c == '\0')
                        return 0;
        }
}

/* Opens a directory entry for emptying, giving its owner access first where that is what is missing. */
static int open_for_removal(int dirfd, const char *name)
{
        int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        int fd = openat(dirfd, name, flags);
        if (fd < 0 && errno == EACCES && fchmodat(dirfd, name, 0700, 0) == 0)
                fd = openat(dirfd, name, flags);
        return fd;
}

/*
 * A tree may be deeper than there are descriptors: what lies further down than this is moved up into the directory
 * that is being removed, and is met there again.
 */
#define REMOVAL_DEPTH 32

struct removal {
        int top; /* the directory that is being removed */
        unsigned depth, moved;
        struct pv_err *err;
};

static int empty_dir(struct removal *r, int fd);

static int move_up(struct removal *r, int dirfd, const char *name)
{
        char up[32];
        bool opened = false;
        for (;;) {
                (void)snprintf(up, sizeof up, ".deep-%u", r->moved++);
                if (renameat2(dirfd, name, r->top, up, RENAME_NOREPLACE) == 0)
                        return 0;
                if (errno == EACCES && !opened && fchmodat(dirfd, name, 0700, 0) == 0)
                        opened = true; /* moving a directory writes to it */
                else if (errno != EEXIST)
                        break;
        }
        return pv_err_set(r->err, PV_ERR_SYS, errno, "remove %s", name);
}

static int remove_entry(struct removal *r, int dirfd, const char *name)
{
        if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
                return 0;
        int why = errno;
        if (why == EROFS && faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
                return 0; /* unlink(2) on a read-only file system does not look whether there is anything */
        if (why != EISDIR && why != EPERM)
                return pv_err_set(r->err, PV_ERR_SYS, why, "remove %s", name);
        if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0)
                return 0;
        if (errno == ENOTDIR) /* a file that may not be removed: immutable, or another's in a sticky directory */
                return pv_err_set(r->err, PV_ERR_SYS, why, "remove %s", name);
        if (errno == EBUSY) /* a mount point: what is mounted there is somebody's, and not below this directory */
                return pv_err_set(r->err, PV_ERR_SYS, errno, "remove %s", name);
        if (r->depth > REMOVAL_DEPTH)
                return move_up(r, dirfd, name);
        pv_auto_fd fd = open_for_removal(dirfd, name);
        if (fd < 0)
                return pv_err_set(r->err, PV_ERR_SYS, errno, "remove %s", name);
        struct stat st;
        if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
                (void)fchmod(fd, 0700); /* the unlink below says why, should this not be allowed */
        if (r->top < 0)
                r->top = fd;
        unsigned before;
        do { /* what was moved up to here is met in the next pass */
                before = r->moved;
                if (empty_dir(r, fd) < 0)
                        return pv_err_wrap(r->err, "%s", name);
        } while (r->top == fd && r->moved != before);
        if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                return pv_err_set(r->err, PV_ERR_SYS, errno, "remove %s", name);
        return 0;
}

static int empty_dir(struct removal *r, int fd)
{
        pv_auto_dir d = pv_dir_open(fd, ".");
        struct dirent *e;
        int more = -1;
        while (d && (more = pv_dir_next(d, &e)) > 0) {
                r->depth++;
                int result = remove_entry(r, fd, e->d_name);
                r->depth--;
                if (result < 0)
                        return -1;
        }
        return more < 0 ? pv_err_set(r->err, PV_ERR_SYS, errno, "read directory") : 0;
}

int pv_path_remove_tree(int dirfd, const char *name, struct pv_err *err)
{
        struct removal r = { .top = -1, .err = err };
        return remove_entry(&r, dirfd, name);
}
