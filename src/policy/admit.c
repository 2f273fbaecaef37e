/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Request to plan, in the order in which later steps need earlier ones: what is refused outright; the dimensions
 * (staging, file system, network) that the options and presets ask for; the workspace and HOME; what is granted and
 * what is hidden; the environment; and last which dimensions must be enforced.
 */
#include "policy/admit_internal.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/passwd.h"
#include "base/path.h"
#include "policy/env.h"
#include "policy/gitperson.h"
#include "policy/grant.h"
#include "policy/kept.h"
#include "policy/network.h"
#include "policy/outside.h"
#include "policy/presets.h"
#include "policy/services.h"

static int contradiction(struct pv_err *err, const char *one, const char *other)
{
        return pv_err_set(err, PV_ERR_USAGE, 0, "%s and %s contradict each other", one, other);
}

static int later(struct pv_err *err, const char *option, const char *instead)
{
        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "%s: not in this version", option);
        return pv_err_hint(err, "%s", instead);
}

static int check_contradictions(struct admission *a, struct pv_err *err)
{
        const struct pv_request *r = a->request;
        if (r->executor == PV_REQUEST_EXECUTOR_CONTAINER || r->executor == PV_REQUEST_EXECUTOR_VM)
                return later(err, r->executor == PV_REQUEST_EXECUTOR_VM ? "--executor vm" : "--executor container",
                             "leave it out: --safe confines the command on this system, without an image");
        if (r->safe && r->filesystem == PV_REQUEST_FS_HOST)
                return contradiction(err, "--safe", "--filesystem host");
        if (r->continue_job && r->stage && *r->stage)
                return contradiction(err, "--continue", "--stage DIR");
        return 0;
}

#define STAGE_MAX_DEFAULT (UINT64_C(5) << 30)

/* SIZE[:warn|:stop]; 0 is no limit. */
static int set_stage_max(struct admission *a, struct pv_err *err)
{
        const char *text = a->request->stage_max_size;
        struct pv_plan *p = a->plan;
        p->stage_max_bytes = STAGE_MAX_DEFAULT; /* what is not staged keeps it without more ado */
        if (!text)
                return 0;
        const char *colon = strchr(text, ':');
        pv_auto_free char *size = pv_strndup(text, colon ? (size_t)(colon - text) : strlen(text));
        p->stage_max_stop = colon && pv_streq(colon, ":stop");
        if (colon && !p->stage_max_stop && !pv_streq(colon, ":warn"))
                return pv_err_set(err, PV_ERR_USAGE, 0, "--stage-max-size %s: neither :warn nor :stop", text);
        if (pv_parse_size(size, &p->stage_max_bytes, err) < 0)
                return pv_err_wrap(err, "--stage-max-size");
        return 0;
}

static void set_dimensions(struct admission *a)
{
        const struct pv_request *r = a->request;
        struct pv_plan *p = a->plan;
        p->safe = r->safe;
        p->strict = r->strict;
        p->allow_userns = r->allow_userns;
        p->no_state = r->no_state;
        p->no_caches = r->no_caches;
        p->profile.asked = r->profile ? pv_strdup(r->profile) : NULL;
        p->staged = (r->safe && !r->unstaged) || r->stage || r->continue_job;
        p->stage_backend = r->stage_backend == PV_REQUEST_STAGE_KERNEL ? PV_STAGE_BACKEND_KERNEL
                           : r->stage_backend == PV_REQUEST_STAGE_FUSE ? PV_STAGE_BACKEND_FUSE
                                                                       : PV_STAGE_BACKEND_AUTO;
        p->filesystem = r->filesystem == PV_REQUEST_FS_SANDBOX || (!r->filesystem && (p->staged || p->safe))
                                ? PV_FS_SANDBOX
                                : PV_FS_HOST;
        p->stdio = r->stdio == PV_REQUEST_STDIO_CAPTURE ? PV_STDIO_CAPTURE : PV_STDIO_INHERIT;
        p->limits = (struct pv_limits){
                .timeout_ms = r->timeout,
                .memory_bytes = r->memory,
                .max_processes = r->max_processes,
                .max_cpu_ms = r->max_cpu_time,
                .max_open_files = r->max_open_files,
                .max_file_bytes = r->max_file_size,
        };
}

/* HOME as a real path; from passwd(5) when the variable is not set. */
static void find_home(struct admission *a)
{
        const char *home = pv_env_get(a->around->environment, "HOME");
        pv_auto_free char *listed = NULL;
        if (!home || home[0] != '/') {
                listed = pv_passwd_home(PV_PASSWD, geteuid());
                home = listed ? listed : "/nonexistent";
        }
        struct stat st;
        char *real = realpath(home, NULL);
        a->home_exists = real && stat(real, &st) == 0 && S_ISDIR(st.st_mode);
        a->plan->home = real ? real : pv_path_normalise(home);
}

