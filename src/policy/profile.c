/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/profile.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/closest.h"
#include "base/path.h"
#include "base/place.h"
#include "policy/config.h"
#include "policy/env.h"
#include "policy/netrule.h"
#include "policy/presets.h"

#define NAME_MAX_TEXT 64
#define SUFFIX        ".yaml"
#define STEPS_MAX     4096 /* of a path with its links: more is a loop */

void pv_profile_free(struct pv_profile *p)
{
        if (!p)
                return;
        struct pv_strv *const lists[] = { &p->hosts,  &p->state,         &p->settings,    &p->read,
                                          &p->caches, &p->pass_env,      &p->set_env,     &p->inner_args,
                                          &p->login,  &p->login_publish, &p->mcp_settings };
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
                pv_strv_fini(lists[i]);
        free(p->name);
        free(p->path);
        free(p->about);
        free(p->inner_sandbox);
        free(p->servers);
        free(p->servers_argument);
        free(p->mcp_reference);
        free(p);
}

bool pv_profile_is_name(const char *text)
{
        size_t n = strlen(text);
        return n > 0 && n <= NAME_MAX_TEXT && isalnum((unsigned char)text[0]) && !pv_streq(text, "none") &&
               strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/*
 * Fields. Each checks and keeps one value.
 */

/* "~/a/b" as "a/b"; NULL: it is not such a path, or leaves HOME, or is HOME. */
static char *below_home(const char *text)
{
        if (strncmp(text, "~/", 2) != 0)
                return NULL;
        pv_auto_free char *absolute = pv_strf("/%s", text + 2);
        pv_auto_free char *clean = pv_path_normalise(absolute);
        if (strlen(clean) < 2 || strstr(text, "/../") || pv_str_has_suffix(text, "/.."))
                return NULL;
        return pv_strdup(clean + 1);
}

/* A profile is no way to a credential store: that is for --mount, on the command line, to say. */
static int check_not_secret(const char *rel, struct pv_err *err)
{
        pv_auto_strv masks = { 0 };
        pv_presets_add_masks(&masks);
        for (size_t i = 0; i < masks.n; i++) {
                size_t n = strlen(masks.v[i]);
                if (strncmp(rel, masks.v[i], n) == 0 && (rel[n] == '\0' || rel[n] == '/')) {
                        (void)pv_err_set(err, PV_ERR_USAGE, 0, "~/%s is a credential store (~/%s)", rel, masks.v[i]);
                        if (pv_presets_is_agent_settings(rel))
                                return pv_err_hint(err, "mcp-settings shows it without the secrets that it says");
                        return pv_err_hint(err, "a profile cannot show one; --mount ~/%s:read can", rel);
                }
        }
        return 0;
}

static int add_home_path(struct pv_strv *list, const char *text, struct pv_err *err)
{
        char *rel = below_home(text);
        if (!rel)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: a path below HOME is expected (~/...)", text);
        pv_strv_take(list, rel);
        return check_not_secret(rel, err);
}

/* What is hidden for the servers in it alone may be shown without their secrets. */
static int add_mcp_settings(struct pv_strv *list, const char *text, struct pv_err *err)
{
        char *rel = below_home(text);
        if (!rel)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: a path below HOME is expected (~/...)", text);
        pv_strv_take(list, rel);
        return pv_presets_is_agent_settings(rel) ? 0 : check_not_secret(rel, err);
}

static int add_read(struct pv_strv *list, const char *text, struct pv_err *err)
{
        pv_auto_free char *rel = below_home(text);
        if (!rel && (text[0] != '/' || strlen(text) < 2))
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s: an absolute path or one below HOME is expected", text);
        if (rel && check_not_secret(rel, err) < 0)
                return -1;
        pv_strv_take(list, rel ? pv_strf("~/%s", rel) : pv_path_normalise(text));
        return 0;
}

/* An overlap would be two directories in one place. */
static int add_state(struct pv_strv *list, const char *text, struct pv_err *err)
{
        if (add_home_path(list, text, err) < 0)
                return -1;
        pv_auto_free char *last = pv_strf("/%s", list->v[list->n - 1]);
        for (size_t i = 0; i + 1 < list->n; i++) {
                pv_auto_free char *other = pv_strf("/%s", list->v[i]);
                if (pv_path_is_within(last, other) || pv_path_is_within(other, last))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "~%s and ~%s overlap", other, last);
        }
        return 0;
}

