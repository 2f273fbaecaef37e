/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/confine.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include "base/syscall.h"

#define READING (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define MAKING                                                                                            \
        (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE | \
         LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |       \
         LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM)
/* Without REFER nothing could be moved from the work directory to its place: Linux 5.19. */
#define ABI_LEAST    2
#define ABI_TRUNCATE 3

static int allow(int ruleset, int dir, uint64_t rights)
{
        return pv_sys_landlock_allow_beneath(ruleset, dir, rights);
}

/* The layers are read; the upper and the work directory are written to; nothing else is there. */
static int confine_files(const struct pv_fuse_fs *fs, struct pv_err *err)
{
        int abi = pv_sys_landlock_create(NULL, 0, PV_LANDLOCK_VERSION);
        if (abi < ABI_LEAST)
                return 0; /* the second wall, where there is one */
        uint64_t write = READING | MAKING | PV_LANDLOCK_FS_REFER | (abi >= ABI_TRUNCATE ? PV_LANDLOCK_FS_TRUNCATE : 0);
        struct pv_landlock_attr attr = {
                .fs = write | PV_LANDLOCK_FS_EXECUTE | PV_LANDLOCK_FS_MAKE_BLOCK,
        };
        pv_auto_fd ruleset = pv_sys_landlock_create(&attr, sizeof attr.fs, 0);
        if (ruleset < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "Landlock");
        int r = 0;
        for (size_t i = 0; i < fs->n_layers && r == 0; i++)
                r = allow(ruleset, fs->layer[i], pv_fuse_is_upper(fs, i) ? write : READING);
        if (r == 0 && fs->writable)
                r = allow(ruleset, fs->work, write);
        if (r < 0 || pv_sys_landlock_restrict(ruleset) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "Landlock");
        return 0;
}

/* Of root's rights those over files; the rest could only be misused. */
static int drop_capabilities(struct pv_err *err)
{
        static const int kept[] = { CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH,
                                    CAP_FOWNER, CAP_FSETID,       CAP_SETFCAP };
        struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct have[2] = { { 0 } }, want[2] = { { 0 } };
        if (syscall(SYS_capget, &head, have) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "read capabilities");
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
                want[kept[i] / 32].permitted |= have[kept[i] / 32].permitted & 1U << (kept[i] % 32);
        for (int i = 0; i < 2; i++)
                want[i].effective = want[i].permitted;
        if (syscall(SYS_capset, &head, want) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "drop capabilities");
        return 0;
}

