/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two kinds of view. Sandboxed: a new root that holds nothing but what is listed here, in this order: system
 * directories, /etc, devices, proc, private directories, and then, parents before children, what lies at paths of the
 * person's own: the directories of PATH, HOME, declared mounts, staged roots. Unsandboxed: the host's own root with the
 * staged roots laid over it and the job store masked.
 *
 * What must not be seen (the machine's secrets, the job store, under --safe the credential stores) is a list of
 * absolute paths. Each tree that is shown through an overlay hides what of the list lies in it; a bind cannot, and
 * gets masks mounted over what is there.
 */
#include "boundary/root.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include "base/path.h"
#include "boundary/entries.h"
#include "boundary/mask.h"
#include "boundary/secrets.h"

struct ctx {
        const struct pv_plan *plan;
        const struct pv_mountinfo *mounts;
        struct pv_view *view;
        struct pv_strv secrets; /* absolute */
};

/* ---- what must not be seen ---- */

static int add_secrets(struct ctx *c, const char *dir, struct pv_strv *masks, struct pv_err *err)
{
        if (pv_mask_prepare(dir, masks, &c->view->absent, err) < 0)
                return -1;
        for (size_t i = 0; i < masks->n; i++)
                pv_strv_take(&c->secrets, pv_path_join(dir, masks->v[i]));
        return 0;
}

static int list_secrets(struct ctx *c, struct pv_err *err)
{
        const struct pv_plan *p = c->plan;
        for (size_t i = 0; i < p->hidden.n; i++)
                pv_strv_add(&c->secrets, p->hidden.v[i]);
        if (p->filesystem == PV_FS_HOST)
                return 0;
        pv_auto_strv etc = { 0 }, home = { 0 };
        for (const char *const *s = pv_secrets_etc; *s; s++)
                pv_strv_add(&etc, *s);
        if (add_secrets(c, "/etc", &etc, err) < 0)
                return -1;
        for (size_t i = 0; i < p->masks.n; i++)
                pv_strv_add(&home, p->masks.v[i]);
        return home.n > 0 ? add_secrets(c, p->home, &home, err) : 0;
}

/* The secrets strictly below src, relative to it. Naming a secret itself as a mount is the person's word. */
static void secrets_below(const struct ctx *c, const char *src, struct pv_strv *out)
{
        size_t n = src[1] == '\0' ? 0 : strlen(src);
        for (size_t i = 0; i < c->secrets.n; i++) {
                const char *s = c->secrets.v[i];
                if (pv_path_is_within(s, src) && s[n] == '/' && s[n + 1])
                        pv_strv_add(out, s + n + 1);
        }
        pv_mask_tidy(out);
}

/* ---- the machine ---- */

static const char *const system_dirs[] = { "/usr",   "/bin",    "/sbin",      "/lib",      "/lib32",
                                           "/lib64", "/libx32", "/nix/store", "/gnu/store" };

static int add_system(struct ctx *c, struct pv_err *err)
{
        for (size_t i = 0; i < sizeof system_dirs / sizeof *system_dirs; i++) {
                struct stat st;
                char text[PATH_MAX];
                if (lstat(system_dirs[i], &st) < 0)
                        continue;
                if (!S_ISLNK(st.st_mode)) {
                        pv_view_add(c->view, PV_VIEW_SYSTEM, system_dirs[i], system_dirs[i]);
                        continue;
                }
                ssize_t n = readlink(system_dirs[i], text, sizeof text - 1);
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "read link %s", system_dirs[i]);
                text[n] = '\0';
                pv_view_add(c->view, PV_VIEW_LINK, text, system_dirs[i]);
        }
        return 0;
}

/* A directory shown read-only through an overlay that hides its secrets. */
static int add_read(struct ctx *c, const char *src, const char *dst, struct pv_err *err)
{
        pv_auto_strv masks = { 0 };
        secrets_below(c, src, &masks);
        return pv_entries_add(c->view, PV_VIEW_READ, src, dst, &masks, c->mounts, err);
}

/* In a container /etc has mounts below it, and hundreds of entries: a bind, with masks on the secrets there are. */
static int add_etc(struct ctx *c, struct pv_err *err)
{
        if (!pv_mountinfo_has_below(c->mounts, "/etc"))
                return add_read(c, "/etc", "/etc", err);
        pv_view_add(c->view, PV_VIEW_SYSTEM, "/etc", "/etc");
        for (const char *const *s = pv_secrets_etc; *s; s++) {
                pv_auto_free char *path = pv_path_join("/etc", *s);
                if (access(path, F_OK) == 0)
                        pv_view_add(c->view, PV_VIEW_MASK, NULL, path);
        }
        return 0;
}

