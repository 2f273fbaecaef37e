/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/cover.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "base/copy.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/whiteout.h"
#include "stage/layers.h"

static int failed(const struct pv_stage *s, size_t root, const char *path, struct pv_err *err)
{
        return pv_err_set(err, PV_ERR_SYS, errno, "cover %s in the stage of %s", path, s->roots[root].root.target);
}

/* What the view shows of a directory comes from the newest layer that has it, else from the host. */
static int open_newest(struct pv_stage *s, size_t root, const char *path)
{
        for (size_t k = s->n_layers; k-- > 0;) {
                int fd = pv_path_openat(pv_layer_fd(s, root, k), path, O_PATH | O_DIRECTORY, 0);
                if (fd >= 0)
                        return fd;
        }
        return pv_path_openat(s->roots[root].target, path, O_PATH | O_DIRECTORY, 0);
}

/* Makes one directory of the top layer unless it is there. 1; 0: something else is, and hides what is below; -1. */
static int make_parent(struct pv_stage *s, size_t root, const char *path)
{
        struct stat st;
        const char *name = NULL;
        pv_auto_pathfd parent = PV_PATHFD_INIT;
        if (pv_path_open_parent(pv_layer_fd(s, root, s->n_layers - 1), path, &parent, &name) < 0)
                return -1;
        if (fstatat(parent.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return S_ISDIR(st.st_mode);
        pv_auto_fd like = open_newest(s, root, path);
        if (like < 0 || pv_layer_make_like(parent.fd, name, like) < 0)
                return -1;
        pv_layer_mark_merged(parent.fd, name);
        return 1;
}

static int make_parents(struct pv_stage *s, size_t root, const char *path)
{
        int r = 1;
        for (const char *slash = strchr(path, '/'); r > 0 && slash; slash = strchr(slash + 1, '/')) {
                pv_auto_free char *dir = pv_strndup(path, (size_t)(slash - path));
                r = make_parent(s, root, dir);
        }
        return r;
}

static int copy(int from, const char *from_name, int to, const char *name, const struct pv_facts *f, struct pv_err *err)
{
        if (!pv_facts_exist(f)) {
                if (pv_whiteout_make(to, name) < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "write a whiteout for %s", name);
                return 0;
        }
        return pv_copy_entry(from, from_name, to, name, PV_COPY_TO_LAYER | PV_COPY_SHALLOW, err);
}

static int read_host(int dir, const char *name, struct pv_arena *text, struct pv_facts *host)
{
        if (dir < 0) {
                *host = (struct pv_facts){ 0 };
                return 0;
        }
        if (pv_facts_get(dir, name, text, host) < 0)
                return -1;
        return pv_facts_exist(host) ? pv_facts_get_xattrs(dir, name, PV_FACTS_HOST, &host->xattrs) : 0;
}

int pv_layer_cover(struct pv_stage *s, size_t root, const char *path, struct pv_arena *text, struct pv_facts *host,
                   struct pv_err *err)
{
        const char *name = NULL, *host_name = NULL;
        pv_auto_pathfd top = PV_PATHFD_INIT;
        pv_auto_pathfd from = PV_PATHFD_INIT;
        if (pv_path_open_parent(s->roots[root].target, path, &from, &host_name) < 0 && errno != ENOENT &&
            errno != ENOTDIR && errno != ELOOP)
                return failed(s, root, path, err);
        if (read_host(from.fd, host_name, text, host) < 0)
                return failed(s, root, path, err);
        int r = make_parents(s, root, path);
        if (r <= 0)
                return r < 0 ? failed(s, root, path, err) : 0;
        if (pv_path_open_parent(pv_layer_fd(s, root, s->n_layers - 1), path, &top, &name) < 0)
                return failed(s, root, path, err);
        if (faccessat(top.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
            (!pv_facts_exist(host) && !pv_layers_show_below(s, root, s->n_layers - 1, path)))
                return 0;
        return copy(from.fd, host_name, top.fd, name, host, err);
}

/* One layer's directory against the host's. */
static int cover_missing(int from, int host, int top)
{
        pv_auto_dir d = pv_dir_open(from, ".");
        struct dirent *e;
        int more = -1;
        while (d && (more = pv_dir_next(d, &e)) > 0) {
                struct stat st;
                if (fstatat(host, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
                        continue;
                if (pv_whiteout_make(top, e->d_name) < 0 && errno != EEXIST)
                        return -1;
        }
        return more;
}

int pv_layer_cover_entries(struct pv_stage *s, size_t root, const char *path, struct pv_err *err)
{
        pv_auto_fd host = pv_path_openat(s->roots[root].target, path, O_PATH | O_DIRECTORY, 0);
        pv_auto_fd top = pv_path_openat(pv_layer_fd(s, root, s->n_layers - 1), path, O_PATH | O_DIRECTORY, 0);
        if (host < 0 || top < 0)
                return 0;   /* another directory than a moment ago: there is nothing to merge with */
        bool merges = true; /* in a directory that merges with nothing a whiteout would be listed as a name */
        for (size_t k = s->n_layers - 1; k-- > 0 && merges;) {
                pv_auto_fd from = pv_path_openat(pv_layer_fd(s, root, k), path, O_PATH | O_DIRECTORY, 0);
                if (from >= 0 && cover_missing(from, host, top) < 0)
                        return failed(s, root, path, err);
                merges = from >= 0 ? !pv_layer_is_opaque(from, ".") : errno == ENOENT;
        }
        return 0;
}