static int find_workspace(struct admission *a, struct pv_err *err)
{
        struct pv_plan *p = a->plan;
        struct pv_workspace *w = &a->place;
        if (pv_workspace_find(a->request->workspace, pv_env_get(a->around->environment, "PWD"), p->home, w, err) < 0)
                return -1;
        p->workspace = pv_strdup(w->path);
        p->workspace_is_git = w->is_git;
        /* In a sandbox a name from outside of the workspace may lead nowhere; the real one is always there. */
        bool logical = w->logical && (p->filesystem == PV_FS_HOST || pv_path_is_within(w->logical, w->path));
        p->cwd = pv_strdup(logical ? w->logical : w->cwd);
        if (w->home_skipped)
                pv_admission_note(a, "workspace: %s (its git top level holds the whole home directory)", w->path);
        else if (!pv_streq(w->path, w->cwd))
                pv_admission_note(a, "workspace: %s (git top level)", w->path);
        if (w->git_stray && p->filesystem == PV_FS_SANDBOX)
                pv_admission_note(a, "git directory %s does not name this workspace as its own: it is not shown",
                                  w->git_stray);
        return 0;
}

static int check_workspace(const struct admission *a, struct pv_err *err)
{
        static const char *const kernel[] = { "/proc", "/sys", "/dev" };
        const struct pv_plan *p = a->plan;
        if (!p->staged && p->filesystem == PV_FS_HOST)
                return 0;
        if (pv_streq(p->workspace, "/")) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "workspace: / is the whole machine");
                return pv_err_hint(err, "cd into a project, or name one with --workspace DIR");
        }
        for (size_t i = 0; i < sizeof kernel / sizeof *kernel; i++)
                if (pv_path_is_within(p->workspace, kernel[i]))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "workspace: %s holds no files to work on",
                                          p->workspace);
        if (p->staged && access(p->workspace, W_OK) < 0) {
                (void)pv_err_set(err, PV_ERR_SYS, errno,
                                 "workspace: %s cannot be written, so nothing could ever be "
                                 "applied",
                                 p->workspace);
                return pv_err_hint(err, "work in a copy, or run with --filesystem sandbox and without --stage");
        }
        return 0;
}

/* Where the workspace holds HOME, HOME is seen as part of it. */
static int set_home(struct admission *a, struct pv_err *err)
{
        struct pv_plan *p = a->plan;
        bool in_workspace = pv_path_is_within(p->home, p->workspace);
        if (p->filesystem == PV_FS_HOST)
                return 0; /* PV_HOME_HOST */
        if ((p->safe || p->strict) && in_workspace) {
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                 "sensitive paths: the workspace %s holds the home directory, whose credential "
                                 "stores cannot be hidden then",
                                 p->workspace);
                return pv_err_hint(err, "cd into a project, or name one with --workspace DIR");
        }
        if (in_workspace) {
                pv_admission_note(a, "HOME is in the workspace %s: the credential stores in it are shown",
                                  p->workspace);
                return 0;
        }
        if (pv_streq(p->home, "/")) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "HOME: / cannot be made private");
                return pv_err_hint(err, "set HOME to a directory of its own");
        }
        p->home_mode = p->safe && a->home_exists ? PV_HOME_COW : PV_HOME_EMPTY;
        return 0;
}

static int add_roots(struct admission *a, struct pv_err *err)
{
        struct pv_plan *p = a->plan;
        const char *git_dir = a->place.git_dir;
        if (p->staged && (pv_grant_add_root(p, PV_ROOT_WORKSPACE, p->workspace, p->workspace, err) < 0 ||
                          (git_dir && pv_grant_add_root(p, PV_ROOT_GIT_DIR, git_dir, git_dir, err) < 0)))
                return -1;
        if (p->staged || !git_dir || p->filesystem == PV_FS_HOST)
                return 0;
        /* Not staged: the git directory is shown as the workspace is, and changed directly. */
        p->mounts = pv_calloc(1, sizeof *p->mounts);
        p->mounts[p->n_mounts++] =
                (struct pv_mount){ .src = pv_strdup(git_dir), .dst = pv_strdup(git_dir), .access = PV_MOUNT_WRITE };
        return 0;
}

/* Layers below what they are to cover would be lower and upper at once. */
static int check_stage_place(const struct admission *a, struct pv_err *err)
{
        const struct pv_plan *p = a->plan;
        const char *place = a->around->stage_dir ? a->around->stage_dir : a->around->store;
        pv_auto_free char *real = place ? realpath(place, NULL) : NULL;
        for (size_t i = 0; place && i < p->n_roots; i++) {
                const char *target = p->roots[i].target;
                if (!pv_path_is_within(real ? real : place, target))
                        continue;
                (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0, "stage: %s lies in %s, which is to be staged", place,
                                 target);
                return a->around->stage_dir
                               ? pv_err_hint(
                                         err,
                                         "--stage alone keeps it in the job's own directory; or name one outside of %s",
                                         target)
                               : pv_err_hint(err, "--stage DIR with a directory on the same file system, outside of %s",
                                             target);
        }
        return 0;
}

