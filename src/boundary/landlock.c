/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/landlock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/syscall.h"
#include "boundary/control.h"

/* What may be done to a file that is no directory; the kernel refuses the others in a rule for one (EINVAL). */
#define FILE_RIGHTS                                                                                                \
        (PV_LANDLOCK_FS_EXECUTE | PV_LANDLOCK_FS_WRITE_FILE | PV_LANDLOCK_FS_READ_FILE | PV_LANDLOCK_FS_TRUNCATE | \
         PV_LANDLOCK_FS_IOCTL_DEV)
#define READ_RIGHTS  (PV_LANDLOCK_FS_EXECUTE | PV_LANDLOCK_FS_READ_FILE | PV_LANDLOCK_FS_READ_DIR)
#define ALL_RIGHTS   ((PV_LANDLOCK_FS_IOCTL_DEV << 1) - 1)
#define WRITE_RIGHTS (ALL_RIGHTS & ~PV_LANDLOCK_FS_IOCTL_DEV)

/*
 * ABI 1 refuses every rename and link between two directories, whatever the rules (EXDEV): no build survives that, so
 * that there are no file rules there.
 */
enum { ABI_FILES = 2, ABI_TRUNCATE = 3, ABI_NET = 4, ABI_IOCTL = 5, ABI_SCOPES = 6 };

int pv_landlock_abi(void)
{
        int abi = pv_sys_landlock_create(NULL, 0, PV_LANDLOCK_VERSION);

        return abi < 0 ? 0 : abi > PV_LANDLOCK_ABI_MAX ? PV_LANDLOCK_ABI_MAX : abi;
}

static uint64_t known_file_rights(int abi)
{
        uint64_t rights = ALL_RIGHTS;

        if (abi < ABI_IOCTL)
                rights &= ~PV_LANDLOCK_FS_IOCTL_DEV;
        if (abi < ABI_TRUNCATE)
                rights &= ~PV_LANDLOCK_FS_TRUNCATE;
        return abi < ABI_FILES ? 0 : rights;
}

/* Nothing is granted on what only leads somewhere: walking through a directory needs no right. */
static uint64_t step_rights(enum pv_view_op op)
{
        switch (op) {
        case PV_VIEW_SYSTEM:
        case PV_VIEW_FILE:
        case PV_VIEW_TEXT:
        case PV_VIEW_READ:
        case PV_VIEW_SEAL:
                return READ_RIGHTS;
        case PV_VIEW_PRIVATE:
        case PV_VIEW_COPY:
        case PV_VIEW_STAGE:
        case PV_VIEW_COW:
        case PV_VIEW_CACHE:
        case PV_VIEW_KEPT:
                return WRITE_RIGHTS;
        case PV_VIEW_WRITE: /* may hold devices that were asked for */
                return ALL_RIGHTS;
        case PV_VIEW_DEVICE:
        case PV_VIEW_PTS:
                return FILE_RIGHTS | PV_LANDLOCK_FS_READ_DIR;
        case PV_VIEW_PROC:
                return READ_RIGHTS | PV_LANDLOCK_FS_WRITE_FILE | PV_LANDLOCK_FS_TRUNCATE;
        case PV_VIEW_DIR:
        case PV_VIEW_LINK:
        case PV_VIEW_MASK:
        case PV_VIEW_OPS:
                break;
        }
        return 0;
}

static int allow(int ruleset, const char *path, uint64_t rights, struct pv_err *err)
{
        pv_auto_fd fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        struct stat st;

        if (fd < 0 && errno == ENOENT) /* nothing there, nothing to allow */
                return 0;
        if (fd < 0 || fstat(fd, &st) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "landlock: %s", path);
        if (!S_ISDIR(st.st_mode))
                rights &= FILE_RIGHTS;
        if (pv_sys_landlock_allow_beneath(ruleset, fd, rights) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "landlock: rule for %s", path);
        return 0;
}

static int allow_view(int ruleset, const struct pv_view *view, uint64_t known, struct pv_err *err)
{
        /* What the root's own directories are called is no secret: `ls /` works. */
        if (allow(ruleset, "/", PV_LANDLOCK_FS_READ_DIR, err) < 0)
                return -1;
        for (size_t i = 0; i < view->n; i++) {
                const struct pv_view_step *step = &view->v[i];
                uint64_t rights = step_rights(step->op) & known;

                /* A covered step's path leads to what covers it. */
                if (rights == 0 || pv_view_at(view, step->dst) != step)
                        continue;
                if (allow(ruleset, step->dst, rights, err) < 0)
                        return -1;
        }
        return 0;
}

static int create(const struct pv_landlock_attr *attr, int abi, struct pv_err *err)
{
        size_t size = abi >= ABI_SCOPES ? sizeof *attr
                      : abi >= ABI_NET  ? offsetof(struct pv_landlock_attr, scoped)
                                        : offsetof(struct pv_landlock_attr, net);
        int fd = pv_sys_landlock_create(attr, size, 0);

        return fd < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "landlock: create a ruleset") : fd;
}

static int restrict_self(int ruleset, struct pv_err *err)
{
        if (pv_sys_landlock_restrict(ruleset) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "landlock: restrict this process");
        return 0;
}

