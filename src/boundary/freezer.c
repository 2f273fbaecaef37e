/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of the freezer (freeze.c): starts it, hears from it, ends it. */
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <poll.h>
#include "base/container.h"
#include "base/fd.h"
#include "base/str.h"
#include "base/syscall.h"
#include "boundary/exec.h"
#include "boundary/freeze.h"
#include "boundary/running.h"

struct pv_freezing {
        struct pv_boundary_watch watch; /* of its channel */
        struct pv_boundary *b;
        pid_t pid;
        pv_boundary_frozen_fn *done; /* NULL: told already */
        void *ctx;
};

/* The process as this one sees it: a pidfd names it in another namespace, its number there does not. 0: it is dead. */
static pid_t pid_of(int pidfd)
{
        char path[64], text[512];
        int pid = 0;
        (void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
        if (n <= 0)
                return 0;
        text[n] = '\0';
        const char *line = strstr(text, "\nPid:");
        return line && sscanf(line, "\nPid: %d", &pid) == 1 && pid > 0 ? pid : 0; /* -1: it is dead */
}

void pv_boundary_add_helper(struct pv_boundary *b, int pidfd)
{
        for (size_t i = 0; i < PV_BOUNDARY_HELPERS; i++) {
                if (b->helper[i] >= 0 && pid_of(b->helper[i]))
                        continue;
                pv_fd_closep(&b->helper[i]);
                b->helper[i] = pidfd;
                return;
        }
        pv_fd_closep(&pidfd); /* it stands still with the others, then */
}

struct pv_boundary_watch *pv_freezer_watch(struct pv_freezing *z)
{
        return &z->watch;
}

static void channel_ready(struct pv_boundary_watch *w, short revents)
{
        struct pv_freezing *z = PV_CONTAINER_OF(w, struct pv_freezing, watch);
        struct pv_boundary *b = z->b;
        struct pv_freezer_report report;
        pv_boundary_frozen_fn *done = z->done;
        void *ctx = z->ctx;
        (void)revents;
        if (recv(w->fd, &report, sizeof report, MSG_DONTWAIT) != sizeof report) {
                if (errno == EAGAIN)
                        return;
                report = (struct pv_freezer_report){ .failure = PV_ERR_INIT };
                (void)pv_err_set(&report.failure, PV_ERR_SYS, 0, "freeze the job: the freezer died");
        }
        z->done = NULL;
        if (report.failure.kind != PV_ERR_NONE) {
                pv_boundary_thaw(b);
                if (done)
                        done(ctx, NULL, &report.failure);
                return;
        }
        const struct pv_boundary_frozen frozen = { .threads = report.threads, .us = report.us };
        if (done)
                done(ctx, &frozen, NULL);
}

_Noreturn static void become_freezer(const struct pv_boundary *b, unsigned timeout_ms, int channel)
{
        pid_t spared[PV_BOUNDARY_HELPERS + 1];
        size_t n = 0;
        for (size_t i = 0; i < PV_BOUNDARY_HELPERS; i++) {
                pid_t pid = b->helper[i] >= 0 ? pid_of(b->helper[i]) : 0;
                if (pid)
                        spared[n++] = pid;
        }
        spared[n] = 0;
        /* Nothing but the channel: the supervisor's end of it, were it held here, would hide the supervisor's death. */
        if (dup3(channel, 0, O_CLOEXEC) < 0 || pv_sys_close_range(1, ~0U, 0) < 0)
                _exit(1);
        pv_freezer_main(b->init, spared, timeout_ms, 0);
}

int pv_boundary_freeze(struct pv_boundary *b, unsigned timeout_ms, pv_boundary_frozen_fn *done, void *ctx,
                       struct pv_err *err)
{
        int pair[2];
        if (b->freezer)
                return pv_err_set(err, PV_ERR_BUSY, 0, "the job is frozen already, by somebody else");
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "freeze the job");
        pv_auto_fd own = pair[0];
        pv_auto_fd theirs = pair[1];
        pid_t pid = fork();
        if (pid < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "freeze the job");
        if (pid == 0)
                become_freezer(b, timeout_ms, theirs);
        struct pv_freezing *z = pv_calloc(1, sizeof *z);
        z->watch = (struct pv_boundary_watch){ .fd = pv_fd_steal(&own), .events = POLLIN, .ready = channel_ready };
        z->b = b;
        z->pid = pid;
        z->done = done;
        z->ctx = ctx;
        b->freezer = z;
        if (pv_boundary_watch_add(b, &z->watch) == 0)
                return 0;
        pv_boundary_thaw(b);
        return pv_err_set(err, PV_ERR_BUSY, 0, "freeze the job: too much is watched already");
}

void pv_boundary_thaw(struct pv_boundary *b)
{
        struct pv_freezing *z = b->freezer;
        if (!z)
                return;
        pv_boundary_watch_remove(b, &z->watch);
        pv_fd_closep(&z->watch.fd);
        /* It ends at once, and what it holds goes on with its end. */
        while (waitpid(z->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        b->freezer = NULL;
        free(z);
        pv_exec_thawed(b);
}