/* The store in use, the stage's place, and where stores are by default: one that is not in use has logins, too. */
#define ALWAYS_THERE 2 /* of the list below: the run makes them */
static int add_hidden(struct admission *a, struct pv_err *err)
{
        struct pv_plan *p = a->plan;
        const char *state = pv_env_get(a->around->environment, "XDG_STATE_HOME");
        pv_auto_free char *usual = pv_path_join(p->home, ".local/state/pvisor");
        pv_auto_free char *moved = state && state[0] == '/' ? pv_path_join(state, "pvisor") : NULL;
        const char *const paths[] = { a->around->store, a->around->stage_dir, moved, usual };
        for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
                if (!paths[i])
                        continue;
                if (i >= ALWAYS_THERE && access(paths[i], F_OK) < 0) {
                        pv_strv_add(&p->unmade, paths[i]);
                        continue;
                }
                /* What exists of it is resolved: the view is made of real paths. */
                pv_auto_free char *real = realpath(paths[i], NULL);
                const char *path = real ? real : paths[i];
                if (pv_path_is_within(p->workspace, path)) {
                        (void)pv_err_set(err, PV_ERR_USAGE, 0, "workspace: %s lies in pVisor's own %s", p->workspace,
                                         path);
                        return pv_err_hint(err, "look at a job's files with `pvisor inspect`");
                }
                bool known = pv_strv_has(&p->hidden, path);
                for (size_t k = 0; i >= ALWAYS_THERE && k < p->hidden.n; k++)
                        known = known || pv_path_is_within(path, p->hidden.v[k]);
                if (!known)
                        pv_strv_add(&p->hidden, path);
        }
        return 0;
}

static bool is_granted(const struct pv_plan *p, const char *path)
{
        for (size_t i = 0; i < p->n_mounts; i++)
                if (pv_streq(p->mounts[i].dst, path) || (p->mounts[i].named && pv_streq(p->mounts[i].named, path)))
                        return true;
        return false;
}

static bool is_in_toolchain(const struct pv_plan *p, const char *rel)
{
        for (size_t i = 0; i < p->toolchains.n; i++) {
                size_t n = strlen(p->toolchains.v[i]);
                if (strncmp(rel, p->toolchains.v[i], n) == 0 && rel[n] == '/')
                        return true;
        }
        return false;
}

/* The launcher follows the links that some of these are; a path that is mounted on purpose is not hidden. */
static int add_masks(struct admission *a, struct pv_err *err)
{
        struct pv_plan *p = a->plan;
        pv_auto_strv all = { 0 };
        if (p->home_mode != PV_HOME_COW && p->toolchains.n == 0)
                return 0;
        pv_presets_add_masks(&all);
        for (size_t i = 0; i < all.n; i++) {
                pv_auto_free char *path = pv_path_join(p->home, all.v[i]);
                if (p->safe && pv_path_is_within(p->workspace, path)) {
                        (void)pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                         "sensitive paths: the workspace %s lies in %s, which --safe hides",
                                         p->workspace, path);
                        return pv_err_hint(err, "work elsewhere, or without --safe");
                }
                if (!is_granted(p, path) && (p->home_mode == PV_HOME_COW || is_in_toolchain(p, all.v[i])))
                        pv_strv_add(&p->masks, all.v[i]);
        }
        return 0;
}

/* What the person ignores everywhere, in their own words, where their HOME is not. */
static void add_git_ignores(struct admission *a)
{
        struct pv_plan *p = a->plan;
        struct stat st;
        pv_auto_gitperson who = { 0 };
        if (p->home_mode != PV_HOME_EMPTY || !p->workspace_is_git)
                return;
        pv_auto_free char *git_dir = pv_outside_git_dir(p);
        pv_gitperson_read(p->home, pv_env_get(a->around->environment, "XDG_CONFIG_HOME"), git_dir, &who);
        pv_auto_free char *real = who.excludes ? realpath(who.excludes, NULL) : NULL;
        if (!real || pv_outside_is_shown(p, who.excludes) || stat(real, &st) < 0 || !S_ISREG(st.st_mode))
                return;
        for (size_t i = 0; i < p->hidden.n; i++)
                if (pv_path_is_within(real, p->hidden.v[i]))
                        return;
        p->mounts = pv_realloc(p->mounts, p->n_mounts + 1, sizeof *p->mounts);
        p->mounts[p->n_mounts++] =
                (struct pv_mount){ .src = pv_steal(&real), .dst = pv_strdup(who.excludes), .access = PV_MOUNT_READ };
}

