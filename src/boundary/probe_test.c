/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every probe twice: on the bare host, where what it tries must succeed, and in a sandbox made here by hand (not by
 * the launcher, which has its own tests), where it must be refused.
 */
#include "boundary/child_test.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include "base/path.h"
#include "base/str.h"
#include "boundary/canary.h"
#include "boundary/caps.h"
#include "boundary/control.h"
#include "boundary/landlock.h"
#include "boundary/limits.h"
#include "boundary/probe.h"
#include "boundary/probe_attempt.h"
#include "boundary/seccomp.h"

static char scratch[64], *host;
static struct pv_canary canary;
static struct pv_plan plan;
static struct pv_root root;
static struct pv_probe_identity identity;
static struct pv_probe_spec spec;

static int setup(void **state)
{
        struct pv_err err = PV_ERR_INIT;
        struct stat st;
        unsigned kinds = PV_CANARY_PATHS | PV_CANARY_ABSTRACT | PV_CANARY_NETWORK;

        (void)state;
        (void)snprintf(scratch, sizeof scratch, "/tmp/pv-probe-XXXXXX");
        assert_non_null(mkdtemp(scratch));
        host = pv_path_join(scratch, "host");
        assert_int_equal(mkdir(host, 0700), 0);
        assert_int_equal(stat(host, &st), 0);
        assert_int_equal(pv_canary_open(&canary, kinds, scratch, &err), 0);

        identity = (struct pv_probe_identity){ st.st_dev, st.st_ino };
        root = (struct pv_root){ .target = host, .view = host };
        plan = (struct pv_plan){ .roots = &root, .n_roots = 1, .home = scratch };
        pv_strv_add(&plan.masks, canary.dir + strlen(scratch) + 1);
        pv_strv_add(&plan.hidden, canary.dir);
        pv_strv_add(&plan.env, "DEPLOY_TOKEN=x");
        spec = (struct pv_probe_spec){ .plan = &plan,
                                       .canary = &canary,
                                       .roots = &identity,
                                       .share = canary.dir,
                                       .read_only = scratch,
                                       .keep_fd = -1 };
        return 0;
}

static int teardown(void **state)
{
        struct pv_err err = PV_ERR_INIT;

        (void)state;
        pv_canary_close(&canary);
        assert_int_equal(access(canary.dir[0] ? canary.dir : "/nonexistent", F_OK), -1);
        assert_int_equal(pv_path_remove_tree(AT_FDCWD, scratch, &err), 0);
        pv_strv_fini(&plan.masks);
        pv_strv_fini(&plan.hidden);
        pv_strv_fini(&plan.env);
        free(host);
        return 0;
}

/* What an ordinary process does, on any host. Not below /proc/1/root: the host's pid 1 may be out of root's reach. */
static const struct {
        const char *name;
        pv_attempt *attempt;
        bool as_root;
} bare[] = {
        { "read absolute", pv_attempt_read_absolute, false },
        { "read dotdot", pv_attempt_read_dotdot, false },
        { "read self root", pv_attempt_read_self_root, false },
        { "read host process", pv_attempt_read_host_process, false },
        { "read by fd", pv_attempt_read_by_fd, false },
        { "create absolute", pv_attempt_create_absolute, false },
        { "create dotdot", pv_attempt_create_dotdot, false },
        { "create self root", pv_attempt_create_self_root, false },
        { "create by fd", pv_attempt_create_by_fd, false },
        { "root absolute", pv_attempt_root_absolute, false },
        { "root dotdot", pv_attempt_root_dotdot, false },
        { "root self root", pv_attempt_root_self_root, false },
        { "create read-only", pv_attempt_create_read_only, false },
        { "fsopen", pv_attempt_fsopen, true },
        { "handle", pv_attempt_handle, true },
        { "sysctl", pv_attempt_sysctl, true },
        { "share socket", pv_attempt_share_socket, false },
        { "share fifo", pv_attempt_share_fifo, false },
        { "masks", pv_attempt_masks, false },
        { "hidden", pv_attempt_hidden, false },
        { "tcp4", pv_attempt_tcp4, false },
        { "tcp6", pv_attempt_tcp6, false },
        { "udp4", pv_attempt_udp4, false },
        { "udp6", pv_attempt_udp6, false },
        { "abstract", pv_attempt_abstract, false },
        { "packet", pv_attempt_packet, true },
        { "signal", pv_attempt_signal_pid, false },
        { "pidfd", pv_attempt_signal_pidfd, false },
        { "host proc", pv_attempt_host_proc, false },
        { "take descriptor", pv_attempt_take_descriptor, true },
        { "hostname", pv_attempt_hostname, true },
        { "no_new_privs", pv_attempt_no_new_privs, false },
        { "ipc namespace", pv_attempt_ipc_namespace, false },
        { "terminal input", pv_attempt_terminal_input, false },
        { "bpf", pv_attempt_bpf, true },
        { "module", pv_attempt_module, true },
        { "keyring", pv_attempt_keyring, false },
        { "descriptors", pv_attempt_descriptors, false },
        { "secrets", pv_attempt_secrets, false },
};

