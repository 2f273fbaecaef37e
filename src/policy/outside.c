/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/outside.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/path.h"
#include "policy/env.h"
#include "policy/gitperson.h"

#define NAMES_MAX      4096 /* of one directory */
#define SAID_MAX       3    /* of one kind; more are counted */
#define ALTERNATES_MAX (64U << 10)

struct finding {
        const struct pv_plan *plan;
        struct pv_strv *notes;
        struct pv_strv seen; /* paths of one kind that were said, or are too many to say */
};

/* What every sandboxed view has of the machine. */
static const char *const system_dirs[] = { "/usr",   "/bin", "/sbin", "/lib",       "/lib32",
                                           "/lib64", "/etc", "/opt",  "/nix/store", "/gnu/store" };

bool pv_outside_is_shown(const struct pv_plan *p, const char *path)
{
        if (pv_path_is_within(path, p->workspace))
                return true;
        for (size_t i = 0; i < p->n_roots; i++)
                if (pv_path_is_within(path, p->roots[i].view))
                        return true;
        for (size_t i = 0; i < p->n_mounts; i++)
                if (pv_path_is_within(path, p->mounts[i].dst))
                        return true;
        for (size_t i = 0; i < sizeof system_dirs / sizeof *system_dirs; i++)
                if (pv_path_is_within(path, system_dirs[i]))
                        return true;
        bool there = p->home_mode == PV_HOME_COW && pv_path_is_within(path, p->home);
        for (size_t i = 0; i < p->toolchains.n; i++) {
                pv_auto_free char *tools = pv_path_join(p->home, p->toolchains.v[i]);
                there = there || pv_path_is_within(path, tools);
        }
        for (size_t i = 0; there && i < p->masks.n; i++) {
                pv_auto_free char *mask = pv_path_join(p->home, p->masks.v[i]);
                there = !pv_path_is_within(path, mask);
        }
        return there;
}

/* The first few by name, with what would show them. */
static void __attribute__((format(printf, 3, 4))) say(struct finding *f, const char *path, const char *fmt, ...)
{
        va_list ap;
        char *what = NULL;
        if (pv_strv_has(&f->seen, path))
                return;
        pv_strv_add(&f->seen, path);
        if (f->seen.n > SAID_MAX)
                return;
        va_start(ap, fmt);
        int n = vasprintf(&what, fmt, ap);
        va_end(ap);
        if (n >= 0)
                pv_strv_take(f->notes, pv_strf("%s, which is not shown; --mount %s:read shows it", what, path));
        free(what);
}

static void end_kind(struct finding *f, const char *what)
{
        if (f->seen.n > SAID_MAX)
                pv_strv_take(f->notes, pv_strf("%zu more %s", f->seen.n - SAID_MAX, what));
        pv_strv_fini(&f->seen);
        f->seen = (struct pv_strv){ 0 };
}

char *pv_outside_git_dir(const struct pv_plan *plan)
{
        struct stat st;
        for (size_t i = 0; i < plan->n_roots; i++)
                if (plan->roots[i].kind == PV_ROOT_GIT_DIR)
                        return pv_strdup(plan->roots[i].target);
        pv_auto_free char *dot_git = pv_path_join(plan->workspace, ".git");
        return stat(dot_git, &st) == 0 && S_ISDIR(st.st_mode) ? pv_steal(&dot_git) : pv_strdup(plan->workspace);
}

/* objects/info/alternates (gitrepository-layout(5)): a path a line, relative to objects/. */
static void find_alternates(struct finding *f, const char *git_dir)
{
        struct pv_err ignored = PV_ERR_INIT;
        size_t len = 0;
        pv_auto_free char *objects = pv_path_join(git_dir, "objects");
        pv_auto_free char *info = pv_path_join(objects, "info");
        pv_auto_free char *text = NULL;
        pv_auto_fd dir = open(info, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0 || pv_file_read_at(dir, "alternates", ALTERNATES_MAX, &text, &len, &ignored) < 0)
                return;
        char *rest = text;
        for (char *line; (line = strsep(&rest, "\n"));) {
                if (!*line || *line == '#')
                        continue;
                pv_auto_free char *path = line[0] == '/' ? pv_strdup(line) : pv_path_join(objects, line);
                pv_auto_free char *real = realpath(path, NULL);
                if (real && !pv_outside_is_shown(f->plan, real))
                        say(f, real, "git takes objects from %s", real);
        }
        end_kind(f, "places that git takes objects from");
}

/* In an empty HOME there is no configuration that could include anything. */
static void find_includes(struct finding *f, const char *git_dir, char *const *environment)
{
        pv_auto_gitperson person = { 0 };
        if (f->plan->home_mode != PV_HOME_COW)
                return;
        pv_gitperson_read(f->plan->home, pv_env_get(environment, "XDG_CONFIG_HOME"), git_dir, &person);
        for (size_t i = 0; i < person.includes.n; i++) {
                pv_auto_free char *real = realpath(person.includes.v[i], NULL);
                if (real && !pv_outside_is_shown(f->plan, real))
                        say(f, real, "your git configuration includes %s", real);
        }
        end_kind(f, "files that your git configuration includes");
        if (person.excludes && access(person.excludes, R_OK) == 0) {
                pv_auto_free char *real = realpath(person.excludes, NULL);
                if (real && !pv_outside_is_shown(f->plan, real))
                        say(f, real, "git ignores by %s", real);
                end_kind(f, "");
        }
}

/* By its text alone: most links of node_modules stay, and following each costs a run more than it is worth. */
static bool stays_in(const char *workspace, const char *dir, const char *path)
{
        char text[PATH_MAX];
        ssize_t n = readlink(path, text, sizeof text - 1);
        if (n < 0)
                return true; /* gone, or none */
        text[n] = '\0';
        pv_auto_free char *joined = text[0] == '/' ? pv_strdup(text) : pv_path_join(dir, text);
        pv_auto_free char *clean = pv_path_normalise(joined);
        return pv_path_is_within(clean, workspace);
}

/* Links of a directory that leave the view; scopes of packages (@name) are looked into. */
static void find_links(struct finding *f, const char *dir, const char *shown, bool scopes)
{
        size_t names = 0;
        pv_auto_dir d = opendir(dir);
        for (struct dirent *e; d && (e = readdir(d)) && names < NAMES_MAX; names++) {
                if (e->d_name[0] == '.' || (e->d_type != DT_LNK && !(scopes && e->d_name[0] == '@')))
                        continue;
                pv_auto_free char *path = pv_path_join(dir, e->d_name);
                pv_auto_free char *name = pv_path_join(shown, e->d_name);
                if (e->d_type == DT_DIR) {
                        find_links(f, path, name, false);
                        continue;
                }
                if (stays_in(f->plan->workspace, dir, path))
                        continue;
                pv_auto_free char *real = realpath(path, NULL);
                if (real && !pv_outside_is_shown(f->plan, real))
                        say(f, real, "%s is a link to %s", name, real);
        }
}

void pv_outside_note(const struct pv_plan *plan, char *const *environment, struct pv_strv *notes)
{
        struct finding f = { .plan = plan, .notes = notes };
        if (plan->filesystem == PV_FS_HOST)
                return;
        if (plan->workspace_is_git) {
                pv_auto_free char *git_dir = pv_outside_git_dir(plan);
                find_alternates(&f, git_dir);
                find_includes(&f, git_dir, environment);
        }
        pv_auto_free char *modules = pv_path_join(plan->workspace, "node_modules");
        find_links(&f, plan->workspace, "", false);
        find_links(&f, modules, "node_modules", true);
        end_kind(&f, "links to what is not shown");
}
