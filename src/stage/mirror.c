/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was copied once need not be copied again if it is the same inode with the same ctime: every write moves that.
 * But one through a mapping moves it at the first store to a page alone, and on tmpfs never. So a file that somebody
 * has open for writing is not copied before the last pass, and on tmpfs, where copying is cheap, nothing is. Files
 * with several names are left for the last pass as well.
 */
#include "stage/mirror.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include "base/copy.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "stage/ident.h"

struct copied {
        char *path; /* relative to the top; first, for comparing */
        struct stat st;
        bool whole; /* the copy is what st says */
        unsigned pass;
};

/* The first name of an inode with several, in the last pass. */
struct first_name {
        ino_t ino;
        char *path;
};

struct pv_mirror {
        int from, to; /* descriptors of the two tops */
        unsigned pass;
        bool last;
        void *copied, *names; /* tsearch(3) trees */
        struct pv_strv gone;
        struct pv_err *err;
};

static int by_path(const void *a, const void *b)
{
        return strcmp(((const struct copied *)a)->path, ((const struct copied *)b)->path);
}

static int by_inode(const void *a, const void *b)
{
        ino_t x = ((const struct first_name *)a)->ino, y = ((const struct first_name *)b)->ino;
        return x == y ? 0 : x < y ? -1 : 1;
}

static void free_copied(void *p)
{
        free(((struct copied *)p)->path);
        free(p);
}

static void free_name(void *p)
{
        free(((struct first_name *)p)->path);
        free(p);
}

void pv_mirror_free(struct pv_mirror *m)
{
        if (!m)
                return;
        pv_fd_closep(&m->from);
        pv_fd_closep(&m->to);
        tdestroy(m->copied, free_copied);
        tdestroy(m->names, free_name);
        pv_strv_fini(&m->gone);
        free(m);
}

