/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host can enforce: first a whole --safe run of nothing over an empty directory, with the probes of every
 * run, then each facility alone, in a child, so that what is missing gets a name and a fix.
 */
#include "boundary/boundary.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include "base/file.h"
#include "base/str.h"
#include "base/syscall.h"
#include "boundary/cgroup.h"
#include "boundary/fusemount.h"
#include "boundary/landlock.h"
#include "boundary/limits.h"
#include "boundary/userns.h"
#include "policy/admit.h"

/* A private directory with what a run needs: the workspace, the stage's layers, scratch, a store to hide. */
struct place {
        char top[64], *work, *upper, *layer, *scratch, *store;
};

static void place_fini(struct place *p)
{
        struct pv_err ignored = PV_ERR_INIT;

        if (p->top[0])
                (void)pv_path_remove_tree(AT_FDCWD, p->top, &ignored);
        free(p->work);
        free(p->upper);
        free(p->layer);
        free(p->scratch);
        free(p->store);
}
#define auto_place __attribute__((cleanup(place_fini))) struct place

static int make_place(struct place *p, struct pv_err *err)
{
        static const char *const parents[] = { "/var/tmp", "/tmp", "." };

        for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
                (void)snprintf(p->top, sizeof p->top, "%s/pvisor-doctor-XXXXXX", parents[i]);
                if (mkdtemp(p->top))
                        break;
                p->top[0] = '\0';
        }
        if (!p->top[0])
                return pv_err_set(err, PV_ERR_SYS, errno, "make a temporary directory");
        p->work = pv_path_join(p->top, "project");
        p->upper = pv_path_join(p->top, "upper");
        p->layer = pv_path_join(p->top, "work");
        p->scratch = pv_path_join(p->top, "scratch");
        p->store = pv_path_join(p->top, "store");
        if (mkdir(p->work, 0700) < 0 || mkdir(p->upper, 0700) < 0 || mkdir(p->layer, 0700) < 0 ||
            mkdir(p->scratch, 0700) < 0 || mkdir(p->store, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a directory in %s", p->top);
        return 0;
}

static int make_plan(const struct place *p, struct pv_plan **plan, struct pv_err *err)
{
        /* Generous limits: they show by what mechanism a limit would hold. */
        struct pv_request request = { .safe = true,
                                      .workspace = p->work,
                                      .memory = UINT64_C(1) << 40,
                                      .max_processes = 30000,
                                      .max_cpu_time = UINT64_C(86400000),
                                      .max_file_size = UINT64_C(1) << 50,
                                      .max_open_files = 1024 };
        const struct pv_surroundings around = { .environment = environ, .store = p->store };
        char *const argv[] = { (char *)"/bin/true", NULL };
        pv_auto_strv notes = { 0 };

        return pv_admit(&request, &around, argv, plan, &notes, err);
}

static int start(const struct place *p, const struct pv_plan *plan, struct pv_observations *obs, struct pv_err *err)
{
        const struct pv_overlay overlay = { .root = plan->roots, .upper = p->upper, .work = p->layer, .channel = -1 };
        pv_auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
        const struct pv_boundary_spec spec = { .plan = plan, .survey = true, .stdio = { null, null, null } };
        const struct pv_boundary_job job = { .overlays = &overlay,
                                             .n_overlays = plan->n_roots ? 1 : 0,
                                             .scratch = p->scratch,
                                             .stdio = { -1, -1, -1 } };
        struct pv_boundary *b = NULL;
        struct pv_exit end;
        int r = pv_boundary_start(pv_boundary_begin(&spec), &job, &b, obs, err);

        if (r == 0)
                r = pv_boundary_wait(b, &end, err);
        pv_boundary_free(b);
        return r;
}

/* Runs try in a child that it may ruin; the errno that it exits with. */
static int in_child(int (*try)(const struct place *p), const struct place *p)
{
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(try(p));
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
                return errno;
        return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static int enter(int flags)
{
        char map[64];
        unsigned uid = geteuid();

        if (unshare(CLONE_NEWUSER | flags) < 0)
                return errno;
        (void)snprintf(map, sizeof map, "%u %u 1", uid, uid);
        int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
        return fd >= 0 && write(fd, map, strlen(map)) > 0 ? 0 : errno;
}

static int try_mount(const struct place *p)
{
        int r = enter(CLONE_NEWNS);

        if (r)
                return r;
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("none", p->work, "tmpfs", 0, NULL) < 0
                       ? errno
                       : 0;
}

static int try_network(const struct place *p)
{
        (void)p;
        return enter(CLONE_NEWNET);
}

static int try_overlay(const struct place *p)
{
        char options[512];
        int r = enter(CLONE_NEWNS);

        if (r || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return r ? r : errno;
        (void)snprintf(options, sizeof options, "lowerdir=%s,upperdir=%s,workdir=%s,userxattr", p->store, p->upper,
                       p->layer);
        return mount("overlay", p->work, "overlay", 0, options) < 0 ? errno : 0;
}

/* A filter that is not there: a kernel that knows the flags faults on it, one that does not says so first. */
static int try_notification(const struct place *p)
{
        (void)p;
        long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                         SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, NULL);
        return r < 0 && errno == EFAULT ? 0 : errno;
}

static int try_filter(const struct place *p)
{
        (void)p;
        uint32_t action = SECCOMP_RET_ERRNO;
        return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0 ? errno : 0;
}

static void explain_namespaces(const struct place *p, struct pv_strv *fix)
{
        struct pv_err why = PV_ERR_INIT;
        int error = in_child(try_mount, p);

        if (error) {
                (void)pv_userns_explain(error, &why);
                pv_strv_take(fix, pv_strf("%s: no sandbox without them: %s", why.msg, why.hint));
                return;
        }
        error = in_child(try_network, p);
        if (error)
                pv_strv_take(fix, pv_strf("network namespaces are refused (%s), so that the network cannot be denied: "
                                          "a kernel with CONFIG_NET_NS, user.max_net_namespaces above 0",
                                          strerror(error)));
        error = in_child(try_overlay, p);
        if (error)
                pv_strv_take(fix,
                             pv_strf("overlayfs cannot be mounted without privileges here (%s), so that nothing can "
                                     "be staged: Linux 5.11 or later, `sudo modprobe overlay`, and a directory for "
                                     "the job store that is no overlay itself (in a container: a volume)",
                                     strerror(error)));
}

static void explain_landlock(struct pv_strv *fix)
{
        int abi = pv_landlock_abi();

        if (abi == 0 && errno == EOPNOTSUPP)
                pv_strv_add(fix, "Landlock is built into this kernel but switched off: add `landlock` to the kernel's "
                                 "`lsm=` parameter (see /sys/kernel/security/lsm for the list) and boot again");
        else if (abi == 0)
                pv_strv_add(fix, "Landlock is not in this kernel, so that the mounts are the only wall: Linux 5.19 or "
                                 "later with CONFIG_SECURITY_LANDLOCK");
        else if (abi == 1)
                pv_strv_add(fix, "Landlock is of its first version, which no build survives, and is left out: Linux "
                                 "5.19 or later");
        else if (abi < 6)
                pv_strv_take(fix,
                             pv_strf("Landlock (version %d) does not cover signals and abstract sockets yet: Linux "
                                     "6.12 or later",
                                     abi));
}

static void explain_filter(const struct place *p, struct pv_strv *fix)
{
        int error = in_child(try_filter, p);

        if (error) {
                pv_strv_take(fix,
                             pv_strf("system-call filters are not available (%s): a kernel with CONFIG_SECCOMP_FILTER",
                                     strerror(error)));
                return;
        }
        if (in_child(try_notification, p) != 0)
                pv_strv_add(fix, "directories that the host has cannot be renamed in a stage (EXDEV): Linux 5.19 or "
                                 "later, which keeps signals from cutting notifications short");
}

/* FUSE is for what overlayfs cannot serve; most runs never ask for it. */
static void explain_fuse(struct pv_strv *fix)
{
        struct pv_err why = PV_ERR_INIT;

        if (pv_fusemount_check_device(&why) < 0)
                pv_strv_take(fix, pv_strf("a workspace with mounts below it, with files of other groups, or with its "
                                          "stage on a container's own file system cannot be staged: %s: %s",
                                          why.msg, why.hint));
}

static void explain_limits(struct pv_observations *obs, struct pv_strv *fix)
{
        const struct pv_observation *processes = pv_observations_find(obs, PV_DIM_RESOURCES, PV_LIMIT_PROCESSES);
        const struct pv_limits limits = { .memory_bytes = UINT64_C(1) << 40, .max_processes = 30000 };
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_cgroup group = NULL;

        if (processes && !processes->installed)
                pv_strv_add(fix, "--max-processes is refused to root, whom nothing holds here: " PV_LIMITS_NO_GROUP
                                 " or Linux 6.14 or later");
        bool made = pv_cgroup_open(&limits, &group, &ignored) == 0;
        struct pv_cgroup_effect effect = pv_cgroup_effect(group);

        if (made && effect.memory_bytes && effect.max_processes)
                return;
        pv_strv_add(fix,
                    "--memory holds each process alone, not the run together, since no control group may be made "
                    "here: systemd-run --user --scope -p Delegate=yes pvisor ... (or a login in a delegated group)");
}

int pv_boundary_examine(struct pv_observations *obs, struct pv_strv *fix, struct pv_err *err)
{
        auto_place p = { 0 };
        pv_auto_plan plan = NULL;
        struct pv_err failure = PV_ERR_INIT;

        if (make_place(&p, err) < 0 || make_plan(&p, &plan, err) < 0)
                return -1;
        int r = start(&p, plan, obs, &failure);

        explain_namespaces(&p, fix);
        explain_landlock(fix);
        explain_filter(&p, fix);
        explain_fuse(fix);
        explain_limits(obs, fix);
        if (r < 0)
                pv_strv_take(fix, pv_strf("a --safe run does not start here: %s%s%s", failure.msg,
                                          failure.hint[0] ? ": " : "", failure.hint));
        return 0;
}
