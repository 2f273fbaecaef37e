/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent's profile adds to a run, for its first admission and for another command in the boundary of a job: one
 * way for both, so that `fork JOB -- claude` starts what `run -- claude` does.
 */
#include "policy/admit_internal.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "policy/env.h"
#include "policy/grant.h"
#include "policy/kept.h"
#include "policy/network.h"
#include "policy/services.h"
#include "policy/settings.h"

void pv_admission_note(struct admission *a, const char *fmt, ...)
{
        va_list ap;
        char *text = NULL;
        va_start(ap, fmt);
        int n = vasprintf(&text, fmt, ap);
        va_end(ap);
        if (n >= 0)
                pv_strv_take(a->notes, text);
}

static const char *base_name(const char *program)
{
        const char *slash = strrchr(program, '/');
        return slash ? slash + 1 : program;
}

/* The file of the profile that was named, or of the program's; *path NULL: none applies. */
static int find_profile(struct admission *a, char **path, struct pv_err *err)
{
        const struct pv_request *r = a->request;
        const struct pv_plan *p = a->plan;
        char *const *env = a->around->environment;
        pv_auto_profile_places places = { 0 };
        if (r->profile ? pv_streq(r->profile, "none") : !r->safe)
                return 0;
        if (r->profile && p->filesystem == PV_FS_HOST) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "--profile: the host's file system is seen as it is");
                return pv_err_hint(err, "add --safe");
        }
        pv_profile_places_find(pv_env_get(env, "XDG_CONFIG_HOME"), p->home, &places);
        if (!r->profile) {
                *path = pv_profile_of_program(&places, p->argv[0]);
                return 0;
        }
        *path = pv_profile_find(&places, r->profile);
        if (*path)
                return 0;
        return pv_profile_missing(&places, "--profile", r->profile, err);
}

/* Before the person's own. */
static void add_arguments(struct pv_plan *p, const struct pv_strv *more)
{
        pv_auto_strv argv = { 0 };
        pv_strv_add(&argv, p->argv[0]);
        for (size_t i = 0; i < more->n; i++)
                pv_strv_add(&argv, more->v[i]);
        for (char **arg = p->argv + 1; *arg; arg++)
                pv_strv_add(&argv, *arg);
        pv_plan_set_argv(p, argv.v);
        p->profile.n_arguments += more->n;
}

/* The agent's own sandbox would die in this one. Only the agent itself knows these arguments. */
static void switch_inner_sandbox_off(struct pv_plan *p, const struct pv_profile *profile)
{
        bool is_agent = pv_streq(base_name(p->argv[0]), profile->name);
        if (!profile->inner_sandbox || (profile->inner_args.n && !is_agent))
                return;
        p->profile.inner_sandbox = pv_strdup(profile->inner_sandbox);
        if (profile->inner_args.n == 0)
                return;
        add_arguments(p, &profile->inner_args);
}

/* "a, b and 3 more" */
static void put_names(struct pv_str *out, const struct pv_strv *names)
{
        enum { SAID = 5 };
        for (size_t i = 0; i < names->n && i < SAID; i++)
                pv_str_putf(out, "%s%s", i ? ", " : "", names->v[i]);
        if (names->n > SAID)
                pv_str_putf(out, " and %zu more", names->n - SAID);
}

static void say_servers(struct admission *a)
{
        const struct pv_mcp *m = &a->servers;
        pv_auto_str text = { 0 };
        if (m->servers.n) {
                pv_str_put(&text, "MCP servers: ");
                put_names(&text, &m->servers);
        }
        if (m->left_out.n) {
                pv_str_put(&text, text.len ? "; left out: " : "MCP servers left out: ");
                put_names(&text, &m->left_out);
        }
        if (m->withheld.n) {
                pv_str_put(&text, "; without their ");
                put_names(&text, &m->withheld);
                pv_str_put(&text, " (--pass-env NAME gives one)");
        }
        if (text.len)
                pv_admission_note(a, "profile %s: %s", a->profile->name, text.s);
}

/*
 * The agent's own servers, from a file that is hidden for what else it holds. As an argument, since the agent's state
 * has a file of that name that is the agent's to write. Only the agent itself knows it.
 */