int pv_mirror_new(const char *from, const char *to, struct pv_mirror **out, struct pv_err *err)
{
        struct pv_mirror *m = pv_calloc(1, sizeof *m);
        m->to = -1;
        m->from = open(from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (m->from < 0 || mkdir(to, 0700) < 0 ||
            (m->to = open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0) {
                (void)pv_err_set(err, PV_ERR_SYS, errno, "copy %s to %s", from, to);
                pv_mirror_free(m);
                return -1;
        }
        *out = m;
        return 0;
}

static bool is_same_time(const struct timespec *a, const struct timespec *b)
{
        return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
        return a->st_ino == b->st_ino && a->st_mode == b->st_mode && a->st_size == b->st_size &&
               a->st_nlink == b->st_nlink && is_same_time(&a->st_ctim, &b->st_ctim) &&
               is_same_time(&a->st_mtim, &b->st_mtim);
}

static struct copied *note(struct pv_mirror *m, const char *path)
{
        struct copied *c = pv_calloc(1, sizeof *c);
        c->path = pv_strdup(path);
        struct copied **found = tsearch(c, &m->copied, by_path);
        if (!found)
                abort(); /* out of memory, as in the other small allocations */
        if (*found != c)
                free_copied(c);
        (*found)->pass = m->pass;
        return *found;
}

static int failed(struct pv_mirror *m, const char *path)
{
        return pv_err_set(m->err, PV_ERR_SYS, errno, "copy %s", *path ? path : ".");
}

/* May it be copied while the command runs? */
static bool can_wait_for_nothing(int dir, const char *name, const struct stat *st)
{
        struct pv_ident ident;
        bool writer = false;
        if (!S_ISREG(st->st_mode))
                return st->st_nlink == 1;
        return st->st_nlink == 1 && pv_ident_read_unwritten(dir, name, &ident, &writer) == 0 && !writer;
}

/* 1: it was made as another name of one that is there. */
static int link_to_first(struct pv_mirror *m, const char *path, const struct stat *st)
{
        struct first_name *n = pv_calloc(1, sizeof *n);
        *n = (struct first_name){ .ino = st->st_ino };
        struct first_name **found = tsearch(n, &m->names, by_inode);
        if (!found)
                abort();
        if (*found == n) {
                n->path = pv_strdup(path);
                return 0;
        }
        free(n);
        return linkat(m->to, (*found)->path, m->to, path, 0) < 0 ? failed(m, path) : 1;
}

static int copy_entry(struct pv_mirror *m, int from, int to, const char *name, const char *path, struct stat *st)
{
        struct copied *c = note(m, path);
        bool several = st->st_nlink > 1;
        if (c->whole && !several && is_unchanged(&c->st, st))
                return 0;
        c->whole = false;
        if (!m->last && !can_wait_for_nothing(from, name, st))
                return 0;
        if (pv_path_remove_tree(to, name, m->err) < 0)
                return -1;
        int linked = several ? link_to_first(m, path, st) : 0;
        if (linked != 0)
                return linked < 0 ? -1 : 0;
        if (pv_copy_entry(from, name, to, name, PV_COPY_PLAIN | PV_COPY_SHALLOW, m->err) < 0)
                return -1;
        struct stat now;
        c->whole = fstatat(from, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && is_unchanged(st, &now);
        c->st = *st;
        return 0;
}

/* Attributes, owner, mode and times of a directory whose entries are there. */
static int finish_directory(struct pv_mirror *m, int from, int to, const char *path, const struct stat *st)
{
        pv_auto_xattrs want = { 0 };
        pv_auto_xattrs have = { 0 };
        if (pv_xattrs_read(from, "", PV_COPY_PLAIN, &want, m->err) < 0 ||
            pv_xattrs_read(to, "", PV_COPY_PLAIN, &have, m->err) < 0)
                return -1;
        for (size_t i = 0; i < have.n; i++)
                if (!pv_xattrs_find(&want, have.item[i].name) && pv_xattr_set(to, ".", have.item[i].name, NULL, 0) < 0)
                        return failed(m, path);
        if (fchown(to, st->st_uid, st->st_gid) < 0)
                return failed(m, path);
        for (int user = 1; user >= 0; user--) { /* an ACL after the mode, which would change it */
                for (size_t i = 0; i < want.n; i++)
                        if (pv_str_has_prefix(want.item[i].name, "user.") == (user == 1) &&
                            pv_xattr_set(to, ".", want.item[i].name, want.item[i].value, want.item[i].size) < 0)
                                return failed(m, path);
                if (user && fchmod(to, st->st_mode & 07777) < 0)
                        return failed(m, path);
        }
        const struct timespec times[2] = { st->st_atim, st->st_mtim };
        return futimens(to, times) < 0 ? failed(m, path) : 0;
}

static int mirror_directory(struct pv_mirror *m, int from, int to, const char *path);

static int enter(struct pv_mirror *m, int from, int to, const char *name, const char *path)
{
        struct stat there;
        struct copied *c = note(m, path);
        bool is_dir = fstatat(to, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(there.st_mode);
        c->whole = false;
        if (!is_dir && pv_path_remove_tree(to, name, m->err) < 0)
                return pv_err_wrap(m->err, "copy %s", path);
        if (!is_dir && mkdirat(to, name, 0700) < 0)
                return failed(m, path);
        pv_auto_fd below = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        pv_auto_fd copy = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0 || copy < 0)
                return failed(m, path);
        return mirror_directory(m, below, copy, path);
}

static int mirror_entry(struct pv_mirror *m, int from, int to, const char *name, const char *path)
{
        struct stat st;
        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return failed(m, path);
        return S_ISDIR(st.st_mode) ? enter(m, from, to, name, path) : copy_entry(m, from, to, name, path, &st);
}

static int mirror_directory(struct pv_mirror *m, int from, int to, const char *path)
{
        struct stat st;
        struct dirent *e;
        int more;
        pv_auto_dir d = pv_dir_open(from, ".");
        if (!d || fstat(from, &st) < 0)
                return failed(m, path);
        while ((more = pv_dir_next(d, &e)) > 0) {
                pv_auto_free char *below = pv_path_join(path, e->d_name);
                if (mirror_entry(m, from, to, e->d_name, below) < 0) {
                        if (m->last)
                                return -1;
                        pv_err_clear(m->err); /* it moves: the last pass sees to it */
                }
        }
        if (more < 0)
                return failed(m, path);
        return m->last ? finish_directory(m, from, to, path, &st) : 0;
}

/* tsearch(3) hands no context through twalk(3). */
static void list_gone(const void *node, VISIT which, void *mirror)
{
        struct pv_mirror *m = mirror;
        const struct copied *c = *(struct copied *const *)node;
        if ((which == postorder || which == leaf) && c->pass != m->pass)
                pv_strv_add(&m->gone, c->path);
}

/* What the last pass did not meet any more. Before it, so that the times of directories are set afterwards. */
static int remove_gone(struct pv_mirror *m)
{
        twalk_r(m->copied, list_gone, m);
        for (size_t i = 0; i < m->gone.n; i++) {
                pv_auto_pathfd parent = PV_PATHFD_INIT;
                const char *name = NULL;
                if (pv_path_open_parent((struct pv_pathfd){ m->to }, m->gone.v[i], &parent, &name) < 0)
                        continue; /* gone with a directory */
                struct stat dir;
                pv_auto_fd fd = openat(parent.fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                if (fd < 0 || fstat(fd, &dir) < 0 || pv_path_remove_tree(parent.fd, name, m->err) < 0)
                        return -1;
                (void)futimens(fd, (struct timespec[]){ dir.st_atim, dir.st_mtim });
        }
        return 0;
}

static int pass(struct pv_mirror *m, bool last, struct pv_err *err)
{
        m->pass++;
        m->last = last;
        m->err = err;
        return mirror_directory(m, m->from, m->to, "");
}

void pv_mirror_begin(struct pv_mirror *m)
{
        struct pv_err ignored = PV_ERR_INIT;
        struct statfs fs;
        if (fstatfs(m->from, &fs) == 0 && fs.f_type != TMPFS_MAGIC)
                (void)pass(m, false, &ignored);
}

int pv_mirror_finish(struct pv_mirror *m, struct pv_err *err)
{
        return pass(m, true, err) < 0 ? -1 : remove_gone(m);
}
