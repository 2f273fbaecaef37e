/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/child_test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include "base/fd.h"
#include "boundary/control.h"
#include "boundary/limits.h"

static const struct pv_cgroup_effect no_cgroup = { 0 };

static void apply(const struct pv_limits *limits, uint64_t pid_max, unsigned flags, struct pv_observations *obs)
{
        struct pv_err err = PV_ERR_INIT;

        obs->n = 0;
        CHILD_CHECK(pv_limits_apply(limits, &no_cgroup, pid_max, flags, obs, &err) == 0);
}

/* How many children that wait can be had, up to most; they are killed before it returns. */
static int fork_until_refused(int most)
{
        static pid_t pids[4000];
        int n = 0;

        while (n < most && n < 4000) {
                pids[n] = fork();
                if (pids[n] == 0) {
                        (void)pause();
                        _exit(0);
                }
                if (pids[n] < 0)
                        break;
                n++;
        }
        for (int i = 0; i < n; i++) {
                (void)kill(pids[i], SIGKILL);
                (void)waitpid(pids[i], NULL, 0);
        }
        return n;
}

static int files_and_memory(void *arg)
{
        static struct pv_observations obs;
        const struct pv_limits limits = { .memory_bytes = 64 << 20, .max_open_files = 20, .max_file_bytes = 4096 };
        char page[8192] = { 0 };
        void *before = mmap(NULL, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        (void)arg;
        CHILD_CHECK(before != MAP_FAILED && munmap(before, 128 << 20) == 0); /* the twin */
        apply(&limits, 0, PV_LIMITS_NO_CORE, &obs);
        CHILD_CHECK(obs.n == 4);
        for (unsigned i = 0; i < obs.n; i++)
                CHILD_CHECK(obs.item[i].installed && obs.item[i].effective == obs.item[i].requested);
        CHILD_CHECK(mmap(NULL, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
        /* Reserving without using stays possible. */
        CHILD_CHECK(mmap(NULL, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
        CHILD_CHECK(fcntl(0, F_DUPFD, 19) >= 0 && fcntl(0, F_DUPFD, 20) < 0);
        (void)signal(SIGXFSZ, SIG_IGN);
        int fd = open("/tmp", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0)
                CHILD_CHECK(write(fd, page, sizeof page) == 4096 && write(fd, page, 1) < 0 && errno == EFBIG);
        struct rlimit core;
        CHILD_CHECK(getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 1);
        return 0;
}

static void files_and_memory_are_held(void **state)
{
        (void)state;
        assert_int_equal(in_child(files_and_memory, NULL), 0);
}

static int cpu(void *arg)
{
        static struct pv_observations obs;
        const struct pv_limits limits = { .max_cpu_ms = 1 };
        volatile unsigned long n = 0;

        (void)arg;
        apply(&limits, 0, 0, &obs);
        while (n + 1 != 0)
                n++;
        return 0;
}

static void cpu_time_ends_a_process(void **state)
{
        (void)state;
        assert_int_equal(in_child(cpu, NULL), 128 + SIGXCPU);
}

static int user_processes(void *arg)
{
        static struct pv_observations obs;
        const struct pv_limits limits = { .max_processes = 10 };

        (void)arg;
        if (enter_userns(0) < 0)
                return 77;
        CHILD_CHECK(fork_until_refused(40) == 40); /* the twin */
        apply(&limits, 0, 0, &obs);
        int n = fork_until_refused(40);
        return n >= 9 && n <= 10 + PV_LIMITS_OWN_PROCESSES ? 0 : 1;
}

static void a_user_is_held_by_the_namespace_count(void **state)
{
        (void)state;
        if (geteuid() == 0)
                skip(); /* RLIMIT_NPROC does not hold root: the next test's business */
        int r = in_child(user_processes, NULL);
        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static int first_in_namespace(void)
{
        static struct pv_observations obs;
        const struct pv_limits limits = { .max_processes = 50 };
        struct pv_err err = PV_ERR_INIT;
        uint64_t pid_max = 0;

        if (mount("proc", "/proc", "proc", 0, NULL) < 0)
                return 77;
        pv_auto_fd sysctl = open("/proc/sys", O_PATH | O_CLOEXEC);
        CHILD_CHECK(pv_limits_apply_namespace(&limits, sysctl, &pid_max, &err) == 0);
        apply(&limits, pid_max, PV_LIMITS_ROOT, &obs);
        struct pv_observation *o = pv_observations_find(&obs, PV_DIM_RESOURCES, PV_LIMIT_PROCESSES);
        CHILD_CHECK(o && o->effective == pid_max);
        if (pid_max == 0)
                return o->installed ? 1 : 77;
        CHILD_CHECK(fork_until_refused(1000) <= 350);
        int n = fork_until_refused(1000); /* the numbers have run out once */
        return n >= 40 && n <= 50 + PV_LIMITS_OWN_PROCESSES ? 0 : 1;
}

static int root_processes(void *arg)
{
        int status;

        (void)arg;
        if ((is_host_root() ? enter_userns_of_root : enter_userns)(CLONE_NEWNS | CLONE_NEWPID) < 0)
                return 77;
        pid_t pid = fork();
        if (pid == 0)
                _exit(first_in_namespace());
        CHILD_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        return WEXITSTATUS(status);
}

/*
 * The setting of the machine, which root may write in any namespace: a user namespace, but no pid namespace of its
 * own.
 */
static int machines_pid_max(void *arg)
{
        const struct pv_limits limits = { .max_processes = 50 };
        struct pv_err err = PV_ERR_INIT;
        uint64_t pid_max = 1;

        (void)arg;
        if ((is_host_root() ? enter_userns_of_root : enter_userns)(CLONE_NEWNS) < 0)
                return 77;
        pv_auto_fd sysctl = open("/proc/sys", O_PATH | O_CLOEXEC);
        CHILD_CHECK(pv_limits_apply_namespace(&limits, sysctl, &pid_max, &err) == 0);
        return pid_max == 0 ? 0 : 1;
}

static long read_pid_max(void)
{
        long n = -1;
        FILE *f = fopen("/proc/sys/kernel/pid_max", "re");

        if (f) {
                if (fscanf(f, "%ld", &n) != 1)
                        n = -1;
                (void)fclose(f);
        }
        return n;
}

static void the_machines_own_setting_is_left_alone(void **state)
{
        (void)state;
        long before = read_pid_max();
        int r = in_child(machines_pid_max, NULL);

        assert_int_equal(read_pid_max(), before);
        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static void anybody_is_held_by_the_pid_namespace(void **state)
{
        (void)state;
        int r = in_child(root_processes, NULL);

        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static int in_group(int entered)
{
        char c;
        if (read(entered, &c, 1) != 1)
                return 1;
        int n = fork_until_refused(100);
        return n >= 19 && n <= 20 + PV_LIMITS_OWN_PROCESSES ? 0 : 1;
}

static void a_group_holds_all_of_it(void **state)
{
        (void)state;
        const struct pv_limits limits = { .max_processes = 20, .memory_bytes = 256 << 20 };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_cgroup g = NULL;
        int status, entered[2];

        assert_int_equal(pv_cgroup_open(&limits, &g, &err), 0);
        if (!g || pv_cgroup_effect(g).max_processes == 0)
                skip();
        assert_int_equal(pipe(entered), 0);
        pid_t pid = fork();
        if (pid == 0) {
                (void)close(entered[1]);
                _exit(in_group(entered[0]));
        }
        assert_int_equal(pv_cgroup_enter(g, pid, &err), 0);
        assert_int_equal(write(entered[1], "", 1), 1);
        (void)close(entered[0]);
        (void)close(entered[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void no_limit_needs_no_group(void **state)
{
        (void)state;
        const struct pv_limits limits = { .max_open_files = 20 };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_cgroup g = NULL;

        assert_int_equal(pv_cgroup_open(&limits, &g, &err), 0);
        assert_null(g);
        assert_int_equal(pv_cgroup_effect(g).version, 0);
        assert_false(pv_cgroup_kill(g));
        assert_null(pv_cgroup_path(g));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(files_and_memory_are_held),
                cmocka_unit_test(cpu_time_ends_a_process),
                cmocka_unit_test(a_user_is_held_by_the_namespace_count),
                cmocka_unit_test(the_machines_own_setting_is_left_alone),
                cmocka_unit_test(anybody_is_held_by_the_pid_namespace),
                cmocka_unit_test(a_group_holds_all_of_it),
                cmocka_unit_test(no_limit_needs_no_group),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
