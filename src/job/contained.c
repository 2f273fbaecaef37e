/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: to run one command after another over what a job left, each in a boundary of its own, built like the job's and
 * tighter, and to leave nothing behind. Non-job: to record evidence; the job's bundle stays as its run wrote it.
 *
 * Actors: we, trusted, outside; the command, and everything that is staged, hostile. What comes back from it is its
 * exit code and at most max_out bytes, both believed for nothing but what they are.
 *
 * Sequence of one run: a throw-away directory beside the layers (the same filesystem, so that overlayfs takes it as
 * it took them) -> the stage's layers under its upper -> the boundary -> the command -> everything of the boundary is
 * dead -> the directory is removed. Input is a sealed file and not a pipe, so that a command which reads none of it
 * can neither block us nor send us SIGPIPE.
 *
 * What a killed pVisor leaves of these directories is removed by the next look at the same stage.
 */
#include "job/contained.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/clock.h"
#include "base/dir.h"
#include "job/serve.h"
#include "job/store_internal.h"
#include "policy/env.h"
#include "policy/presets.h"

#define GIT_TIME_MS     30000
#define THROWAWAY       "look-"
#define SYSTEM_PATH     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define INPUT_MAX       (1U << 30)
#define SHELL_SIGNALED  128
#define SHELL_TIMED_OUT 124

struct pv_contained {
        bool late;                        /* git took too long once: what made it so is still there */
        struct pv_stage *stage;           /* borrowed */
        const struct pv_freezer *freezer; /* or NULL */
        enum pv_contained_view view;
        struct pv_plan *plan;        /* the job's, tightened; argv, cwd, env and the time limit are set for each run */
        enum pv_home_mode home_mode; /* for a person's command; git gets an empty HOME with its own files in it */
        size_t n_mounts;             /* the job's, of the plan's; those that git gets follow */
        size_t n_all_mounts;
        struct pv_strv passed; /* names of variables that the person passed to the job */
        unsigned runs;
};

static bool opens_something(const struct pv_plan *p, const char *device)
{
        for (size_t i = 0; i < p->n_services; i++)
                if (pv_streq(p->services[i].path, device))
                        return true;
        return false;
}

/* A service or device of the host that the person let the job have is nothing to look with. */
static void drop_services(struct pv_plan *p)
{
        struct pv_strv harmless = { 0 };
        for (size_t i = 0; i < p->devices.n; i++)
                if (!opens_something(p, p->devices.v[i]))
                        pv_strv_add(&harmless, p->devices.v[i]);
        pv_strv_fini(&p->devices);
        p->devices = harmless;
        size_t kept = 0;
        for (size_t i = 0; i < p->n_mounts; i++) {
                struct stat st;
                if (!p->mounts[i].cleaned && /* what was shown of the file is not kept in the plan */
                    (stat(p->mounts[i].src, &st) < 0 || S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))) {
                        p->mounts[kept++] = p->mounts[i];
                        continue;
                }
                pv_mount_fini(&p->mounts[i]);
        }
        p->n_mounts = kept;
}

/* Nor is the agent's login, by its state or by a variable. */
static void drop_login(struct pv_plan *p)
{
        struct pv_strv passed = { 0 };
        for (size_t i = 0; i < p->env_passed.n; i++)
                if (!pv_strv_has(&p->profile.pass_env, p->env_passed.v[i]))
                        pv_strv_add(&passed, p->env_passed.v[i]);
        pv_strv_fini(&p->env_passed);
        p->env_passed = passed;
        pv_strv_fini(&p->profile.pass_env);
        p->profile.pass_env = (struct pv_strv){ 0 };
        pv_plan_forget_kept(p);
}

