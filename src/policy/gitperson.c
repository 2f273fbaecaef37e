/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/gitperson.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/path.h"
#include "policy/gitconfig.h"

#define DEPTH_MAX 10 /* as git */
#define FILES_MAX 64

#define PATTERN_MAX 4096

void pv_gitperson_fini(struct pv_gitperson *p)
{
        free(p->name);
        free(p->email);
        free(p->excludes);
        pv_strv_fini(&p->includes);
        *p = (struct pv_gitperson){ 0 };
}

struct reading {
        const char *home, *git_dir;
        struct pv_gitperson *out;
        const char *dir; /* of the file that is being read */
        int depth;
};

/* Relative to HOME with "~/", else to the file's directory. The caller's. */
static char *resolve(const struct reading *r, const char *path)
{
        pv_auto_free char *joined = strncmp(path, "~/", 2) == 0 ? pv_path_join(r->home, path + 2)
                                    : path[0] == '/'            ? pv_strdup(path)
                                                                : pv_path_join(r->dir, path);
        return pv_path_normalise(joined);
}

/* What is matched, and which pairs of rests were found not to match: without that a pattern could take for ever. */
struct matching {
        const char *pattern, *text;
        size_t columns; /* of failed */
        bool *failed;
        bool fold;
};

static bool match_rest(struct matching *m, const char *pattern, const char *text);

/* At a '*' of the pattern. */
static bool match_star(struct matching *m, const char *pattern, const char *text)
{
        bool deep = pattern[1] == '*';
        const char *next = pattern + (deep ? 2 : 1);
        if (deep && *next == '/' && match_rest(m, next + 1, text))
                return true;
        for (;; text++) {
                if (match_rest(m, next, text))
                        return true;
                if (!*text || (*text == '/' && !deep))
                        return false;
        }
}

static bool match_rest(struct matching *m, const char *pattern, const char *text)
{
        bool *failed = &m->failed[(size_t)(pattern - m->pattern) * m->columns + (size_t)(text - m->text)];
        if (*failed)
                return false;
        *failed = true; /* unless it returns true, which ends all */
        for (; *pattern && *pattern != '*'; pattern++, text++) {
                bool same =
                        m->fold ? tolower((unsigned char)*pattern) == tolower((unsigned char)*text) : *pattern == *text;
                if (!*text || (*pattern == '?' ? *text == '/' : !same))
                        return false;
        }
        return *pattern ? match_star(m, pattern, text) : !*text;
}

/* As git's wildmatch with WM_PATHNAME, without brackets: '*' and '?' stop at a slash, "**" does not. */
static bool matches(const char *pattern, const char *text, bool fold)
{
        size_t rows = strlen(pattern) + 1, columns = strlen(text) + 1;
        if (rows > PATTERN_MAX || columns > PATTERN_MAX)
                return false;
        pv_auto_free bool *failed = pv_calloc(rows * columns, sizeof *failed);
        struct matching m = { .pattern = pattern, .text = text, .columns = columns, .failed = failed, .fold = fold };
        return match_rest(&m, pattern, text);
}

/* gitdir:PATTERN and gitdir/i:PATTERN. */
static bool holds(const struct reading *r, const char *condition)
{
        bool fold = pv_str_has_prefix(condition, "gitdir/i:");
        if (!r->git_dir || (!fold && !pv_str_has_prefix(condition, "gitdir:")))
                return false;
        const char *text = strchr(condition, ':') + 1;
        bool anchored = text[0] == '/' || strncmp(text, "~/", 2) == 0 || strncmp(text, "./", 2) == 0;
        size_t n = strlen(text);
        bool tree = n > 0 && text[n - 1] == '/';
        pv_auto_free char *path = anchored ? resolve(r, text) : pv_strf("**/%.*s", (int)(n - tree), text);
        pv_auto_free char *pattern = pv_strf("%s%s", path, tree ? "/**" : "");
        return matches(pattern, r->git_dir, fold);
}

static void take_path(char **to, const struct reading *r, const char *value)
{
        free(*to);
        *to = *value ? resolve(r, value) : NULL;
}

static void take_text(char **to, const char *value)
{
        free(*to);
        *to = pv_strdup(value);
}

static void read_file(struct reading *r, const char *path);

static void include(struct reading *r, const char *value)
{
        pv_auto_free char *path = resolve(r, value);
        if (r->depth == DEPTH_MAX || r->out->includes.n == FILES_MAX || access(path, R_OK) < 0)
                return;
        if (!pv_strv_has(&r->out->includes, path))
                pv_strv_add(&r->out->includes, path);
        read_file(r, path);
}

static void take(void *ctx, const char *section, const char *sub, const char *key, const char *value)
{
        struct reading *r = ctx;
        if (!value)
                return;
        if (!sub && pv_streq(section, "user") && pv_streq(key, "name"))
                take_text(&r->out->name, value);
        else if (!sub && pv_streq(section, "user") && pv_streq(key, "email"))
                take_text(&r->out->email, value);
        else if (!sub && pv_streq(section, "core") && pv_streq(key, "excludesfile"))
                take_path(&r->out->excludes, r, value);
        else if (!sub && pv_streq(section, "include") && pv_streq(key, "path"))
                include(r, value);
        else if (sub && pv_streq(section, "includeif") && pv_streq(key, "path") && holds(r, sub))
                include(r, value);
}

static void read_file(struct reading *r, const char *path)
{
        /* Relative paths in it are relative to where it really is. */
        pv_auto_free char *real = realpath(path, NULL);
        if (!real)
                return;
        char *slash = strrchr(real, '/');
        pv_auto_free char *dir = slash == real ? pv_strdup("/") : pv_strndup(real, (size_t)(slash - real));
        const char *before = r->dir;
        r->dir = dir;
        r->depth++;
        (void)pv_gitconfig_each(dir, slash + 1, take, r);
        r->depth--;
        r->dir = before;
}

void pv_gitperson_read(const char *home, const char *xdg_config_home, const char *git_dir, struct pv_gitperson *out)
{
        struct reading r = { .home = home, .git_dir = git_dir, .out = out };
        bool own = xdg_config_home && xdg_config_home[0] == '/';
        pv_auto_free char *xdg = pv_path_join(own ? xdg_config_home : home, own ? "git" : ".config/git");
        pv_auto_free char *general = pv_path_join(xdg, "config");
        pv_auto_free char *old = pv_path_join(home, ".gitconfig");
        read_file(&r, general);
        read_file(&r, old);
        if (!out->excludes) {
                pv_auto_free char *usual = pv_path_join(xdg, "ignore");
                if (access(usual, R_OK) == 0)
                        out->excludes = pv_steal(&usual);
        }
}
