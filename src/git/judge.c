/* SPDX-License-Identifier: Apache-2.0 */
#include "git/judge.h"

#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/path.h"

enum { MANIFEST_MAX = 1 << 20 };

bool pv_link_leaves(const char *root_view, const char *path, const char *target)
{
        if (target[0] == '/') {
                pv_auto_free char *norm = pv_path_normalise(target);
                /* "/root/x/../../etc" may pass through a link at x, where ".." is another directory: not trusted. */
                return !pv_path_is_within(norm, root_view) || strstr(target, "/..") != NULL;
        }
        size_t depth = 0;
        for (const char *p = path; (p = strchr(p, '/')); p++)
                depth++;
        bool named = false;
        for (const char *p = target; *p;) {
                size_t len = strcspn(p, "/");
                if (len == 2 && memcmp(p, "..", 2) == 0) {
                        if (named || depth == 0)
                                return true;
                        depth--;
                } else if (len > 0 && !(len == 1 && *p == '.')) {
                        named = true;
                }
                p += len;
                p += *p == '/';
        }
        return false;
}

/* The scripts of a package.json, or NULL where it has none. *readable is false when it is not JSON. */
static json_t *scripts_of(const char *text, size_t len, bool *readable)
{
        pv_auto_json doc = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
        *readable = json_is_object(doc);
        return *readable ? json_incref(json_object_get(doc, "scripts")) : NULL;
}

static json_t *read_scripts(const struct pv_classify_context *context, size_t index, bool old, bool *readable)
{
        pv_auto_free char *text = NULL;
        size_t len = 0;
        *readable = false;
        if (context->read(context->ctx, index, old, MANIFEST_MAX, &text, &len) < 0)
                return NULL;
        return scripts_of(text, len, readable);
}

static bool scripts_changed(const struct pv_path_change *c, size_t index, const struct pv_classify_context *context)
{
        bool readable = false;
        if (!context || !context->read)
                return true;
        pv_auto_json now = read_scripts(context, index, false, &readable);
        if (!readable)
                return true;
        if (c->kind != PV_PATH_MODIFIED)
                return json_object_size(now) > 0;
        pv_auto_json old = read_scripts(context, index, true, &readable);
        if (!readable)
                return true;
        if (!now && !old)
                return false;
        return !now || !old || !json_equal(now, old);
}

static bool is_new_executable(const struct pv_path_change *c)
{
        return S_ISREG(c->new_mode) && (c->new_mode & 0111) && !(S_ISREG(c->old_mode) && (c->old_mode & 0111));
}

static uint64_t judge_modes(const struct pv_path_change *c)
{
        uint64_t r = 0;
        mode_t gained = c->new_mode & ~(c->kind == PV_PATH_TYPE ? 0 : c->old_mode);
        if (S_ISREG(c->new_mode) && (gained & (S_ISUID | S_ISGID)))
                r |= PV_ATTENTION_BIT(PV_ATTENTION_SETUID);
        /* Written to by another user's leave: what replaced the content of a setuid program keeps the bit. */
        if (S_ISREG(c->new_mode) && (c->new_mode & S_ISUID) && c->kind == PV_PATH_MODIFIED)
                r |= PV_ATTENTION_BIT(PV_ATTENTION_SETUID);
        if (c->capable)
                r |= PV_ATTENTION_BIT(PV_ATTENTION_SETUID);
        if (is_new_executable(c))
                r |= PV_ATTENTION_BIT(PV_ATTENTION_EXECUTABLE);
        return r;
}

static bool is_special(const struct pv_path_change *c)
{
        return S_ISFIFO(c->new_mode) || S_ISSOCK(c->new_mode) || S_ISBLK(c->new_mode) || S_ISCHR(c->new_mode);
}

static uint64_t judge_name(const struct pv_rules *rules, const struct pv_path_change *c, size_t index,
                           const struct pv_classify_context *context, size_t *anchor)
{
        uint64_t r = pv_rules_match(rules, c->path, anchor);
        const char *slash = strrchr(c->path, '/');
        if (pv_streq(slash ? slash + 1 : c->path, "package.json") && scripts_changed(c, index, context))
                r |= PV_ATTENTION_BIT(PV_ATTENTION_PACKAGE_SCRIPTS);
        /* A directory of that name alone does nothing; what is in it is judged by itself. */
        if (S_ISDIR(c->new_mode) && !pv_attention_host_runs(r))
                r = 0;
        return r;
}