static void add_servers(struct admission *a)
{
        struct pv_plan *p = a->plan;
        struct pv_err wrong = PV_ERR_INIT;
        if (!a->profile || !a->profile->servers || a->request->no_settings ||
            !pv_streq(base_name(p->argv[0]), a->profile->name))
                return;
        pv_auto_free char *path = pv_path_join(p->home, a->profile->servers);
        if (pv_mcp_read(path, p->workspace, a->around->environment, &a->request->pass_env, &a->servers, &wrong) < 0) {
                pv_admission_note(a, "profile %s: no MCP servers: %s", a->profile->name, wrong.msg);
                return;
        }
        say_servers(a);
        if (!a->servers.json)
                return;
        pv_auto_strv more = { 0 };
        pv_strv_take(&more, pv_strf("%s%s", a->profile->servers_argument, a->servers.json));
        add_arguments(p, &more);
}

/* What earlier runs left over the workspace and other staged directories, in a stage that is taken again. */
static void add_layers(const struct admission *a, const struct pv_strv *staged, struct pv_backings *out)
{
        const char *stage = a->around->stage_dir;
        pv_auto_free char *pattern = stage ? pv_strf("%s/roots", stage) : NULL;
        pv_auto_dir roots = pattern ? opendir(pattern) : NULL;
        for (struct dirent *r; roots && (r = readdir(roots));) {
                pv_auto_free char *layers = pv_strf("%s/%s/layers", pattern, r->d_name);
                pv_auto_dir d = r->d_name[0] == '.' ? NULL : opendir(layers);
                for (struct dirent *l; d && (l = readdir(d));) {
                        pv_auto_free char *layer = pv_path_join(layers, l->d_name);
                        for (size_t i = 0; l->d_name[0] != '.' && i < staged->n; i++)
                                pv_backings_add(out, staged->v[i], layer, false);
                }
        }
}

/* What runs of the agent left in its state and in the caches of the workspace. */
static void add_kept_backings(const struct admission *a, struct pv_backings *out)
{
        const struct pv_plan *p = a->plan;
        const char *store = a->around->store;
        if (!store)
                return;
        pv_auto_free char *state = pv_kept_state_of(store, a->profile->name);
        pv_auto_free char *caches = pv_kept_caches_of(store, p->workspace, a->profile->name);
        for (size_t i = 0; i < a->profile->state.n; i++) {
                pv_auto_free char *view = pv_path_join(p->home, a->profile->state.v[i]);
                pv_auto_free char *src = pv_path_join(state, a->profile->state.v[i]);
                pv_backings_add(out, view, src, false);
        }
        pv_auto_free char *upper = pv_path_join(caches, "upper");
        pv_backings_add(out, p->home, upper, false);
}

/* A program that an earlier command may have put where it is would be given the agent's login by its name alone. */
static bool may_be_planted(struct admission *a, const struct pv_mount *mounts, size_t n)
{
        const struct pv_plan *p = a->plan;
        pv_auto_strv dirs = { 0 }, staged = { 0 };
        pv_auto_backings view = { 0 };
        pv_strv_add(&dirs, p->workspace);
        pv_strv_add(&staged, p->workspace);
        pv_kept_list(p->home, a->profile, &dirs);
        add_kept_backings(a, &view);
        for (size_t i = 0; i < n; i++) {
                const struct pv_mount *m = &mounts[i];
                if (m->by_profile)
                        continue;
                if (m->access != PV_MOUNT_READ) {
                        pv_strv_add(&dirs, m->src);
                        pv_strv_add(&dirs, m->dst);
                }
                if (m->access == PV_MOUNT_STAGE)
                        pv_strv_add(&staged, m->dst);
                if (!pv_streq(m->src, m->dst))
                        pv_backings_add(&view, m->dst, m->src, true);
        }
        add_layers(a, &staged, &view);
        const char *in = pv_profile_leads_through(p->argv[0], pv_env_get(a->around->environment, "PATH"), &dirs, &view);
        if (in)
                pv_admission_note(a, "%s lies in %s%s: it gets no profile by its name (--profile %s gives it that one)",
                                  p->argv[0], pv_streq(in, p->workspace) ? "the workspace" : in,
                                  pv_streq(in, p->workspace) ? "" : ", where runs may write", base_name(p->argv[0]));
        return in;
}

/* The mounts that are asked for, before they are granted: a wrong one is refused there. */
static bool may_be_planted_by_request(struct admission *a)
{
        const struct pv_strv *asked = &a->request->mount;
        pv_auto_free struct pv_mount *mounts = pv_calloc(asked->n + 1, sizeof *mounts);
        size_t n = 0;
        for (size_t i = 0; i < asked->n; i++) {
                struct pv_err later = PV_ERR_INIT;
                n += pv_grant_parse_mount(asked->v[i], a->plan->home, &mounts[n], &later) == 0;
        }
        bool planted = may_be_planted(a, mounts, n);
        for (size_t i = 0; i < n; i++)
                pv_mount_fini(&mounts[i]);
        return planted;
}