/* The job's plan, with everything taken away that looking does not need. */
static void tighten(struct pv_plan *p)
{
        p->safe = true;
        p->staged = true;
        p->allow_userns = false;
        p->filesystem = PV_FS_SANDBOX;
        p->net = PV_NET_DENY_ALL;
        drop_login(p);
        drop_services(p);
        p->stdio = PV_STDIO_INHERIT;
        p->limits.timeout_ms = 0;
        p->limits.max_cpu_ms = 0;
        if (p->home_mode == PV_HOME_HOST) {
                p->home_mode = PV_HOME_COW;
                pv_presets_add_masks(&p->masks);
        }
        for (size_t i = 0; i < p->n_mounts; i++)
                if (p->mounts[i].access == PV_MOUNT_WRITE)
                        p->mounts[i].access = PV_MOUNT_READ;
        /*
         * Their probes are not run again, so nothing here could prove a dimension; that they are installed is
         * checked.
         */
        memset(p->required, 0, sizeof p->required);
}

/*
 * The person's own settings of git, above all what they ignore everywhere, read-only in an otherwise empty HOME: the
 * whole HOME would cost each question a hundred masks.
 */
static void add_git_files(struct pv_contained *c)
{
        static const char *const files[] = { ".gitconfig", ".config/git", ".gitignore", ".gitignore_global" };
        struct pv_plan *p = c->plan;
        c->n_mounts = p->n_mounts;
        p->mounts = pv_realloc(p->mounts, p->n_mounts + sizeof files / sizeof *files, sizeof *p->mounts);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                pv_auto_free char *dst = pv_path_join(p->home, files[i]);
                char *src = realpath(dst, NULL);
                if (src)
                        p->mounts[p->n_mounts++] =
                                (struct pv_mount){ .src = src, .dst = pv_steal(&dst), .access = PV_MOUNT_READ };
        }
        c->n_all_mounts = p->n_mounts;
        c->home_mode = p->home_mode;
}

/* Removes the throw-away directories of processes that are gone. */
static void sweep(struct pv_stage *stage)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_dir d = pv_dir_open(pv_stage_dirfd(stage).fd, ".");
        for (struct dirent *e; d && (e = readdir(d));) {
                int pid = 0;
                if (sscanf(e->d_name, THROWAWAY "%d-", &pid) == 1 && pid > 0 && kill(pid, 0) < 0 && errno == ESRCH)
                        (void)pv_path_remove_tree(dirfd(d), e->d_name, &ignored);
        }
}

int pv_contained_open(const struct pv_job *job, struct pv_stage *stage, enum pv_contained_view view,
                      struct pv_contained **out, struct pv_err *err)
{
        if (!job->stage_dir || !stage)
                return pv_err_set(err, PV_ERR_STATE, 0, "job %s was not staged: there is nothing to look into",
                                  job->id);
        pv_auto_contained c = pv_calloc(1, sizeof *c);
        c->stage = stage;
        c->view = view;
        if (pv_job_plan(job, &c->plan, err) < 0)
                return -1;
        if (c->plan->n_roots != pv_stage_n_roots(stage))
                return pv_err_set(err, PV_ERR_INPUT, 0, "job %s is damaged: its request and its stage differ in roots",
                                  job->id);
        tighten(c->plan);
        add_git_files(c);
        c->passed = c->plan->env_passed;
        c->plan->env_passed = (struct pv_strv){ 0 };
        sweep(stage);
        *out = pv_steal(&c);
        return 0;
}

void pv_contained_hold_still(struct pv_contained *c, const struct pv_freezer *freezer)
{
        c->freezer = freezer;
}

void pv_contained_free(struct pv_contained *c)
{
        if (!c)
                return;
        if (c->plan)
                c->plan->n_mounts = c->n_all_mounts ? c->n_all_mounts : c->plan->n_mounts;
        pv_plan_free(c->plan);
        pv_strv_fini(&c->passed);
        free(c);
}

const char *pv_contained_workspace(const struct pv_contained *c)
{
        return c->plan->roots[0].view;
}

/* A directory that is gone when the run is over. */
struct throwaway {
        int parent; /* borrowed */
        char name[48];
        char *path, *scratch;
};

