/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules are those of git (gitrepository-layout(5), git-worktree(1)) as far as they matter here: walk up from the
 * current directory to the first one with a usable `.git`, not over the border of a file system.
 *
 * `.git` may be a file that names a directory elsewhere, and that directory becomes visible and staged. A command of
 * an earlier run may have written that file, so the directory must be a git directory that names this workspace back:
 * a worktree's through its `gitdir` file, a submodule's through core.worktree. What the command wrote in the workspace
 * alone therefore opens nothing. A `.git` of another owner (in /tmp, say) does not make a workspace either.
 */
#include "policy/workspace.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file.h"
#include "base/path.h"
#include "policy/gitconfig.h"

#define LINK_FILE_MAX 8192

void pv_workspace_fini(struct pv_workspace *w)
{
        free(w->path);
        free(w->cwd);
        free(w->logical);
        free(w->git_dir);
        free(w->git_stray);
        *w = (struct pv_workspace){ 0 };
}

/* The first line of dir/name without its prefix, as a real path relative to dir; NULL: not such a file. */
static char *read_link_file(const char *dir, const char *name, const char *prefix)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_fd fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        pv_auto_free char *text = NULL;
        size_t len = 0;
        if (fd < 0 || pv_file_read_at(fd, name, LINK_FILE_MAX, &text, &len, &ignored) < 0)
                return NULL;
        if (strlen(text) != len || !pv_str_has_prefix(text, prefix))
                return NULL;
        char *value = text + strlen(prefix);
        for (size_t n = strlen(value); n && (value[n - 1] == '\n' || value[n - 1] == '\r'); n--)
                value[n - 1] = '\0';
        if (!*value)
                return NULL;
        pv_auto_free char *path = value[0] == '/' ? pv_strdup(value) : pv_path_join(dir, value);
        return realpath(path, NULL);
}

static bool has(const char *dir, const char *name, mode_t type)
{
        struct stat st;
        pv_auto_free char *path = pv_path_join(dir, name);
        return stat(path, &st) == 0 && (type == 0 || (st.st_mode & S_IFMT) == type);
}

static bool is_common_git_dir(const char *dir)
{
        return has(dir, "HEAD", S_IFREG) && has(dir, "objects", S_IFDIR) && has(dir, "refs", S_IFDIR);
}

/* Of this user, of root, or of whoever owns the directory that the person chose to stand in. */
static bool is_trusted_owner(uid_t owner, uid_t owner_of_cwd)
{
        return owner == geteuid() || owner == 0 || owner == owner_of_cwd;
}

/* core.worktree of git_dir as a real path, NULL when there is none. */
static char *read_core_worktree(const char *git_dir)
{
        pv_auto_free char *value = pv_gitconfig_get(git_dir, "config", "core", "worktree");
        pv_auto_free char *path = NULL;
        if (value)
                path = *value == '/' ? pv_strdup(value) : pv_path_join(git_dir, value);
        return path ? realpath(path, NULL) : NULL;
}

/* Whether the git directory (not the common one) says that its work tree is `top`. */
static bool names_back(const char *git_dir, const char *top)
{
        pv_auto_free char *dot_git = pv_path_join(top, ".git");
        pv_auto_free char *back = read_link_file(git_dir, "gitdir", "");
        pv_auto_free char *worktree = read_core_worktree(git_dir);
        return (back && pv_streq(back, dot_git)) || (worktree && pv_streq(worktree, top));
}

/* What a `.git` that is a file or a link names; NULL: it is a directory, or names nothing. */
static char *read_dot_git(const char *top)
{
        struct stat st;
        pv_auto_free char *dot_git = pv_path_join(top, ".git");
        if (lstat(dot_git, &st) < 0 || S_ISDIR(st.st_mode))
                return NULL;
        return S_ISLNK(st.st_mode) ? realpath(dot_git, NULL) : read_link_file(top, ".git", "gitdir: ");
}

/* Follows such a `.git`. Leaves git_dir or git_stray, or neither when all of it lies in the workspace. */
static void follow_dot_git(struct pv_workspace *w)
{
        pv_auto_free char *own = read_dot_git(w->path);
        struct stat st;
        if (!own || pv_path_is_within(own, w->path))
                return;
        pv_auto_free char *common = read_link_file(own, "commondir", "");
        char *whole = common ? common : own;
        /* A worktree's own directory is part of the common one; all of it is in one root. */
        bool sound = has(own, "HEAD", S_IFREG) && is_common_git_dir(whole) && pv_path_is_within(own, whole) &&
                     stat(whole, &st) == 0 && is_trusted_owner(st.st_uid, geteuid()) && names_back(own, w->path);
        /* Roots never overlap: a git directory above the workspace cannot be one. */
        sound = sound && !pv_path_is_within(w->path, whole);
        *(sound ? &w->git_dir : &w->git_stray) = pv_strdup(whole);
}

