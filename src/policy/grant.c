/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/grant.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/path.h"
#include "policy/devices.h"
#include "policy/services.h"

#define MOUNTS_MAX 256 /* far below the kernel's own limit (fs.mount-max) */

static const char *const access_names[] = {
        [PV_MOUNT_READ] = "read",
        [PV_MOUNT_STAGE] = "stage",
        [PV_MOUNT_WRITE] = "write",
};

static bool exists(const char *path)
{
        struct stat st;
        return stat(path, &st) == 0;
}

/* Splits "SRC:DST" at the last ":/" whose left side exists; true when it did, and text then ends at SRC. */
static bool split_target(char *text, char **dst)
{
        if (exists(text))
                return false;
        for (char *c = text + strlen(text); c > text; c--) {
                if (c[0] != ':' || c[1] != '/')
                        continue;
                *c = '\0';
                if (exists(text)) {
                        *dst = c + 1;
                        return true;
                }
                *c = ':';
        }
        return false;
}

static int parse_access(char *text, enum pv_mount_access *out)
{
        char *colon = strrchr(text, ':');
        for (int a = PV_MOUNT_READ; colon && a <= PV_MOUNT_WRITE; a++) {
                if (pv_streq(colon + 1, access_names[a])) {
                        *colon = '\0';
                        *out = (enum pv_mount_access)a;
                        return 0;
                }
        }
        return -1;
}

/* A path that leads to src, as it was written; NULL when it is src itself, or does not lead there without its "..". */
static char *other_name(const char *text, const char *src)
{
        pv_auto_free char *cwd = text[0] == '/' ? pv_strdup("/") : getcwd(NULL, 0);
        if (!cwd)
                return NULL;
        pv_auto_free char *joined = pv_path_join(cwd, text);
        pv_auto_free char *clean = pv_path_normalise(joined);
        pv_auto_free char *real = realpath(clean, NULL);
        return real && pv_streq(real, src) && !pv_streq(clean, src) ? pv_steal(&clean) : NULL;
}

/* What was most likely meant: the words of other tools, or no word at all. */
static int hint_at_access(const char *text, struct pv_err *err)
{
        const char *colon = strrchr(text, ':');
        size_t n = colon ? (size_t)(colon - text) : 0;
        if (colon && pv_streq(colon, ":ro"))
                return pv_err_hint(err, "did you mean %.*s:read?", (int)n, text);
        if (colon && pv_streq(colon, ":rw"))
                return pv_err_hint(err,
                                   "did you mean %.*s:write? its changes land at once; with :stage they are kept aside",
                                   (int)n, text);
        return pv_err_hint(err, ":read shows it, :stage keeps its changes aside, :write lets them land at once");
}

int pv_grant_parse_mount(const char *text, const char *home, struct pv_mount *out, struct pv_err *err)
{
        bool tilde = home && strncmp(text, "~/", 2) == 0;
        pv_auto_free char *copy = tilde ? pv_path_join(home, text + 2) : pv_strdup(text);
        char *dst = NULL;
        if (parse_access(copy, &out->access) < 0 || !*copy) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "--mount: not SRC[:DST]:read, :stage or :write: %s", text);
                (void)hint_at_access(text, err);
                return -1;
        }
        (void)split_target(copy, &dst);
        pv_auto_free char *src = NULL;
        if (pv_path_real(copy, &src, err) < 0) {
                err->kind = PV_ERR_USAGE;
                (void)pv_err_wrap(err, "--mount %s", text);
                return -1;
        }
        out->dst = dst ? pv_path_normalise(dst) : pv_strdup(src);
        out->named = dst ? NULL : other_name(copy, src);
        out->src = pv_steal(&src);
        return 0;
}

static bool overlap(const char *a, const char *b)
{
        return pv_path_is_within(a, b) || pv_path_is_within(b, a);
}

int pv_grant_add_root(struct pv_plan *plan, enum pv_root_kind kind, const char *target, const char *view,
                      struct pv_err *err)
{
        for (size_t i = 0; i < plan->n_roots; i++)
                if (overlap(plan->roots[i].target, target) || overlap(plan->roots[i].view, view))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "%s: overlaps %s, which is staged already", target,
                                          plan->roots[i].target);
        plan->roots = pv_realloc(plan->roots, plan->n_roots + 1, sizeof *plan->roots);
        plan->roots[plan->n_roots++] =
                (struct pv_root){ .kind = kind, .target = pv_strdup(target), .view = pv_strdup(view) };
        return 0;
}

/* Where pVisor's own mounts are; a person's would fight with them. */
static const char *const reserved[] = { "/proc", "/sys", "/dev" };

