/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/verdicts.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

struct reader {
        struct pv_stage *stage;
        const struct pv_changes *changes;
};

/* Contents of one side for rules that look inside. Opened non-blocking: the host's file may be a pipe by now. */
static int read_content(void *ctx, size_t index, bool old, size_t max, char **out, size_t *len)
{
        const struct reader *r = ctx;
        const struct pv_change *c = &r->changes->item[index];
        struct pv_err err = PV_ERR_INIT;
        struct stat st;
        if (!S_ISREG(old ? c->pre.mode : c->now.mode))
                return -1;
        pv_auto_fd fd = old ? pv_change_open_target(r->stage, c, O_RDONLY | O_NONBLOCK)
                            : pv_change_open_staged(r->stage, c, O_RDONLY | O_NONBLOCK);
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return -1;
        return pv_fd_read_all(fd, max, c->path, out, len, &err);
}

static bool has_head(void *ctx, size_t index, size_t len)
{
        const struct reader *r = ctx;
        const struct pv_change *c = &r->changes->item[index];
        struct stat st;
        pv_auto_free char *head =
                pv_strf("%s/%.*s%sHEAD", pv_stage_root(r->stage, c->root)->target, (int)len, c->path, len ? "/" : "");
        return lstat(head, &st) == 0;
}

static enum pv_path_kind kind_of(enum pv_change_kind kind)
{
        switch (kind) {
        case PV_CHANGE_ADDED:
                return PV_PATH_ADDED;
        case PV_CHANGE_MODIFIED:
                return PV_PATH_MODIFIED;
        case PV_CHANGE_DELETED:
                return PV_PATH_DELETED;
        case PV_CHANGE_TYPE:
                return PV_PATH_TYPE;
        case PV_CHANGE_METADATA:
                return PV_PATH_METADATA;
        }
        return PV_PATH_MODIFIED;
}

static struct pv_path_change neutral(const struct pv_change *c, const struct pv_root *root)
{
        const unsigned more_than_times = PV_CHANGE_XATTRS | PV_CHANGE_MODE | PV_CHANGE_OWNER;
        return (struct pv_path_change){
                .root = c->root,
                .root_kind = root->kind,
                .root_view = root->view,
                .path = c->path,
                .kind = kind_of(c->kind),
                .old_mode = c->pre.mode,
                .new_mode = c->now.mode,
                .size = c->now.size,
                .link = c->now.link,
                .implied = c->flags & PV_CHANGE_IMPLIED,
                .times_only = c->kind == PV_CHANGE_METADATA && !(c->flags & more_than_times),
                .split = c->flags & PV_CHANGE_SPLIT,
                .filled = c->flags & PV_CHANGE_FILLED,
                .metadata_lost = c->now.mode && (c->flags & PV_CHANGE_OWNER) && geteuid() != 0,
        };
}

/* Only root's run can have set any that count on the host (--allow-userns). */
static bool is_capable(struct pv_stage *s, const struct pv_change *c)
{
        if (!S_ISREG(c->now.mode) || (!(c->now.mode & 0111) && c->now.xattrs == 0))
                return false;
        pv_auto_fd fd = pv_change_open_staged(s, c, O_PATH);
        return fd >= 0 && getxattr(pv_fd_path(fd).s, "security.capability", NULL, 0) > 0;
}

static bool may_be_configured(const struct pv_path_change *c)
{
        return S_ISLNK(c->new_mode) || S_ISREG(c->new_mode);
}

/* Without a `.git` at its top, neither before nor now, the view holds no repository: nobody needs to be asked. */
static bool may_be_repository(struct pv_stage *s, const struct pv_verdicts *v)
{
        struct stat st;
        if (fstatat(pv_stage_target(s, 0).fd, ".git", &st, AT_SYMLINK_NOFOLLOW) == 0)
                return true;
        for (size_t i = 0; i < v->n; i++)
                if (v->change[i].root == 0 && pv_streq(v->change[i].path, ".git"))
                        return true;
        return false;
}

static bool is_special(mode_t mode)
{
        return S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode) || S_ISBLK(mode);
}

/* Read by git as they lie, and never links where git or a person made them. */
static bool is_read_by_git(enum pv_git_part part)
{
        return part == PV_GIT_INDEX || part == PV_GIT_CONFIG || part == PV_GIT_PACKED_REFS || part == PV_GIT_INFO ||
               part == PV_GIT_ALTERNATES;
}

static bool is_read_from_tree(const char *path)
{
        static const char *const names[] = { ".gitignore", ".gitattributes", ".gitmodules", ".mailmap" };
        const char *slash = strrchr(path, '/');
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (pv_streq(slash ? slash + 1 : path, names[i]))
                        return true;
        return false;
}