static const int calls[] = {
        /* the channel and the requests */
        SCMP_SYS(read),
        SCMP_SYS(readv),
        SCMP_SYS(write),
        SCMP_SYS(writev),
        SCMP_SYS(splice),
        SCMP_SYS(vmsplice),
        SCMP_SYS(tee),
        SCMP_SYS(pipe),
        SCMP_SYS(pipe2),
        SCMP_SYS(fcntl),
        SCMP_SYS(recvfrom),
        SCMP_SYS(recvmsg),
        SCMP_SYS(sendto),
        SCMP_SYS(sendmsg),
        SCMP_SYS(poll),
        SCMP_SYS(ppoll),
        /* files */
        SCMP_SYS(open),
        SCMP_SYS(openat),
        SCMP_SYS(openat2),
        SCMP_SYS(close),
        SCMP_SYS(dup),
        SCMP_SYS(pread64),
        SCMP_SYS(pwrite64),
        SCMP_SYS(preadv),
        SCMP_SYS(pwritev),
        SCMP_SYS(lseek),
        SCMP_SYS(fallocate),
        SCMP_SYS(copy_file_range),
        SCMP_SYS(sendfile),
        SCMP_SYS(truncate),
        SCMP_SYS(ftruncate),
        SCMP_SYS(fadvise64),
        SCMP_SYS(inotify_add_watch),
        SCMP_SYS(inotify_rm_watch),
        /* names */
        SCMP_SYS(getdents64),
        SCMP_SYS(mkdirat),
        SCMP_SYS(mknod),
        SCMP_SYS(mknodat),
        SCMP_SYS(symlinkat),
        SCMP_SYS(linkat),
        SCMP_SYS(unlinkat),
        SCMP_SYS(renameat),
        SCMP_SYS(renameat2),
        SCMP_SYS(readlink),
        SCMP_SYS(readlinkat),
        /* what they are */
        SCMP_SYS(stat),
        SCMP_SYS(lstat),
        SCMP_SYS(fstat),
        SCMP_SYS(newfstatat),
        SCMP_SYS(statx),
        SCMP_SYS(statfs),
        SCMP_SYS(fstatfs),
        SCMP_SYS(chmod),
        SCMP_SYS(fchmod),
        SCMP_SYS(fchmodat),
        SCMP_SYS(fchown),
        SCMP_SYS(lchown),
        SCMP_SYS(chown),
        SCMP_SYS(fchownat),
        SCMP_SYS(utimensat),
        SCMP_SYS(access),
        SCMP_SYS(faccessat),
        SCMP_SYS(faccessat2),
        SCMP_SYS(getxattr),
        SCMP_SYS(lgetxattr),
        SCMP_SYS(fgetxattr),
        SCMP_SYS(setxattr),
        SCMP_SYS(lsetxattr),
        SCMP_SYS(fsetxattr),
        SCMP_SYS(listxattr),
        SCMP_SYS(llistxattr),
        SCMP_SYS(flistxattr),
        SCMP_SYS(removexattr),
        SCMP_SYS(lremovexattr),
        SCMP_SYS(fremovexattr),
        /* memory, threads, time */
        SCMP_SYS(brk),
        SCMP_SYS(mmap),
        SCMP_SYS(munmap),
        SCMP_SYS(mremap),
        SCMP_SYS(madvise),
        SCMP_SYS(mprotect),
        SCMP_SYS(futex),
        SCMP_SYS(set_robust_list),
        SCMP_SYS(rseq),
        SCMP_SYS(sched_yield),
        SCMP_SYS(sched_getaffinity),
        SCMP_SYS(membarrier),
        SCMP_SYS(rt_sigprocmask),
        SCMP_SYS(rt_sigaction),
        SCMP_SYS(rt_sigreturn),
        SCMP_SYS(restart_syscall),
        SCMP_SYS(clock_gettime),
        SCMP_SYS(gettimeofday),
        SCMP_SYS(nanosleep),
        SCMP_SYS(clock_nanosleep),
        SCMP_SYS(getrandom),
        SCMP_SYS(sysinfo),
        SCMP_SYS(getpid),
        SCMP_SYS(gettid),
        SCMP_SYS(getuid),
        SCMP_SYS(geteuid),
        SCMP_SYS(getgid),
        SCMP_SYS(getegid),
        SCMP_SYS(umask),
        SCMP_SYS(exit),
        SCMP_SYS(exit_group),
        SCMP_SYS(tgkill),
};

static int add_calls(scmp_filter_ctx ctx)
{
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
                if (seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0) < 0)
                        return -1;
        /* libseccomp may not know the youngest by name. */
        if (seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SYS_getxattrat, 0) < 0 ||
            seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SYS_listxattrat, 0) < 0)
                return -1;
        if (seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1_32(SCMP_CMP_EQ, (uint32_t)FICLONE)) < 0)
                return -1;
        /* Threads, no processes: clone(2) shows its flags to a filter, clone3(2) does not. */
        if (seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) < 0)
                return -1;
        return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                                SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
}

static int filter_calls(struct pv_err *err)
{
        scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM));
        int r = ctx ? add_calls(ctx) : -1;
        if (r == 0)
                r = seccomp_load(ctx);
        seccomp_release(ctx);
        return r < 0 ? pv_err_set(err, PV_ERR_SYS, 0, "filter system calls") : 0;
}

int pv_fuse_confine(const struct pv_fuse_fs *fs, struct pv_err *err)
{
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "give up privileges");
        if (drop_capabilities(err) < 0 || confine_files(fs, err) < 0)
                return -1;
        return filter_calls(err);
}