static int load_profile(struct admission *a, const char *path, struct pv_err *err)
{
        pv_auto_free char *name = pv_strdup(base_name(path));
        *strrchr(name, '.') = '\0';
        pv_profile_freep(&a->profile);
        return pv_profile_load(path, name, &a->profile, err);
}

int pv_admission_choose_profile(struct admission *a, struct pv_err *err)
{
        pv_auto_free char *path = NULL;
        if (find_profile(a, &path, err) < 0)
                return -1;
        if (!path)
                return 0;
        if (load_profile(a, path, err) < 0)
                return -1;
        if (!a->request->profile && may_be_planted_by_request(a)) {
                pv_profile_freep(&a->profile);
                return 0;
        }
        pv_profile_put(a->profile, a->plan);
        switch_inner_sandbox_off(a->plan, a->profile);
        return 0;
}

static void say_cleaned(struct admission *a, const char *rel, const struct pv_settings *s)
{
        pv_auto_str text = { 0 };
        if (s->left_out.n) {
                pv_str_put(&text, " left out: ");
                put_names(&text, &s->left_out);
        }
        if (s->withheld.n) {
                pv_str_put(&text, text.len ? "; without " : " without ");
                put_names(&text, &s->withheld);
                pv_str_put(&text, " (--pass-env NAME gives one)");
        }
        if (text.len)
                pv_admission_note(a, "profile %s: ~/%s:%s", a->profile->name, rel, text.s);
}

/* The agent's settings that list its MCP servers, without the secrets in them; what cannot be read is not shown. */
static void add_cleaned_settings(struct admission *a)
{
        const struct pv_profile *profile = a->profile;
        for (size_t i = 0; i < profile->mcp_settings.n && !a->request->no_settings; i++) {
                const char *rel = profile->mcp_settings.v[i];
                pv_auto_free char *src = NULL;
                pv_auto_free char *dst = NULL;
                pv_auto_settings s = { 0 };
                struct pv_err wrong = PV_ERR_INIT;
                if (!pv_kept_find_setting(a->plan, rel, &src, &dst))
                        continue;
                if (pv_settings_clean(src, a->around->environment, &a->request->pass_env, profile->mcp_reference, &s,
                                      &wrong) < 0) {
                        pv_admission_note(
                                a, "profile %s: ~/%s is not shown, since what is secret in it cannot be told: %s",
                                profile->name, rel, wrong.msg);
                        continue;
                }
                say_cleaned(a, rel, &s);
                for (size_t k = 0; k < s.variables.n; k++)
                        pv_strv_add(&a->servers.variables, s.variables.v[k]);
                pv_kept_add_cleaned(a->plan, pv_steal(&src), dst, pv_steal(&s.content));
        }
}

void pv_admission_add_agent(struct admission *a)
{
        const struct pv_request *r = a->request;
        if (a->profile)
                pv_kept_add_profile(a->plan, a->profile, a->around->store, r, a->notes);
        if (a->profile)
                add_cleaned_settings(a);
        if (r->safe && !r->no_caches)
                pv_kept_add_caches(a->plan, a->profile, a->around->store);
        add_servers(a);
}

void pv_admission_say_agent(struct admission *a)
{
        const struct pv_plan *p = a->plan;
        pv_auto_str given = { 0 };
        if (!a->profile)
                return;
        for (size_t i = 0; i < p->profile.pass_env.n; i++)
                if (pv_strv_has(&p->env_passed, p->profile.pass_env.v[i]))
                        pv_str_putf(&given, "%s %s", given.len ? "," : "; given", p->profile.pass_env.v[i]);
        pv_admission_note(a, "profile %s: %zu host%s%s%s%s (pvisor profile show %s)", p->profile.name,
                          p->profile.hosts.n, p->profile.hosts.n == 1 ? "" : "s",
                          p->n_state ? ", state of its own" : "", given.len ? given.s : "",
                          p->profile.inner_sandbox ? "; its own sandbox is off" : "", p->profile.name);
        if (a->profile->login.n && !given.len && p->n_state && access(p->state[0].src, F_OK) < 0 &&
            !a->request->no_settings)
                pv_admission_note(a, "%s has not been logged in here: pvisor login %s", p->profile.name,
                                  p->profile.name);
}

