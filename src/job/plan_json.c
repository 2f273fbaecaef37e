/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan in request.json, and back: what `inspect` and `fork` start from. The environment goes out as names alone;
 * whoever reads a plan back fills env anew.
 */
#include <string.h>
#include "job/network_json.h"
#include "base/json.h"
#include "job/store_internal.h"

/* As many of anything as a plan may hold when it is read back. */
#define LIST_MAX 4096
#define ARGS_MAX (2U << 20)

static const char *const filesystems[] = { [PV_FS_HOST] = "host", [PV_FS_SANDBOX] = "sandbox", NULL };
static const char *const networks[] = { [PV_NET_AMBIENT] = "ambient",
                                        [PV_NET_DENY_ALL] = "deny-all",
                                        [PV_NET_RULES] = "rules",
                                        [PV_NET_PROXY] = "proxy",
                                        NULL };
static const char *const homes[] = {
        [PV_HOME_HOST] = "host", [PV_HOME_EMPTY] = "empty", [PV_HOME_COW] = "copy-on-write", NULL
};
static const char *const backends[] = {
        [PV_STAGE_BACKEND_AUTO] = "auto", [PV_STAGE_BACKEND_KERNEL] = "kernel", [PV_STAGE_BACKEND_FUSE] = "fuse", NULL
};
static const char *const stdios[] = { [PV_STDIO_INHERIT] = "inherit", [PV_STDIO_CAPTURE] = "capture", NULL };
static const char *const accesses[] = {
        [PV_MOUNT_READ] = "read", [PV_MOUNT_STAGE] = "stage", [PV_MOUNT_WRITE] = "write", NULL
};
static const char *const root_kinds[] = {
        [PV_ROOT_WORKSPACE] = "workspace", [PV_ROOT_GIT_DIR] = "git-dir", [PV_ROOT_MOUNT] = "mount", NULL
};

static json_t *bytes_list(char *const *v, size_t n)
{
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
                (void)json_array_append_new(list, pv_json_bytes(v[i]));
        return list;
}

static json_t *names_of(const struct pv_strv *env)
{
        json_t *list = json_array();
        for (size_t i = 0; i < env->n; i++) {
                pv_auto_free char *name = pv_strndup(env->v[i], strcspn(env->v[i], "="));
                (void)json_array_append_new(list, pv_json_bytes(name));
        }
        return list;
}

static json_t *roots_json(const struct pv_plan *p)
{
        json_t *list = json_array();
        for (size_t i = 0; i < p->n_roots; i++)
                (void)json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "kind", root_kinds[p->roots[i].kind],
                                                            "target", pv_json_bytes(p->roots[i].target), "view",
                                                            pv_json_bytes(p->roots[i].view)));
        return list;
}

static json_t *mounts_json(const struct pv_plan *p)
{
        json_t *list = json_array();
        for (size_t i = 0; i < p->n_mounts; i++)
                (void)json_array_append_new(
                        list,
                        json_pack("{s:o, s:o, s:o, s:s, s:s, s:b}", "src", pv_json_bytes(p->mounts[i].src), "dst",
                                  pv_json_bytes(p->mounts[i].dst), "named", pv_json_bytes(p->mounts[i].named), "access",
                                  accesses[p->mounts[i].access], "by", p->mounts[i].by_profile ? "profile" : "person",
                                  "cleaned", p->mounts[i].cleaned));
        return list;
}

/* What a profile added, with names of variables alone; null without one. */
static json_t *profile_json(const struct pv_plan *p)
{
        const struct pv_plan_profile *f = &p->profile;
        if (!f->name)
                return json_null();
        return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "name", pv_json_bytes(f->name), "file",
                         pv_json_bytes(f->path), "hosts", bytes_list(f->hosts.v, f->hosts.n), "pass_env",
                         bytes_list(f->pass_env.v, f->pass_env.n), "set_env", names_of(&f->set_env), "inner_sandbox",
                         pv_json_bytes(f->inner_sandbox));
}