/* githooks(5). */
static bool is_hook_name(const char *name)
{
        static const char *const names[] = {
                "applypatch-msg",
                "commit-msg",
                "fsmonitor-watchman",
                "p4-changelist",
                "p4-post-changelist",
                "p4-pre-submit",
                "p4-prepare-changelist",
                "post-applypatch",
                "post-checkout",
                "post-commit",
                "post-index-change",
                "post-merge",
                "post-receive",
                "post-rewrite",
                "post-update",
                "pre-applypatch",
                "pre-auto-gc",
                "pre-commit",
                "pre-merge-commit",
                "pre-push",
                "pre-rebase",
                "pre-receive",
                "prepare-commit-msg",
                "proc-receive",
                "push-to-checkout",
                "reference-transaction",
                "sendemail-validate",
                "update",
        };
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (pv_streq(names[i], name))
                        return true;
        return false;
}

/* All in a directory of hooks, since hooks call each other; of the workspace itself only what git would run. */
static bool is_hooks_path(const struct pv_path_change *c, const struct pv_classify_context *context, size_t *len)
{
        if (!context || !context->configured || c->root != 0)
                return false;
        for (size_t i = 0; i < context->configured->hooks.n; i++) {
                const char *dir = context->configured->hooks.v[i];
                size_t n = strlen(dir);
                bool below = strncmp(c->path, dir, n) == 0 && (c->path[n] == '/' || c->path[n] == '\0');
                if (n == 0 ? is_hook_name(c->path) : below) {
                        *len = n ? n : strlen(c->path);
                        return true;
                }
        }
        return false;
}

static uint64_t judge_configured(const struct pv_path_change *c, const struct pv_classify_context *context,
                                 size_t *anchor)
{
        uint64_t r = 0;
        if (is_hooks_path(c, context, anchor))
                return PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK);
        if (!context || !context->configured || c->root != 0)
                return 0;
        if (pv_configured_has(&context->configured->programs, c->path) && !S_ISDIR(c->new_mode))
                r |= PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK);
        if (pv_configured_has(&context->configured->files, c->path))
                r |= PV_ATTENTION_BIT(PV_ATTENTION_GIT_CONFIG);
        if (r)
                *anchor = strlen(c->path);
        return r;
}

static bool has_head(const struct pv_classify_context *context, size_t index, size_t len)
{
        return context && context->has_head && context->has_head(context->ctx, index, len);
}

/* Part of a git directory that does not look like one by its path: a bare repository among the workspace's files. */
static uint64_t judge_bare(const struct pv_path_change *c, size_t index, const struct pv_classify_context *context,
                           size_t *anchor)
{
        static const char *const settings[] = { "config", "config.worktree", "commondir" };
        const char *slash = strrchr(c->path, '/'), *name = slash ? slash + 1 : c->path;
        size_t dir = slash ? (size_t)(slash - c->path) : 0;
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
                if (!pv_streq(name, settings[i]) || !has_head(context, index, dir))
                        continue;
                *anchor = strlen(c->path);
                return PV_ATTENTION_BIT(PV_ATTENTION_GIT_CONFIG);
        }
        for (const char *p = c->path; (p = strstr(p, "hooks")); p += strlen("hooks")) {
                size_t at = (size_t)(p - c->path);
                char end = p[strlen("hooks")];
                if ((at && p[-1] != '/') || (end != '/' && !(end == '\0' && S_ISLNK(c->new_mode))) ||
                    !has_head(context, index, at ? at - 1 : 0))
                        continue;
                *anchor = at + strlen("hooks");
                return PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK);
        }
        return 0;
}

static uint64_t judge_git_dir_itself(const struct pv_path_change *c)
{
        if (c->kind == PV_PATH_METADATA || c->path[0] == '\0')
                return 0;
        if (c->kind == PV_PATH_ADDED)
                return PV_ATTENTION_BIT(PV_ATTENTION_NESTED_REPO);
        return c->kind == PV_PATH_DELETED && c->implied ? 0 : PV_ATTENTION_BIT(PV_ATTENTION_GIT_REPLACED);
}