static int try_bare(void *arg)
{
        int wrong = 0;

        (void)arg;
        for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
                if (bare[i].as_root && !is_host_root())
                        continue;
                int r = bare[i].attempt(&spec);
                /* ENOSYS: not in this kernel. Absent: no IPv6 here, say. */
                if (r != PV_ATTEMPT_SUCCEEDED && r != PV_ATTEMPT_ABSENT && r != ENOSYS) {
                        (void)fprintf(stderr, "%s: %d on the bare host\n", bare[i].name, r);
                        wrong = 1;
                }
        }
        return wrong;
}

static void on_the_bare_host_each_attempt_succeeds(void **state)
{
        (void)state;
        assert_int_equal(in_child(try_bare, NULL), 0);
        assert_int_equal(access(canary.dir, F_OK), 0);
}

static void raise_loopback(void)
{
        struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        CHILD_CHECK(ioctl(s, SIOCSIFFLAGS, &lo) == 0);
        (void)close(s);
}

/* An empty root but for /usr, /proc, an empty `host` and the shares' own mechanism, a lower-only overlay. */
static void build_root(void)
{
        char new_root[] = "/tmp/pv-probe-root-XXXXXX", to[256], options[512];
        int tmp = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);

        CHILD_CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        CHILD_CHECK(mkdtemp(new_root) && mount("root", new_root, "tmpfs", 0, NULL) == 0);
        CHILD_CHECK(chdir(new_root) == 0 && mkdir("usr", 0700) == 0 && mkdir("proc", 0700) == 0);
        CHILD_CHECK(mkdir("share", 0700) == 0 && mkdir("empty", 0700) == 0 && mkdir("tmp", 0700) == 0);
        CHILD_CHECK(mount("/usr", "usr", NULL, MS_BIND | MS_REC, NULL) == 0);
        CHILD_CHECK(mount(NULL, "usr", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) == 0);
        CHILD_CHECK(mount("proc", "proc", "proc", 0, NULL) == 0);
        CHILD_CHECK(mount("proc/sys", "proc/sys", NULL, MS_BIND, NULL) == 0);
        CHILD_CHECK(mount(NULL, "proc/sys", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0);
        if (access("proc/sysrq-trigger", F_OK) == 0) {
                CHILD_CHECK(mount("proc/sysrq-trigger", "proc/sysrq-trigger", NULL, MS_BIND, NULL) == 0);
                CHILD_CHECK(mount(NULL, "proc/sysrq-trigger", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) == 0);
        }
        (void)snprintf(options, sizeof options, "lowerdir=%s:%s/empty,userxattr", canary.dir, new_root);
        CHILD_CHECK(mount("share", "share", "overlay", MS_RDONLY, options) == 0);
        (void)snprintf(to, sizeof to, "%s%s", new_root, scratch);
        CHILD_CHECK(mkdir(to, 0700) == 0);
        (void)snprintf(to, sizeof to, "%s%s", new_root, host);
        CHILD_CHECK(mkdir(to, 0700) == 0);
        CHILD_CHECK(syscall(SYS_pivot_root, ".", ".") == 0 && umount2(".", MNT_DETACH) == 0 && chdir("/") == 0);
        CHILD_CHECK(unlinkat(tmp, strrchr(new_root, '/') + 1, AT_REMOVEDIR) == 0 && close(tmp) == 0);
}

static struct pv_observations obs;

static void claim(enum pv_dimension d, const char *control)
{
        pv_observations_add(&obs, d, control, "by hand")->installed = true;
}

static void claim_all(void)
{
        claim(PV_DIM_WORKSPACE_WRITES, PV_CONTROL_STAGE);
        claim(PV_DIM_HOST_WRITES, PV_CONTROL_ROOT);
        claim(PV_DIM_HOST_WRITES, PV_CONTROL_RO);
        claim(PV_DIM_HOST_WRITES, PV_CONTROL_SHARES);
        claim(PV_DIM_HOST_WRITES, PV_CONTROL_PROC);
        claim(PV_DIM_READS, PV_CONTROL_ROOT);
        claim(PV_DIM_SENSITIVE_PATHS, PV_CONTROL_HOME);
        claim(PV_DIM_NETWORK, PV_CONTROL_NETNS);
        claim(PV_DIM_CREDENTIALS, PV_CONTROL_ENV);
        claim(PV_DIM_CREDENTIALS, PV_CONTROL_FDS);
        claim(PV_DIM_SUBPROCESSES, PV_CONTROL_PIDNS);
        claim(PV_DIM_SUBPROCESSES, PV_CONTROL_IPCNS);
        claim(PV_DIM_SUBPROCESSES, PV_CONTROL_USERNS);
}