static json_t *services_json(const struct pv_plan *p)
{
        json_t *list = json_array();
        for (size_t i = 0; i < p->n_services; i++) {
                json_t *opens = json_array();
                for (int d = 0; d < PV_DIMENSIONS; d++)
                        if (p->services[i].opens & 1U << d)
                                (void)json_array_append_new(opens,
                                                            json_string(pv_dimension_name((enum pv_dimension)d)));
                (void)json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:b}", "what",
                                                            pv_json_bytes(p->services[i].what), "path",
                                                            pv_json_bytes(p->services[i].path), "opens", opens,
                                                            "device", p->services[i].device));
        }
        return list;
}

static json_t *kept_json(const struct pv_plan *p)
{
        json_t *state = json_array();
        for (size_t i = 0; i < p->n_state; i++)
                (void)json_array_append_new(state, json_pack("{s:o, s:o, s:o}", "src", pv_json_bytes(p->state[i].src),
                                                             "dst", pv_json_bytes(p->state[i].dst), "rel",
                                                             pv_json_bytes(p->state[i].rel)));
        return json_pack("{s:o, s:o, s:o, s:o}", "state", state, "caches", bytes_list(p->caches.v, p->caches.n),
                         "cache_dir", pv_json_bytes(p->cache_dir), "toolchains",
                         bytes_list(p->toolchains.v, p->toolchains.n));
}

/* What another command in the same boundary needs to know of how this one was asked for (policy/admit.h). */
static json_t *asked_json(const struct pv_plan *p)
{
        return json_pack("{s:o, s:I, s:b, s:b, s:o}", "profile", pv_json_bytes(p->profile.asked), "arguments",
                         (json_int_t)p->profile.n_arguments, "no_state", p->no_state, "no_caches", p->no_caches,
                         "pass_env", bytes_list(p->env_asked.v, p->env_asked.n));
}

static json_t *limits_json(const struct pv_limits *l)
{
        return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "timeout_ms", (json_int_t)l->timeout_ms, "memory_bytes",
                         (json_int_t)l->memory_bytes, "max_processes", (json_int_t)l->max_processes, "max_cpu_ms",
                         (json_int_t)l->max_cpu_ms, "max_open_files", (json_int_t)l->max_open_files, "max_file_bytes",
                         (json_int_t)l->max_file_bytes);
}

static json_t *required_json(const struct pv_plan *p)
{
        json_t *list = json_array();
        for (int d = 0; d < PV_DIMENSIONS; d++)
                if (p->required[d])
                        (void)json_array_append_new(list, json_string(pv_dimension_name((enum pv_dimension)d)));
        return list;
}

static size_t count(char *const *v)
{
        size_t n = 0;
        while (v && v[n])
                n++;
        return n;
}

json_t *pv_job_plan_json(const struct pv_plan *p)
{
        json_t *j = json_pack("{s:o, s:s, s:o, s:o, s:o, s:b, s:b, s:b, s:b, s:b, s:s}", "argv",
                              bytes_list(p->argv, count(p->argv)), "executor", "host", "workspace",
                              pv_json_bytes(p->workspace), "cwd", pv_json_bytes(p->cwd), "home", pv_json_bytes(p->home),
                              "workspace_is_git", p->workspace_is_git, "safe", p->safe, "strict", p->strict, "staged",
                              p->staged, "allow_userns", p->allow_userns, "stage_backend", backends[p->stage_backend]);
        pv_auto_json more = json_pack(
                "{s:s, s:s, s:o, s:s, s:s, s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o, s:o}}",
                "filesystem", filesystems[p->filesystem], "network", networks[p->net], "network_rules",
                pv_job_network_json(p), "home_mode", homes[p->home_mode], "stdio", stdios[p->stdio], "stage_max_bytes",
                (json_int_t)p->stage_max_bytes, "stage_max_stop", p->stage_max_stop, "limits", limits_json(&p->limits),
                "roots", roots_json(p), "mounts", mounts_json(p), "devices", bytes_list(p->devices.v, p->devices.n),
                "hidden", bytes_list(p->hidden.v, p->hidden.n), "masks", bytes_list(p->masks.v, p->masks.n), "required",
                required_json(p), "environment", "names", names_of(&p->env), "passed",
                bytes_list(p->env_passed.v, p->env_passed.n), "injected",
                bytes_list(p->env_injected.v, p->env_injected.n));
        if (j && more &&
            (json_object_set_new(more, "services", services_json(p)) < 0 ||
             json_object_set_new(more, "profile", profile_json(p)) < 0 ||
             json_object_set_new(more, "kept", kept_json(p)) < 0 ||
             json_object_set_new(more, "asked", asked_json(p)) < 0)) {
                json_decref(j);
                return NULL;
        }
        if (!j || !more || json_object_update(j, more) < 0) {
                json_decref(j);
                return NULL;
        }
        return j;
}

