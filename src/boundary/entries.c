/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/entries.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "base/dir.h"
#include "base/path.h"

/* More mounts than this make a slow start and an unreadable mount table. */
#define ENTRIES_MAX 4096
/* A regular file up to this size is copied, so that it can be written; a larger one is shown read-only. */
#define COPY_MAX (1 << 20)

struct walk {
        struct pv_view *view;
        enum pv_view_op op;
        const struct pv_mountinfo *mounts;
        size_t budget;
};

/* The masks below name, relative to it. True when name itself is masked. */
static bool masks_of(const struct pv_strv *masks, const char *name, struct pv_strv *below)
{
        size_t n = strlen(name);
        for (size_t i = 0; i < masks->n; i++) {
                const char *m = masks->v[i];
                if (strncmp(m, name, n) != 0)
                        continue;
                if (m[n] == '\0')
                        return true;
                if (m[n] == '/')
                        pv_strv_add(below, m + n + 1);
        }
        return false;
}

static int add_dir(struct walk *w, const char *src, const char *dst, const struct pv_strv *masks, struct pv_err *err);

static int add_link(struct walk *w, const char *src, const char *dst, struct pv_err *err)
{
        char text[PATH_MAX];
        ssize_t n = readlink(src, text, sizeof text - 1);
        if (n < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read link %s", src);
        text[n] = '\0';
        pv_view_add(w->view, PV_VIEW_LINK, text, dst);
        return 0;
}

static int add_entry(struct walk *w, const char *src, const char *dst, const struct pv_strv *masks, struct pv_err *err)
{
        struct stat st;
        if (lstat(src, &st) < 0)
                return errno == ENOENT ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "look at %s", src);
        if (w->budget-- == 0)
                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s: too many entries around a mount point", src);
        if (S_ISDIR(st.st_mode))
                return add_dir(w, src, dst, masks, err);
        if (S_ISLNK(st.st_mode))
                return add_link(w, src, dst, err);
        if (S_ISREG(st.st_mode)) {
                bool copy = w->op == PV_VIEW_COW && st.st_size <= COPY_MAX && access(src, R_OK) == 0;
                pv_view_add(w->view, copy ? PV_VIEW_COPY : PV_VIEW_FILE, src, dst);
        }
        return 0;
}

static int add_entries(struct walk *w, const char *src, const char *dst, const struct pv_strv *masks,
                       struct pv_err *err)
{
        struct stat st;
        pv_auto_dir d = opendir(src);
        if (!d || fstat(dirfd(d), &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "list %s", src);
        pv_view_add(w->view, PV_VIEW_PRIVATE, NULL, dst)->mode = st.st_mode & 07777;
        struct dirent *e;
        int more;
        while ((more = pv_dir_next(d, &e)) > 0) {
                pv_auto_strv below = { 0 };
                if (masks_of(masks, e->d_name, &below))
                        continue;
                pv_auto_free char *from = pv_path_join(src, e->d_name);
                pv_auto_free char *to = pv_path_join(dst, e->d_name);
                if (add_entry(w, from, to, &below, err) < 0)
                        return -1;
        }
        if (more < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "list %s", src);
        if (w->op == PV_VIEW_READ)
                pv_view_add(w->view, PV_VIEW_SEAL, NULL, dst);
        return 0;
}

static int add_dir(struct walk *w, const char *src, const char *dst, const struct pv_strv *masks, struct pv_err *err)
{
        if (pv_mountinfo_has_below(w->mounts, src))
                return add_entries(w, src, dst, masks, err);
        struct pv_view_step *s = pv_view_add(w->view, w->op, src, dst);
        for (size_t i = 0; i < masks->n; i++)
                pv_strv_add(&s->masks, masks->v[i]);
        return 0;
}

int pv_entries_add(struct pv_view *view, enum pv_view_op op, const char *src, const char *dst,
                   const struct pv_strv *masks, const struct pv_mountinfo *mounts, struct pv_err *err)
{
        struct walk w = { .view = view, .op = op, .mounts = mounts, .budget = ENTRIES_MAX };
        return add_dir(&w, src, dst, masks, err);
}
