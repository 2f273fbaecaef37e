/* SPDX-License-Identifier: Apache-2.0 */
#include "boundary/child_test.h"

#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include "base/fd.h"
#include "boundary/control.h"
#include "boundary/seccomp.h"

static int listener = -1;
static struct pv_observations obs;

static void confine(unsigned options)
{
        struct pv_err err = PV_ERR_INIT;

        CHILD_CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHILD_CHECK(pv_seccomp_install(options, &listener, &obs, &err) == 0);
}

/* An attempt, and what comes back with the filter. The kernel itself answers otherwise: to root always. */
struct attempt {
        const char *name;
        long (*act)(void);
        int refused;
        unsigned except; /* the option that lets it through */
        unsigned only;   /* the option that it takes to refuse it */
        bool anyone;     /* the kernel tells it from a refusal for an ordinary user too */
};

static long act_module(void)
{
        return syscall(SYS_finit_module, -1, "", 0);
}
static long act_bpf(void)
{
        return syscall(SYS_bpf, 999, NULL, 0);
}
static long act_perf(void)
{
        return syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0);
}
static long act_key(void)
{
        return syscall(SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -3 /* session */, 0);
}
static long act_handle(void)
{
        return syscall(SYS_open_by_handle_at, -1, NULL, 0);
}
static long act_mount(void)
{
        return syscall(SYS_mount, NULL, NULL, NULL, 0, NULL);
}
static long act_fsopen(void)
{
        return syscall(430, NULL, 0);
}
static long act_open_tree_attr(void)
{
        return syscall(467, -1, "", 0, NULL, 0);
}
static long act_setns(void)
{
        return syscall(SYS_setns, -1, 0);
}
static long act_unshare(void)
{
        return syscall(SYS_unshare, CLONE_NEWUSER | 0x1 /* no such flag: EINVAL from the kernel */);
}
static long act_clone(void)
{
        return syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS /* together: EINVAL */, NULL, NULL, NULL, 0);
}
static long act_clone3(void)
{
        return syscall(SYS_clone3, NULL, 0);
}
static long act_ring(void)
{
        return syscall(SYS_io_uring_setup, 1, NULL);
}
static long act_sti(void)
{
        return syscall(SYS_ioctl, -1, TIOCSTI, "x");
}
static long act_sti_high(void)
{
        return syscall(SYS_ioctl, -1, TIOCSTI | UINT64_C(1) << 32, "x");
}
static long act_linux(void)
{
        return syscall(SYS_ioctl, -1, TIOCLINUX, "x");
}
static long act_vsock(void)
{
        return syscall(SYS_socket, AF_VSOCK, SOCK_STREAM | 0xf, 0);
}
static long act_vsock_high(void)
{
        return syscall(SYS_socket, AF_VSOCK | UINT64_C(1) << 32, SOCK_STREAM | 0xf, 0);
}
static long act_packet(void)
{
        return syscall(SYS_socket, AF_PACKET, SOCK_STREAM | 0xf, 0);
}
static long act_ax25(void)
{
        return syscall(SYS_socket, AF_AX25, 0xf, 0);
}
static long act_netlink(void)
{
        return syscall(SYS_socket, AF_NETLINK, 0xf, 4 /* NETLINK_SOCK_DIAG */);
}

static const struct attempt attempts[] = {
        { "finit_module", act_module, EPERM, 0, 0, false },
        { "bpf", act_bpf, EPERM, 0, 0, false },
        { "perf_event_open", act_perf, EPERM, 0, 0, false },
        { "keyctl", act_key, ENOSYS, 0, 0, true },
        { "open_by_handle_at", act_handle, EPERM, 0, 0, false },
        { "mount", act_mount, EPERM, PV_SECCOMP_ALLOW_USERNS, 0, false },
        { "fsopen", act_fsopen, EPERM, PV_SECCOMP_ALLOW_USERNS, 0, false },
        { "open_tree_attr", act_open_tree_attr, EPERM, PV_SECCOMP_ALLOW_USERNS, 0, false },
        { "setns", act_setns, EPERM, PV_SECCOMP_ALLOW_USERNS, 0, true },
        { "unshare", act_unshare, EPERM, PV_SECCOMP_ALLOW_USERNS, 0, true },
        { "clone", act_clone, EPERM, PV_SECCOMP_ALLOW_USERNS, 0, true },
        { "clone3", act_clone3, ENOSYS, PV_SECCOMP_ALLOW_USERNS, 0, true },
        { "io_uring", act_ring, ENOSYS, 0, PV_SECCOMP_NO_IO_URING, true },
        { "TIOCSTI", act_sti, EPERM, 0, 0, true },
        { "TIOCSTI with high bits", act_sti_high, EPERM, 0, 0, true },
        { "TIOCLINUX", act_linux, EPERM, 0, 0, true },
        { "vsock", act_vsock, EAFNOSUPPORT, 0, 0, true },
        { "vsock with high bits", act_vsock_high, EAFNOSUPPORT, 0, 0, true },
        { "packet", act_packet, EAFNOSUPPORT, 0, 0, false },
        { "ax25", act_ax25, EAFNOSUPPORT, 0, 0, false },
        { "netlink", act_netlink, EPROTONOSUPPORT, 0, 0, false },
};
#define N_ATTEMPTS (sizeof attempts / sizeof *attempts)

static bool is_refused_under(const struct attempt *a, unsigned options)
{
        return !(options & a->except) && (options & a->only) == a->only;
}