/* Everything is not a name for what an agent needs. */
static int add_host(struct pv_strv *list, const char *text, struct pv_err *err)
{
        struct pv_netrule r;
        if (text[0] != '@') {
                if (pv_netrule_parse(text, &r, err) < 0)
                        return -1;
                if (r.kind == PV_NETRULE_ANY || (r.kind == PV_NETRULE_PREFIX && r.prefix % 96 == 0))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "%s: a profile names hosts, not all of them", text);
        }
        pv_strv_add(list, text);
        return 0;
}

static int add_name(struct pv_strv *list, const char *text, struct pv_err *err)
{
        pv_strv_add(list, text);
        if (!pv_env_is_name(text))
                return pv_err_set(err, PV_ERR_USAGE, 0, "not a variable's name: %s", text);
        return 0;
}

/* What pVisor sets itself stays its own. */
static int add_setting(struct pv_strv *list, const char *text, struct pv_err *err)
{
        static const char *const own[] = { "HOME", "PATH", "PWD" };
        pv_auto_free char *name = pv_strndup(text, strcspn(text, "="));
        bool taken = pv_str_has_prefix(name, "GIT_CONFIG_");
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
                taken = taken || pv_streq(name, own[i]);
        if (!pv_env_is_name(name) || !strchr(text, '='))
                return pv_err_set(err, PV_ERR_USAGE, 0, "NAME=VALUE is expected: %s", text);
        if (taken)
                return pv_err_set(err, PV_ERR_USAGE, 0, "%s is pVisor's to set", name);
        pv_strv_add(list, text);
        return 0;
}

static int add_text(struct pv_strv *list, const char *text, struct pv_err *err)
{
        (void)err;
        pv_strv_add(list, text);
        return 0;
}

struct field {
        const char *name;
        size_t list, text; /* offset of the one or the other */
        int (*add)(struct pv_strv *list, const char *text, struct pv_err *err);
};

#define LIST(name_, field_, add_)                                                       \
        {                                                                               \
                .name = name_, .list = offsetof(struct pv_profile, field_), .add = add_ \
        }
#define TEXT(name_, field_)                                                \
        {                                                                  \
                .name = name_, .text = offsetof(struct pv_profile, field_) \
        }

static const struct field fields[] = {
        TEXT("about", about),
        LIST("hosts", hosts, add_host),
        LIST("state", state, add_state),
        LIST("settings", settings, add_home_path),
        LIST("read", read, add_read),
        LIST("caches", caches, add_home_path),
        LIST("pass-env", pass_env, add_name),
        LIST("set-env", set_env, add_setting),
        LIST("mcp-settings", mcp_settings, add_mcp_settings),
        TEXT("mcp-reference", mcp_reference),
        TEXT("mcp-servers", servers),
        TEXT("mcp-servers-argument", servers_argument),
        TEXT("inner-sandbox", inner_sandbox),
        LIST("inner-sandbox-arguments", inner_args, add_text),
        LIST("login", login, add_text),
        LIST("login-publish", login_publish, add_text),
};

static int unknown_field(const char *name, struct pv_err *err)
{
        pv_auto_str known = { 0 };
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
                pv_str_putf(&known, "%s%s", i ? " " : "", fields[i].name);
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s: no such field", name);
        return pv_err_hint(err, "a profile has: %s", known.s);
}

static int set_field(void *ctx, const struct pv_config_field *f, struct pv_err *err)
{
        const struct field *is = NULL;
        for (size_t i = 0; i < sizeof fields / sizeof *fields && !is; i++)
                if (pv_streq(fields[i].name, f->name))
                        is = &fields[i];
        if (!is)
                return unknown_field(f->name, err);
        if (!is->add) {
                if (f->is_list)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "%s: takes one value, not a list", f->name);
                *(char **)((char *)ctx + is->text) = pv_strdup(f->values[0]);
                return 0;
        }
        for (size_t i = 0; i < f->n; i++)
                if (is->add((struct pv_strv *)((char *)ctx + is->list), f->values[i], err) < 0)
                        return pv_err_wrap(err, "%s", f->name);
        return 0;
}

/* The file may be hidden as a credential store: its servers alone are told. */
static int check_servers(struct pv_profile *p, struct pv_err *err)
{
        char *rel = below_home(p->servers);
        if (!rel)
                return pv_err_set(err, PV_ERR_USAGE, 0, "mcp-servers: %s: a path below HOME is expected (~/...)",
                                  p->servers);
        free(p->servers);
        p->servers = rel;
        if (!p->servers_argument)
                return pv_err_set(err, PV_ERR_USAGE, 0, "mcp-servers: mcp-servers-argument is missing");
        return 0;
}

