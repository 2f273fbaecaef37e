/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/child_test.h"

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "base/fd.h"
#include "base/path.h"
#include "boundary/control.h"
#include "boundary/landlock.h"

/* Two directories, one shown writable with a read-only one in it, one not shown at all. */
struct place {
        char top[64], work[80], read[80], outside[80];
        struct pv_view view;
        int abstract; /* a listening socket of this process, outside */
        struct sockaddr_un name;
        socklen_t name_len;
};

static void make_file(const char *dir, const char *name)
{
        pv_auto_free char *path = pv_path_join(dir, name);
        pv_auto_fd fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
}

static int setup(void **state)
{
        struct place *p = calloc(1, sizeof *p);

        assert_non_null(p);
        (void)snprintf(p->top, sizeof p->top, "/tmp/pv-landlock-XXXXXX");
        assert_non_null(mkdtemp(p->top));
        (void)snprintf(p->work, sizeof p->work, "%s/work", p->top);
        (void)snprintf(p->read, sizeof p->read, "%s/read", p->top);
        (void)snprintf(p->outside, sizeof p->outside, "%s/outside", p->top);
        assert_int_equal(mkdir(p->work, 0700) | mkdir(p->read, 0700) | mkdir(p->outside, 0700), 0);
        make_file(p->read, "file");
        make_file(p->outside, "file");

        p->view.base = PV_VIEW_NEW_ROOT;
        pv_view_add(&p->view, PV_VIEW_SYSTEM, "/usr", "/usr");
        pv_view_add(&p->view, PV_VIEW_SYSTEM, "/lib", "/lib");
        pv_view_add(&p->view, PV_VIEW_SYSTEM, "/lib64", "/lib64");
        pv_view_add(&p->view, PV_VIEW_SYSTEM, "/bin", "/bin");
        pv_view_add(&p->view, PV_VIEW_DEVICE, "/dev/null", "/dev/null");
        pv_view_add(&p->view, PV_VIEW_DEVICE, "/dev/not-there", "/dev/not-there");
        pv_view_add(&p->view, PV_VIEW_PROC, NULL, "/proc");
        pv_view_add(&p->view, PV_VIEW_WRITE, p->work, p->work);
        pv_view_add(&p->view, PV_VIEW_READ, p->read, p->read);
        pv_view_add(&p->view, PV_VIEW_WRITE, p->outside, p->outside);
        pv_view_add(&p->view, PV_VIEW_MASK, NULL, p->outside); /* covers it: no rule may be left */

        p->abstract = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        p->name.sun_family = AF_UNIX;
        (void)snprintf(p->name.sun_path + 1, sizeof p->name.sun_path - 1, "pv-landlock-%d", getpid());
        p->name_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(p->name.sun_path + 1));
        assert_int_equal(bind(p->abstract, (struct sockaddr *)&p->name, p->name_len), 0);
        assert_int_equal(listen(p->abstract, 8), 0);
        *state = p;
        return 0;
}

static int teardown(void **state)
{
        struct place *p = *state;
        struct pv_err err = PV_ERR_INIT;

        assert_int_equal(pv_path_remove_tree(AT_FDCWD, p->top, &err), 0);
        (void)close(p->abstract);
        pv_view_fini(&p->view);
        free(p);
        return 0;
}

static int connect_abstract(const struct place *p)
{
        pv_auto_fd fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        return connect(fd, (const struct sockaddr *)&p->name, p->name_len);
}

/* Descriptors are opened for good: each attempt is one open. */
static int can_open(const char *dir, const char *name, int flags)
{
        pv_auto_free char *path = pv_path_join(dir, name);
        pv_auto_fd fd = open(path, flags | O_CLOEXEC, 0600);

        return fd < 0 ? errno : 0;
}

