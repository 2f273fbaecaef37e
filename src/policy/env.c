/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/env.h"

#include <string.h>
#include "base/path.h"
#include "policy/gitconfig.h"
#include "policy/gitperson.h"
#include "policy/outside.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* What a program needs to find its way and to speak the person's language; nothing that names a secret or a socket. */
static const char *const kept[] = { "HOME", "PATH", "LANG",    "LANGUAGE",  "SHELL",   "TERM",
                                    "USER", "TZ",   "LOGNAME", "COLORTERM", "NO_COLOR" };

const char *pv_env_get(char *const *list, const char *name)
{
        size_t n = strlen(name);
        for (; list && *list; list++)
                if (strncmp(*list, name, n) == 0 && (*list)[n] == '=')
                        return *list + n + 1;
        return NULL;
}

bool pv_env_is_name(const char *s)
{
        static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
        size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
        return *s && strchr(first, *s) && s[n] == '\0';
}

int pv_env_check_names(const struct pv_strv *names, struct pv_err *err)
{
        for (size_t i = 0; i < names->n; i++) {
                const char *name = names->v[i];
                if (pv_env_is_name(name))
                        continue;
                /* What follows '=' may be a secret: it is not repeated. */
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "--pass-env: not a variable's name: %.*s",
                                 (int)strcspn(name, "="), name);
                if (strchr(name, '='))
                        return pv_err_hint(err, "give the name alone; its value is taken from this environment");
                return -1;
        }
        return 0;
}

static bool is_kept(const char *entry)
{
        size_t n = strcspn(entry, "=");
        if (strncmp(entry, "LC_", 3) == 0)
                return true;
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
                if (strlen(kept[i]) == n && strncmp(kept[i], entry, n) == 0)
                        return true;
        return false;
}

/* Sets NAME=VALUE, in place of one that is there. */
static void set(struct pv_strv *env, const char *name, const char *value)
{
        size_t n = strlen(name);
        char *entry = pv_strf("%s=%s", name, value);
        for (size_t i = 0; i < env->n; i++) {
                if (strncmp(env->v[i], name, n) == 0 && env->v[i][n] == '=') {
                        free(env->v[i]);
                        env->v[i] = entry;
                        return;
                }
        }
        pv_strv_take(env, entry);
}

static void inject(struct pv_plan *plan, const char *name, const char *value)
{
        set(&plan->env, name, value);
        if (!pv_strv_has(&plan->env_injected, name))
                pv_strv_add(&plan->env_injected, name);
}

/* Settings for git, which take effect as those of a command line do (git-config(1), GIT_CONFIG_COUNT). */
static void inject_git_setting(struct pv_plan *plan, unsigned *n, const char *key, const char *value)
{
        pv_auto_free char *key_name = pv_strf("GIT_CONFIG_KEY_%u", *n);
        pv_auto_free char *value_name = pv_strf("GIT_CONFIG_VALUE_%u", *n);
        if (!value)
                return;
        inject(plan, key_name, key);
        inject(plan, value_name, value);
        (*n)++;
}

/* A setting of the command line would overrule the repository's own, which a person made for a reason. */
static void inject_unless_local(struct pv_plan *plan, unsigned *n, const char *git_dir, const char *key,
                                const char *value)
{
        pv_auto_free char *local = pv_gitconfig_get(git_dir, "config", "user", strchr(key, '.') + 1);
        if (!local)
                inject_git_setting(plan, n, key, value);
}

/* In an empty HOME git does not know who the person is; nothing else of its configuration is told. */
static void inject_identity(struct pv_plan *plan, char *const *person, unsigned *n)
{
        pv_auto_gitperson who = { 0 };
        pv_auto_free char *git_dir = pv_outside_git_dir(plan);
        pv_gitperson_read(plan->home, pv_env_get(person, "XDG_CONFIG_HOME"), git_dir, &who);
        inject_unless_local(plan, n, git_dir, "user.name", who.name);
        inject_unless_local(plan, n, git_dir, "user.email", who.email);
        for (size_t i = 0; who.excludes && i < plan->n_mounts; i++)
                if (pv_streq(plan->mounts[i].dst, who.excludes))
                        inject_git_setting(plan, n, "core.excludesFile", who.excludes);
}

/*
 * git inside: signing is off, since the keys are not there, and the workspace is safe whoever seems to own it
 * (safe.directory counts from the command line, not from a repository).
 */
static void inject_git(struct pv_plan *plan, char *const *person)
{
        unsigned n = 0;
        if (pv_env_get(plan->env.v, "GIT_CONFIG_COUNT"))
                return; /* the person passed settings of their own */
        inject_git_setting(plan, &n, "commit.gpgSign", "false");
        inject_git_setting(plan, &n, "tag.gpgSign", "false");
        inject_git_setting(plan, &n, "tag.forceSignAnnotated", "false");
        inject_git_setting(plan, &n, "push.gpgSign", "false");
        inject_git_setting(plan, &n, "log.showSignature", "false");
        inject_git_setting(plan, &n, "safe.directory", plan->workspace);
        if (plan->home_mode == PV_HOME_EMPTY)
                inject_identity(plan, person, &n);
        pv_auto_free char *count = pv_strf("%u", n);
        inject(plan, "GIT_CONFIG_COUNT", count);
}

static void pass(struct pv_plan *plan, char *const *person, const char *name)
{
        const char *value = pv_env_get(person, name);
        if (!value || pv_strv_has(&plan->env_passed, name))
                return;
        set(&plan->env, name, value);
        pv_strv_add(&plan->env_passed, name);
}

/* What a profile sets, the person's --pass-env of the same name overrules. */
static void add_profile(struct pv_plan *plan, char *const *person)
{
        const struct pv_plan_profile *p = &plan->profile;
        for (size_t i = 0; i < p->set_env.n; i++) {
                const char *text = p->set_env.v[i], *value = strchr(text, '=') + 1;
                pv_auto_free char *name = pv_strndup(text, strcspn(text, "="));
                bool in_home = strncmp(value, "~/", 2) == 0;
                pv_auto_free char *path = in_home ? pv_path_join(plan->home, value + 2) : NULL;
                if (!pv_strv_has(&plan->env_passed, name))
                        inject(plan, name, path ? path : value);
        }
        for (size_t i = 0; i < p->pass_env.n; i++)
                pass(plan, person, p->pass_env.v[i]);
}

void pv_env_fill(struct pv_plan *plan, char *const *person, const struct pv_strv *names)
{
        bool sandbox = plan->filesystem == PV_FS_SANDBOX;
        for (char *const *e = person; e && *e; e++)
                if (strchr(*e, '=') && (!sandbox || is_kept(*e)))
                        pv_strv_add(&plan->env, *e);
        for (size_t i = 0; i < names->n; i++)
                pass(plan, person, names->v[i]);
        if (!sandbox)
                return;
        add_profile(plan, person);
        if (plan->home && !pv_strv_has(&plan->env_passed, "HOME"))
                set(&plan->env, "HOME", plan->home);
        if (!pv_env_get(plan->env.v, "PATH"))
                inject(plan, "PATH", DEFAULT_PATH);
        inject(plan, "PWD", plan->cwd);
        inject_git(plan, person);
}
