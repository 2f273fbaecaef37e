/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/probe_attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/syscall.h"

/* More than any working directory is deep; ".." at the root stays there. */
#define UP "../../../../../../../../../../../../../../../../../../../../../../../../../../../../../../../.."

/* The ways to one and the same path. */
static const char *const ways[] = { "", UP, "/proc/self/root", "/proc/1/root" };
enum way { ABSOLUTE, DOTDOT, SELF_ROOT, INIT_ROOT };

static int path_by(char out[PATH_MAX], enum way way, const char *dir, const char *name)
{
        if (dir[0] != '/' || snprintf(out, PATH_MAX, "%s%s%s", ways[way], dir, name) >= PATH_MAX)
                return -1;
        return 0;
}

static int try_open(const char *path, int flags)
{
        pv_auto_fd fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);

        return fd >= 0 ? PV_ATTEMPT_SUCCEEDED : errno == EMFILE || errno == ENFILE ? PV_ATTEMPT_NOT_MADE : errno;
}

static int read_by(const struct pv_probe_spec *spec, enum way way)
{
        char path[PATH_MAX];

        return path_by(path, way, spec->canary->dir, "/file") < 0 ? PV_ATTEMPT_NOT_MADE : try_open(path, O_RDONLY);
}

int pv_attempt_read_absolute(const struct pv_probe_spec *spec)
{
        return read_by(spec, ABSOLUTE);
}

int pv_attempt_read_dotdot(const struct pv_probe_spec *spec)
{
        return read_by(spec, DOTDOT);
}

int pv_attempt_read_self_root(const struct pv_probe_spec *spec)
{
        return read_by(spec, SELF_ROOT);
}

int pv_attempt_read_init_root(const struct pv_probe_spec *spec)
{
        return read_by(spec, INIT_ROOT);
}

/* Through the working directory of the supervisor: its number means nothing in a pid namespace of our own. */
int pv_attempt_read_host_process(const struct pv_probe_spec *spec)
{
        char path[64];

        (void)snprintf(path, sizeof path, "/proc/%d/cwd", (int)spec->canary->supervisor);
        return try_open(path, O_RDONLY | O_DIRECTORY);
}

/* As if a descriptor had leaked in: no mount stands before it, only Landlock. */
int pv_attempt_read_by_fd(const struct pv_probe_spec *spec)
{
        if (spec->canary->dir_fd < 0 || !spec->canary->dir[0])
                return PV_ATTEMPT_NOT_MADE;
        pv_auto_fd fd = openat(spec->canary->dir_fd, "file", O_RDONLY | O_CLOEXEC);
        return fd >= 0 ? PV_ATTEMPT_SUCCEEDED : errno;
}

int pv_attempt_create_by_fd(const struct pv_probe_spec *spec)
{
        if (spec->canary->dir_fd < 0 || !spec->canary->dir[0])
                return PV_ATTEMPT_NOT_MADE;
        pv_auto_fd fd = openat(spec->canary->dir_fd, "new", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0)
                return errno;
        (void)unlinkat(spec->canary->dir_fd, "new", 0);
        return PV_ATTEMPT_SUCCEEDED;
}

static int create_by(const struct pv_probe_spec *spec, enum way way)
{
        char path[PATH_MAX];

        if (path_by(path, way, spec->canary->dir, "/new") < 0)
                return PV_ATTEMPT_NOT_MADE;
        int r = try_open(path, O_CREAT | O_EXCL | O_WRONLY);
        if (r == PV_ATTEMPT_SUCCEEDED)
                (void)unlink(path);
        return r;
}

int pv_attempt_create_absolute(const struct pv_probe_spec *spec)
{
        return create_by(spec, ABSOLUTE);
}

int pv_attempt_create_dotdot(const struct pv_probe_spec *spec)
{
        return create_by(spec, DOTDOT);
}

int pv_attempt_create_self_root(const struct pv_probe_spec *spec)
{
        return create_by(spec, SELF_ROOT);
}

int pv_attempt_create_init_root(const struct pv_probe_spec *spec)
{
        return create_by(spec, INIT_ROOT);
}

/*
 * Is the host's own directory at the path of a staged root? Writing there to find out would leave a trace in the
 * stage; the directory's identity says it. What is refused is the sight of that directory.
 */