int pv_admission_set_environment(struct admission *a, struct pv_err *err)
{
        const struct pv_strv *pass = &a->request->pass_env;
        if (pv_env_check_names(pass, err) < 0)
                return -1;
        for (size_t i = 0; i < pass->n; i++)
                pv_strv_add(&a->plan->env_asked, pass->v[i]);
        pv_auto_strv person = { 0 };
        for (char *const *e = a->around->environment; e && *e; e++)
                pv_strv_add(&person, *e);
        for (size_t i = 0; i < a->servers.variables.n; i++)
                pv_strv_add(&person, a->servers.variables.v[i]);
        pv_env_fill(a->plan, person.v, pass);
        for (size_t i = 0; i < pass->n; i++)
                if (!pv_strv_has(&a->plan->env_passed, pass->v[i]))
                        pv_admission_note(a, "--pass-env %s: not set here, so not passed", pass->v[i]);
        if (a->plan->safe)
                pv_services_note_variables(a->plan, a->around->environment, a->notes);
        return 0;
}

/* What the profile of the plan's last run brought goes, but for the hosts that it may reach. */
static int take_profile_out(struct pv_plan *p, char *const *argv, struct pv_err *err)
{
        struct pv_plan_profile *old = &p->profile;
        size_t n = 0, kept = 0;
        while (p->argv[n])
                n++;
        if (old->n_arguments >= n && (old->n_arguments || !n))
                return pv_err_set(err, PV_ERR_INPUT, 0, "it has fewer arguments than its profile added");
        pv_auto_strv own = { 0 };
        for (size_t i = 0; i < n; i++)
                if (i == 0 || i > old->n_arguments)
                        pv_strv_add(&own, p->argv[i]);
        pv_plan_set_argv(p, argv ? argv : own.v);
        old->n_arguments = 0;
        for (size_t i = 0; i < p->n_mounts; i++) {
                if (p->mounts[i].by_profile)
                        pv_mount_fini(&p->mounts[i]);
                else
                        p->mounts[kept++] = p->mounts[i];
        }
        p->n_mounts = kept;
        free(old->inner_sandbox);
        old->inner_sandbox = NULL;
        pv_plan_forget_kept(p);
        return 0;
}

/* That of the program where it has one, as for a run; else the one that was there. */
static int choose_again(struct admission *a, struct pv_err *err)
{
        struct pv_plan *p = a->plan;
        pv_auto_free char *path = NULL;
        pv_auto_free char *before = p->profile.name ? pv_strdup(p->profile.name) : NULL;
        if (find_profile(a, &path, err) < 0)
                return -1;
        if (path && load_profile(a, path, err) < 0)
                return -1;
        if (path && !a->request->profile && may_be_planted(a, p->mounts, p->n_mounts))
                pv_profile_freep(&a->profile);
        if (!a->profile && before && pv_profile_load(p->profile.path, before, &a->profile, err) < 0)
                return -1;
        if (!a->profile)
                return 0;
        pv_profile_put(a->profile, p);
        switch_inner_sandbox_off(p, a->profile);
        return before && pv_streq(before, a->profile->name)
                       ? 0
                       : pv_admit_hosts(&p->netpolicy, &p->profile.hosts, a->around->environment, err);
}

static int admit_again(struct admission *a, char *const *argv, struct pv_err *err)
{
        if (take_profile_out(a->plan, argv, err) < 0 || choose_again(a, err) < 0)
                return -1;
        pv_admission_add_agent(a);
        if (pv_admission_set_environment(a, err) < 0)
                return -1;
        pv_admission_say_agent(a);
        return 0;
}

int pv_admit_again(struct pv_plan *plan, char *const *argv, const struct pv_surroundings *around, struct pv_strv *notes,
                   struct pv_err *err)
{
        struct pv_request request = { .safe = plan->safe,
                                      .profile = plan->profile.asked,
                                      .no_state = plan->no_state,
                                      .no_caches = plan->no_caches,
                                      .pass_env = plan->env_asked };
        struct admission a = { .request = &request, .around = around, .plan = plan, .notes = notes };
        struct pv_strv *const lists[] = { &plan->env, &plan->env_passed, &plan->env_injected };
        plan->env_asked = (struct pv_strv){ 0 };
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
                pv_strv_fini(lists[i]);
                *lists[i] = (struct pv_strv){ 0 };
        }
        int r = admit_again(&a, argv, err);
        pv_strv_fini(&request.pass_env);
        pv_profile_free(a.profile);
        pv_mcp_fini(&a.servers);
        return r;
}
