/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles the system-call filters when pVisor is built: prints seccomp_programs.h, one BPF program for each
 * combination of enum pv_seccomp_options, made by libseccomp for the machine's native ABI.
 *
 * The filter is a deny-list. An allow-list would be tighter, but a workload is anything that a person runs, and what a
 * new libc or compiler starts to use must not break it. The other walls stand behind it: what is listed here is what
 * they do not cover, or what has too often been the way into a kernel.
 *
 * The native ABI is the only one: calls of 32-bit and x32 programs return ENOSYS (their numbers and argument
 * layouts would need a second list; a program of another ABI does not start). Where an argument is shorter than its
 * register the filter looks at what the kernel looks at, the low 32 bits (CVE-2019-10063).
 */
#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "boundary/seccomp.h"

#define LOW_32 UINT64_C(0xffffffff)

struct call {
        const char *name;
        int number; /* for a call that libseccomp may not know yet; 0: by name only */
        int error;
};

/* Refused always. Calls that do not exist on this architecture are left out. */
static const struct call refused[] = {
        /* The kernel's own code and state. */
        { "init_module", 0, EPERM },
        { "finit_module", 0, EPERM },
        { "delete_module", 0, EPERM },
        { "create_module", 0, ENOSYS },
        { "get_kernel_syms", 0, ENOSYS },
        { "query_module", 0, ENOSYS },
        { "kexec_load", 0, EPERM },
        { "kexec_file_load", 0, EPERM },
        { "reboot", 0, EPERM },
        { "swapon", 0, EPERM },
        { "swapoff", 0, EPERM },
        { "acct", 0, EPERM },
        { "syslog", 0, EPERM }, /* the host's kernel log */
        { "iopl", 0, EPERM },
        { "ioperm", 0, EPERM },
        { "modify_ldt", 0, ENOSYS },
        { "uselib", 0, ENOSYS },
        { "vhangup", 0, EPERM },
        { "quotactl", 0, EPERM },
        { "quotactl_fd", 443, EPERM },
        { "nfsservctl", 0, ENOSYS },
        { "lookup_dcookie", 0, EPERM },
        { "_sysctl", 0, ENOSYS },
        { "settimeofday", 0, EPERM },
        { "clock_settime", 0, EPERM },
        /* Large interfaces that a stream of kernel bugs came through. */
        { "bpf", 0, EPERM },
        { "perf_event_open", 0, EPERM },
        { "userfaultfd", 0, EPERM },
        /* Keyrings know no namespaces: the person's session keys. ENOSYS is what a kernel without them says. */
        { "add_key", 0, ENOSYS },
        { "request_key", 0, ENOSYS },
        { "keyctl", 0, ENOSYS },
        /* Opens a file by its number, past every directory. */
        { "open_by_handle_at", 0, EPERM },
};

/* Refused unless user namespaces are allowed: with one, these work on the workload's own mounts. */
static const struct call mounting[] = {
        { "mount", 0, EPERM },
        { "umount2", 0, EPERM },
        { "umount", 0, EPERM },
        { "pivot_root", 0, EPERM },
        { "open_tree", 428, EPERM },
        { "move_mount", 429, EPERM },
        { "fsopen", 430, EPERM },
        { "fsconfig", 431, EPERM },
        { "fsmount", 432, EPERM },
        { "fspick", 433, EPERM },
        { "mount_setattr", 442, EPERM },
        { "open_tree_attr", 467, EPERM },
        { "setns", 0, EPERM },
        /* Its flags lie in memory, where no filter can look: libc then falls back to clone. */
        { "clone3", 435, ENOSYS },
};

static const struct call ring[] = {
        { "io_uring_setup", 425, ENOSYS },
        { "io_uring_enter", 426, ENOSYS },
        { "io_uring_register", 427, ENOSYS },
};

/*
 * To the helper. landlock_restrict_self too: a workload that confines part of itself further must not get from the
 * helper what its own rules refuse (rename.c).
 */
static const char *const to_helper[] = { "rename", "renameat", "renameat2", "landlock_restrict_self" };

static void fail(const char *what, int r)
{
        (void)fprintf(stderr, "seccomp_compile: %s: %s\n", what, strerror(-r));
        exit(1);
}

static int number_of(const char *name, int known)
{
        int n = seccomp_syscall_resolve_name(name);

        if (n == __NR_SCMP_ERROR && known)
                n = known;
        return n;
}

static void rule(scmp_filter_ctx ctx, uint32_t action, const char *name, int known, unsigned n,
                 const struct scmp_arg_cmp *args)
{
        int call = number_of(name, known);

        if (call < 0) /* another architecture's */
                return;
        int r = seccomp_rule_add_array(ctx, action, call, n, args);
        if (r < 0)
                fail(name, r);
}

static void refuse_all(scmp_filter_ctx ctx, const struct call *calls, size_t n)
{
        for (size_t i = 0; i < n; i++)
                rule(ctx, SCMP_ACT_ERRNO((uint32_t)calls[i].error), calls[i].name, calls[i].number, 0, NULL);
}

