/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/ident.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

struct pv_ident pv_ident_of(const struct stat *st)
{
        return (struct pv_ident){
                .ino = st->st_ino,
                .size = (uint64_t)st->st_size,
                .rdev = st->st_rdev,
                .mtime_s = st->st_mtim.tv_sec,
                .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
                .mode = st->st_mode,
                .uid = st->st_uid,
                .gid = st->st_gid,
        };
}

int pv_ident_read(int dirfd, const char *name, struct pv_ident *out, struct timespec *ctime)
{
        struct stat st;
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH)) < 0) {
                if (errno != ENOENT)
                        return -1;
                *out = (struct pv_ident){ 0 };
                if (ctime)
                        *ctime = (struct timespec){ 0 };
                return 0;
        }
        *out = pv_ident_of(&st);
        if (ctime)
                *ctime = S_ISDIR(st.st_mode) || st.st_nlink == 1 ? st.st_ctim : (struct timespec){ 0 };
        return 0;
}

static bool same_but_mtime(const struct pv_ident *a, const struct pv_ident *b, enum pv_ident_leeway leeway)
{
        uint32_t ignored = leeway & PV_IDENT_ANY_ACCESS ? S_IRWXU : 0;
        if (a->mode == 0 || b->mode == 0)
                return a->mode == b->mode;
        if (a->ino != b->ino || (a->mode | ignored) != (b->mode | ignored) || a->uid != b->uid || a->gid != b->gid)
                return false;
        return S_ISDIR(a->mode) || (a->size == b->size && a->rdev == b->rdev);
}

static bool same_mtime(const struct pv_ident *a, const struct pv_ident *b)
{
        return S_ISDIR(a->mode) || (a->mtime_s == b->mtime_s && a->mtime_ns == b->mtime_ns);
}

bool pv_ident_same(const struct pv_ident *want, const struct pv_ident *have, enum pv_ident_leeway leeway)
{
        return same_but_mtime(want, have, leeway) && same_mtime(want, have);
}

bool pv_item_is_in(const struct pv_plan_list *p, const struct pv_item *it, const struct pv_ident *have)
{
        enum pv_ident_leeway leeway =
                it->flags & (PV_ITEM_OPEN_IN | PV_ITEM_MARKS) ? PV_IDENT_ANY_ACCESS : PV_IDENT_EXACT;
        if (!same_but_mtime(&it->in, have, leeway))
                return false;
        if (same_mtime(&it->in, have))
                return true;
        return it->flags & PV_ITEM_TIMES && have->mtime_s == p->head.when.tv_sec &&
               have->mtime_ns == (uint32_t)p->head.when.tv_nsec;
}

bool pv_item_is_out(const struct pv_item *it, const struct pv_ident *have)
{
        return pv_ident_same(&it->out, have, it->flags & PV_ITEM_OPEN_OUT ? PV_IDENT_ANY_ACCESS : PV_IDENT_EXACT);
}

int pv_ident_read_unwritten(int dirfd, const char *name, struct pv_ident *out, bool *has_writer)
{
        struct stat st;
        *has_writer = false;
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0) /* one that its owner may not read, or no file any more */
                return pv_ident_read(dirfd, name, out, NULL);
        /*
         * Closing the only descriptor of this open gives the lease back. Who opens the file for writing meanwhile
         * breaks it, of which the holder is told by SIGIO, whose default is death: SIGURG's is nothing.
         */
        if (fcntl(fd, F_SETSIG, SIGURG) == 0)
                *has_writer = fcntl(fd, F_SETLEASE, F_RDLCK) < 0 && (errno == EAGAIN || errno == EBUSY);
        if (fstat(fd, &st) < 0)
                return -1;
        *out = pv_ident_of(&st);
        return 0;
}