/* Does a mount show this directory, or something in it, by whatever names both are mounted? */
static bool shows(const struct pv_mount *m, const char *dir)
{
        struct stat src, hidden;
        return overlap(m->src, dir) || (stat(dir, &hidden) == 0 && pv_path_is_or_holds(&hidden, m->src)) ||
               (stat(m->src, &src) == 0 && S_ISDIR(src.st_mode) && pv_path_is_or_holds(&src, dir));
}

static int check_mount(const struct pv_plan *plan, const struct pv_mount *m, struct pv_err *err)
{
        struct stat st;
        for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
                if (pv_path_is_within(m->dst, reserved[i]))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--mount: nothing can be mounted in %s: %s",
                                          reserved[i], m->dst);
        if (pv_path_is_within(plan->workspace, m->dst))
                return pv_err_set(err, PV_ERR_USAGE, 0, "--mount: %s would cover the workspace", m->dst);
        for (size_t i = 0; i < plan->n_mounts; i++)
                if (pv_streq(plan->mounts[i].dst, m->dst))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--mount: two mounts at %s", m->dst);
        for (size_t i = 0; i < plan->hidden.n; i++)
                if (shows(m, plan->hidden.v[i]))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--mount: %s would show pVisor's own files in %s",
                                          m->src, plan->hidden.v[i]);
        for (size_t i = 0; m->access != PV_MOUNT_READ && i < plan->unmade.n; i++)
                if (shows(m, plan->unmade.v[i]))
                        return pv_err_set(err, PV_ERR_USAGE, 0,
                                          "--mount: %s would let the command make %s, which a "
                                          "later run would take for pVisor's own",
                                          m->src, plan->unmade.v[i]);
        if (m->access == PV_MOUNT_STAGE && !plan->staged) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "--mount %s:stage: nothing is staged in this run", m->src);
                return pv_err_hint(err, "add --stage");
        }
        if (m->access == PV_MOUNT_STAGE && (stat(m->src, &st) < 0 || !S_ISDIR(st.st_mode)))
                return pv_err_set(err, PV_ERR_USAGE, ENOTDIR, "--mount %s:stage", m->src);
        if (plan->filesystem == PV_FS_HOST && !(m->access == PV_MOUNT_STAGE && pv_streq(m->src, m->dst))) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "--mount %s: the host's file system is seen as it is", m->src);
                return pv_err_hint(err, "add --filesystem sandbox");
        }
        return 0;
}

static int add_mount(struct pv_plan *plan, const char *text, char *const *environment, bool i_know, struct pv_err *err)
{
        struct pv_mount m = { 0 };
        if (pv_grant_parse_mount(text, plan->home, &m, err) < 0)
                return -1;
        if (check_mount(plan, &m, err) < 0 ||
            (plan->filesystem == PV_FS_SANDBOX && pv_services_check_mount(plan, &m, environment, i_know, err) < 0) ||
            (m.access == PV_MOUNT_STAGE && pv_grant_add_root(plan, PV_ROOT_MOUNT, m.src, m.dst, err) < 0)) {
                pv_mount_fini(&m);
                return -1;
        }
        plan->mounts = pv_realloc(plan->mounts, plan->n_mounts + 1, sizeof *plan->mounts);
        plan->mounts[plan->n_mounts++] = m;
        return 0;
}

int pv_grant_add_mounts(struct pv_plan *plan, const struct pv_strv *mounts, char *const *environment, bool i_know,
                        struct pv_err *err)
{
        if (mounts->n > MOUNTS_MAX)
                return pv_err_set(err, PV_ERR_USAGE, 0, "--mount: more than %d", MOUNTS_MAX);
        for (size_t i = 0; i < mounts->n; i++)
                if (add_mount(plan, mounts->v[i], environment, i_know, err) < 0)
                        return -1;
        return 0;
}

int pv_grant_add_devices(struct pv_plan *plan, const struct pv_strv *devices, bool i_know, struct pv_err *err)
{
        for (size_t i = 0; i < devices->n; i++) {
                pv_auto_free char *real = NULL;
                struct stat st;
                if (pv_path_real(devices->v[i], &real, err) < 0 || stat(real, &st) < 0) {
                        err->kind = PV_ERR_USAGE;
                        return pv_err_wrap(err, "--device");
                }
                bool device = S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode);
                if (!device || !pv_path_is_within(real, "/dev") || pv_streq(real, "/dev"))
                        return pv_err_set(err, PV_ERR_USAGE, 0, "--device: not a device in /dev: %s", real);
                if (pv_strv_has(&plan->devices, real))
                        continue;
                if (pv_devices_check(plan, real, &st, i_know, err) < 0)
                        return -1;
                pv_strv_add(&plan->devices, real);
        }
        if (devices->n && plan->filesystem == PV_FS_HOST) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "--device: all of the host's devices are seen as they are");
                return pv_err_hint(err, "add --filesystem sandbox");
        }
        return 0;
}