/* Reading: j is the plan's object; every function names the member that is wrong. */

static int get_choice(const json_t *j, const char *key, const char *const *choices, int *out, struct pv_err *err)
{
        const char *text = NULL;
        if (pv_json_get_str(j, key, &text, err) < 0)
                return -1;
        for (int i = 0; choices[i]; i++) {
                if (pv_streq(text, choices[i])) {
                        *out = i;
                        return 0;
                }
        }
        return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" is \"%s\", which is not known", key, text);
}

static int get_path(const json_t *j, const char *key, char **out, struct pv_err *err)
{
        if (pv_json_get_bytes(json_object_get(j, key), out, err) < 0)
                return pv_err_wrap(err, "\"%s\"", key);
        if ((*out)[0] != '/')
                return pv_err_set(err, PV_ERR_INPUT, 0, "\"%s\" is not an absolute path", key);
        return 0;
}

static int get_list(const json_t *j, const char *key, size_t most, struct pv_strv *out, struct pv_err *err)
{
        json_t *list = NULL;
        if (pv_json_get_array(j, key, most, &list, err) < 0)
                return -1;
        for (size_t i = 0; i < json_array_size(list); i++) {
                char *s = NULL;
                if (pv_json_get_bytes(json_array_get(list, i), &s, err) < 0)
                        return pv_err_wrap(err, "\"%s\"", key);
                pv_strv_take(out, s);
        }
        return 0;
}

static int get_limits(const json_t *j, struct pv_limits *l, struct pv_err *err)
{
        struct {
                const char *key;
                uint64_t *to;
        } const field[] = {
                { "timeout_ms", &l->timeout_ms },         { "memory_bytes", &l->memory_bytes },
                { "max_processes", &l->max_processes },   { "max_cpu_ms", &l->max_cpu_ms },
                { "max_open_files", &l->max_open_files }, { "max_file_bytes", &l->max_file_bytes },
        };
        for (size_t i = 0; i < sizeof field / sizeof *field; i++) {
                int64_t v = 0;
                if (pv_json_get_int(json_object_get(j, "limits"), field[i].key, INT64_MIN, INT64_MAX, &v, err) < 0)
                        return -1;
                *field[i].to = (uint64_t)v;
        }
        return 0;
}

static int get_roots(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        json_t *list = NULL;
        if (pv_json_get_array(j, "roots", LIST_MAX, &list, err) < 0)
                return -1;
        p->roots = pv_calloc(json_array_size(list) + 1, sizeof *p->roots);
        for (size_t i = 0; i < json_array_size(list); i++) {
                const json_t *root = json_array_get(list, i);
                struct pv_root *r = &p->roots[p->n_roots++];
                int kind = 0;
                if (get_choice(root, "kind", root_kinds, &kind, err) < 0 ||
                    get_path(root, "target", &r->target, err) < 0 || get_path(root, "view", &r->view, err) < 0)
                        return pv_err_wrap(err, "\"roots\"");
                r->kind = (enum pv_root_kind)kind;
        }
        return 0;
}

static int get_mounts(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        json_t *list = NULL;
        if (pv_json_get_array(j, "mounts", LIST_MAX, &list, err) < 0)
                return -1;
        p->mounts = pv_calloc(json_array_size(list) + 1, sizeof *p->mounts);
        for (size_t i = 0; i < json_array_size(list); i++) {
                const json_t *mount = json_array_get(list, i);
                struct pv_mount *m = &p->mounts[p->n_mounts++];
                int access = 0;
                if (get_choice(mount, "access", accesses, &access, err) < 0 ||
                    get_path(mount, "src", &m->src, err) < 0 || get_path(mount, "dst", &m->dst, err) < 0)
                        return pv_err_wrap(err, "\"mounts\"");
                const json_t *named = json_object_get(mount, "named"); /* a job from before there was one has none */
                if (named && !json_is_null(named) && get_path(mount, "named", &m->named, err) < 0)
                        return pv_err_wrap(err, "\"mounts\"");
                m->access = (enum pv_mount_access)access;
                const char *by = json_string_value(json_object_get(mount, "by"));
                m->by_profile = by && pv_streq(by, "profile");
                m->cleaned = json_is_true(json_object_get(mount, "cleaned"));
        }
        return 0;
}