static void build_walls(void)
{
        static const struct pv_limits limits = { .max_open_files = 64, .max_cpu_ms = 10000 };
        static const struct pv_cgroup_effect none = { 0 };
        struct pv_view view = { .base = PV_VIEW_NEW_ROOT };
        struct pv_err err = PV_ERR_INIT;

        pv_view_add(&view, PV_VIEW_SYSTEM, "/usr", "/usr");
        pv_view_add(&view, PV_VIEW_PROC, NULL, "/proc");
        pv_view_add(&view, PV_VIEW_READ, canary.dir, "/share");
        CHILD_CHECK(pv_caps_no_new_privs(&obs, &err) == 0);
        CHILD_CHECK(pv_landlock_confine(&view, PV_LANDLOCK_SCOPE_ABSTRACT, &obs, &err) == 0);
        CHILD_CHECK(pv_caps_drop(PV_CAPS_NONE, &obs, &err) == 0);
        CHILD_CHECK(pv_landlock_scope_processes(&obs, &err) == 0);
        CHILD_CHECK(pv_seccomp_install(PV_SECCOMP_NO_IO_URING, NULL, &obs, &err) == 0);
        CHILD_CHECK(pv_limits_apply(&limits, &none, 0, PV_LIMITS_NO_CORE, &obs, &err) == 0);
        pv_view_fini(&view);
}

static double microseconds(void)
{
        struct timespec t;

        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int report(double took)
{
        const struct pv_probe *breach = pv_observations_first_breach(&obs);
        int wrong = 0;

        if (breach) {
                (void)fprintf(stderr, "%s succeeded\n", breach->name);
                return 1;
        }
        for (unsigned i = 0; i < obs.n; i++) {
                const struct pv_observation *o = &obs.item[i];
                bool weak = o->level !=
                            (strcmp(o->control, PV_LIMIT_CPU_TIME) == 0 ? PV_LEVEL_COOPERATIVE : PV_LEVEL_ENFORCED);

                if (o->installed && weak) {
                        (void)fprintf(stderr, "%s of %s is %d\n", o->control, pv_dimension_name(o->dimension),
                                      o->level);
                        wrong = 1;
                }
        }
        (void)printf("%u controls probed in %.0f us\n", obs.n, took);
        (void)fflush(stdout);
        return wrong;
}

static int in_sandbox(void)
{
        double start;

        build_root();
        CHILD_CHECK(enter_userns(0) == 0);
        claim_all();
        build_walls();
        for (int fd = 3; fd < 1024; fd++)
                if (fd != canary.dir_fd && fd != canary.supervisor_fd)
                        (void)close(fd);
        spec.share = "/share";
        spec.read_only = "/usr";
        plan.env.n = 0;
        start = microseconds();
        pv_probe_run(&spec, &obs);
        return report(microseconds() - start);
}

static int try_sandbox(void *arg)
{
        int status;

        (void)arg;
        if (enter_userns(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
                return 77;
        raise_loopback();
        pid_t init = fork();
        if (init == 0) { /* pid 1 of the namespace; the workload is another */
                pid_t pid = fork();
                if (pid == 0)
                        _exit(in_sandbox());
                CHILD_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
                _exit(WEXITSTATUS(status));
        }
        CHILD_CHECK(waitpid(init, &status, 0) == init && WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void in_a_sandbox_each_is_refused(void **state)
{
        (void)state;
        int r = in_child(try_sandbox, NULL);

        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static int try_skip(void *arg)
{
        (void)arg;
        claim_all();
        spec.skip = true;
        pv_probe_run(&spec, &obs);
        CHILD_CHECK(pv_observations_first_breach(&obs) == NULL);
        for (unsigned i = 0; i < obs.n; i++)
                CHILD_CHECK(obs.item[i].level != PV_LEVEL_ENFORCED && obs.item[i].n_probes > 0);
        return 0;
}

static void skipped_probes_earn_nothing(void **state)
{
        (void)state;
        assert_int_equal(in_child(try_skip, NULL), 0);
}

static int try_claims(void *arg)
{
        (void)arg;
        claim_all();
        pv_probe_run(&spec, &obs);
        for (int d = 0; d < PV_DIM_RESOURCES; d++)
                CHILD_CHECK(pv_observations_level(&obs, (enum pv_dimension)d) == PV_LEVEL_UNENFORCED);
        return pv_observations_first_breach(&obs) ? 0 : 1;
}

static void a_claim_without_a_wall_is_found_out(void **state)
{
        (void)state;
        assert_int_equal(in_child(try_claims, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(on_the_bare_host_each_attempt_succeeds, setup, teardown),
                cmocka_unit_test_setup_teardown(in_a_sandbox_each_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(skipped_probes_earn_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(a_claim_without_a_wall_is_found_out, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
