/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 * Job: a rootless overlay refuses to rename a directory that exists in a lower layer (EXDEV: it may not leave the
 * redirect behind that this needs). npm, rustup, apt and `git mv` do not take that for an answer. The system-call
 * filter gives rename, renameat and renameat2 to a helper (seccomp_unotify(2)), which lets the kernel do whatever the
 * kernel can do, and does the rest by hand. Not its job: permission. It has none that the caller lacks.
 *
 * Actors. The workload, hostile, asks. The helper, a child of pid 1, answers; it has the workload's ids, the workload's
 * capabilities over files and its Landlock rules, and one more capability, SYS_PTRACE over the innermost user
 * namespace, to read a path out of a caller's memory. Workers, forked by the helper, do what takes long. Pid 1 holds a
 * copy of the listener in a socket that it does not read.
 *
 *   RECV -> read the old path -> not a directory -> CONTINUE: the kernel does it, about 16 us in all
 *        -> a directory: parents resolved as the caller's -> renameat2 here -> done
 *                                                         -> EXDEV: a worker moves it (rename_tree.c)
 *                                                         -> another error: CONTINUE, the kernel says it itself
 *
 * Why a check may be followed by CONTINUE, which reads the caller's memory again: whatever is there by then, the
 * kernel judges it by the caller's own rights. Nothing is decided here that is a permission. Why acting on what was
 * read is no hole either: it is done with the caller's rights, as another thread of it could have.
 *
 * Whose rights: in an ordinary user's sandbox there is one id and no capability, so the caller's are the helper's. As
 * root callers differ: a worker takes the caller's ids, groups and effective capabilities before it looks anything up.
 * Callers in another user namespace, mount namespace or root directory are left to the kernel, and so is everybody
 * once a process of the workload has confined itself further by Landlock (the filter notifies of that, too): the
 * helper cannot take on a domain, and must not be the way around one.
 *
 * Failure. Callers wait killably (WAIT_KILLABLE_RECV): an interrupted system call cannot be restarted after the
 * helper did it. A worker asks whether the caller still waits before the step that shows. A worker that dies is
 * answered for with EXDEV. When the helper dies, pid 1 ends what was in hand (the ids lie in the shared page), takes
 * the listener and lets every rename go to the kernel. The workload cannot signal or trace the helper where Landlock
 * has scopes; what it does to it otherwise it does to itself.
 */
#include "boundary/rename.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "base/pass_fd.h"
#include "base/syscall.h"
#include "boundary/rename_helper.h"

void pv_rename_answer(int listener, uint64_t id, int error)
{
        struct seccomp_notif_resp r = { .id = id, .error = -error };

        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
}

void pv_rename_answer_continue(int listener, uint64_t id)
{
        struct seccomp_notif_resp r = { .id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r);
}

bool pv_rename_is_waiting(int listener, uint64_t id)
{
        return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

int pv_rename_prepare(struct pv_rename *r, struct pv_err *err)
{
        void *page = mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (page == MAP_FAILED)
                return pv_err_set(err, PV_ERR_SYS, errno, "rename helper: shared page");
        r->shared = page;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, r->to_init) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "rename helper: channel");
        return 0;
}

void pv_rename_fini(struct pv_rename *r)
{
        if (r->shared)
                (void)munmap(r->shared, sizeof *r->shared);
        for (int i = 0; i < 2; i++) {
                pv_fd_closep(&r->to_init[i]);
                pv_fd_closep(&r->to_helper[i]);
        }
        *r = (struct pv_rename)PV_RENAME_INIT;
}