static int try_all(void *arg)
{
        unsigned options = *(unsigned *)arg;
        int before[N_ATTEMPTS];

        for (size_t i = 0; i < N_ATTEMPTS; i++)
                before[i] = OUTCOME(attempts[i].act());
        confine(options);
        for (size_t i = 0; i < N_ATTEMPTS; i++) {
                const struct attempt *a = &attempts[i];
                int now = OUTCOME(a->act()), want = is_refused_under(a, options) ? a->refused : before[i];

                if (now != want) {
                        (void)fprintf(stderr, "options %u: %s: %d, not %d\n", options, a->name, now, want);
                        return 1;
                }
        }
        return 0;
}

static void every_variant_refuses_what_it_says_and_nothing_else(void **state)
{
        (void)state;
        for (unsigned options = 0; options < PV_SECCOMP_VARIANTS; options++)
                assert_int_equal(in_child(try_all, &options), 0);
}

/* The twin: without a filter the kernel answers otherwise. ENOSYS, EAFNOSUPPORT: this kernel has no such thing. */
static int differ(void *arg)
{
        (void)arg;
        for (size_t i = 0; i < N_ATTEMPTS; i++) {
                const struct attempt *a = &attempts[i];
                int error = OUTCOME(a->act());

                if (error != a->refused || error == ENOSYS || error == EAFNOSUPPORT || error == EPROTONOSUPPORT)
                        continue;
                if (a->anyone || is_host_root()) {
                        (void)fprintf(stderr, "%s: %d without a filter\n", a->name, error);
                        return 1;
                }
        }
        return 0;
}

static void the_same_calls_reach_the_kernel_without_it(void **state)
{
        (void)state;
        assert_int_equal(in_child(differ, NULL), 0);
}

static int ordinary_work(void *arg)
{
        int status, pair[2];

        (void)arg;
        confine(PV_SECCOMP_NO_IO_URING);
        CHILD_CHECK(socket(AF_UNIX, SOCK_STREAM, 0) >= 0);
        CHILD_CHECK(socket(AF_INET, SOCK_STREAM, 0) >= 0);
        CHILD_CHECK(socket(AF_NETLINK, SOCK_RAW, 0) >= 0);
        CHILD_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHILD_CHECK(unshare(CLONE_FILES) == 0);
        pid_t pid = fork(); /* libc: clone3 where there is one, then clone */
        if (pid == 0)
                _exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? 7 : 8);
        CHILD_CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
        CHILD_CHECK(system("exit 3") == 3 << 8); /* posix_spawn or vfork */
        return 0;
}

static void ordinary_work_goes_on(void **state)
{
        (void)state;
        assert_int_equal(in_child(ordinary_work, NULL), 0);
}

#ifdef __x86_64__
static int foreign_abi(void *arg)
{
        long r;

        (void)arg;
        confine(0);
        CHILD_CHECK(OUTCOME(syscall(0x40000000 | SYS_getpid)) == ENOSYS); /* x32 */
        __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory");     /* i386 getpid */
        CHILD_CHECK(r == -ENOSYS);
        return 0;
}

static int foreign_abi_bare(void *arg)
{
        long r;

        (void)arg;
        __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory");
        return r == getpid() ? 0 : 1;
}

static void foreign_abis_do_not_exist(void **state)
{
        (void)state;
        if (in_child(foreign_abi_bare, NULL) != 0) /* the kernel has no 32-bit calls: a fault, or ENOSYS */
                skip();
        assert_int_equal(in_child(foreign_abi, NULL), 0);
}
#endif

/* A rename waits for the listener; CONTINUE lets it through. */
static int notified(void *arg)
{
        (void)arg;
        confine(PV_SECCOMP_RENAME);
        CHILD_CHECK(listener >= 0);
        pid_t pid = fork();
        if (pid == 0)
                _exit(rename("/nonexistent/a", "/nonexistent/b") < 0 && errno == ENOENT ? 5 : 6);

        struct seccomp_notif n = { 0 };
        CHILD_CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) == 0);
        CHILD_CHECK(n.data.nr == SYS_rename && (pid_t)n.pid == pid);
        struct seccomp_notif_resp r = { .id = n.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
        CHILD_CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r) == 0);
        int status;
        CHILD_CHECK(waitpid(pid, &status, 0) == pid);
        return WEXITSTATUS(status) == 5 ? 0 : 1;
}

static void renames_are_notified(void **state)
{
        (void)state;
        assert_int_equal(in_child(notified, NULL), 0);
}

static int nested(void *arg)
{
        int first;

        (void)arg;
        confine(PV_SECCOMP_RENAME);
        first = listener;
        listener = -1;
        obs.n = 0;
        confine(PV_SECCOMP_RENAME);
        CHILD_CHECK(first >= 0 && listener == -1);
        struct pv_observation *o = pv_observations_find(&obs, PV_DIM_HOST_WRITES, PV_CONTROL_SECCOMP);
        return o && o->n_limits == 1 ? 0 : 1;
}

static void a_second_listener_degrades_and_says_so(void **state)
{
        (void)state;
        assert_int_equal(in_child(nested, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_variant_refuses_what_it_says_and_nothing_else),
                cmocka_unit_test(the_same_calls_reach_the_kernel_without_it),
                cmocka_unit_test(ordinary_work_goes_on),
#ifdef __x86_64__
                cmocka_unit_test(foreign_abis_do_not_exist),
#endif
                cmocka_unit_test(renames_are_notified),
                cmocka_unit_test(a_second_listener_degrades_and_says_so),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
