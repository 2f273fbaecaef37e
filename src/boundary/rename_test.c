/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The helper at work: an overlay in a user namespace, a small pid 1, and a workload that renames. Each test is one
 * function of the workload; its twin, without the helper, is that the same rename fails with EXDEV.
 */
#include "boundary/child_test.h"

#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "boundary/landlock.h"
#include "boundary/rename.h"
#include "boundary/seccomp.h"

static struct pv_observations obs;
static char top[64];

/* lower/d holds a file, a directory with a file, a link, a FIFO; lower/big many files; lower/e is empty. */
static void make_lower(void)
{
        CHILD_CHECK(mkdir("lower", 0755) == 0 && mkdir("upper", 0755) == 0 && mkdir("work", 0755) == 0);
        CHILD_CHECK(mkdir("view", 0755) == 0);
        CHILD_CHECK(
                system("cd lower && mkdir d d/sub e big ro && echo one > d/file && echo two > d/sub/file &&"
                       "ln -s file d/link && mkfifo d/fifo && echo x > ro/file && chmod 555 ro && chmod 751 d/sub &&"
                       "truncate -s 1M d/sparse && touch -d @1000000 d/file d/sub && echo other > f &&"
                       "for i in $(seq 300); do echo $i > big/$i; done") == 0);
        (void)setxattr("lower/d/sub", "user.note", "kept", 4, 0);
}

static void mount_view(void)
{
        char options[4096], base[256];

        CHILD_CHECK(getcwd(base, sizeof base) != NULL);
        (void)snprintf(options, sizeof options, "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work,userxattr", base,
                       base, base);
        CHILD_CHECK(mount("view", "view", "overlay", 0, options) == 0);
        CHILD_CHECK(chdir("view") == 0);
}

