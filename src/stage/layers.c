/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/layers.h"
#include "stage/settle.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include "base/copy.h"
#include "base/dir.h"
#include "base/json.h"
#include "base/whiteout.h"

#define DEPENDENTS         "dependents"
#define DEPENDENT_FILE_MAX 16384
#define XATTR_MAX          65536

static char *layer_name(size_t root, unsigned number)
{
        return pv_strf("roots/%zu/layers/%04u", root, number);
}

char *pv_layer_path(const struct pv_stage *s, size_t root, size_t layer)
{
        const struct pv_stage_layer *l = &s->layers[layer];
        pv_auto_free char *name = layer_name(root, l->number);
        return pv_path_join(l->from ? l->from : s->dir, name);
}

struct pv_pathfd pv_layer_fd(struct pv_stage *s, size_t root, size_t layer)
{
        int *fd = &s->layers[layer].fd[root];
        if (*fd < 0) {
                pv_auto_free char *path = pv_layer_path(s, root, layer);
                *fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        return (struct pv_pathfd){ *fd };
}

int pv_layers_open(struct pv_stage *s, struct pv_err *err)
{
        for (size_t k = 0; k < s->n_layers; k++)
                for (size_t i = 0; i < s->n_roots; i++)
                        if (pv_layer_fd(s, i, k).fd < 0) {
                                pv_auto_free char *path = pv_layer_path(s, i, k);
                                return pv_err_set(err, PV_ERR_INPUT, errno, "stage %s: layer %s", s->dir, path);
                        }
        return 0;
}

/* Gives the directory its owner's rights and notes what it had. Returns whether that was needed and could be done. */
static bool open_up(struct pv_stage *s, size_t root, size_t layer, const char *path, struct pv_opened *opened)
{
        struct stat st;
        pv_auto_fd fd = pv_path_openat(pv_layer_fd(s, root, layer), path, O_PATH | O_DIRECTORY, 0);
        if (fd < 0 || fstat(fd, &st) < 0 || (st.st_mode & 0700) == 0700 ||
            pv_fd_chmod(fd, (st.st_mode & 07777) | 0700) < 0)
                return false;
        opened->dir = pv_realloc(opened->dir, opened->n + 1, sizeof *opened->dir);
        opened->dir[opened->n++] = (struct pv_opened_dir){ root, layer, pv_strdup(path), st.st_mode & 07777 };
        return true;
}

int pv_layer_open_dir(struct pv_stage *s, size_t root, size_t layer, const char *path, struct pv_opened *opened)
{
        struct pv_pathfd top = pv_layer_fd(s, root, layer);
        pv_auto_fd fd = pv_path_openat(top, path, O_RDONLY | O_DIRECTORY, 0);
        if (fd >= 0 && (!opened || faccessat(fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) == 0))
                return pv_fd_steal(&fd);
        if (!opened || (fd < 0 && errno != EACCES))
                return -1;
        (void)open_up(s, root, layer, "", opened);
        for (size_t at = 0; path[at]; at++) { /* from the top down: what is above must be searched first */
                at += strcspn(path + at, "/");
                pv_auto_free char *dir = pv_strndup(path, at);
                (void)open_up(s, root, layer, dir, opened);
                if (!path[at])
                        break;
        }
        return pv_path_openat(top, path, O_RDONLY | O_DIRECTORY, 0);
}

bool pv_layer_is_opaque(int dirfd, const char *name)
{
        char mark = 0;
        pv_auto_fd fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd >= 0 && fgetxattr(fd, PV_LAYER_OPAQUE, &mark, 1) == 1 && mark == 'y';
}

enum pv_layer_word pv_layer_look(struct pv_stage *s, size_t root, size_t layer, const char *path)
{
        pv_auto_fd dir = openat(pv_layer_fd(s, root, layer).fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        pv_auto_free char *names = pv_strdup(path);
        char *rest = names, *name;
        bool opaque = false;
        while (dir >= 0 && (name = strsep(&rest, "/"))) {
                struct stat st;
                if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return errno == ENOENT && !opaque ? PV_LAYER_NOTHING : PV_LAYER_HIDDEN;
                if (!rest)
                        return pv_whiteout_is(dir, name, &st) ? PV_LAYER_GONE : PV_LAYER_ENTRY;
                if (!S_ISDIR(st.st_mode))
                        return PV_LAYER_HIDDEN;
                opaque = opaque || pv_layer_is_opaque(dir, name);
                int next = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                (void)close(dir);
                dir = next;
        }
        return PV_LAYER_HIDDEN;
}

bool pv_layers_show_below(struct pv_stage *s, size_t root, size_t layer, const char *path)
{
        enum pv_layer_word word = PV_LAYER_NOTHING;
        for (size_t k = layer; k-- > 0 && word == PV_LAYER_NOTHING;)
                word = pv_layer_look(s, root, k, path);
        return word == PV_LAYER_ENTRY;
}

void pv_layers_close_up(struct pv_stage *s, struct pv_opened *opened)
{
        while (opened->n > 0) { /* the deepest first */
                struct pv_opened_dir *d = &opened->dir[--opened->n];
                pv_auto_fd fd = pv_path_openat(pv_layer_fd(s, d->root, d->layer), d->path, O_RDONLY | O_DIRECTORY, 0);
                if (fd >= 0)
                        (void)fchmod(fd, d->mode);
                free(d->path);
        }
        free(opened->dir);
        opened->dir = NULL;
}

static bool is_copied(const char *attr)
{
        return pv_str_has_prefix(attr, "system.posix_acl_") ||
               (pv_str_has_prefix(attr, "user.") && !pv_str_has_prefix(attr, "user.overlay."));
}

/* Attributes of the target's directory, ACLs among them, for the upper that stands for it in the view. */
static int copy_xattrs(int from, int to)
{
        const struct pv_fd_path source = pv_fd_path(from), destination = pv_fd_path(to);
        const char *src = source.s, *dst = destination.s;
        pv_auto_free char *names = pv_realloc(NULL, XATTR_MAX, 1), *value = NULL;
        ssize_t n = listxattr(dst, names, XATTR_MAX);
        for (const char *a = names; n > 0 && a < names + n; a += strlen(a) + 1)
                if (is_copied(a) && removexattr(dst, a) < 0 && errno != ENODATA)
                        return -1;
        n = listxattr(src, names, XATTR_MAX);
        if (n <= 0)
                return n == 0 || errno == EOPNOTSUPP ? 0 : -1;
        value = pv_calloc(XATTR_MAX, 1);
        for (const char *a = names; a < names + n; a += strlen(a) + 1) {
                if (!is_copied(a))
                        continue;
                ssize_t len = getxattr(src, a, value, XATTR_MAX);
                if (len < 0 || setxattr(dst, a, value, (size_t)len, 0) < 0)
                        return -1;
        }
        return 0;
}

int pv_layer_make_like(int parent, const char *name, int target)
{
        struct stat st, made;
        if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
                return -1;
        pv_auto_fd fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(target, &st) < 0 || fstat(fd, &made) < 0)
                return -1;
        if ((made.st_uid != st.st_uid || made.st_gid != st.st_gid) && fchown(fd, st.st_uid, st.st_gid) < 0)
                return -1;
        if (copy_xattrs(target, fd) < 0 || fchmod(fd, st.st_mode & 07777) < 0)
                return -1;
        return futimens(fd, (struct timespec[]){ st.st_atim, st.st_mtim });
}

void pv_layer_mark_merged(int parent, const char *name)
{
        (void)pv_xattr_set(parent, name, "user.overlay.origin", "", 0);
}

int pv_layers_make_top(struct pv_stage *s, struct pv_err *err)
{
        for (size_t i = 0; i < s->n_roots; i++) {
                pv_auto_free char *name = layer_name(i, pv_stage_top(s)->number);
                if (pv_layer_make_like(s->fd.fd, name, s->roots[i].target.fd) < 0 ||
                    pv_layer_fd(s, i, s->n_layers - 1).fd < 0) {
                        (void)pv_err_set(err, PV_ERR_SYS, errno, "make the layer %s/%s for %s", s->dir, name,
                                         s->roots[i].root.target);
                        /* Owner, mode and attributes of the layer's top are those of the directory. */
                        return errno == EPERM ? pv_err_hint(err, "that directory is not yours: cd into one that is, or "
                                                                 "name one with --workspace DIR")
                                              : -1;
                }
        }
        return 0;
}

/* Reads one file of dependents/; true when that stage is still there. */
static bool is_alive(int dirfd, const char *id, unsigned *number)
{
        struct pv_err err = PV_ERR_INIT;
        pv_auto_json j = NULL;
        pv_auto_json state = NULL;
        pv_auto_free char *dir = NULL;
        int64_t n = 0;
        const char *there = NULL;
        if (pv_json_read_at(dirfd, id, DEPENDENT_FILE_MAX, &j, &err) < 0 ||
            pv_json_get_int(j, "number", 0, 9999, &n, &err) < 0 ||
            pv_json_get_bytes(json_object_get(j, "stage"), &dir, &err) < 0)
                return *number = 9999, true; /* damaged: held for alive, so that nothing is emptied below anybody */
        *number = (unsigned)n;
        pv_auto_fd fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return errno != ENOENT && errno != ENOTDIR;
        if (faccessat(fd, "stage.json", F_OK, 0) < 0)
                return errno != ENOENT;
        if (pv_json_read_at(fd, "stage.json", (size_t)4 * 1024 * 1024, &state, &err) < 0 ||
            pv_json_get_str(state, "id", &there, &err) < 0)
                return true;
        return pv_streq(there, id);
}

int pv_dependents_find(const struct pv_stage *s, unsigned *up_to, struct pv_err *err)
{
        unsigned highest = 0;
        pv_auto_dir d = pv_dir_open(s->fd.fd, DEPENDENTS);
        struct dirent *e;
        int more = d || errno != ENOENT ? -1 : 0;
        while (d && (more = pv_dir_next(d, &e)) > 0) {
                unsigned number = 0;
                if (e->d_name[0] != '.' && is_alive(dirfd(d), e->d_name, &number) && number + 1 > highest)
                        highest = number + 1;
        }
        if (more < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "stage %s: " DEPENDENTS, s->dir);
        *up_to = highest;
        return 0;
}

int pv_dependents_add(const struct pv_stage *s, const char *owner_dir, unsigned number, struct pv_err *err)
{
        pv_auto_free char *dir = pv_path_join(owner_dir, DEPENDENTS);
        pv_auto_json j = json_pack("{s:o, s:i}", "stage", pv_json_bytes(s->dir), "number", (int)number);
        if (pv_path_make_dirs(dir, 0700, err) < 0)
                return -1;
        pv_auto_fd fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "open %s", dir);
        return pv_json_write_at(fd, s->id, j, PV_FILE_REPLACE, err);
}

void pv_dependents_remove(const struct pv_stage *s, const char *owner_dir)
{
        pv_auto_free char *file = pv_strf("%s/" DEPENDENTS "/%s", owner_dir, s->id);
        (void)unlink(file);
}

int pv_layers_find_shared(struct pv_stage *s, bool **shared, struct pv_err *err)
{
        if (pv_dependents_find(s, &s->stood_on, err) < 0)
                return -1;
        bool *out = pv_calloc(s->n_layers, sizeof *out);
        for (size_t k = 0; k < s->n_layers; k++)
                out[k] = pv_stage_layer_is_shared(s, 0, (unsigned)k);
        *shared = out;
        return 0;
}

struct pv_pathfd pv_stage_layer(const struct pv_stage *s, size_t root, unsigned layer)
{
        return (struct pv_pathfd){ s->layers[layer].fd[root] };
}

bool pv_stage_layer_is_shared(const struct pv_stage *s, size_t root, unsigned layer)
{
        (void)root;
        const struct pv_stage_layer *l = &s->layers[layer];
        if (l->from || (s->state == PV_STATE_RUNNING && !s->taken))
                return true;
        return l->number < s->stood_on;
}
