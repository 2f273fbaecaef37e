/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maker is a child of the supervisor's: it joins pid 1's user namespace, makes a network namespace that belongs to
 * that, furnishes it and ends. It is trusted code, of the host's other namespaces, and nothing hostile runs before it
 * has ended. Its words travel in a page that supervisor, maker and pid 1 share.
 */
#include "boundary/network.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "boundary/report.h"

#define NOBODY_THERE 1 /* how the maker exits */

bool pv_network_is_apart(const struct pv_plan *plan)
{
        return plan->net == PV_NET_DENY_ALL || plan->net == PV_NET_RULES;
}

int pv_network_prepare(struct pv_launch *l, struct pv_err *err)
{
        void *page = mmap(NULL, sizeof *l->network, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
                return pv_err_set(err, PV_ERR_SYS, errno, "memory that is shared with the sandbox's init");
        l->network = page;
        return 0;
}

static int raise_loopback(struct pv_err *err)
{
        struct ifreq req = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        pv_auto_fd fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &req) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "raise the sandbox's loopback");
        return 0;
}

/* Rules are the caller's; without them the namespace holds its own loopback alone. */
static int furnish(struct pv_launch *l, int report, struct pv_err *err)
{
        const struct pv_boundary_network *n = l->spec->network;
        int fd[PV_BOUNDARY_NET_FDS];
        if (!n)
                return raise_loopback(err);
        for (size_t i = 0; i < PV_BOUNDARY_NET_FDS; i++)
                fd[i] = -1;
        if (n->enter(n->ctx, fd, l->network, err) < 0)
                return -1;
        for (size_t i = 0; i < PV_BOUNDARY_NET_FDS; i++)
                if (fd[i] >= 0 && pv_report_net(report, i, fd[i], err) < 0)
                        return -1;
        return 0;
}

static int make(struct pv_launch *l, int report, pid_t supervisor, struct pv_err *err)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != supervisor)
                return pv_err_set(err, PV_ERR_SYS, errno, "no supervisor");
        if (setns(l->b->init_pidfd, CLONE_NEWUSER) < 0) {
                if (errno == ESRCH) /* pid 1 is dying, and has said why */
                        _exit(NOBODY_THERE);
                return pv_err_set(err, PV_ERR_SYS, errno, "enter the sandbox's user namespace");
        }
        if (unshare(CLONE_NEWNET) < 0)
                return pv_userns_explain(errno, err);
        if (furnish(l, report, err) < 0)
                return -1;
        pv_auto_fd made = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (made < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "the sandbox's network namespace");
        return pv_report_netns(report, made, err);
}

_Noreturn static void maker_main(struct pv_launch *l, int report, pid_t supervisor)
{
        struct pv_err err = PV_ERR_INIT;
        if (make(l, report, supervisor, &err) < 0)
                pv_report_error(report, &err);
        _exit(0);
}

/* Until the maker has ended. */
static int collect(int report, const struct pv_report_sink *sink, struct pv_err *err)
{
        struct pv_err failure = PV_ERR_INIT;
        int r;
        do
                r = pv_report_take(report, sink, 0, &failure);
        while (r > 0);
        if (failure.kind != PV_ERR_NONE) {
                *err = failure;
                return -1;
        }
        return 0;
}

int pv_network_make(struct pv_launch *l, struct pv_err *err)
{
        int report[2];
        pid_t self = getpid();
        pv_auto_fd netns = -1;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a channel");
        pv_auto_fd ours = report[0];
        pid_t pid = fork();
        if (pid == 0) {
                (void)close(ours);
                maker_main(l, report[1], self);
        }
        (void)close(report[1]);
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "start a process");
        const struct pv_report_sink sink = { .net = l->b->net, .netns = &netns };
        int r = collect(ours, &sink, err), status = 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (r < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == NOBODY_THERE))
                return r;
        if (netns < 0)
                return pv_err_set(err, PV_ERR_SYS, 0, "the maker of the sandbox's network was killed");
        const struct pv_message m = { .kind = PV_MESSAGE_NETWORK };
        return pv_message_hand_over(l->b->control, &m, &netns, 1, err);
}

int pv_network_enter(struct pv_launch *l, struct pv_err *err)
{
        struct pv_message m;
        int got[PV_MESSAGE_FDS];
        if (pv_message_receive_fds(l->control[1], &m, got, 0) <= 0 || m.kind != PV_MESSAGE_NETWORK)
                return pv_err_set(err, PV_ERR_SYS, 0, "no supervisor");
        pv_auto_fd netns = got[0];
        if (setns(netns, CLONE_NEWNET) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "enter the sandbox's network namespace");
        return 0;
}