static int root_by(const struct pv_probe_spec *spec, enum way way)
{
        char path[PATH_MAX];
        struct stat st;
        int refusal = PV_ATTEMPT_NOT_MADE;

        for (size_t i = 0; spec->roots && i < spec->plan->n_roots; i++) {
                const struct pv_root *root = &spec->plan->roots[i];

                if (path_by(path, way, root->target, "") < 0)
                        return PV_ATTEMPT_NOT_MADE;
                if (stat(path, &st) < 0)
                        refusal = errno;
                else if (st.st_dev == spec->roots[i].dev && st.st_ino == spec->roots[i].ino)
                        return PV_ATTEMPT_SUCCEEDED;
                else
                        refusal = EXDEV; /* something is there, on another device */
        }
        return refusal;
}

int pv_attempt_root_absolute(const struct pv_probe_spec *spec)
{
        return root_by(spec, ABSOLUTE);
}

int pv_attempt_root_dotdot(const struct pv_probe_spec *spec)
{
        return root_by(spec, DOTDOT);
}

int pv_attempt_root_self_root(const struct pv_probe_spec *spec)
{
        return root_by(spec, SELF_ROOT);
}

int pv_attempt_root_init_root(const struct pv_probe_spec *spec)
{
        return root_by(spec, INIT_ROOT);
}

/* A file without a name: should it be possible, nothing stays. */
int pv_attempt_create_read_only(const struct pv_probe_spec *spec)
{
        return spec->read_only ? try_open(spec->read_only, O_TMPFILE | O_WRONLY) : PV_ATTEMPT_NOT_MADE;
}

