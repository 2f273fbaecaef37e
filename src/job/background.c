/* SPDX-License-Identifier: Apache-2.0 */
#include "job/background.h"

#include <fcntl.h>
#include <linux/ioprio.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "base/fd.h"
#include "base/syscall.h"

static bool is_kept(const int *keep, size_t n, int fd)
{
        for (size_t i = 0; i < n; i++)
                if (keep[i] == fd)
                        return true;
        return false;
}

static void settle_down(const int *keep, size_t n, pid_t parent)
{
        sigset_t none;
        sigemptyset(&none);
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd = 0; fd <= 2; fd++)
                if (null < 0 || is_kept(keep, n, fd) || dup2(null, fd) < 0)
                        _exit(1);
        if (pv_fd_keep_only(keep, n) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                _exit(1);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)setpriority(PRIO_PROCESS, 0, 19);
        (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
}

int pv_background_fork(const int *keep, size_t n_keep, pid_t *child, int *pidfd)
{
        pid_t parent = getpid(), pid = fork();
        if (pid < 0)
                return -1;
        if (pid == 0) {
                settle_down(keep, n_keep, parent);
                return 0;
        }
        *child = pid;
        *pidfd = pv_sys_pidfd_open(pid, 0);
        if (*pidfd >= 0)
                return 1;
        pv_pid_killp(child);
        return -1;
}