/* Git's configuration may name any file to read. */
static bool has_new_config(const struct pv_verdicts *v)
{
        for (size_t i = 0; i < v->n; i++)
                if (v->item[i].part == PV_GIT_CONFIG || v->item[i].part == PV_GIT_DIR)
                        return true;
        return false;
}

/*
 * A pipe where git expects a file holds it up for ever. Links could lead to one, and may not be followed to find out.
 */
static void find_traps(struct pv_verdicts *v)
{
        bool anywhere = has_new_config(v);
        for (size_t i = 0; i < v->n && !v->git_refused; i++) {
                const struct pv_path_change *c = &v->change[i];
                bool in_git = v->item[i].place == PV_PLACE_GIT;
                bool link = in_git && S_ISLNK(c->new_mode) && is_read_by_git(v->item[i].part);
                bool read = in_git || is_read_from_tree(c->path);
                if (!link && !(is_special(c->new_mode) && read) && !(S_ISFIFO(c->new_mode) && anywhere))
                        continue;
                v->git_refused = true;
                (void)snprintf(v->no_git, sizeof v->no_git, "git is not asked: %.110s is %s", c->path,
                               link ? "a link" : "a pipe, socket or device");
        }
}

/* What the host's has in that file still counts there, whatever the view's has. */
static bool changes_included_config(const struct pv_verdicts *v)
{
        for (size_t i = 0; i < v->n; i++)
                if (v->change[i].root == 0 && pv_configured_has(&v->configured.files, v->change[i].path))
                        return true;
        return false;
}

/*
 * What is configured is asked only when a change could be it; of the host as well where the two sides may disagree, and
 * where the view's own git gives no answer, or must not be asked for one: the job would choose to be unseen.
 */
static void ask_git(struct pv_verdicts *v, const struct pv_git_runner *view, const struct pv_git_runner *base)
{
        struct pv_err err = PV_ERR_INIT;
        bool candidate = false, config = v->git_refused || !view;
        for (size_t i = 0; i < v->n; i++) {
                candidate |= v->item[i].place == PV_PLACE_TREE && may_be_configured(&v->change[i]);
                config |= v->item[i].part == PV_GIT_CONFIG || v->item[i].part == PV_GIT_DIR;
        }
        if (v->git_refused)
                ;
        else if (!view)
                (void)snprintf(v->no_git, sizeof v->no_git, "git was not asked");
        else if (pv_ignore_ask(view, v->root[0]->view, v->change, v->n, v->item, candidate ? &v->configured : NULL,
                               &v->ignore_known, &err) < 0)
                (void)snprintf(v->no_git, sizeof v->no_git, "%.159s",
                               err.kind == PV_ERR_NOT_FOUND ? "there is no git in the view" : err.msg);
        if (candidate && base && (config || !v->ignore_known || changes_included_config(v)))
                (void)pv_configured_ask(base, v->root[0]->view, &v->configured, &err);
}

int pv_verdicts_make(struct pv_stage *s, const struct pv_changes *changes, const struct pv_git_runner *view,
                     const struct pv_git_runner *base, struct pv_verdicts *out, struct pv_err *err)
{
        struct reader reader = { s, changes };
        struct pv_verdicts v = { .n = changes->n, .n_roots = pv_stage_n_roots(s) };
        v.change = pv_calloc(v.n, sizeof *v.change);
        v.item = pv_calloc(v.n, sizeof *v.item);
        v.root = pv_calloc(v.n_roots, sizeof *v.root);
        for (size_t i = 0; i < v.n_roots; i++)
                v.root[i] = pv_stage_root(s, i);
        for (size_t i = 0; i < v.n; i++) {
                const struct pv_change *c = &changes->item[i];
                if (c->root >= v.n_roots) {
                        pv_verdicts_fini(&v);
                        return pv_err_set(err, PV_ERR_INPUT, 0, "a change of a root that the stage has not");
                }
                v.change[i] = neutral(c, v.root[c->root]);
                v.change[i].capable = is_capable(s, c);
        }
        struct pv_classify_context context = { .read = read_content, .has_head = has_head, .ctx = &reader };
        pv_classify(v.change, v.n, &context, v.item);
        find_traps(&v);
        if (may_be_repository(s, &v))
                ask_git(&v, view, base);
        if (v.configured.hooks.n + v.configured.programs.n + v.configured.files.n > 0) {
                context.configured = &v.configured;
                pv_classify(v.change, v.n, &context, v.item);
        }
        *out = v;
        return 0;
}

void pv_verdicts_fini(struct pv_verdicts *v)
{
        pv_freep(&v->change);
        pv_freep(&v->item);
        pv_freep(&v->root);
        pv_configured_fini(&v->configured);
        *v = (struct pv_verdicts){ 0 };
}