static void throwaway_fini(struct throwaway *t)
{
        struct pv_err ignored = PV_ERR_INIT;
        if (t->path)
                (void)pv_path_remove_tree(t->parent, t->name, &ignored);
        free(t->path);
        free(t->scratch);
}

static int throwaway_make(struct pv_contained *c, struct throwaway *t, struct pv_err *err)
{
        t->parent = pv_stage_dirfd(c->stage).fd;
        (void)snprintf(t->name, sizeof t->name, THROWAWAY "%d-%u", (int)getpid(), c->runs++);
        pv_auto_free char *path = pv_path_join(pv_stage_dir(c->stage), t->name);
        if (mkdirat(t->parent, t->name, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make directory %s", path);
        t->path = pv_steal(&path);
        t->scratch = pv_path_join(t->path, "scratch");
        if (mkdir(t->scratch, 0700) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make directory %s", t->scratch);
        return 0;
}

/* The host alone: no layers, read-only. The array is the caller's. */
static struct pv_overlay *host_overlays(const struct pv_contained *c, const struct pv_overlay *staged)
{
        struct pv_overlay *v = pv_calloc(c->plan->n_roots, sizeof *v);
        for (size_t i = 0; i < c->plan->n_roots; i++)
                v[i] = (struct pv_overlay){ .root = &c->plan->roots[i], .by_fuse = staged[i].by_fuse };
        return v;
}

static int start(struct pv_contained *c, const struct throwaway *t, const int stdio[3], bool terminal,
                 struct pv_serving *serving, struct pv_boundary **out, struct pv_err *err)
{
        struct pv_observations ignored = { 0 };
        pv_auto_free struct pv_overlay *host = NULL;
        const struct pv_overlay *overlays;
        size_t n;
        const struct pv_boundary_spec spec = {
                .plan = c->plan,
                .stdio = { stdio[0], stdio[1], stdio[2] },
                .terminal = terminal,
                .skip_probes = true,
        };
        struct pv_boundary_job job = { .scratch = t->scratch, .stdio = { -1, -1, -1 } };
        if (pv_stage_view_overlays(c->stage, t->path, &overlays, &n, err) < 0)
                return -1;
        if (c->view == PV_CONTAINED_HOST)
                overlays = host = host_overlays(c, overlays);
        if (pv_serve_start(overlays, n, serving, err) < 0)
                return -1;
        job.overlays = serving->overlays;
        job.n_overlays = serving->n;
        return pv_boundary_start(pv_boundary_begin(&spec), &job, out, &ignored, err);
}

static void boundary_freep(struct pv_boundary **b)
{
        if (*b)
                pv_boundary_free(*b);
        *b = NULL;
}
#define auto_boundary __attribute__((cleanup(boundary_freep))) struct pv_boundary *
static void serving_fini(struct pv_serving *s)
{
        (void)pv_serve_end(s);
}
#define auto_serving   __attribute__((cleanup(serving_fini))) struct pv_serving
#define auto_throwaway __attribute__((cleanup(throwaway_fini))) struct throwaway

static int shell_code(const struct pv_exit *e)
{
        switch (e->end) {
        case PV_END_EXITED:
                return e->code;
        case PV_END_TIMEOUT:
                return SHELL_TIMED_OUT;
        case PV_END_SIGNALED:
                return SHELL_SIGNALED + e->code;
        case PV_END_KILLED:
        case PV_END_STAGE_SIZE:
        default:
                return SHELL_SIGNALED + SIGKILL;
        }
}

/* The command line and the directory of the next run. */
static void set_command(struct pv_plan *p, char *const *argv, const char *cwd)
{
        pv_plan_set_argv(p, argv);
        free(p->cwd);
        p->cwd = pv_strdup(cwd);
}

static void clear_environment(struct pv_plan *p)
{
        struct pv_strv *const lists[] = { &p->env, &p->env_passed, &p->env_injected };
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
                pv_strv_fini(lists[i]);
                *lists[i] = (struct pv_strv){ 0 };
        }
}

/* For a person's command: as a run's, with the values of now. */
static void prepare_for_person(struct pv_contained *c)
{
        clear_environment(c->plan);
        pv_env_fill(c->plan, environ, &c->passed);
        c->plan->home_mode = c->home_mode;
        c->plan->n_mounts = c->n_mounts;
        c->plan->limits.timeout_ms = 0;
}

/* For git: nothing of the person's, no question on a terminal, no lock taken, every repository in the view allowed. */
static void prepare_for_git(struct pv_contained *c, uint64_t ms)
{
        static const char *const fixed[] = {
                "PATH=" SYSTEM_PATH,     "LANG=C.UTF-8",       "GIT_OPTIONAL_LOCKS=0",
                "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory",
                "GIT_CONFIG_VALUE_0=*",
        };
        clear_environment(c->plan);
        pv_strv_take(&c->plan->env, pv_strf("HOME=%s", c->plan->home));
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
                pv_strv_add(&c->plan->env, fixed[i]);
        c->plan->home_mode = PV_HOME_EMPTY;
        c->plan->n_mounts = c->n_all_mounts;
        c->plan->limits.timeout_ms = ms;
}

int pv_contained_run(struct pv_contained *c, const struct pv_contained_command *command, int *code, struct pv_err *err)
{
        struct pv_exit end = { 0 };
        auto_throwaway t = { .parent = -1 };
        if (throwaway_make(c, &t, err) < 0 ||
            (c->freezer && pv_stage_copy_for_views(c->stage, t.path, c->freezer, err) < 0))
                return -1;
        set_command(c->plan, command->argv, command->cwd ? command->cwd : pv_contained_workspace(c));
        prepare_for_person(c);
        auto_serving serving = PV_SERVING_INIT;
        auto_boundary b = NULL; /* declared after these, so that it ends first */
        if (start(c, &t, command->stdio, command->terminal, &serving, &b, err) < 0 ||
            pv_boundary_wait(b, &end, err) < 0)
                return -1;
        *code = shell_code(&end);
        return 0;
}

/*
 * Waits until there is something to read. Signals are let through as they were before the boundary began to hold them
 * back: Ctrl-C ends us, and the kernel the boundary. 1, 0 when the time is up, -1 with errno.
 */
static int wait_readable(int fd, uint64_t deadline, const sigset_t *mask)
{
        uint64_t now = pv_clock_monotonic_ms();
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (now >= deadline)
                return 0;
        uint64_t left = deadline - now;
        const struct timespec t = { .tv_sec = (time_t)(left / 1000), .tv_nsec = (long)(left % 1000) * 1000000 };
        return ppoll(&p, 1, &t, mask);
}

/* Where the output of a collected run goes, and how much of it, for how long. */
struct sink {
        struct pv_str *text; /* or NULL: to fd */
        int fd;
        uint64_t max, n;
        uint64_t ms;
};

/* Reads until nobody can write any more. */
static int collect(int fd, struct sink *to, const sigset_t *mask, const char *what, struct pv_err *err)
{
        char buf[65536];
        uint64_t deadline = pv_clock_monotonic_ms() + to->ms;
        for (;;) {
                int ready = wait_readable(fd, deadline, mask);
                if (ready < 0 && errno == EINTR)
                        continue;
                if (ready == 0)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "%s: took longer than %d s", what,
                                          (int)(to->ms / 1000));
                ssize_t n = ready < 0 ? -1 : read(fd, buf, sizeof buf);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return pv_err_set(err, PV_ERR_SYS, errno, "%s: read its output", what);
                if (n == 0)
                        return 0;
                if ((uint64_t)n > to->max - to->n)
                        return pv_err_set(err, PV_ERR_INPUT, 0, "%s: said more than %llu bytes", what,
                                          (unsigned long long)to->max);
                to->n += (uint64_t)n;
                if (to->text)
                        pv_str_put_bytes(to->text, buf, (size_t)n);
                else if (pv_fd_write_all(to->fd, buf, (size_t)n, what, err) < 0)
                        return -1;
        }
}

static int input_file(const void *in, size_t len, struct pv_err *err)
{
        if (len > INPUT_MAX)
                return pv_err_set(err, PV_ERR_INPUT, 0, "input of a contained command: too long");
        pv_auto_fd fd = memfd_create("pvisor-input", MFD_CLOEXEC);
        if (fd < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "input of a contained command");
        if (pv_fd_write_all(fd, in, len, "input of a contained command", err) < 0)
                return -1;
        if (lseek(fd, 0, SEEK_SET) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "input of a contained command");
        return pv_fd_steal(&fd);
}

static int run_collected(struct pv_contained *c, char *const argv[], int in, struct sink *sink, struct pv_exit *end,
                         struct pv_err *err)
{
        int pipefd[2];
        sigset_t mask;
        (void)sigprocmask(SIG_BLOCK, NULL, &mask);
        (void)sigaddset(&mask, SIGCHLD); /* the boundary's own */
        auto_throwaway t = { .parent = -1 };
        pv_auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0 || pipe2(pipefd, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "%s: its output", argv[0]);
        pv_auto_fd from = pipefd[0];
        pv_auto_fd to = pipefd[1];
        if (throwaway_make(c, &t, err) < 0)
                return -1;
        set_command(c->plan, argv, pv_contained_workspace(c));
        prepare_for_git(c, sink->ms);
        auto_serving serving = PV_SERVING_INIT;
        auto_boundary b = NULL;
        if (start(c, &t, (int[]){ in < 0 ? null : in, to, null }, false, &serving, &b, err) < 0)
                return -1;
        pv_fd_closep(&to);
        if (collect(from, sink, &mask, argv[0], err) < 0)
                return -1; /* whatever still runs is killed with the boundary */
        return pv_boundary_wait(b, end, err);
}

static int run_with_input(struct pv_contained *c, char *const argv[], const void *in, size_t in_len, struct sink *to,
                          int *exit_code, struct pv_err *err)
{
        struct pv_exit end = { 0 };
        pv_auto_fd input = -1;
        if (in_len > 0 && (input = input_file(in, in_len, err)) < 0)
                return -1;
        if (run_collected(c, argv, input, to, &end, err) < 0)
                return -1;
        *exit_code = shell_code(&end);
        return 0;
}

static int git_run(void *ctx, char *const argv[], const void *in, size_t in_len, size_t max_out, char **out,
                   size_t *out_len, int *exit_code, struct pv_err *err)
{
        pv_auto_str text = { 0 };
        struct pv_contained *c = ctx;
        if (c->late)
                return pv_err_set(err, PV_ERR_INPUT, 0, "%s: took longer than %d s before", argv[0],
                                  GIT_TIME_MS / 1000);
        struct sink to = { .text = &text, .fd = -1, .max = max_out, .ms = GIT_TIME_MS };
        uint64_t began = pv_clock_monotonic_ms();
        if (run_with_input(c, argv, in, in_len, &to, exit_code, err) < 0) {
                c->late = pv_clock_monotonic_ms() - began >= GIT_TIME_MS;
                return -1;
        }
        *out_len = text.len;
        *out = pv_str_steal(&text);
        return 0;
}

static int git_run_to(void *ctx, char *const argv[], const void *in, size_t in_len, int out_fd, uint64_t max_out,
                      unsigned seconds, int *exit_code, struct pv_err *err)
{
        struct sink to = { .fd = out_fd, .max = max_out, .ms = seconds * 1000ULL };
        return run_with_input(ctx, argv, in, in_len, &to, exit_code, err);
}

void pv_contained_git(struct pv_contained *c, struct pv_git_runner *out)
{
        out->run = git_run;
        out->run_to = git_run_to;
        out->ctx = c;
}
