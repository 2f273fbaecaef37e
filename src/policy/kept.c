/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/path.h"
#include "base/sha256.h"
#include "policy/presets.h"

/*
 * Caches of HOME, and the file at the workspace's top that calls for one. What belongs here: what a tool would fetch or
 * build again, checked when it is used. What does not: directories with programs that a shell would find (`bin`).
 */
static const struct {
        const char *path, *sign;
} caches[] = {
        { ".cache", "package.json" },
        { ".cache", "pyproject.toml" },
        { ".cache", "requirements.txt" },
        { ".cache", "setup.py" },
        { ".cache", "go.mod" },
        { ".npm", "package.json" },
        { ".local/share/pnpm/store", "pnpm-lock.yaml" },
        { ".bun/install/cache", "bun.lock" },
        { ".yarn/berry/cache", ".yarnrc.yml" },
        { ".cargo/registry", "Cargo.toml" },
        { ".cargo/git", "Cargo.toml" },
        { "go/pkg/mod", "go.mod" },
        { ".m2/repository", "pom.xml" },
        { ".gradle/caches", "build.gradle" },
        { ".gradle/caches", "build.gradle.kts" },
        { ".gradle/wrapper/dists", "gradlew" },
        { ".ivy2/cache", "build.sbt" },
        { ".composer/cache", "composer.json" },
        { ".pub-cache/hosted", "pubspec.yaml" },
        { ".hex/packages", "mix.exs" },
};

char *pv_kept_caches(const char *store)
{
        return pv_path_join(store, "caches");
}

char *pv_kept_caches_of(const char *store, const char *workspace, const char *profile)
{
        unsigned char hash[PV_SHA256_SIZE];
        char hex[2 * 16 + 1];
        pv_auto_str key = { 0 };
        pv_str_putf(&key, "%s//%s", workspace, profile ? profile : "none"); /* "//" is in no normalised path */
        pv_sha256_bytes(key.s, key.len, hash);
        pv_hex(hash, 16, hex);
        return pv_strf("%s/caches/%s", store, hex);
}

char *pv_kept_state_of(const char *store, const char *name)
{
        return pv_strf("%s/agents/%s", store, name);
}

static bool overlap(const char *a, const char *b)
{
        return pv_path_is_within(a, b) || pv_path_is_within(b, a);
}

/* The workspace, another staged directory or a person's mount that path lies in, or that lies in path; or NULL. */
static const char *in_the_way(const struct pv_plan *p, const char *path)
{
        if (overlap(path, p->workspace))
                return p->workspace;
        for (size_t i = 0; i < p->n_roots; i++)
                if (overlap(path, p->roots[i].view))
                        return p->roots[i].view;
        for (size_t i = 0; i < p->n_mounts; i++)
                if (!p->mounts[i].by_profile && overlap(path, p->mounts[i].dst))
                        return p->mounts[i].dst;
        return NULL;
}

/*
 * Where ~/rel is in the view, which shows HOME with its links: the real path, its last names as they are when they do
 * not exist. NULL: a link that leads nowhere.
 */
static char *place_in_view(const struct pv_plan *p, const char *rel)
{
        struct stat st;
        pv_auto_free char *path = pv_path_join(p->home, rel);
        if (p->home_mode != PV_HOME_COW)
                return pv_steal(&path);
        pv_auto_free char *at = pv_strdup(path);
        for (;;) {
                pv_auto_free char *real = realpath(at, NULL);
                if (real)
                        return pv_strf("%s%s", real, path + strlen(at));
                if (lstat(at, &st) == 0 || errno != ENOENT)
                        return NULL;
                *strrchr(at, '/') = '\0';
        }
}

static void add_state(struct pv_plan *p, const struct pv_profile *profile, const char *store, struct pv_strv *notes)
{
        pv_auto_free char *top = pv_kept_state_of(store, profile->name);
        for (size_t i = 0; i < profile->state.n; i++) {
                const char *rel = profile->state.v[i];
                pv_auto_free char *dst = place_in_view(p, rel);
                const char *other = dst ? in_the_way(p, dst) : "a link that leads nowhere";
                if (other) {
                        pv_strv_take(notes, pv_strf("profile %s: what is written to ~/%s is not kept: %s is in its "
                                                    "place",
                                                    profile->name, rel, other));
                        continue;
                }
                p->state = pv_realloc(p->state, p->n_state + 1, sizeof *p->state);
                p->state[p->n_state++] =
                        (struct pv_kept){ .src = pv_path_join(top, rel), .dst = pv_steal(&dst), .rel = pv_strdup(rel) };
        }
}

/* A link may lead to a credential store, and an agent may have made the link. */
static bool is_secret(const struct pv_plan *p, const char *real)
{
        for (size_t i = 0; i < p->masks.n; i++) {
                pv_auto_free char *mask = pv_path_join(p->home, p->masks.v[i]);
                if (pv_path_is_within(real, mask))
                        return true;
        }
        for (size_t i = 0; i < p->hidden.n; i++)
                if (overlap(real, p->hidden.v[i]))
                        return true;
        return false;
}