static int get_services(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        json_t *list = NULL;
        if (!json_object_get(j, "services")) /* a job from before they were refused */
                return 0;
        if (pv_json_get_array(j, "services", LIST_MAX, &list, err) < 0)
                return -1;
        p->services = pv_calloc(json_array_size(list) + 1, sizeof *p->services);
        for (size_t i = 0; i < json_array_size(list); i++) {
                pv_auto_strv opens = { 0 };
                const json_t *one = json_array_get(list, i);
                struct pv_service *s = &p->services[p->n_services++];
                if (pv_json_get_bytes(json_object_get(one, "what"), &s->what, err) < 0 ||
                    get_path(one, "path", &s->path, err) < 0 || get_list(one, "opens", PV_DIMENSIONS, &opens, err) < 0)
                        return pv_err_wrap(err, "\"services\"");
                s->device = json_is_true(json_object_get(one, "device"));
                for (int d = 0; d < PV_DIMENSIONS; d++)
                        if (pv_strv_has(&opens, pv_dimension_name((enum pv_dimension)d)))
                                s->opens |= 1U << d;
        }
        return 0;
}

static int get_profile(const json_t *j, struct pv_plan_profile *p, struct pv_err *err)
{
        const json_t *inner = json_object_get(j, "inner_sandbox");
        if (!j || json_is_null(j))
                return 0;
        if (pv_json_get_bytes(json_object_get(j, "name"), &p->name, err) < 0 ||
            get_path(j, "file", &p->path, err) < 0 || get_list(j, "hosts", LIST_MAX, &p->hosts, err) < 0 ||
            get_list(j, "pass_env", LIST_MAX, &p->pass_env, err) < 0 ||
            (inner && !json_is_null(inner) && pv_json_get_bytes(inner, &p->inner_sandbox, err) < 0))
                return pv_err_wrap(err, "\"profile\"");
        return 0;
}

/* A job from before anything was kept has none. */
static int get_kept(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        json_t *list = NULL;
        const json_t *dir = json_object_get(j, "cache_dir");
        if (!j)
                return 0;
        if (pv_json_get_array(j, "state", LIST_MAX, &list, err) < 0)
                return -1;
        p->state = pv_calloc(json_array_size(list) + 1, sizeof *p->state);
        for (size_t i = 0; i < json_array_size(list); i++) {
                const json_t *one = json_array_get(list, i);
                struct pv_kept *k = &p->state[p->n_state++];
                if (get_path(one, "src", &k->src, err) < 0 || get_path(one, "dst", &k->dst, err) < 0 ||
                    pv_json_get_bytes(json_object_get(one, "rel"), &k->rel, err) < 0)
                        return pv_err_wrap(err, "\"state\"");
        }
        if (get_list(j, "caches", LIST_MAX, &p->caches, err) < 0 ||
            (json_object_get(j, "toolchains") && get_list(j, "toolchains", LIST_MAX, &p->toolchains, err) < 0))
                return -1;
        return json_is_null(dir) ? 0 : get_path(j, "cache_dir", &p->cache_dir, err);
}

/* A job of before has none: there the person is taken to have passed what no profile says. */
static int get_asked(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        const json_t *profile = json_object_get(j, "profile");
        json_int_t arguments = json_integer_value(json_object_get(j, "arguments"));
        p->profile.n_arguments = arguments > 0 ? (size_t)arguments : 0;
        p->no_state = json_is_true(json_object_get(j, "no_state"));
        p->no_caches = json_is_true(json_object_get(j, "no_caches"));
        for (size_t i = 0; !j && i < p->env_passed.n; i++)
                if (!pv_strv_has(&p->profile.pass_env, p->env_passed.v[i]))
                        pv_strv_add(&p->env_asked, p->env_passed.v[i]);
        if ((profile && !json_is_null(profile) && pv_json_get_bytes(profile, &p->profile.asked, err) < 0) ||
            (j && get_list(j, "pass_env", ARGS_MAX, &p->env_asked, err) < 0))
                return pv_err_wrap(err, "\"asked\"");
        return 0;
}