static void refuse_if(scmp_filter_ctx ctx, const char *name, int error, struct scmp_arg_cmp condition)
{
        rule(ctx, SCMP_ACT_ERRNO((uint32_t)error), name, 0, 1, &condition);
}

/* New user namespaces: by flags, which clone(2) has first but on s390 and cris. */
static void refuse_user_namespaces(scmp_filter_ctx ctx)
{
        refuse_if(ctx, "unshare", EPERM, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
#if defined(__s390__)
        refuse_if(ctx, "clone", EPERM, SCMP_A1(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
#else
        refuse_if(ctx, "clone", EPERM, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
#endif
}

/*
 * Input for a terminal that others read from (TIOCSTI, TIOCLINUX's selections), keeping them out of it for ever, new
 * line disciplines.
 */
static void refuse_terminal_tricks(scmp_filter_ctx ctx)
{
        refuse_if(ctx, "ioctl", EPERM, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW_32, TIOCSTI));
        refuse_if(ctx, "ioctl", EPERM, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW_32, TIOCEXCL));
        refuse_if(ctx, "ioctl", EPERM, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW_32, TIOCLINUX));
        refuse_if(ctx, "ioctl", EPERM, SCMP_A1(SCMP_CMP_MASKED_EQ, LOW_32, TIOCSETD));
}

static bool is_family(int f)
{
        return f == AF_UNIX || f == AF_INET || f == AF_INET6 || f == AF_NETLINK;
}

/*
 * Families as an allow-list: AF_VSOCK knows no network namespaces, the rest is old code. The comparison with the
 * largest one sees all 64 bits, so that what the kernel would cut off ends there as well.
 */
static void refuse_families(scmp_filter_ctx ctx, const char *name)
{
        refuse_if(ctx, name, EAFNOSUPPORT, SCMP_A0(SCMP_CMP_GT, AF_NETLINK));
        for (int f = 0; f < AF_NETLINK; f++)
                if (!is_family(f))
                        refuse_if(ctx, name, EAFNOSUPPORT, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)f));

        const struct scmp_arg_cmp not_route[] = { SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_NE, 0) };
        rule(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), name, 0, 2, not_route);
}

static void set(scmp_filter_ctx ctx, enum scmp_filter_attr attr, uint32_t value)
{
        int r = seccomp_attr_set(ctx, attr, value);

        if (r < 0)
                fail("attribute", r);
}

static scmp_filter_ctx build(unsigned options)
{
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);

        if (!ctx)
                fail("init", -ENOMEM);
        set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
        set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree over the numbers */

        refuse_all(ctx, refused, sizeof refused / sizeof *refused);
        refuse_terminal_tricks(ctx);
        refuse_families(ctx, "socket");
        refuse_families(ctx, "socketpair");
        if (!(options & PV_SECCOMP_ALLOW_USERNS)) {
                refuse_all(ctx, mounting, sizeof mounting / sizeof *mounting);
                refuse_user_namespaces(ctx);
        }
        if (options & PV_SECCOMP_NO_IO_URING)
                refuse_all(ctx, ring, sizeof ring / sizeof *ring);
        for (size_t i = 0; options & PV_SECCOMP_RENAME && i < sizeof to_helper / sizeof *to_helper; i++)
                rule(ctx, SCMP_ACT_NOTIFY, to_helper[i], 0, 0, NULL);
        return ctx;
}

/* Prints one program as an array of { code, jt, jf, k }. */
static void print(unsigned options)
{
        struct {
                uint16_t code;
                uint8_t jt, jf;
                uint32_t k;
        } op;
        FILE *f = tmpfile();
        scmp_filter_ctx ctx = build(options);

        if (!f)
                fail("temporary file", -errno);
        int r = seccomp_export_bpf(ctx, fileno(f));
        if (r < 0)
                fail("export", r);
        rewind(f);
        (void)printf("static const struct sock_filter program_%u[] = {\n", options);
        while (fread(&op, sizeof op, 1, f) == 1)
                (void)printf("        { 0x%02x, %u, %u, 0x%08x },\n", op.code, op.jt, op.jf, op.k);
        (void)printf("};\n");
        (void)fclose(f);
        seccomp_release(ctx);
}

int main(void)
{
        int r = seccomp_api_set(5); /* notifications: what the running kernel has is asked at run time */

        if (r < 0)
                fail("api level", r);
        (void)printf("/* Made by seccomp_compile.c. */\n");
        for (unsigned options = 0; options < PV_SECCOMP_VARIANTS; options++)
                print(options);
        (void)printf("static const struct sock_fprog programs[PV_SECCOMP_VARIANTS] = {\n");
        for (unsigned options = 0; options < PV_SECCOMP_VARIANTS; options++)
                (void)printf("        { sizeof program_%u / sizeof *program_%u, (struct sock_filter *)program_%u },\n",
                             options, options, options);
        (void)printf("};\n");
        return fflush(stdout) == 0 ? 0 : 1;
}
