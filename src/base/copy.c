/* SPDX-License-Identifier: Apache-2.0 */
#include "base/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <search.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "base/fd.h"
#include "base/path.h"

/* Where the first name of an inode with several went, so that its other names become links to it. */
struct first_name {
        dev_t dev;
        ino_t ino;
        char *path; /* below the destination's directory */
};

struct copy {
        int ddir; /* the destination's directory: names of links are relative to it */
        unsigned flags;
        void *links; /* tsearch(3) tree of struct first_name */
        bool inside; /* below a directory that was made here: what stands there is ours to remove */
};

static int compare_first(const void *a, const void *b)
{
        const struct first_name *x = a, *y = b;
        if (x->ino != y->ino)
                return x->ino < y->ino ? -1 : 1;
        return x->dev == y->dev ? 0 : x->dev < y->dev ? -1 : 1;
}

static void free_first(void *p)
{
        free(((struct first_name *)p)->path);
        free(p);
}

static int copy_range_by_hand(int in, int out, off_t from, off_t to)
{
        pv_auto_free char *buf = malloc(256 * 1024);
        if (!buf)
                return -1;
        while (from < to) {
                size_t want = to - from < 256 * 1024 ? (size_t)(to - from) : 256 * 1024;
                ssize_t n = pread(in, buf, want, from);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return (int)n; /* the file shrank: its size is compared afterwards by who cares */
                for (ssize_t done = 0; done < n;) {
                        ssize_t w = pwrite(out, buf + done, (size_t)(n - done), from + done);
                        if (w < 0 && errno != EINTR)
                                return -1;
                        done += w > 0 ? w : 0;
                }
                from += n;
        }
        return 0;
}

static int copy_range(int in, int out, off_t from, off_t to)
{
        while (from < to) {
                off_t a = from, b = from;
                ssize_t n = copy_file_range(in, &a, out, &b, (size_t)(to - from), 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0) /* another filesystem, an old kernel, a file of /proc that claims to be empty */
                        return copy_range_by_hand(in, out, from, to);
                from += n;
        }
        return 0;
}

int pv_copy_content(int in, int out, off_t size)
{
        if (ioctl(out, FICLONE, in) == 0)
                return 0;
        for (off_t at = 0; at < size;) {
                off_t data = lseek(in, at, SEEK_DATA);
                if (data < 0 && errno == ENXIO)
                        break; /* only a hole is left */
                if (data < 0)
                        data = at; /* no holes known here */
                off_t hole = lseek(in, data, SEEK_HOLE);
                if (hole < 0)
                        hole = size;
                if (copy_range(in, out, data, hole) < 0)
                        return -1;
                at = hole;
        }
        return ftruncate(out, size);
}