static bool has_entries(const char *dir)
{
        pv_auto_dir d = opendir(dir);
        for (struct dirent *e; d && (e = readdir(d));)
                if (!pv_streq(e->d_name, ".") && !pv_streq(e->d_name, ".."))
                        return true;
        return false;
}

/* Where names are resolved by a file outside /etc (systemd-resolved), that one file, while there is a network. */
static void add_resolver(struct ctx *c)
{
        bool ambient = c->plan->net == PV_NET_AMBIENT || c->plan->net == PV_NET_PROXY;
        char *real = ambient ? realpath("/etc/resolv.conf", NULL) : NULL;
        const struct pv_view_step *s = real ? pv_view_at(c->view, real) : NULL;
        if (real && (!s || s->op == PV_VIEW_PRIVATE))
                pv_view_add(c->view, PV_VIEW_FILE, real, real);
        free(real);
}

/*
 * Under network rules names are pVisor's to resolve: a real address out of the host's own table would arrive without
 * its name, and no rule by name could hold it. The table counts all the same, outside, where names are resolved.
 */
static void mask_hosts(struct ctx *c)
{
        struct stat st;
        pv_auto_free char *real = c->plan->net == PV_NET_RULES ? realpath("/etc/hosts", NULL) : NULL;
        if (real && stat(real, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
                pv_view_add(c->view, PV_VIEW_MASK, NULL, real);
}

static const char *const devices[] = {
        "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"
};
static const char *const device_links[][2] = { { "/proc/self/fd", "/dev/fd" },
                                               { "/proc/self/fd/0", "/dev/stdin" },
                                               { "/proc/self/fd/1", "/dev/stdout" },
                                               { "/proc/self/fd/2", "/dev/stderr" },
                                               { "pts/ptmx", "/dev/ptmx" } };

static int add_devices(struct ctx *c, const char *tty, struct pv_err *err)
{
        pv_view_add(c->view, PV_VIEW_DIR, NULL, "/dev");
        for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
                pv_view_add(c->view, PV_VIEW_DEVICE, devices[i], devices[i]);
        for (size_t i = 0; i < sizeof device_links / sizeof *device_links; i++)
                pv_view_add(c->view, PV_VIEW_LINK, device_links[i][0], device_links[i][1]);
        pv_view_add(c->view, PV_VIEW_PTS, NULL, "/dev/pts");
        pv_view_add(c->view, PV_VIEW_PRIVATE, NULL, "/dev/shm")->mode = 01777;
        if (tty)
                pv_view_add(c->view, PV_VIEW_DEVICE, tty, "/dev/console");
        for (size_t i = 0; i < c->plan->devices.n; i++) {
                const char *path = c->plan->devices.v[i];
                struct stat st;
                if (stat(path, &st) < 0)
                        return pv_err_set(err, PV_ERR_USAGE, errno, "device %s", path);
                if (!S_ISCHR(st.st_mode) && !S_ISBLK(st.st_mode) && !S_ISDIR(st.st_mode))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "device %s: not a device", path);
                pv_view_add(c->view, PV_VIEW_DEVICE, path, path);
        }
        return 0;
}

static void add_private(struct ctx *c)
{
        pv_view_add(c->view, PV_VIEW_PRIVATE, NULL, "/tmp")->mode = 01777;
        pv_view_add(c->view, PV_VIEW_PRIVATE, NULL, "/var/tmp")->mode = 01777;
        pv_view_add(c->view, PV_VIEW_PRIVATE, NULL, "/run");
        pv_view_add(c->view, PV_VIEW_LINK, "/run", "/var/run");
}

/* ---- the person's own paths ---- */

/* One thing to show somewhere; sorted so that what lies below another comes after it. */
struct place {
        enum {
                PLACE_PATH,
                PLACE_HOME,
                PLACE_TOOLS,
                PLACE_CACHE,
                PLACE_STATE,
                PLACE_ROOT,
                PLACE_WORKSPACE,
                PLACE_MOUNT
        } what;
        size_t index;
        char *src;
        const char *dst;
};

struct places {
        struct place *v;
        size_t n;
};

static void places_fini(struct places *all)
{
        for (size_t i = 0; i < all->n; i++)
                free(all->v[i].src);
        free(all->v);
}
#define auto_places __attribute__((cleanup(places_fini))) struct places

static struct place *add_place(struct places *all, int what, const char *src, const char *dst)
{
        all->v = pv_realloc(all->v, all->n + 1, sizeof *all->v);
        struct place *p = &all->v[all->n++];
        *p = (struct place){ .what = what, .src = pv_strdup(src) };
        p->dst = dst ? dst : p->src;
        return p;
}

/* Stable: of two that are equally deep the one declared later covers. */
static void sort_places(struct places *all)
{
        for (size_t i = 1; i < all->n; i++) {
                struct place p = all->v[i];
                size_t j = i;
                for (; j > 0 && strlen(all->v[j - 1].dst) > strlen(p.dst); j--)
                        all->v[j] = all->v[j - 1];
                all->v[j] = p;
        }
}

/* The tree that the command works in, staged or not. */
static bool in_workspace(const struct pv_plan *p, const char *path)
{
        for (size_t i = 0; i < p->n_roots; i++)
                if (pv_path_is_within(path, p->roots[i].view))
                        return true;
        return p->n_roots == 0 && pv_path_is_within(path, p->workspace);
}

static bool home_is_shown(const struct pv_plan *p)
{
        return p->home && p->home[0] == '/' && p->home[1] && !in_workspace(p, p->home);
}

/* A directory of PATH that nothing else shows, and whose showing would not uncover HOME or the workspace. */
static bool wants_path_dir(const struct ctx *c, const struct places *all, const char *dir)
{
        const struct pv_plan *p = c->plan;
        const struct pv_view_step *s = pv_view_at(c->view, dir);
        if ((s && s->op != PV_VIEW_PRIVATE) || in_workspace(p, dir) || pv_path_is_within(p->workspace, dir) ||
            (p->home && pv_path_is_within(p->home, dir)))
                return false;
        if (p->home_mode == PV_HOME_COW && home_is_shown(p) && pv_path_is_within(dir, p->home))
                return false;
        for (size_t i = 0; i < p->toolchains.n; i++) {
                pv_auto_free char *tools = pv_path_join(p->home, p->toolchains.v[i]);
                if (pv_path_is_within(dir, tools))
                        return false;
        }
        for (size_t i = 0; i < all->n; i++)
                if (pv_streq(all->v[i].src, dir))
                        return false;
        return true;
}

static void add_path_dirs(const struct ctx *c, struct places *all)
{
        const char *list = NULL;
        for (size_t i = 0; i < c->plan->env.n; i++)
                if (pv_str_has_prefix(c->plan->env.v[i], "PATH="))
                        list = c->plan->env.v[i] + strlen("PATH=");
        while (list && *list) {
                size_t n = strcspn(list, ":");
                pv_auto_free char *dir = pv_strndup(list, n);
                list += n + (list[n] == ':');
                struct stat st;
                if (dir[0] != '/' || !wants_path_dir(c, all, dir)) /* the common case, without a look */
                        continue;
                pv_auto_free char *real = realpath(dir, NULL);
                if (real && stat(real, &st) == 0 && S_ISDIR(st.st_mode) && wants_path_dir(c, all, real))
                        add_place(all, PLACE_PATH, real, NULL);
        }
}

static void collect_places(const struct ctx *c, struct places *all)
{
        const struct pv_plan *p = c->plan;
        add_path_dirs(c, all);
        if (home_is_shown(p))
                add_place(all, PLACE_HOME, p->home, NULL);
        /* overlayfs has no HOME with mounts below it as a layer: its caches are as the rest of it then. */
        for (size_t i = 0; i < p->caches.n && !pv_mountinfo_has_below(c->mounts, p->home); i++) {
                pv_auto_free char *path = pv_path_join(p->home, p->caches.v[i]);
                add_place(all, PLACE_CACHE, path, NULL);
        }
        for (size_t i = 0; i < p->toolchains.n; i++) {
                pv_auto_free char *path = pv_path_join(p->home, p->toolchains.v[i]);
                add_place(all, PLACE_TOOLS, path, NULL);
        }
        for (size_t i = 0; i < p->n_state; i++)
                add_place(all, PLACE_STATE, p->state[i].src, p->state[i].dst);
        if (p->n_roots == 0)
                add_place(all, PLACE_WORKSPACE, p->workspace, NULL);
        for (size_t i = 0; i < p->n_roots; i++)
                add_place(all, PLACE_ROOT, p->roots[i].target, p->roots[i].view)->index = i;
        for (size_t i = 0; i < p->n_mounts; i++)
                if (p->mounts[i].access != PV_MOUNT_STAGE)
                        add_place(all, PLACE_MOUNT, p->mounts[i].src, p->mounts[i].dst)->index = i;
        sort_places(all);
}

/* A copy-on-write view of a directory at its own place, without what must not be seen in it. */
static int add_cow(struct ctx *c, const char *dir, struct pv_err *err)
{
        pv_auto_strv masks = { 0 };
        secrets_below(c, dir, &masks);
        return pv_entries_add(c->view, PV_VIEW_COW, dir, dir, &masks, c->mounts, err);
}

static int add_home(struct ctx *c, struct pv_err *err)
{
        const char *home = c->plan->home;
        struct stat st;
        if (c->plan->home_mode != PV_HOME_COW || stat(home, &st) < 0) {
                pv_view_add(c->view, PV_VIEW_PRIVATE, NULL, home)->mode = 0700;
                return 0;
        }
        return add_cow(c, home, err);
}

static void add_cache(struct ctx *c, const char *path)
{
        struct pv_view_step *s = pv_view_add(c->view, PV_VIEW_CACHE, path, path);
        secrets_below(c, path, &s->masks);
}

static void add_root(struct ctx *c, size_t index)
{
        const struct pv_root *r = &c->plan->roots[index];
        struct pv_view_step *s = pv_view_add(c->view, PV_VIEW_STAGE, r->target, r->view);
        s->index = index;
        secrets_below(c, r->target, &s->masks);
}

/* As it is, writable; what must not be seen in it is covered. */
static void add_write(struct ctx *c, const char *src, const char *dst)
{
        pv_auto_strv masks = { 0 };
        secrets_below(c, src, &masks);
        pv_view_add(c->view, PV_VIEW_WRITE, src, dst);
        for (size_t i = 0; i < masks.n; i++) {
                pv_auto_free char *host = pv_path_join(src, masks.v[i]);
                pv_auto_free char *path = pv_path_join(dst, masks.v[i]);
                if (access(host, F_OK) == 0)
                        pv_view_add(c->view, PV_VIEW_MASK, NULL, path);
        }
}

static int add_mount(struct ctx *c, const struct pv_mount *m, struct pv_err *err)
{
        struct stat st;
        if (m->cleaned) {
                pv_view_add(c->view, PV_VIEW_TEXT, m->content ? m->content : "", m->dst);
                return 0;
        }
        if (lstat(m->src, &st) < 0)
                return pv_err_set(err, PV_ERR_USAGE, errno, "mount %s", m->src);
        if (m->access == PV_MOUNT_WRITE) {
                add_write(c, m->src, m->dst);
                return 0;
        }
        if (S_ISDIR(st.st_mode))
                return add_read(c, m->src, m->dst, err);
        if (!S_ISREG(st.st_mode))
                return pv_err_set(err, PV_ERR_USAGE, 0, "mount %s: neither a directory nor a regular file", m->src);
        pv_view_add(c->view, PV_VIEW_FILE, m->src, m->dst);
        return 0;
}

static int add_place_steps(struct ctx *c, const struct place *p, struct pv_err *err)
{
        switch (p->what) {
        case PLACE_PATH:
                return add_read(c, p->src, p->dst, err);
        case PLACE_HOME:
                return add_home(c, err);
        case PLACE_TOOLS:
                return add_cow(c, p->src, err);
        case PLACE_CACHE:
                add_cache(c, p->src);
                return 0;
        case PLACE_STATE:
                pv_view_add(c->view, PV_VIEW_KEPT, p->src, p->dst);
                return 0;
        case PLACE_ROOT:
                add_root(c, p->index);
                return 0;
        case PLACE_WORKSPACE:
                add_write(c, p->src, p->dst);
                return 0;
        case PLACE_MOUNT:
                return add_mount(c, &c->plan->mounts[p->index], err);
        }
        return 0;
}

/* Whether what is at path in the view may be there: the person's word, or an agent's own of an earlier run. */
static bool may_be_there(const struct pv_plan *p, const char *path)
{
        for (size_t i = 0; i < p->n_mounts; i++)
                if (pv_path_is_within(p->mounts[i].dst, path) ||
                    (p->mounts[i].named && pv_path_is_within(p->mounts[i].named, path)))
                        return true;
        for (size_t i = 0; i < p->n_state; i++)
                if (pv_path_is_within(path, p->state[i].dst))
                        return true;
        for (size_t i = 0; i < p->caches.n; i++) {
                pv_auto_free char *cache = pv_path_join(p->home, p->caches.v[i]);
                if (pv_path_is_within(path, cache))
                        return true;
        }
        return false;
}

static void forget_granted(struct ctx *c)
{
        struct pv_strv kept = { 0 };
        for (size_t i = 0; i < c->view->absent.n; i++) {
                const char *path = c->view->absent.v[i];
                if (!may_be_there(c->plan, path))
                        pv_strv_add(&kept, path);
        }
        pv_strv_fini(&c->view->absent);
        c->view->absent = kept;
}

/* Nothing of the host's is at path, and no step made it on the way to its own place. */
static bool is_free(const struct pv_view *view, const char *path)
{
        const struct pv_view_step *s = pv_view_at(view, path);
        if (s && (s->op != PV_VIEW_PRIVATE || pv_streq(s->dst, path)))
                return false;
        for (size_t i = 0; i < view->n; i++)
                if (pv_path_is_within(view->v[i].dst, path))
                        return false;
        return true;
}

/*
 * What was named by way of links is there under that name, too. Where something shows the host's own tree the link is
 * part of that; elsewhere it is made. A name below another one's is reached through that.
 */
static void add_names(struct ctx *c)
{
        const struct pv_plan *p = c->plan;
        static const char *const kernel[] = { "/proc", "/sys", "/dev" };
        for (size_t i = 0; i < p->n_mounts; i++) {
                const char *named = p->mounts[i].named;
                bool reached = !named;
                for (size_t k = 0; !reached && k < sizeof kernel / sizeof *kernel; k++)
                        reached = pv_path_is_within(named, kernel[k]);
                for (size_t k = 0; !reached && k < p->n_mounts; k++)
                        reached = k != i && p->mounts[k].named && !pv_streq(p->mounts[k].named, named) &&
                                  pv_path_is_within(named, p->mounts[k].named);
                if (!reached && is_free(c->view, named))
                        pv_view_add(c->view, PV_VIEW_LINK, p->mounts[i].dst, named);
        }
}

static bool is_whole(enum pv_view_op op)
{
        return op == PV_VIEW_READ || op == PV_VIEW_WRITE || op == PV_VIEW_STAGE || op == PV_VIEW_COW ||
               op == PV_VIEW_PRIVATE;
}

/* Of what something else is put over as a whole only the place is made: nothing writable may lie below a share. */
static void forget_covered(struct ctx *c)
{
        for (size_t i = 0; i < c->view->n; i++) {
                struct pv_view_step *s = &c->view->v[i];
                for (size_t k = i + 1; k < c->view->n && (s->op == PV_VIEW_PRIVATE || s->op == PV_VIEW_COW); k++)
                        if (is_whole(c->view->v[k].op) && pv_streq(c->view->v[k].dst, s->dst))
                                s->op = PV_VIEW_DIR;
        }
}

/* ---- the two views ---- */

static int sandbox_view(struct ctx *c, const char *tty, struct pv_err *err)
{
        auto_places all = { 0 };
        c->view->base = PV_VIEW_NEW_ROOT;
        if (add_system(c, err) < 0 || add_etc(c, err) < 0)
                return -1;
        if (has_entries("/opt") && add_read(c, "/opt", "/opt", err) < 0)
                return -1;
        if (add_devices(c, tty, err) < 0)
                return -1;
        pv_view_add(c->view, PV_VIEW_PROC, NULL, "/proc");
        add_private(c);
        add_resolver(c);
        mask_hosts(c);
        collect_places(c, &all);
        for (size_t i = 0; i < all.n; i++)
                if (add_place_steps(c, &all.v[i], err) < 0)
                        return -1;
        add_names(c);
        forget_covered(c);
        if (c->plan->n_mounts + c->plan->n_state + c->plan->caches.n > 0)
                forget_granted(c);
        return 0;
}

static void host_view(struct ctx *c)
{
        c->view->base = PV_VIEW_HOST;
        mask_hosts(c);
        for (size_t i = 0; i < c->plan->n_roots; i++)
                add_root(c, i);
        for (size_t i = 0; i < c->plan->hidden.n; i++)
                if (!in_workspace(c->plan, c->plan->hidden.v[i]))
                        pv_view_add(c->view, PV_VIEW_MASK, NULL, c->plan->hidden.v[i]);
        pv_view_add(c->view, PV_VIEW_PROC, NULL, "/proc");
}

int pv_root_view(const struct pv_plan *plan, const struct pv_mountinfo *mounts, const char *tty, struct pv_view *view,
                 struct pv_err *err)
{
        struct ctx c = { .plan = plan, .mounts = mounts, .view = view };
        int r = list_secrets(&c, err);
        if (r == 0 && plan->filesystem == PV_FS_SANDBOX)
                r = sandbox_view(&c, tty, err);
        else if (r == 0)
                host_view(&c);
        pv_strv_fini(&c.secrets);
        return r;
}