/*
 * What a service or a device of the host opens cannot be enforced: --safe gives it up at the person's word, --strict
 * does not.
 */
static int give_up_opened(struct pv_plan *p, struct pv_err *err)
{
        for (size_t i = 0; i < p->n_services; i++) {
                const struct pv_service *s = &p->services[i];
                for (int d = 0; d < PV_DIMENSIONS; d++) {
                        if (!p->required[d] || !(s->opens & 1U << d))
                                continue;
                        if (p->strict)
                                return pv_err_set(err, PV_ERR_UNSUPPORTED, 0,
                                                  "--strict: %s cannot be enforced: %s %s shows %s",
                                                  pv_dimension_title((enum pv_dimension)d),
                                                  s->device ? "--device" : "--mount", s->path, s->what);
                        p->required[d] = false;
                }
        }
        return 0;
}

static int set_required(struct pv_plan *p, struct pv_err *err)
{
        bool sandbox = p->filesystem == PV_FS_SANDBOX, wanted = false;
        const bool asked[PV_DIMENSIONS] = {
                [PV_DIM_WORKSPACE_WRITES] = p->staged,
                [PV_DIM_HOST_WRITES] = sandbox,
                [PV_DIM_READS] = sandbox,
                [PV_DIM_SENSITIVE_PATHS] = sandbox && p->home_mode != PV_HOME_HOST,
                [PV_DIM_NETWORK] = p->net != PV_NET_AMBIENT,
                [PV_DIM_CREDENTIALS] = sandbox,
                [PV_DIM_SUBPROCESSES] = sandbox || p->staged,
                [PV_DIM_RESOURCES] = pv_limits_any(&p->limits) && p->strict,
        };
        if (!p->safe && !p->strict)
                return 0;
        for (int d = 0; d < PV_DIMENSIONS; d++) {
                p->required[d] = asked[d];
                wanted = wanted || asked[d];
        }
        if (wanted)
                return give_up_opened(p, err);
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "--strict: this run asks for no limit that could be enforced");
        return pv_err_hint(err, "add --safe, or --stage, --filesystem sandbox, --overlaynet-deny-all or a limit");
}

static int admit(struct admission *a, char *const *argv, struct pv_err *err)
{
        const struct pv_request *r = a->request;
        if (!argv || !argv[0] || !*argv[0]) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "run: no command is given");
                return pv_err_hint(err, "pvisor run [options] -- COMMAND [ARG...]");
        }
        pv_plan_set_argv(a->plan, argv);
        if (check_contradictions(a, err) < 0)
                return -1;
        set_dimensions(a);
        find_home(a);
        if (set_stage_max(a, err) < 0 || find_workspace(a, err) < 0 || pv_admission_choose_profile(a, err) < 0 ||
            pv_admit_network(r, a->around->environment, a->plan, err) < 0)
                return -1;
        if (r->safe && a->plan->net == PV_NET_AMBIENT)
                pv_admission_note(a, "--overlaynet off: the network is not restricted in this run");
        if (check_workspace(a, err) < 0 || set_home(a, err) < 0 || add_hidden(a, err) < 0 || add_roots(a, err) < 0 ||
            pv_grant_add_mounts(a->plan, &r->mount, a->around->environment, r->i_know, err) < 0 ||
            check_stage_place(a, err) < 0 || pv_grant_add_devices(a->plan, &r->device, r->i_know, err) < 0)
                return -1;
        pv_kept_add_toolchains(a->plan, pv_env_get(a->around->environment, "PATH"));
        if (add_masks(a, err) < 0)
                return -1;
        add_git_ignores(a);
        pv_admission_add_agent(a);
        if (pv_admission_set_environment(a, err) < 0 || set_required(a->plan, err) < 0)
                return -1;
        for (size_t i = 0; i < a->plan->n_services; i++)
                pv_admission_note(a, "%s is shown (%s): what it opens is not enforced in this run",
                                  a->plan->services[i].what, a->plan->services[i].path);
        pv_outside_note(a->plan, a->around->environment, a->notes);
        pv_admission_say_agent(a);
        return 0;
}

int pv_admit(const struct pv_request *request, const struct pv_surroundings *around, char *const *argv,
             struct pv_plan **out, struct pv_strv *notes, struct pv_err *err)
{
        pv_auto_plan plan = pv_calloc(1, sizeof *plan);
        struct admission a = { .request = request, .around = around, .plan = plan, .notes = notes };
        int r = admit(&a, argv, err);
        pv_workspace_fini(&a.place);
        pv_profile_free(a.profile);
        pv_mcp_fini(&a.servers);
        if (r == 0)
                *out = pv_steal(&plan);
        return r;
}