static struct pv_observation *observe(struct pv_observations *obs, enum pv_dimension d, int abi, const char *what,
                                      bool installed)
{
        char mechanism[96];

        if (abi == 0)
                (void)snprintf(mechanism, sizeof mechanism, "Landlock (not in this kernel): %s", what);
        else
                (void)snprintf(mechanism, sizeof mechanism, "Landlock, ABI %d: %s", abi, what);
        struct pv_observation *o = pv_observations_add(obs, d, PV_CONTROL_LANDLOCK, mechanism);
        if (o)
                o->installed = installed;
        return o;
}

/* A read-only step within a writable one: rules add up along a path, so that only its mount says no. */
static bool has_read_only_within(const struct pv_view *view)
{
        for (size_t i = 0; i < view->n; i++) {
                if (!pv_view_op_is_read_only(view->v[i].op))
                        continue;
                for (size_t j = 0; j < i; j++)
                        if (step_rights(view->v[j].op) & PV_LANDLOCK_FS_MAKE_BLOCK &&
                            pv_path_is_within(view->v[i].dst, view->v[j].dst))
                                return true;
        }
        return false;
}

static void observe_files(struct pv_observations *obs, int abi, const struct pv_view *view)
{
        bool installed = view->base == PV_VIEW_NEW_ROOT && abi >= ABI_FILES;
        struct pv_observation *reads = observe(obs, PV_DIM_READS, abi, "the view's paths only", installed);
        struct pv_observation *writes =
                observe(obs, PV_DIM_HOST_WRITES, abi, "the view's writable paths only", installed);

        if (!reads || !writes)
                return;
        if (abi > 0 && abi < ABI_FILES)
                pv_observation_limit(writes, "ABI 1 would refuse every rename between directories: no file rules");
        if (!installed)
                return;
        if (abi < ABI_TRUNCATE)
                pv_observation_limit(writes, "this kernel's Landlock does not cover truncate(2) (ABI 3)");
        if (abi < ABI_IOCTL)
                pv_observation_limit(writes, "this kernel's Landlock does not cover ioctl(2) on devices (ABI 5)");
        pv_observation_limit(writes, "modes, owners, times and extended attributes are not covered by Landlock");
        if (has_read_only_within(view))
                pv_observation_limit(writes, "what is read-only within a writable place is so by its mount alone");
}

static void observe_network(struct pv_observations *obs, int abi, const struct pv_landlock_attr *attr,
                            enum pv_landlock_flags flags)
{
        struct pv_observation *o;

        if (flags == 0)
                return;
        o = observe(obs, PV_DIM_NETWORK, abi, attr->net ? "no TCP" : "no abstract socket of a process outside",
                    attr->net || attr->scoped);
        if (!o)
                return;
        if (flags & PV_LANDLOCK_SCOPE_ABSTRACT && !attr->scoped)
                pv_observation_limit(o, "this kernel's Landlock does not cover abstract Unix sockets (ABI 6)");
        if (flags & PV_LANDLOCK_DENY_TCP && !attr->net)
                pv_observation_limit(o, "this kernel's Landlock does not cover TCP (ABI 4)");
        if (flags & PV_LANDLOCK_DENY_TCP)
                pv_observation_limit(o, "UDP and other protocols are not covered by Landlock");
}

int pv_landlock_confine(const struct pv_view *view, enum pv_landlock_flags flags, struct pv_observations *obs,
                        struct pv_err *err)
{
        int abi = pv_landlock_abi();
        struct pv_landlock_attr attr = { 0 };

        if (view->base == PV_VIEW_NEW_ROOT)
                attr.fs = known_file_rights(abi);
        if (flags & PV_LANDLOCK_DENY_TCP && abi >= ABI_NET)
                attr.net = PV_LANDLOCK_NET_BIND_TCP | PV_LANDLOCK_NET_CONNECT_TCP;
        if (flags & PV_LANDLOCK_SCOPE_ABSTRACT && abi >= ABI_SCOPES)
                attr.scoped = PV_LANDLOCK_SCOPE_ABSTRACT_UNIX;

        if (attr.fs || attr.net || attr.scoped) {
                pv_auto_fd ruleset = create(&attr, abi, err);

                if (ruleset < 0 || (attr.fs && allow_view(ruleset, view, attr.fs, err) < 0))
                        return -1;
                if (restrict_self(ruleset, err) < 0)
                        return -1;
        }
        observe_files(obs, abi, view);
        observe_network(obs, abi, &attr, flags);
        return 0;
}

int pv_landlock_scope_processes(struct pv_observations *obs, struct pv_err *err)
{
        int abi = pv_landlock_abi();
        bool signals = abi >= ABI_SCOPES;
        /*
         * Tracing is refused between domains as soon as there is one more layer, even one that allows all it handles.
         * It must handle REFER, and allow it: over a layer with file rules one without refuses it (EXDEV).
         */
        struct pv_landlock_attr attr = { .fs = PV_LANDLOCK_FS_REFER,
                                         .scoped = signals ? PV_LANDLOCK_SCOPE_SIGNALS : 0 };

        if (abi >= ABI_FILES) {
                pv_auto_fd ruleset = create(&attr, abi, err);

                if (ruleset < 0 || allow(ruleset, "/", attr.fs, err) < 0 || restrict_self(ruleset, err) < 0)
                        return -1;
        }

        struct pv_observation *o =
                observe(obs, PV_DIM_SUBPROCESSES, abi,
                        signals ? "signals and tracing stay inside" : "tracing stays inside", abi >= ABI_FILES);
        if (o && !signals)
                pv_observation_limit(o, "this kernel's Landlock does not cover signals (ABI 6)");
        return 0;
}