/* Of the files that are hidden for the servers in them, what is left of one may be shown. */
static bool is_agent_settings(const struct pv_plan *p, const char *real)
{
        size_t n = strlen(p->home);
        return strncmp(real, p->home, n) == 0 && real[n] == '/' && pv_presets_is_agent_settings(real + n + 1);
}

/* The host's path for dst, when it is there and may be shown. */
static char *readable(const struct pv_plan *p, const char *path, const char *dst, bool cleaned)
{
        struct stat st;
        pv_auto_free char *real = realpath(path, NULL);
        if (!real || stat(real, &st) < 0 || !(S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && !cleaned)) ||
            in_the_way(p, dst) || (is_secret(p, real) && !(cleaned && is_agent_settings(p, real))))
                return NULL;
        return pv_steal(&real);
}

/* src is the caller's to set. */
static struct pv_mount *add_read(struct pv_plan *p, const char *dst)
{
        p->mounts = pv_realloc(p->mounts, p->n_mounts + 1, sizeof *p->mounts);
        p->mounts[p->n_mounts] =
                (struct pv_mount){ .dst = pv_strdup(dst), .access = PV_MOUNT_READ, .by_profile = true };
        return &p->mounts[p->n_mounts++];
}

/* Shows the host's path read-only at dst. */
static void show(struct pv_plan *p, const char *path, const char *dst)
{
        char *real = readable(p, path, dst, false);
        if (real)
                add_read(p, dst)->src = real;
}

static char *place_of_setting(const struct pv_plan *p, const char *rel)
{
        for (size_t i = 0; i < p->n_state; i++) {
                size_t n = strlen(p->state[i].rel);
                if (strncmp(rel, p->state[i].rel, n) == 0 && rel[n] == '/')
                        return pv_path_join(p->state[i].dst, rel + n + 1);
        }
        return place_in_view(p, rel);
}

static void add_setting(struct pv_plan *p, const char *rel)
{
        pv_auto_free char *path = pv_path_join(p->home, rel);
        pv_auto_free char *dst = place_of_setting(p, rel);
        if (dst)
                show(p, path, dst);
}

bool pv_kept_find_setting(const struct pv_plan *plan, const char *rel, char **src, char **dst)
{
        pv_auto_free char *path = pv_path_join(plan->home, rel);
        pv_auto_free char *place = plan->home_mode == PV_HOME_HOST ? NULL : place_of_setting(plan, rel);
        char *real = place ? readable(plan, path, place, true) : NULL;
        if (!real)
                return false;
        *src = real;
        *dst = pv_steal(&place);
        return true;
}

void pv_kept_add_cleaned(struct pv_plan *plan, char *src, const char *dst, char *content)
{
        struct pv_mount *m = add_read(plan, dst);
        m->src = src;
        m->cleaned = true;
        m->content = content;
}

void pv_kept_add_profile(struct pv_plan *plan, const struct pv_profile *profile, const char *store,
                         const struct pv_request *request, struct pv_strv *notes)
{
        if (plan->home_mode == PV_HOME_HOST)
                return;
        if (!request->no_state && store)
                add_state(plan, profile, store, notes);
        for (size_t i = 0; i < profile->settings.n && !request->no_settings; i++)
                add_setting(plan, profile->settings.v[i]);
        for (size_t i = 0; i < profile->read.n; i++) {
                const char *text = profile->read.v[i];
                pv_auto_free char *path = *text == '~' ? pv_path_join(plan->home, text + 2) : pv_strdup(text);
                pv_auto_free char *dst = *text == '~' ? place_in_view(plan, text + 2) : pv_strdup(text);
                if (dst)
                        show(plan, path, dst);
        }
}

/* What is at ~/rel. A mount covers what it is meant to cover only where no link leads there. */
enum found { FOUND_DIR, FOUND_NOTHING, FOUND_OTHER };

/* {-1}, in which nothing is found, when it cannot be opened. */
static struct pv_pathfd open_top(const char *path)
{
        struct pv_err ignored = PV_ERR_INIT;
        struct pv_pathfd top = PV_PATHFD_INIT;
        (void)pv_path_open_root(path, &top, &ignored);
        return top;
}

static enum found look(struct pv_pathfd top, const char *rel)
{
        pv_auto_fd fd = top.fd < 0 ? -1 : pv_path_openat(top, rel, O_PATH | O_DIRECTORY, 0);
        if (fd >= 0)
                return FOUND_DIR;
        return top.fd >= 0 && errno == ENOENT ? FOUND_NOTHING : FOUND_OTHER;
}

static bool exists(const char *top, const char *rel)
{
        pv_auto_free char *path = pv_path_join(top, rel);
        return access(path, F_OK) == 0;
}