int pv_profile_load(const char *path, const char *name, struct pv_profile **out, struct pv_err *err)
{
        pv_auto_profile p = pv_calloc(1, sizeof *p);
        p->name = pv_strdup(name);
        p->path = pv_strdup(path);
        if (pv_config_load(path, &(struct pv_config_sink){ .set = set_field, .ctx = p }, err) < 0)
                return -1;
        if (p->servers && check_servers(p, err) < 0)
                return pv_err_wrap(err, "%s", path);
        *out = pv_steal(&p);
        return 0;
}

/*
 * Finding them.
 */

void pv_profile_places_find(const char *xdg_config_home, const char *home, struct pv_profile_places *out)
{
        static const char *const shipped[] = { "../share/pvisor/profiles", "share/pvisor/profiles",
                                               "../../share/pvisor/profiles", NULL };
        struct pv_profile_places p = { 0 };
        struct pv_err ignored = PV_ERR_INIT; /* one that is named and not found is an error, later */
        if (xdg_config_home && xdg_config_home[0] == '/')
                p.own = pv_path_join(xdg_config_home, "pvisor/profiles");
        else if (home && home[0] == '/')
                p.own = pv_path_join(home, ".config/pvisor/profiles");
        pv_auto_free char *found = NULL;
        if (pv_place_find(shipped, &found, &ignored) == 0)
                p.shipped = pv_path_normalise(found);
        *out = p;
}

void pv_profile_places_fini(struct pv_profile_places *p)
{
        free(p->own);
        free(p->shipped);
        *p = (struct pv_profile_places){ 0 };
}

char *pv_profile_find(const struct pv_profile_places *places, const char *name)
{
        const char *const dirs[] = { places->own, places->shipped };
        if (!pv_profile_is_name(name))
                return NULL;
        for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
                pv_auto_free char *path = dirs[i] ? pv_strf("%s/%s" SUFFIX, dirs[i], name) : NULL;
                if (path && access(path, F_OK) == 0)
                        return pv_steal(&path);
        }
        return NULL;
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_dir(const char *dir, struct pv_strv *names)
{
        pv_auto_dir d = dir ? opendir(dir) : NULL;
        for (struct dirent *e; d && (e = readdir(d));) {
                size_t n = strlen(e->d_name), m = strlen(SUFFIX);
                pv_auto_free char *name = n > m ? pv_strndup(e->d_name, n - m) : NULL;
                if (name && pv_str_has_suffix(e->d_name, SUFFIX) && pv_profile_is_name(name) &&
                    !pv_strv_has(names, name))
                        pv_strv_add(names, name);
        }
}

void pv_profile_list(const struct pv_profile_places *places, struct pv_strv *names)
{
        list_dir(places->own, names);
        list_dir(places->shipped, names);
        if (names->n > 1)
                qsort(names->v, names->n, sizeof *names->v, compare_names);
}

int pv_profile_missing(const struct pv_profile_places *places, const char *context, const char *name,
                       struct pv_err *err)
{
        struct pv_closest closest = { .word = name };
        pv_auto_strv names = { 0 };
        pv_profile_list(places, &names);
        for (size_t i = 0; i < names.n; i++)
                pv_closest_offer(&closest, names.v[i]);
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "%s %.200s: there is no such profile", context, name);
        return closest.best ? pv_err_hint(err, "did you mean %s?", closest.best)
                            : pv_err_hint(err, "pvisor profile lists them");
}

static const char *place_of(const char *path, const struct pv_strv *places)
{
        for (size_t i = 0; i < places->n; i++)
                if (pv_path_is_within(path, places->v[i]))
                        return places->v[i];
        return NULL;
}

/*
 * One step of a path: *at goes to its component, *rest becomes what is left, a link's target before it. The place that
 * the component itself lies in, or NULL.
 */
static const char *step(char **at, char **rest, const struct pv_strv *places)
{
        char target[PATH_MAX];
        const char *from = *rest + strspn(*rest, "/");
        size_t n = strcspn(from, "/");
        pv_auto_free char *name = pv_strndup(from, n);
        pv_auto_free char *next = pv_path_join(*at, name);
        pv_auto_free char *clean = pv_path_normalise(next);
        const char *found = place_of(clean, places);
        ssize_t len = readlink(next, target, sizeof target - 1);
        char *left = len < 0 ? pv_strdup(from + n) : pv_strf("%.*s%s", (int)len, target, from + n);
        free(*rest);
        *rest = left;
        if (len < 0) {
                free(*at);
                *at = pv_steal(&clean);
        } else if (target[0] == '/') {
                free(*at);
                *at = pv_strdup("/");
        }
        return found;
}