/* Owner, attributes, mode, times: in the order in which none undoes another, and a mode of 0444 forbids none. */
static int copy_metadata(int sdir, const char *sname, const struct stat *st, int ddir, const char *dname,
                         unsigned flags, struct pv_err *err)
{
        pv_auto_xattrs x = { 0 };
        if (fchownat(ddir, dname, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "keep the owner of %s", sname);
        if (pv_xattrs_read(sdir, sname, flags, &x, err) < 0)
                return -1;
        for (int user = 1; user >= 0; user--) {
                for (size_t i = 0; i < x.n; i++)
                        if (pv_str_has_prefix(x.item[i].name, "user.") == (user == 1) &&
                            pv_xattr_set(ddir, dname, x.item[i].name, x.item[i].value, x.item[i].size) < 0)
                                return pv_err_set(err, PV_ERR_SYS, errno, "keep attribute %s of %s", x.item[i].name,
                                                  sname);
                if (user && !S_ISLNK(st->st_mode) && fchmodat(ddir, dname, st->st_mode & 07777, 0) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "keep the mode of %s", sname);
        }
        struct timespec t[2] = { st->st_atim, st->st_mtim };
        if (utimensat(ddir, dname, t, AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "keep the times of %s", sname);
        return 0;
}

static int copy_regular(int sdir, const char *sname, const struct stat *st, int ddir, const char *dname,
                        struct pv_err *err)
{
        pv_auto_fd in = openat(sdir, sname, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        struct stat now;
        bool replaced = in < 0 && (errno == ELOOP || errno == ENXIO); /* by a link, by a socket */
        if (!replaced && (in < 0 || fstat(in, &now) < 0))
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", sname);
        if (replaced || now.st_ino != st->st_ino || !S_ISREG(now.st_mode))
                return pv_err_set(err, PV_ERR_SYS, EAGAIN, "copy %s: it was replaced meanwhile", sname);
        pv_auto_fd out = openat(ddir, dname, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "create %s", dname);
        if (pv_copy_content(in, out, now.st_size) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "copy %s", sname);
        return 0;
}

static int copy_link(int sdir, const char *sname, int ddir, const char *dname, struct pv_err *err)
{
        char text[PATH_MAX + 1];
        ssize_t n = readlinkat(sdir, sname, text, sizeof text - 1);
        if (n < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read link %s", sname);
        text[n] = '\0';
        return symlinkat(text, ddir, dname) < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "create %s", dname) : 0;
}

static int copy_at(struct copy *c, int sdir, const char *sname, int ddir, const char *dname, const char *path,
                   struct pv_err *err);

static int copy_entries(struct copy *c, int sdir, const char *sname, int ddir, const char *dname, const char *path,
                        struct pv_err *err)
{
        pv_auto_dir d = pv_dir_open(sdir, sname);
        struct dirent *e;
        int more;
        pv_auto_fd out = openat(ddir, dname, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        c->inside = true;
        if (!d || out < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", sname);
        while ((more = pv_dir_next(d, &e)) > 0) {
                pv_auto_free char *below = pv_strf("%s/%s", path, e->d_name);
                if (copy_at(c, dirfd(d), e->d_name, out, e->d_name, below, err) < 0)
                        return pv_err_wrap(err, "%s", sname);
        }
        return more < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "read directory %s", sname) : 0;
}

static int make_entry(struct copy *c, int sdir, const char *sname, const struct stat *st, int ddir, const char *dname,
                      const char *path, struct pv_err *err)
{
        if (S_ISREG(st->st_mode))
                return copy_regular(sdir, sname, st, ddir, dname, err);
        if (S_ISLNK(st->st_mode))
                return copy_link(sdir, sname, ddir, dname, err);
        if (!S_ISDIR(st->st_mode)) {
                if (mknodat(ddir, dname, (st->st_mode & S_IFMT) | 0600, st->st_rdev) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "create %s", dname);
                return 0;
        }
        if (mkdirat(ddir, dname, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "create %s", dname);
        if (c->flags & PV_COPY_SHALLOW)
                return 0;
        return copy_entries(c, sdir, sname, ddir, dname, path, err);
}

/* 1: was made as a link to an earlier name; 0: is the first. */
static int link_to_first(struct copy *c, const struct stat *st, int ddir, const char *dname, const char *path,
                         struct pv_err *err)
{
        struct first_name *f = pv_calloc(1, sizeof *f);
        *f = (struct first_name){ .dev = st->st_dev, .ino = st->st_ino };
        struct first_name **found = tsearch(f, &c->links, compare_first);
        if (!found) {
                free(f);
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "copy %s", path);
        }
        if (*found == f) {
                f->path = pv_strdup(path);
                return 0;
        }
        free(f);
        if (linkat(c->ddir, (*found)->path, ddir, dname, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "link %s", path);
        return 1;
}

static int copy_at(struct copy *c, int sdir, const char *sname, int ddir, const char *dname, const char *path,
                   struct pv_err *err)
{
        struct stat st;
        if (fstatat(sdir, sname, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "copy %s", sname);
        if (!S_ISDIR(st.st_mode) && st.st_nlink > 1 && !(c->flags & PV_COPY_SHALLOW)) {
                int linked = link_to_first(c, &st, ddir, dname, path, err);
                if (linked != 0)
                        return linked < 0 ? -1 : 0;
        }
        if (make_entry(c, sdir, sname, &st, ddir, dname, path, err) < 0)
                return -1;
        return copy_metadata(sdir, sname, &st, ddir, dname, c->flags, err);
}

int pv_copy_entry(int sdir, const char *sname, int ddir, const char *dname, unsigned flags, struct pv_err *err)
{
        struct copy c = { .ddir = ddir, .flags = flags };
        struct stat st;
        if (fstatat(ddir, dname, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return pv_err_set(err, PV_ERR_SYS, EEXIST, "copy %s to %s", sname, dname);
        int r = copy_at(&c, sdir, sname, ddir, dname, dname, err);
        tdestroy(c.links, free_first);
        /* Another's file of that name, made meanwhile, is not ours to remove. */
        if (r < 0 && (c.inside || err->sys != EEXIST)) {
                struct pv_err ignored;
                (void)pv_path_remove_tree(ddir, dname, &ignored);
        }
        return r;
}

int pv_copy_entry_with(int content, int sdir, const char *sname, int ddir, const char *dname, unsigned flags,
                       struct pv_err *err)
{
        struct stat st, bytes;
        if (fstatat(sdir, sname, &st, AT_SYMLINK_NOFOLLOW) < 0 || fstat(content, &bytes) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "copy %s", sname);
        if (!S_ISREG(st.st_mode))
                return pv_err_set(err, PV_ERR_SYS, EAGAIN, "copy %s: it was replaced meanwhile", sname);
        pv_auto_fd out = openat(ddir, dname, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "create %s", dname);
        int r = copy_range(content, out, 0, bytes.st_size) < 0 || ftruncate(out, bytes.st_size) < 0
                        ? pv_err_set(err, PV_ERR_SYS, errno, "copy %s", sname)
                        : copy_metadata(sdir, sname, &st, ddir, dname, flags, err);
        if (r < 0)
                (void)unlinkat(ddir, dname, 0);
        return r;
}