static int get_modes(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        int filesystem = 0, net = 0, home = 0, stdio = 0;
        if (get_choice(j, "filesystem", filesystems, &filesystem, err) < 0 ||
            get_choice(j, "network", networks, &net, err) < 0 || get_choice(j, "home_mode", homes, &home, err) < 0 ||
            get_choice(j, "stdio", stdios, &stdio, err) < 0)
                return -1;
        int backend = PV_STAGE_BACKEND_AUTO;
        if (json_object_get(j, "stage_backend") && get_choice(j, "stage_backend", backends, &backend, err) < 0)
                return -1;
        p->stage_backend = (enum pv_stage_backend)backend;
        p->filesystem = (enum pv_filesystem)filesystem;
        p->net = (enum pv_net_mode)net;
        p->home_mode = (enum pv_home_mode)home;
        p->stdio = (enum pv_stdio)stdio;
        /* A job of before has none. */
        json_int_t most = json_integer_value(json_object_get(j, "stage_max_bytes"));
        p->stage_max_bytes = most > 0 ? (uint64_t)most : 0;
        p->stage_max_stop = json_is_true(json_object_get(j, "stage_max_stop"));
        p->workspace_is_git = json_is_true(json_object_get(j, "workspace_is_git"));
        p->safe = json_is_true(json_object_get(j, "safe"));
        p->strict = json_is_true(json_object_get(j, "strict"));
        p->staged = json_is_true(json_object_get(j, "staged"));
        p->allow_userns = json_is_true(json_object_get(j, "allow_userns"));
        return 0;
}

static int get_required(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        pv_auto_strv names = { 0 };
        if (get_list(j, "required", PV_DIMENSIONS, &names, err) < 0)
                return -1;
        for (int d = 0; d < PV_DIMENSIONS; d++)
                p->required[d] = pv_strv_has(&names, pv_dimension_name((enum pv_dimension)d));
        return 0;
}

static int parse(const json_t *j, struct pv_plan *p, struct pv_err *err)
{
        pv_auto_strv argv = { 0 };
        const json_t *environment = json_object_get(j, "environment");
        if (get_list(j, "argv", ARGS_MAX, &argv, err) < 0)
                return -1;
        p->argv = argv.v ? argv.v : pv_calloc(1, sizeof *p->argv);
        argv = (struct pv_strv){ 0 };
        if (get_path(j, "workspace", &p->workspace, err) < 0 || get_path(j, "cwd", &p->cwd, err) < 0 ||
            get_path(j, "home", &p->home, err) < 0 || get_modes(j, p, err) < 0 || get_limits(j, &p->limits, err) < 0 ||
            pv_job_network_read(json_object_get(j, "network_rules"), p, err) < 0 || get_roots(j, p, err) < 0 ||
            get_mounts(j, p, err) < 0 || get_profile(json_object_get(j, "profile"), &p->profile, err) < 0 ||
            get_kept(json_object_get(j, "kept"), p, err) < 0 || get_services(j, p, err) < 0 ||
            get_required(j, p, err) < 0)
                return -1;
        if (get_list(j, "devices", LIST_MAX, &p->devices, err) < 0 ||
            get_list(j, "hidden", LIST_MAX, &p->hidden, err) < 0 ||
            get_list(j, "masks", LIST_MAX, &p->masks, err) < 0 ||
            get_list(environment, "names", ARGS_MAX, &p->env, err) < 0 ||
            get_list(environment, "passed", ARGS_MAX, &p->env_passed, err) < 0 ||
            get_list(environment, "injected", ARGS_MAX, &p->env_injected, err) < 0 ||
            get_asked(json_object_get(j, "asked"), p, err) < 0)
                return -1;
        return 0;
}

int pv_job_plan(const struct pv_job *job, struct pv_plan **out, struct pv_err *err)
{
        pv_auto_plan p = pv_calloc(1, sizeof *p);
        if (parse(json_object_get(job->request, "plan"), p, err) < 0)
                return pv_err_wrap(err, "job %s is damaged: %s: \"plan\"", job->id, PV_JOB_REQUEST);
        *out = pv_steal(&p);
        return 0;
}