/* What the directory is to git. */
enum found { FOUND_NOTHING, FOUND_TOP, FOUND_BARE };

static enum found examine(const char *dir, uid_t owner_of_cwd)
{
        struct stat st;
        pv_auto_free char *dot_git = pv_path_join(dir, ".git");
        if (lstat(dot_git, &st) == 0 && is_trusted_owner(st.st_uid, owner_of_cwd)) {
                pv_auto_free char *target = S_ISREG(st.st_mode) ? read_link_file(dir, ".git", "gitdir: ") : NULL;
                if (target ? has(target, "HEAD", S_IFREG) : is_common_git_dir(dot_git))
                        return FOUND_TOP;
        }
        /* Inside a .git the work tree is its parent, which the walk comes to next. */
        const char *name = strrchr(dir, '/') + 1;
        if (!pv_streq(name, ".git") && is_common_git_dir(dir) && stat(dir, &st) == 0 &&
            is_trusted_owner(st.st_uid, owner_of_cwd))
                return FOUND_BARE;
        return FOUND_NOTHING;
}

/* Walks up from cwd; true when *dir was changed to the top level that was found. */
static bool find_top(char **dir)
{
        struct stat start, st;
        pv_auto_free char *at = pv_strdup(*dir);
        if (stat(at, &start) < 0)
                return false;
        while (examine(at, start.st_uid) == FOUND_NOTHING) {
                char *slash = strrchr(at, '/');
                if (slash == at)
                        return false; /* "/" itself is never a repository worth having */
                *slash = '\0';
                if (stat(at, &st) < 0 || st.st_dev != start.st_dev)
                        return false;
        }
        free(*dir);
        *dir = pv_steal(&at);
        return true;
}

static int get_cwd(char **out, struct pv_err *err)
{
        char buf[PATH_MAX];
        errno = ENOENT;
        if (!getcwd(buf, sizeof buf) || buf[0] != '/') { /* "(unreachable)/..." lies outside of this root */
                (void)pv_err_set(err, PV_ERR_SYS, errno, "current directory");
                (void)pv_err_hint(err, "it was removed, or may not be read: cd elsewhere");
                return -1;
        }
        *out = pv_strdup(buf);
        return 0;
}

/* $PWD, when it is absolute and names the same directory. */
static char *get_logical(const char *pwd, const char *cwd)
{
        struct stat a, b;
        if (!pwd || pwd[0] != '/' || strlen(pwd) >= PATH_MAX)
                return NULL;
        pv_auto_free char *clean = pv_path_normalise(pwd);
        if (pv_streq(clean, cwd) || stat(clean, &a) < 0 || stat(cwd, &b) < 0 || a.st_dev != b.st_dev ||
            a.st_ino != b.st_ino)
                return NULL;
        return pv_steal(&clean);
}

static int set_named(const char *dir, struct pv_workspace *out, struct pv_err *err)
{
        struct stat st;
        if (pv_path_real(dir, &out->path, err) < 0) {
                err->kind = PV_ERR_USAGE;
                return pv_err_wrap(err, "--workspace");
        }
        if (stat(out->path, &st) < 0 || !S_ISDIR(st.st_mode))
                return pv_err_set(err, PV_ERR_USAGE, ENOTDIR, "--workspace: %s", dir);
        out->is_git = examine(out->path, st.st_uid) != FOUND_NOTHING;
        return 0;
}

int pv_workspace_find(const char *dir, const char *pwd, const char *home, struct pv_workspace *out, struct pv_err *err)
{
        pv_auto_workspace w = { 0 };
        if (get_cwd(&w.cwd, err) < 0)
                return -1;
        if (dir) {
                if (set_named(dir, &w, err) < 0)
                        return -1;
        } else {
                w.path = pv_strdup(w.cwd);
                w.is_git = find_top(&w.path);
                if (w.is_git && home && pv_path_is_within(home, w.path) && !pv_streq(w.path, w.cwd)) {
                        free(w.path);
                        w.path = pv_strdup(w.cwd);
                        w.is_git = false;
                        w.home_skipped = true;
                }
        }
        if (w.is_git)
                follow_dot_git(&w);
        if (!pv_path_is_within(w.cwd, w.path)) {
                free(w.cwd);
                w.cwd = pv_strdup(w.path);
        } else {
                w.logical = get_logical(pwd, w.cwd);
        }
        *out = w;
        w = (struct pv_workspace){ 0 };
        return 0;
}
