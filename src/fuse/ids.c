/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids. The sandbox has the ids that its user namespace maps: all, for root; one of each kind, for anybody else. The
 * kernel refuses to write to or remove what has others (EOVERFLOW), so a foreign one is shown as the person's own, and
 * the kernel then judges by the bits of the owner. What these bits allow too much is refused here, where the host's
 * own answer for the person is asked for; a file that is copied up becomes the person's, as the host's rules have it.
 */
#include "fuse/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Lines of uid_map: inside, outside, count; pVisor maps ids to themselves. */
int pv_fuse_ids_parse(const char *text, struct pv_fuse_range *out, size_t max, size_t *n)
{
        for (*n = 0; *text;) {
                unsigned long v[3];
                for (int i = 0; i < 3; i++) {
                        char *end;
                        errno = 0;
                        v[i] = strtoul(text, &end, 10);
                        if (end == text || errno || v[i] > UINT32_MAX)
                                goto bad;
                        text = end;
                }
                text += strspn(text, " \n");
                if (*n == max || v[0] != v[1] || v[2] == 0)
                        goto bad;
                out[(*n)++] = (struct pv_fuse_range){ (uint32_t)v[0], (uint32_t)(v[0] + v[2] - 1) };
        }
        if (*n > 0)
                return 0;
bad:
        errno = EINVAL;
        return -1;
}

static bool has(const struct pv_fuse_range *r, size_t n, uint32_t id)
{
        for (size_t i = 0; i < n; i++)
                if (id >= r[i].first && id <= r[i].last)
                        return true;
        return false;
}

bool pv_fuse_uid_is_foreign(const struct pv_fuse_fs *fs, uid_t uid)
{
        return !has(fs->uids, fs->n_uids, uid);
}

bool pv_fuse_gid_is_foreign(const struct pv_fuse_fs *fs, gid_t gid)
{
        return !has(fs->gids, fs->n_gids, gid);
}

void pv_fuse_show(const struct pv_fuse_fs *fs, const struct pv_fuse_node *n, struct stat *st)
{
        if (pv_fuse_uid_is_foreign(fs, st->st_uid))
                st->st_uid = fs->own_uid;
        if (pv_fuse_gid_is_foreign(fs, st->st_gid))
                st->st_gid = fs->own_gid;
        st->st_ino = n->ino;
        if (S_ISDIR(st->st_mode) && n->bottom > 0)
                st->st_nlink = 1; /* as overlayfs does: subdirectories are not counted over layers */
}

int pv_fuse_may_write(const struct pv_fuse_fs *fs, const struct pv_fuse_found *f, const char *name)
{
        if (f->upper || !pv_fuse_uid_is_foreign(fs, f->st.st_uid))
                return 0;
        return faccessat(f->dirfd, name, W_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW);
}

int pv_fuse_may_own(const struct pv_fuse_fs *fs, const struct stat *st)
{
        if (!pv_fuse_uid_is_foreign(fs, st->st_uid))
                return 0;
        errno = EPERM;
        return -1;
}

/* The host's directory, where there is one and it is another's. 1, 0, or -1. */
static int find_others(struct pv_fuse_place *p, int *fd, struct stat *st)
{
        size_t live = p->fs->n_layers - 1;
        if (p->dir->bottom < live)
                return 0;
        *fd = pv_fuse_place_fd(p, live);
        if (*fd < 0 || fstat(*fd, st) < 0)
                return errno == ENOENT ? 0 : -1;
        return pv_fuse_uid_is_foreign(p->fs, st->st_uid);
}

int pv_fuse_may_list(struct pv_fuse_place *p)
{
        struct stat st;
        int fd, others = find_others(p, &fd, &st);
        return others <= 0 ? others : faccessat(fd, ".", R_OK, AT_EACCESS);
}

/* Another's directory still decides: its copy in the upper is ours. */
int pv_fuse_may_change_dir(struct pv_fuse_place *p, const struct stat *victim)
{
        struct stat st;
        int fd, others = find_others(p, &fd, &st);
        if (others <= 0)
                return others;
        if (faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
                return -1;
        if (!victim || !(st.st_mode & S_ISVTX))
                return 0;
        return pv_fuse_may_own(p->fs, victim);
}