/* Pid 1 until `command` has ended; its status. */
static int reap_all(struct pv_rename *r, pid_t command)
{
        int listener = -1, result = -1;

        while (result < 0) {
                int status;
                pid_t pid = waitpid(-1, &status, listener < 0 ? 0 : WNOHANG);

                if (pid == 0) {
                        struct pollfd p = { .fd = listener, .events = POLLIN };

                        if (poll(&p, 1, 10) > 0 && !pv_rename_continue(listener))
                                pv_fd_closep(&listener);
                }
                if (pv_rename_reaped(r, pid))
                        listener = pv_rename_take_over(r);
                if (pid == command)
                        result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        return result;
}

struct test {
        int (*run)(void);
        bool helped, layered; /* with the helper; with Landlock's second layer over the workload */
};

static void become_workload(struct pv_rename *r, const struct test *t)
{
        struct pv_err err = PV_ERR_INIT;
        int listener = -1;

        CHILD_CHECK(enter_userns(0) == 0);
        CHILD_CHECK(pv_caps_no_new_privs(&obs, &err) == 0);
        if (t->helped)
                CHILD_CHECK(pv_rename_fork(r, PV_CAPS_NONE, &err) == 0);
        CHILD_CHECK(pv_caps_drop(PV_CAPS_NONE, &obs, &err) == 0);
        if (t->layered)
                CHILD_CHECK(pv_landlock_scope_processes(&obs, &err) == 0);
        CHILD_CHECK(pv_seccomp_install(t->helped ? PV_SECCOMP_RENAME : 0, &listener, &obs, &err) == 0);
        if (t->helped)
                CHILD_CHECK(pv_rename_hand_over(r, listener, &err) == 0);
}

static int pid_1(const struct test *t)
{
        struct pv_rename r = PV_RENAME_INIT;
        struct pv_err err = PV_ERR_INIT;

        if (mount("proc", "/proc", "proc", 0, NULL) < 0)
                return 77;
        CHILD_CHECK(chdir(top) == 0);
        if (mount("tmpfs", ".", "tmpfs", 0, NULL) < 0 || chdir(top) < 0)
                return 77;
        make_lower();
        mount_view();
        CHILD_CHECK(pv_rename_prepare(&r, &err) == 0);
        pid_t pid = fork();
        if (pid == 0) {
                become_workload(&r, t);
                _exit(t->run());
        }
        return reap_all(&r, pid);
}

static int in_namespaces(void *arg)
{
        int status;

        if (enter_userns(CLONE_NEWNS | CLONE_NEWPID) < 0)
                return 77;
        CHILD_CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        pid_t pid = fork();
        if (pid == 0)
                _exit(pid_1(arg));
        CHILD_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void check(int (*run)(void), bool helped)
{
        struct test t = { run, helped, true };
        int r = in_child(in_namespaces, &t);

        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static int setup(void **state)
{
        (void)state;
        (void)snprintf(top, sizeof top, "/tmp/pv-rename-XXXXXX");
        return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
        (void)state;
        return rmdir(top);
}

static bool has(const char *path, const char *content)
{
        char text[64] = "";
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);

        return fd >= 0 && read(fd, text, sizeof text - 1) >= 0 && strcmp(text, content) == 0;
}

/* Nothing of the helper's own is left in the view. */
static bool is_clean(void)
{
        return system("test -z \"$(find . -name '.pvisor*')\"") == 0;
}

static int plain(void)
{
        CHILD_CHECK(rename("d", "moved") < 0 && errno == EXDEV);
        CHILD_CHECK(mkdir("new", 0755) == 0 && rename("new", "newer") == 0);
        return rename("f", "g");
}

static void without_it_a_lower_directory_stays(void **state)
{
        (void)state;
        check(plain, false);
}

static int whole(void)
{
        struct stat file, sub, sparse;
        char note[8] = "";

        int fd = open("d/file", O_RDWR | O_CLOEXEC); /* goes on working */
        CHILD_CHECK(fd >= 0);
        CHILD_CHECK(rename("d", "moved") == 0);
        CHILD_CHECK(access("d", F_OK) < 0 && errno == ENOENT);
        CHILD_CHECK(has("moved/file", "one\n") && has("moved/sub/file", "two\n") && has("moved/link", "one\n"));
        CHILD_CHECK(stat("moved/file", &file) == 0 && file.st_mtime == 1000000);
        CHILD_CHECK(stat("moved/sub", &sub) == 0 && sub.st_mtime == 1000000 && (sub.st_mode & 07777) == 0751);
        CHILD_CHECK(stat("moved/sparse", &sparse) == 0 && sparse.st_size == 1 << 20);
        CHILD_CHECK(getxattr("moved/sub", "user.note", note, sizeof note) == 4 || errno == ENOTSUP);
        CHILD_CHECK(lstat("moved/fifo", &file) == 0 && S_ISFIFO(file.st_mode));
        CHILD_CHECK(pwrite(fd, "ONE", 3, 0) == 3 && has("moved/file", "ONE\n"));
        CHILD_CHECK(rename("moved", "e/deeper") == 0 && has("e/deeper/sub/file", "two\n")); /* an upper one by now */
        CHILD_CHECK(mkdir("d", 0755) == 0 && rmdir("d") == 0); /* nothing of the lower one shines through */
        return is_clean() ? 0 : 1;
}

static void a_lower_directory_moves_with_all_it_has(void **state)
{
        (void)state;
        check(whole, true);
}

static int semantics(void)
{
        CHILD_CHECK(mkdir("full", 0755) == 0 && mkdir("full/x", 0755) == 0 && mkdir("empty", 0755) == 0);
        CHILD_CHECK(rename("d", "full") < 0 && errno == ENOTEMPTY);
        CHILD_CHECK(rename("d", "f") < 0 && errno == ENOTDIR);
        CHILD_CHECK(rename("d", "d/sub/inside") < 0 && errno == EINVAL);
        CHILD_CHECK(rename("nothing", "x") < 0 && errno == ENOENT);
        CHILD_CHECK(renameat2(AT_FDCWD, "d", AT_FDCWD, "empty", RENAME_NOREPLACE) < 0 && errno == EEXIST);
        CHILD_CHECK(rename("d", "no/such/place") < 0 && errno == ENOENT);
        CHILD_CHECK(rename("f", "g") == 0 && rename("g", "f") == 0);
        CHILD_CHECK(has("d/sub/file", "two\n") && is_clean());
        CHILD_CHECK(rename("d/", "empty/") == 0 && has("empty/file", "one\n"));
        CHILD_CHECK(rename("big", "e") == 0 && has("e/300", "300\n")); /* over an empty lower directory */
        return is_clean() ? 0 : 1;
}

static void errors_are_those_of_rename(void **state)
{
        (void)state;
        check(semantics, true);
}

static int ways(void)
{
        pv_auto_fd dir = open("e", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        CHILD_CHECK(symlink("d", "to-d") == 0 && rename("to-d", "to") == 0 && has("d/file", "one\n"));
        CHILD_CHECK(renameat(AT_FDCWD, "to/sub", dir, "sub") == 0 && has("e/sub/file", "two\n"));
        CHILD_CHECK(chdir("e") == 0 && rename("../d", "../e/d") == 0 && has("d/file", "one\n"));
        pv_auto_free char *absolute = pv_strf("%s/view/big", top);
        CHILD_CHECK(rename(absolute, "bigger") == 0 && has("bigger/1", "1\n"));
        CHILD_CHECK(chmod("../ro", 0755) == 0);
        CHILD_CHECK(renameat2(AT_FDCWD, "bigger", AT_FDCWD, "../ro", RENAME_EXCHANGE) == 0);
        CHILD_CHECK(has("../ro/1", "1\n") && has("bigger/file", "x\n"));
        CHILD_CHECK(chdir("..") == 0);
        return is_clean() ? 0 : 1;
}

static void paths_are_the_callers(void **state)
{
        (void)state;
        check(ways, true);
}

static int unwritable(void)
{
        struct stat st;

        CHILD_CHECK(mkdir("to", 0755) == 0);
        CHILD_CHECK(chmod("d/sub", 0555) == 0);
        CHILD_CHECK(rename("d", "to/d") == 0 && has("to/d/sub/file", "two\n"));
        CHILD_CHECK(stat("to/d/sub", &st) == 0 && (st.st_mode & 07777) == 0555);
        /* Out of a directory that may not be written: refused, by whoever asks. */
        if (geteuid() != 0) {
                CHILD_CHECK(chmod("to", 0555) == 0);
                CHILD_CHECK(rename("to/d", "d") < 0 && errno == EACCES);
        }
        return is_clean() ? 0 : 1;
}

static void modes_are_kept_and_respected(void **state)
{
        (void)state;
        check(unwritable, true);
}

/* Under a timer that interrupts all the time no rename is told that it failed when it did not. */
static void on_alarm(int sig)
{
        (void)sig;
}

static int interrupted(void)
{
        struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
        timer_t timer;
        struct itimerspec often = { .it_interval.tv_nsec = 100000, .it_value.tv_nsec = 100000 };

        CHILD_CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
        CHILD_CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
        CHILD_CHECK(rename("big", "big2") == 0);
        for (int i = 0; i < 200; i++) {
                CHILD_CHECK(rename("f", "g") == 0);
                CHILD_CHECK(rename("g", "f") == 0);
        }
        return has("big2/7", "7\n") ? 0 : 1;
}

static void signals_do_not_lie(void **state)
{
        (void)state;
        check(interrupted, true);
}

static int parallel(void)
{
        pid_t pids[8];
        int status;
        char from[32], to[32];

        CHILD_CHECK(system("for i in 0 1 2 3 4 5 6 7; do cp -r d c$i; done") == 0);
        for (int i = 0; i < 8; i++) {
                pids[i] = fork();
                if (pids[i] != 0)
                        continue;
                (void)snprintf(from, sizeof from, i == 0 ? "big" : i == 1 ? "d" : "c%d", i);
                (void)snprintf(to, sizeof to, "to%d", i);
                for (int n = 0; n < 20; n++) {
                        CHILD_CHECK(rename(from, to) == 0);
                        CHILD_CHECK(rename(to, from) == 0);
                }
                _exit(0);
        }
        for (int i = 0; i < 8; i++)
                CHILD_CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
        return has("big/5", "5\n") && has("d/file", "one\n") && is_clean() ? 0 : 1;
}

static void many_at_once_do_not_disturb_each_other(void **state)
{
        (void)state;
        check(parallel, true);
}

/* A big directory takes its time; a file's rename does not wait for it. */
static int not_held_up(void)
{
        struct timespec a, b;
        double worst = 0;
        pid_t pid = fork();
        int status;

        if (pid == 0)
                _exit(rename("big", "big2") == 0 ? 0 : 1);
        do {
                (void)clock_gettime(CLOCK_MONOTONIC, &a);
                CHILD_CHECK(rename("f", "g") == 0 && rename("g", "f") == 0);
                (void)clock_gettime(CLOCK_MONOTONIC, &b);
                double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
                worst = ms > worst ? ms : worst;
        } while (waitpid(pid, &status, WNOHANG) == 0);
        (void)printf("worst pair of renames beside it: %.2f ms\n", worst);
        (void)fflush(stdout);
        return status == 0 ? 0 : 1;
}

static void a_big_directory_holds_up_nobody(void **state)
{
        (void)state;
        check(not_held_up, true);
}

static int cost(void)
{
        struct timespec a, b;

        (void)clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < 2000; i++)
                CHILD_CHECK(rename("f", "g") == 0 && rename("g", "f") == 0);
        (void)clock_gettime(CLOCK_MONOTONIC, &b);
        (void)printf("%.1f us a rename\n",
                     ((double)(b.tv_sec - a.tv_sec) * 1e6 + (double)(b.tv_nsec - a.tv_nsec) / 1e3) / 4000);
        (void)fflush(stdout);
        return 0;
}

static void a_plain_rename_is_cheap(void **state)
{
        (void)state;
        check(cost, true);
        check(cost, false);
}

static pid_t find_helper(void)
{
        CHILD_CHECK(mkdir("ask", 0755) == 0 && rename("ask", "asked") == 0); /* it is up and has its name */
        for (pid_t pid = 2; pid < 50; pid++) {
                char path[64];
                (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
                if (has(path, "pvisor-rename\n"))
                        return pid;
        }
        return 0;
}

static int protected(void)
{
        pid_t helper = find_helper();
        char path[64];

        CHILD_CHECK(helper > 0);
        CHILD_CHECK(OUTCOME(kill(helper, SIGKILL)) == (pv_landlock_abi() >= 6 ? EPERM : 0));
        (void)snprintf(path, sizeof path, "/proc/%d/mem", (int)helper);
        CHILD_CHECK(open(path, O_RDONLY | O_CLOEXEC) < 0);
        (void)snprintf(path, sizeof path, "/proc/%d/fd/0", (int)helper);
        CHILD_CHECK(access(path, F_OK) < 0);
        return 0;
}

static void the_workload_cannot_touch_it(void **state)
{
        (void)state;
        if (pv_landlock_abi() < 6)
                skip();
        check(protected, true);
}

static int killed(void)
{
        pid_t helper = find_helper(), renaming;
        int status;

        CHILD_CHECK(helper > 0 && rename("f", "g") == 0);
        renaming = fork();
        if (renaming == 0)
                _exit(OUTCOME(rename("big", "big2")));
        (void)usleep(2000);
        CHILD_CHECK(kill(helper, SIGKILL) == 0);
        CHILD_CHECK(waitpid(renaming, &status, 0) == renaming); /* it does not hang */
        CHILD_CHECK(rename("g", "f") == 0);                     /* the kernel's again */
        CHILD_CHECK(mkdir("new", 0755) == 0 && rename("new", "newer") == 0);
        CHILD_CHECK(rename("d", "moved") < 0 && errno == EXDEV);
        return 0;
}

static void its_death_costs_its_help_only(void **state)
{
        (void)state;
        struct test t = { killed, true, false };
        int r = in_child(in_namespaces, &t);

        if (r == 77)
                skip();
        assert_int_equal(r, 0);
}

static int confined(void)
{
        struct pv_view view = { .base = PV_VIEW_HOST };
        struct pv_err err = PV_ERR_INIT;
        pid_t pid = fork();

        if (pid == 0) {
                CHILD_CHECK(pv_landlock_confine(&view, PV_LANDLOCK_DENY_TCP, &obs, &err) == 0);
                _exit(OUTCOME(rename("d", "moved")) == EXDEV ? 0 : 1);
        }
        int status;
        CHILD_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        return OUTCOME(rename("d", "moved")) == EXDEV && rename("f", "g") == 0 ? 0 : 1;
}

static void it_is_no_way_around_rules_of_the_workloads_own(void **state)
{
        (void)state;
        if (pv_landlock_abi() < 4)
                skip();
        check(confined, true);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(without_it_a_lower_directory_stays, setup, teardown),
                cmocka_unit_test_setup_teardown(a_lower_directory_moves_with_all_it_has, setup, teardown),
                cmocka_unit_test_setup_teardown(errors_are_those_of_rename, setup, teardown),
                cmocka_unit_test_setup_teardown(paths_are_the_callers, setup, teardown),
                cmocka_unit_test_setup_teardown(modes_are_kept_and_respected, setup, teardown),
                cmocka_unit_test_setup_teardown(signals_do_not_lie, setup, teardown),
                cmocka_unit_test_setup_teardown(many_at_once_do_not_disturb_each_other, setup, teardown),
                cmocka_unit_test_setup_teardown(a_big_directory_holds_up_nobody, setup, teardown),
                cmocka_unit_test_setup_teardown(a_plain_rename_is_cheap, setup, teardown),
                cmocka_unit_test_setup_teardown(the_workload_cannot_touch_it, setup, teardown),
                cmocka_unit_test_setup_teardown(its_death_costs_its_help_only, setup, teardown),
                cmocka_unit_test_setup_teardown(it_is_no_way_around_rules_of_the_workloads_own, setup, teardown),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
