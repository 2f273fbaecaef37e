/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata of a directory that stays where it is. It cannot be exchanged, so it is set attribute by attribute, with
 * the old values in the journal; what is neither old nor new was the host's doing and is left alone.
 */
#include "stage/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static bool same_value(const struct pv_xattr *a, const struct pv_xattr *b)
{
        if (!a || !b)
                return a == b;
        return a->size == b->size && memcmp(a->value, b->value, a->size) == 0;
}

/* Where the value is `from`, makes it `to`. false: it is neither. */
static bool step_xattr(const struct pv_place *at, const struct pv_xattrs *have, const char *name,
                       const struct pv_xattr *from, const struct pv_xattr *to, int *failed)
{
        const struct pv_xattr *now = pv_xattrs_find(have, name);
        if (same_value(now, to))
                return true;
        if (!same_value(now, from))
                return false;
        if (pv_xattr_set(at->dirfd, at->name, name, to ? to->value : NULL, to ? to->size : 0) < 0)
                *failed = errno;
        return true;
}

static bool step_xattrs(const struct pv_place *at, const struct pv_meta *m, int from, int to,
                        const struct pv_xattrs *have, int *failed)
{
        bool ours = true;
        const struct pv_xattrs *old = &m->xattrs[from], *new = &m->xattrs[to];
        for (size_t i = 0; i < new->n; i++)
                ours &= step_xattr(at, have, new->item[i].name, pv_xattrs_find(old, new->item[i].name), &new->item[i],
                                   failed);
        for (size_t i = 0; i < old->n; i++)
                if (!pv_xattrs_find(new, old->item[i].name))
                        ours &= step_xattr(at, have, old->item[i].name, &old->item[i], NULL, failed);
        return ours;
}

/* Owner, then attributes (an ACL carries group bits of the mode), then mode: chown clears setuid and setgid. */
static int step(const struct pv_place *at, const struct pv_item *it, int from, int to, bool *ours, struct pv_err *err)
{
        const struct pv_meta *m = it->meta;
        struct stat st;
        int failed = 0;
        pv_auto_xattrs have = { 0 };
        if (fstatat(at->dirfd, at->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", it->path);
        if (pv_xattrs_read(at->dirfd, at->name, PV_COPY_PLAIN, &have, err) < 0)
                return -1;
        *ours = S_ISDIR(st.st_mode) && st.st_ino == it->out.ino;
        if (!*ours)
                return 0;
        bool owner_old = st.st_uid == m->uid[from] && st.st_gid == m->gid[from];
        bool owner_new = st.st_uid == m->uid[to] && st.st_gid == m->gid[to];
        if (owner_old && !owner_new && fchownat(at->dirfd, at->name, m->uid[to], m->gid[to], AT_SYMLINK_NOFOLLOW) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "change the owner of %s", it->path);
        *ours = owner_old || owner_new;
        *ours &= step_xattrs(at, m, from, to, &have, &failed);
        if (failed)
                return pv_err_set(err, PV_ERR_SYS, failed, "change attributes of %s", it->path);
        bool mode_ours = ((st.st_mode ^ m->mode[from]) & 07777) == 0 || ((st.st_mode ^ m->mode[to]) & 07777) == 0;
        if (mode_ours && fchmodat(at->dirfd, at->name, m->mode[to] & 07777, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "change the mode of %s", it->path);
        *ours &= mode_ours;
        return 0;
}

int pv_meta_publish(struct pv_engine *e, const struct pv_item *it, const char **conflict, struct pv_err *err)
{
        struct pv_place at;
        bool ours;
        if (pv_place_target(e, it, &at) < 0) {
                *conflict = "a directory above it was replaced on the host";
                return 0;
        }
        if (step(&at, it, 0, 1, &ours, err) < 0)
                return -1;
        *conflict = ours ? NULL : "changed on the host meanwhile";
        return 0;
}

int pv_meta_rollback(struct pv_engine *e, struct pv_item *it, struct pv_err *err)
{
        struct pv_place at;
        bool ours = false;
        if (pv_place_target(e, it, &at) == 0 && step(&at, it, 1, 0, &ours, err) < 0)
                return -1;
        if (!ours) {
                it->state = PV_ITEM_KEPT;
                pv_apply_result_add(e->result, it->root, it->path, "changed on the host while it was taken back");
                return 0;
        }
        it->state = PV_ITEM_PENDING;
        return 0;
}