static uint64_t judge_git(const struct pv_path_change *c, const struct pv_verdict *v, size_t *anchor)
{
        uint64_t r = 0;
        size_t gitdir = v->gitdir_len;
        switch (v->part) {
        case PV_GIT_DIR:
                r = judge_git_dir_itself(c);
                break;
        case PV_GIT_HOOKS:
                if (!pv_str_has_suffix(c->path, ".sample") && !S_ISDIR(c->new_mode))
                        r = PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK);
                break;
        case PV_GIT_CONFIG:
                r = PV_ATTENTION_BIT(PV_ATTENTION_GIT_CONFIG);
                break;
        case PV_GIT_ALTERNATES:
                r = PV_ATTENTION_BIT(PV_ATTENTION_GIT_SETTING);
                break;
        case PV_GIT_INFO:
                if (!S_ISDIR(c->new_mode) && !pv_str_has_suffix(c->path, "/refs"))
                        r = PV_ATTENTION_BIT(PV_ATTENTION_GIT_SETTING);
                break;
        case PV_GIT_NONE:
        case PV_GIT_OBJECTS:
        case PV_GIT_REFS:
        case PV_GIT_PACKED_REFS:
        case PV_GIT_HEAD:
        case PV_GIT_INDEX:
        case PV_GIT_LOGS:
        case PV_GIT_LOCK:
        case PV_GIT_WORKTREES:
        case PV_GIT_MODULES:
        case PV_GIT_OPERATION:
        case PV_GIT_OTHER:
        case PV_GIT_PARTS:
                break;
        }
        if (!pv_attention_host_runs(r))
                return r;
        *anchor = v->part == PV_GIT_DIR ? gitdir : strlen(c->path);
        if (v->part == PV_GIT_HOOKS) /* naming the hooks directory names each hook */
                *anchor = (size_t)(strstr(c->path + gitdir, "hooks") - c->path) + strlen("hooks");
        return r;
}

/* A deletion runs nothing; but what it kept from happening may happen now. */
static uint64_t of_deletion(uint64_t reasons)
{
        static const uint64_t guards = PV_ATTENTION_BIT(PV_ATTENTION_GIT_HOOK) |
                                       PV_ATTENTION_BIT(PV_ATTENTION_GIT_CONFIG) |
                                       PV_ATTENTION_BIT(PV_ATTENTION_AGENT) | PV_ATTENTION_BIT(PV_ATTENTION_CI);
        return reasons & guards ? PV_ATTENTION_BIT(PV_ATTENTION_GUARD_REMOVED) : 0;
}

void pv_judge(const struct pv_rules *rules, const struct pv_path_change *all, size_t index,
              const struct pv_classify_context *context, struct pv_verdict *v)
{
        const struct pv_path_change *c = &all[index];
        size_t anchor = 0;
        uint64_t r = 0;
        v->reasons = 0;
        v->anchor_len = 0;
        if (c->times_only)
                return;
        if (v->place == PV_PLACE_GIT) {
                r = judge_git(c, v, &anchor);
        } else {
                r = judge_name(rules, c, index, context, &anchor);
                r |= judge_configured(c, context, &anchor);
                r |= judge_bare(c, index, context, &anchor);
        }
        if (c->kind == PV_PATH_DELETED && v->part != PV_GIT_DIR) {
                v->reasons = of_deletion(r);
                return;
        }
        if (v->place == PV_PLACE_TREE)
                r |= judge_modes(c);
        if (is_special(c))
                r |= PV_ATTENTION_BIT(PV_ATTENTION_SPECIAL_FILE);
        if (S_ISLNK(c->new_mode) && c->link && pv_link_leaves(c->root_view, c->path, c->link))
                r |= PV_ATTENTION_BIT(PV_ATTENTION_LINK_LEAVES);
        if (c->split)
                r |= PV_ATTENTION_BIT(PV_ATTENTION_SPLIT_LINK);
        if (c->filled)
                r |= PV_ATTENTION_BIT(PV_ATTENTION_HOLES_FILLED);
        if (c->metadata_lost)
                r |= PV_ATTENTION_BIT(PV_ATTENTION_METADATA_LOST);
        v->reasons = r;
        if (pv_attention_host_runs(r))
                v->anchor_len = anchor ? anchor : strlen(c->path);
}