static int send_fd(int channel, int fd)
{
        char byte = 0;
        union pv_pass_room room;
        struct iovec data = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        pv_pass_fds(&m, &room, &fd, 1);
        return sendmsg(channel, &m, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* The descriptor, or -1 when the sender closed without one (or, with MSG_DONTWAIT, sent none yet). */
static int receive_fd(int channel, int flags)
{
        char byte;
        int fd = -1;
        union pv_pass_room room;
        struct iovec data = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1 };
        pv_pass_accept(&m, &room, 1);
        if (recvmsg(channel, &m, MSG_CMSG_CLOEXEC | flags) == 1)
                (void)pv_pass_take(&m, &fd, 1);
        return fd;
}

/* Keeps the one descriptor, as number 0; a terminal or pipe of the workload's must not stay open here. */
static int leave(int channel)
{
        if (channel != 0 && dup3(channel, 0, O_CLOEXEC) < 0)
                return -1;
        return pv_sys_close_range(1, ~0U, 0);
}

/* All blocked: nothing that is sent by mistake ends the helper. SIGKILL is the kernel's to refuse or not. */
static void shield_from_signals(void)
{
        sigset_t all;

        (void)sigfillset(&all);
        (void)sigprocmask(SIG_SETMASK, &all, NULL);
        for (int sig = 1; sig < NSIG; sig++)
                (void)signal(sig, SIG_DFL);
}

_Noreturn static void helper_main(struct pv_rename *r, enum pv_caps_keep keep)
{
        struct pv_err err = PV_ERR_INIT;
        int listener;

        (void)setsid();
        shield_from_signals();
        (void)prctl(PR_SET_NAME, "pvisor-rename", 0, 0, 0);
        if (leave(r->to_helper[1]) < 0 || chdir("/") < 0 || pv_caps_drop(keep | PV_CAPS_TRACE, NULL, &err) < 0)
                _exit(1);
        /* Last: taking on capabilities and ids sets it anew. */
        if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                _exit(1);
        listener = receive_fd(0, 0);
        (void)close(0);
        if (listener >= 0)
                pv_rename_serve(r->shared, listener, keep & PV_CAPS_ROOT_FILES);
        _exit(0);
}

int pv_rename_fork(struct pv_rename *r, enum pv_caps_keep keep, struct pv_err *err)
{
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, r->to_helper) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "rename helper: channel");

        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0)
                helper_main(r, keep);
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "rename helper: fork");
        r->shared->helper = (pid_t)pid;
        pv_fd_closep(&r->to_helper[1]);
        return 0;
}

int pv_rename_open_helper(const struct pv_rename *r)
{
        return r->shared ? pv_sys_pidfd_open(r->shared->helper, 0) : -1;
}

int pv_rename_hand_over(struct pv_rename *r, int listener, struct pv_err *err)
{
        pv_auto_fd fd = listener;
        int failed = fd >= 0 && (send_fd(r->to_init[0], fd) < 0 || send_fd(r->to_helper[0], fd) < 0);

        if (failed)
                (void)pv_err_set(err, PV_ERR_SYS, errno, "rename helper: hand the listener over");
        if (failed)
                (void)pv_pass_hint(err);
        pv_fd_closep(&r->to_helper[0]);
        pv_fd_closep(&r->to_init[0]);
        pv_fd_closep(&r->to_init[1]);
        return failed ? -1 : 0;
}

bool pv_rename_has_helper(const struct pv_rename *r)
{
        return r->shared && r->shared->helper > 0;
}

bool pv_rename_reaped(const struct pv_rename *r, pid_t pid)
{
        return r->shared && pid > 0 && r->shared->helper == pid;
}

/*
 * Killed just behind RECV, the helper had a notification in hand that it told nobody of. The kernel counts the ids up
 * and forgets none that was received: the next few after the last that is known. An id that was not received yet, or
 * never given out, is not affected (EINPROGRESS, ENOENT).
 */
static void answer_lost(int listener, uint64_t first, uint64_t n)
{
        for (uint64_t i = 0; i < n; i++)
                pv_rename_answer(listener, first + i, EINTR);
}

/* The kernel hangs up when the filter is over nobody: so ends the helper of every command that leaves nobody. */
static bool is_over_nobody(int listener)
{
        struct pollfd p = { .fd = listener };

        return poll(&p, 1, 0) > 0 && p.revents & POLLHUP;
}

int pv_rename_take_over(struct pv_rename *r)
{
        int listener = receive_fd(r->to_init[1], MSG_DONTWAIT);

        if (listener >= 0 && is_over_nobody(listener))
                pv_fd_closep(&listener);
        for (size_t i = 0; listener >= 0 && i < PV_RENAME_SLOTS; i++) {
                uint64_t id = atomic_load(&r->shared->in_hand[i]);

                if (id)
                        pv_rename_answer(listener, id, EINTR);
        }
        if (listener >= 0)
                answer_lost(listener, atomic_load(&r->shared->last) + 1, 256);
        return listener;
}

bool pv_rename_continue(int listener)
{
        struct pollfd p = { .fd = listener, .events = POLLIN };
        struct seccomp_notif n = { 0 };

        if (poll(&p, 1, 0) < 0 || p.revents & (POLLHUP | POLLERR | POLLNVAL))
                return false;
        if (p.revents & POLLIN && ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) == 0) {
                pv_rename_answer_continue(listener, n.id);
                answer_lost(listener, n.id - 8, 8); /* of a helper that died over its very first */
        }
        return true;
}