/* The one of places that a program's path leads through: the file or any link on the way to it; or NULL. */
static const char *leads_through(const char *path, const struct pv_strv *places)
{
        pv_auto_free char *cwd = getcwd(NULL, 0);
        pv_auto_free char *at = pv_strdup(path[0] == '/' || !cwd ? "/" : cwd);
        pv_auto_free char *rest = pv_strdup(path);
        const char *found = place_of(at, places);
        for (int steps = 0; !found && rest[strspn(rest, "/")] && steps < STEPS_MAX; steps++)
                found = step(&at, &rest, places);
        return found;
}

char *pv_profile_of_program(const struct pv_profile_places *places, const char *program)
{
        const char *slash = strrchr(program, '/');
        return pv_profile_find(places, slash ? slash + 1 : program);
}

void pv_backings_add(struct pv_backings *b, const char *view, const char *src, bool instead)
{
        b->v = pv_realloc(b->v, b->n + 1, sizeof *b->v);
        b->v[b->n++] = (struct pv_backing){ .view = pv_strdup(view), .src = pv_strdup(src), .instead = instead };
}

void pv_backings_fini(struct pv_backings *b)
{
        for (size_t i = 0; i < b->n; i++) {
                free(b->v[i].view);
                free(b->v[i].src);
        }
        free(b->v);
        *b = (struct pv_backings){ 0 };
}

/* An absolute directory as the view's places are named: resolved as far as the host has it. */
static char *real_dir(const char *dir)
{
        pv_auto_free char *cwd = dir[0] == '/' ? pv_strdup("/") : getcwd(NULL, 0);
        pv_auto_free char *joined = pv_path_join(cwd ? cwd : "/", dir);
        pv_auto_free char *clean = pv_path_normalise(joined);
        return pv_path_real_existing(clean);
}

/* Is the program in this directory of the view? *in: the one of dirs or of view that it leads through, or NULL. */
static bool look_in(const char *dir, const char *program, const struct pv_strv *dirs, const struct pv_backings *view,
                    const char **in)
{
        bool covered = false;
        pv_auto_free char *real = real_dir(dir);
        *in = NULL;
        for (size_t i = 0; i < view->n; i++) {
                const struct pv_backing *b = &view->v[i];
                if (!pv_path_is_within(real, b->view))
                        continue;
                covered = covered || b->instead;
                pv_auto_free char *path = pv_strf("%s%s/%s", b->src, real + strlen(b->view), program);
                if (access(path, X_OK) < 0)
                        continue;
                *in = !b->instead ? b->view : leads_through(path, dirs);
                if (!*in)
                        *in = place_of(real, dirs);
                return true;
        }
        pv_auto_free char *path = pv_path_join(dir, program);
        if (covered || access(path, X_OK) < 0)
                return false;
        *in = leads_through(path, dirs);
        return true;
}

const char *pv_profile_leads_through(const char *program, const char *path_list, const struct pv_strv *dirs,
                                     const struct pv_backings *view)
{
        const char *in = NULL;
        const char *slash = strrchr(program, '/');
        if (slash) {
                pv_auto_free char *dir =
                        slash == program ? pv_strdup("/") : pv_strndup(program, (size_t)(slash - program));
                return look_in(dir, slash + 1, dirs, view, &in) ? in : leads_through(program, dirs);
        }
        for (const char *at = path_list; at && *at;) {
                size_t n = strcspn(at, ":");
                pv_auto_free char *dir = n ? pv_strndup(at, n) : pv_strdup(".");
                at += n + (at[n] == ':');
                if (look_in(dir, program, dirs, view, &in))
                        return in;
        }
        return NULL;
}

static void copy_list(struct pv_strv *to, const struct pv_strv *from)
{
        pv_strv_fini(to);
        *to = (struct pv_strv){ 0 };
        for (size_t i = 0; i < from->n; i++)
                pv_strv_add(to, from->v[i]);
}

static void copy_text(char **to, const char *from)
{
        free(*to);
        *to = from ? pv_strdup(from) : NULL;
}

void pv_profile_put(const struct pv_profile *profile, struct pv_plan *plan)
{
        struct pv_plan_profile *p = &plan->profile;
        copy_text(&p->name, profile->name);
        copy_text(&p->path, profile->path);
        copy_list(&p->hosts, &profile->hosts);
        copy_list(&p->pass_env, &profile->pass_env);
        copy_list(&p->set_env, &profile->set_env);
}