/* One of the list: `wanted` by a sign or a profile; an agent may come to need what the host has. */
static void add_cache(struct pv_plan *p, struct pv_pathfd home, struct pv_pathfd upper, const char *rel, bool wanted,
                      bool agent)
{
        pv_auto_free char *dst = pv_path_join(p->home, rel);
        enum found found = look(home, rel);
        if (found == FOUND_OTHER || !(wanted || (agent && found == FOUND_DIR) || look(upper, rel) == FOUND_DIR))
                return;
        for (size_t i = 0; i < p->caches.n; i++) {
                pv_auto_free char *other = pv_path_join(p->home, p->caches.v[i]);
                if (overlap(dst, other))
                        return;
        }
        /* A workspace in a cache is laid over it, later. */
        for (size_t i = 0; i < p->n_state; i++)
                if (overlap(dst, p->state[i].dst))
                        return;
        for (size_t i = 0; i < p->n_mounts; i++)
                if (pv_path_is_within(dst, p->mounts[i].dst))
                        return;
        for (size_t i = 0; i < p->n_roots; i++)
                if (pv_path_is_within(dst, p->roots[i].view))
                        return;
        pv_strv_add(&p->caches, rel);
}

void pv_kept_add_caches(struct pv_plan *plan, const struct pv_profile *profile, const char *store)
{
        if (plan->home_mode != PV_HOME_COW || !store)
                return;
        plan->cache_dir = pv_kept_caches_of(store, plan->workspace, profile ? profile->name : NULL);
        pv_auto_free char *layer = pv_path_join(plan->cache_dir, "upper");
        pv_auto_pathfd home = open_top(plan->home);
        pv_auto_pathfd upper = open_top(layer);
        for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
                add_cache(plan, home, upper, caches[i].path,
                          exists(plan->workspace, caches[i].sign) || (profile && pv_streq(caches[i].path, ".cache")),
                          profile != NULL);
        for (size_t i = 0; profile && i < profile->caches.n; i++)
                add_cache(plan, home, upper, profile->caches.v[i], true, true);
        if (plan->caches.n == 0)
                pv_plan_forget_caches(plan);
}

void pv_kept_list(const char *home, const struct pv_profile *profile, struct pv_strv *out)
{
        const struct pv_strv *const lists[] = { &profile->state, &profile->caches };
        for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
                pv_strv_take(out, pv_path_join(home, caches[i].path));
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
                for (size_t k = 0; k < lists[i]->n; k++)
                        pv_strv_take(out, pv_path_join(home, lists[i]->v[k]));
}

/*
 * Where toolchains live in a home directory, and what they need besides. What belongs here: programs that a package
 * manager of the person's installed. What is secret in them is a credential store (presets.c) and stays hidden.
 */
static const char *const toolchains[][8] = {
        { ".cargo", ".rustup" },
        { ".rustup" },
        { ".local/bin", ".local/lib", ".local/pipx", ".local/share/pipx", ".local/share/uv", ".local/share/claude",
          ".local/share/cursor-agent" },
        { ".nvm" },
        { ".fnm" },
        { ".local/share/fnm" },
        { ".local/share/mise" },
        { ".local/share/pnpm" },
        { ".nodenv" },
        { ".volta" },
        { ".npm-global" },
        { ".bun" },
        { ".deno" },
        { ".pyenv" },
        { ".rye" },
        { ".rbenv" },
        { ".asdf" },
        { ".sdkman" },
        { ".jenv" },
        { ".goenv" },
        { ".dotnet" },
        { ".ghcup" },
        { ".cabal" },
        { ".opam" },
        { ".juliaup" },
        { ".foundry" },
};

/* dir is a directory of PATH, relative to HOME. */
static void add_toolchains_of(struct pv_plan *p, struct pv_pathfd home, const char *dir)
{
        for (size_t i = 0; i < sizeof toolchains / sizeof *toolchains; i++) {
                size_t n = strlen(toolchains[i][0]);
                if (strncmp(dir, toolchains[i][0], n) != 0 || (dir[n] != '\0' && dir[n] != '/'))
                        continue;
                for (size_t k = 0; k < sizeof *toolchains / sizeof **toolchains && toolchains[i][k]; k++) {
                        pv_auto_free char *path = pv_path_join(p->home, toolchains[i][k]);
                        if (look(home, toolchains[i][k]) == FOUND_DIR && !in_the_way(p, path) &&
                            !pv_strv_has(&p->toolchains, toolchains[i][k]))
                                pv_strv_add(&p->toolchains, toolchains[i][k]);
                }
        }
}

void pv_kept_add_toolchains(struct pv_plan *plan, const char *path_list)
{
        size_t n = strlen(plan->home);
        if (plan->home_mode != PV_HOME_EMPTY)
                return;
        pv_auto_pathfd home = open_top(plan->home);
        for (const char *at = path_list; at && *at;) {
                size_t len = strcspn(at, ":");
                pv_auto_free char *dir = pv_strndup(at, len);
                at += len + (at[len] == ':');
                pv_auto_free char *real = dir[0] == '/' ? realpath(dir, NULL) : NULL;
                if (real && strncmp(real, plan->home, n) == 0 && real[n] == '/')
                        add_toolchains_of(plan, home, real + n + 1);
        }
}