static int files(void *arg)
{
        struct place *p = arg;
        struct pv_observations obs = { 0 };
        struct pv_err err = PV_ERR_INIT;
        pv_auto_fd leaked = open(p->outside, O_PATH | O_CLOEXEC);

        /* The twins. */
        CHILD_CHECK(can_open(p->outside, "file", O_RDONLY) == 0);
        CHILD_CHECK(can_open(p->outside, "new", O_WRONLY | O_CREAT) == 0);
        CHILD_CHECK(can_open(p->read, "file", O_WRONLY) == 0);
        CHILD_CHECK(connect_abstract(p) == 0);

        CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHILD_CHECK(pv_landlock_confine(&p->view, PV_LANDLOCK_SCOPE_ABSTRACT, &obs, &err) == 0);
        CHILD_CHECK(can_open(p->outside, "file", O_RDONLY) == EACCES);
        CHILD_CHECK(can_open(p->outside, "new2", O_WRONLY | O_CREAT) == EACCES);
        CHILD_CHECK(openat(leaked, "file", O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
        CHILD_CHECK(can_open(p->read, "file", O_RDONLY) == 0);
        CHILD_CHECK(can_open(p->read, "file", O_WRONLY) == EACCES);
        if (pv_landlock_abi() >= 6)
                CHILD_CHECK(connect_abstract(p) < 0 && errno == EPERM);

        struct pv_observation *o = pv_observations_find(&obs, PV_DIM_READS, PV_CONTROL_LANDLOCK);
        CHILD_CHECK(o && o->installed);
        return 0;
}

static void what_the_view_lacks_is_refused(void **state)
{
        if (pv_landlock_abi() < 2)
                skip();
        assert_int_equal(in_child(files, *state), 0);
}

static int work(void *arg)
{
        struct place *p = arg;
        struct pv_observations obs = { 0 };
        struct pv_err err = PV_ERR_INIT;

        CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHILD_CHECK(pv_landlock_confine(&p->view, PV_LANDLOCK_SCOPE_ABSTRACT, &obs, &err) == 0);
        CHILD_CHECK(pv_landlock_scope_processes(&obs, &err) == 0);
        CHILD_CHECK(chdir(p->work) == 0);
        CHILD_CHECK(mkdir("x", 0700) == 0 && mkdir("y", 0700) == 0 && mkdir("x/d", 0700) == 0);
        CHILD_CHECK(rename("x/d", "y/d") == 0); /* mv(1) would hide an EXDEV by copying */
        /* Renames and links between directories, fifos, sockets' files, truncation, devices, pipes, programs. */
        return system("set -e; mkdir a b; echo 1 > a/f; mv a/f b/f; ln b/f a/g; ln -s f b/l; mkfifo a/p; echo 2 > b/f;"
                      "mv a b/a; cat b/f > /dev/null; echo x | cat > /dev/null; cat /proc/self/stat > /dev/null;"
                      "ls / > /dev/null; echo 0 > /proc/self/oom_score_adj; rm -r b; sleep 10 & kill $!; exit 0") == 0
                       ? 0
                       : 1;
}

static void ordinary_work_goes_on(void **state)
{
        assert_int_equal(in_child(work, *state), 0);
}

static int scope(void *arg)
{
        struct pv_observations obs = { 0 };
        struct pv_err err = PV_ERR_INIT;
        pid_t outside = *(pid_t *)arg;

        CHILD_CHECK(kill(outside, 0) == 0);
        CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHILD_CHECK(pv_landlock_scope_processes(&obs, &err) == 0);
        CHILD_CHECK(ptrace(PTRACE_SEIZE, outside, NULL, NULL) < 0 && errno == EPERM);
        if (pv_landlock_abi() >= 6)
                CHILD_CHECK(kill(outside, 0) < 0 && errno == EPERM);
        pid_t inside = fork();
        if (inside == 0) {
                (void)pause();
                _exit(0);
        }
        CHILD_CHECK(kill(inside, SIGKILL) == 0);
        return 0;
}

static int traces(void *arg)
{
        return ptrace(PTRACE_SEIZE, *(pid_t *)arg, NULL, NULL) == 0 ? 0 : 1;
}

static void processes_outside_are_out_of_reach(void **state)
{
        (void)state;
        if (pv_landlock_abi() < 2)
                skip();
        pid_t outside = fork();
        if (outside == 0) {
                (void)pause();
                _exit(0);
        }
        if (is_host_root())
                assert_int_equal(in_child(traces, &outside), 0); /* the twin; others may be under yama */
        assert_int_equal(in_child(scope, &outside), 0);
        assert_int_equal(kill(outside, SIGKILL), 0);
        assert_int_equal(waitpid(outside, NULL, 0), outside);
}

static int tcp(void *arg)
{
        struct pv_view host = { .base = PV_VIEW_HOST };
        struct pv_observations obs = { 0 };
        struct pv_err err = PV_ERR_INIT;

        (void)arg;
        CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHILD_CHECK(pv_landlock_confine(&host, PV_LANDLOCK_DENY_TCP, &obs, &err) == 0);
        struct sockaddr in = { .sa_family = AF_INET };
        pv_auto_fd fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHILD_CHECK(bind(fd, &in, 16) < 0 && errno == EACCES);
        CHILD_CHECK(can_open("/", "etc/passwd", O_RDONLY) == 0); /* no file rules over the host's own root */
        return 0;
}

static void tcp_can_be_denied_alone(void **state)
{
        (void)state;
        if (pv_landlock_abi() < 4)
                skip();
        assert_int_equal(in_child(tcp, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_the_view_lacks_is_refused),
                cmocka_unit_test(ordinary_work_goes_on),
                cmocka_unit_test(processes_outside_are_out_of_reach),
                cmocka_unit_test(tcp_can_be_denied_alone),
        };
        return cmocka_run_group_tests(tests, setup, teardown);
}