int pv_attempt_remount(const struct pv_probe_spec *spec)
{
        if (!spec->read_only)
                return PV_ATTEMPT_NOT_MADE;
        if (mount(NULL, spec->read_only, NULL, MS_REMOUNT | MS_BIND, NULL) < 0)
                return errno;
        (void)mount(NULL, spec->read_only, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
        return PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_mount(const struct pv_probe_spec *spec)
{
        (void)spec;
        if (mount("none", "/tmp", "tmpfs", 0, NULL) < 0)
                return errno;
        (void)umount2("/tmp", MNT_DETACH);
        return PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_fsopen(const struct pv_probe_spec *spec)
{
        (void)spec;
        pv_auto_fd fd = (int)syscall(SYS_fsopen, "tmpfs", 1 /* FSOPEN_CLOEXEC */);
        return fd >= 0 ? PV_ATTEMPT_SUCCEEDED : errno;
}

int pv_attempt_handle(const struct pv_probe_spec *spec)
{
        struct {
                struct file_handle head;
                unsigned char bytes[MAX_HANDLE_SZ];
        } h = { .head.handle_bytes = MAX_HANDLE_SZ };
        int mount_id;

        (void)spec;
        if (name_to_handle_at(AT_FDCWD, "/", &h.head, &mount_id, 0) < 0)
                h.head.handle_bytes = 8, h.head.handle_type = 1; /* any: permission is asked first */
        pv_auto_fd fd = open_by_handle_at(AT_FDCWD, &h.head, O_RDONLY | O_CLOEXEC);
        return fd >= 0 || errno == ESTALE ? PV_ATTEMPT_SUCCEEDED : errno;
}

/* Opening for writing is what counts; nothing is written. */
int pv_attempt_sysctl(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_open("/proc/sys/kernel/core_pattern", O_WRONLY);
}

int pv_attempt_sysrq(const struct pv_probe_spec *spec)
{
        (void)spec;
        int r = try_open("/proc/sysrq-trigger", O_WRONLY);
        return r == ENOENT ? PV_ATTEMPT_ABSENT : r;
}

/*
 * With namespaces of its own the workload may mount a proc where nothing is read-only, and as the host's root write to
 * it: no capability is asked for. The kernel refuses as long as each proc that it finds in the mount namespace is
 * partly covered, and one that an initramfs left behind under the root is enough to spoil that.
 */
static int write_own_proc(void)
{
        if (mount("proc", "/tmp", "proc", 0, NULL) < 0)
                return errno;
        return try_open("/tmp/sys/kernel/core_pattern", O_WRONLY);
}

/* What comes of an attempt in namespaces of the workload's own, where it may make them. */
static int in_own_namespaces(const struct pv_probe_spec *spec, unsigned long kinds, int attempt(void))
{
        int status;
        long pid;

        if (!spec->plan->allow_userns)
                return PV_ATTEMPT_NOT_MADE;
        pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNS | kinds | SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0)
                _exit(attempt());
        if (pid < 0)
                return errno;
        if (waitpid((pid_t)pid, &status, 0) < 0 || !WIFEXITED(status))
                return PV_ATTEMPT_NOT_MADE;
        return WEXITSTATUS(status);
}

int pv_attempt_own_proc(const struct pv_probe_spec *spec)
{
        return in_own_namespaces(spec, CLONE_NEWPID, write_own_proc);
}

static int mount_own_cgroups(void)
{
        return mount("cgroup2", "/tmp", "cgroup2", 0, NULL) < 0 && errno != EBUSY ? errno : PV_ATTEMPT_SUCCEEDED;
}

int pv_attempt_own_cgroups(const struct pv_probe_spec *spec)
{
        return in_own_namespaces(spec, CLONE_NEWCGROUP, mount_own_cgroups);
}

int pv_attempt_share_socket(const struct pv_probe_spec *spec)
{
        struct sockaddr_un name = { .sun_family = AF_UNIX };

        if (!spec->share)
                return PV_ATTEMPT_NOT_MADE;
        pv_auto_fd dir = open(spec->share, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0) /* the share is not there: nothing was tried */
                return PV_ATTEMPT_NOT_MADE;
        (void)snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d/socket", dir);
        pv_auto_fd s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0)
                return PV_ATTEMPT_NOT_MADE;
        return connect(s, (struct sockaddr *)&name, sizeof name) == 0 || errno == EAGAIN ? PV_ATTEMPT_SUCCEEDED : errno;
}

/* The supervisor holds the canary's reading end: ENXIO says that this one is another FIFO. */
int pv_attempt_share_fifo(const struct pv_probe_spec *spec)
{
        char path[PATH_MAX];

        if (!spec->share || snprintf(path, sizeof path, "%s/fifo", spec->share) >= (int)sizeof path)
                return PV_ATTEMPT_NOT_MADE;
        int r = try_open(path, O_WRONLY);
        return r == ENOENT ? PV_ATTEMPT_NOT_MADE : r;
}

/* Nothing, or an empty directory put over it. */
static int is_hidden(const char *path)
{
        pv_auto_dir d = NULL;
        struct dirent *e;
        struct stat st;

        if (lstat(path, &st) < 0)
                return errno;
        if (S_ISREG(st.st_mode) && st.st_size == 0) /* a mask where no whiteout can be */
                return ENOENT;
        if (!S_ISDIR(st.st_mode))
                return PV_ATTEMPT_SUCCEEDED;
        d = opendir(path);
        while (d && (e = readdir(d)))
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                        return PV_ATTEMPT_SUCCEEDED;
        return ENOENT;
}

int pv_attempt_masks(const struct pv_probe_spec *spec)
{
        char path[PATH_MAX];

        for (size_t i = 0; spec->stores && i < spec->stores->n; i++)
                if (is_hidden(spec->stores->v[i]) == PV_ATTEMPT_SUCCEEDED)
                        return PV_ATTEMPT_SUCCEEDED;
        if (!spec->plan->home || spec->plan->masks.n == 0 ||
            snprintf(path, sizeof path, "%s/%s", spec->plan->home, spec->plan->masks.v[0]) >= (int)sizeof path)
                return PV_ATTEMPT_NOT_MADE;
        return is_hidden(path);
}

int pv_attempt_hidden(const struct pv_probe_spec *spec)
{
        int refusal = PV_ATTEMPT_NOT_MADE;

        for (size_t i = 0; i < spec->plan->hidden.n; i++) {
                refusal = is_hidden(spec->plan->hidden.v[i]);
                if (refusal == PV_ATTEMPT_SUCCEEDED)
                        return refusal;
        }
        return refusal;
}

int pv_attempt_cgroup_files(const struct pv_probe_spec *spec)
{
        char path[sizeof((struct pv_cgroup_effect *)NULL)->dir + 16];

        if (!spec->cgroup || !spec->cgroup[0])
                return PV_ATTEMPT_NOT_MADE;
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", spec->cgroup);
        return try_open(path, O_WRONLY);
}

int pv_attempt_pid_max(const struct pv_probe_spec *spec)
{
        (void)spec;
        return try_open("/proc/sys/kernel/pid_max", O_WRONLY);
}
