/* SPDX-License-Identifier: Apache-2.0 */
#include "job/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include "base/container.h"
#include "base/fd.h"

#define LOG_KEPT  (UINT64_C(64) << 20)
#define LOG_CHECK (UINT64_C(1) << 20) /* how often, in bytes, it is looked at */
/* At the end. More is from a process that outlives the job (sudo, ambient), and may never end. */
#define DRAIN_MAX (1U << 20)

void pv_output_fini(struct pv_output *o)
{
        if (o->owned)
                pv_fd_closep(&o->from);
}

int pv_output_open(struct pv_output *o, int log, int *command, struct pv_err *err)
{
        int pipe[2];
        if (pipe2(pipe, O_CLOEXEC) < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "make a pipe");
        o->from = pipe[0];
        o->log = log;
        o->owned = true;
        *command = pipe[1];
        return fcntl(o->from, F_SETFL, O_NONBLOCK) < 0 ? pv_err_set(err, PV_ERR_SYS, errno, "a pipe's flags") : 0;
}

static void let_go_of_old(struct pv_output *o)
{
        off_t size = lseek(o->log, 0, SEEK_END);
        o->logged = 0;
        /* Whole blocks of any file system: what is left of half a one would be zeros that nobody said. */
        off_t old = (size - (off_t)LOG_KEPT) & ~(off_t)(LOG_CHECK - 1);
        if (old > 0)
                (void)fallocate(o->log, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, old);
}

/* One piece: its bytes. 0: there is nothing now, or never will be (*ended). */
static size_t keep_some(struct pv_output *o, bool *ended)
{
        char buf[65536];
        struct pv_err ignored = PV_ERR_INIT;
        ssize_t n = read(o->from, buf, sizeof buf);
        *ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        if (n <= 0)
                return 0;
        (void)pv_fd_write_all(o->log, buf, (size_t)n, "output", &ignored);
        o->logged += (uint64_t)n;
        if (o->logged >= LOG_CHECK)
                let_go_of_old(o);
        return (size_t)n;
}

static void ready(struct pv_boundary_watch *w, short revents)
{
        struct pv_output *o = PV_CONTAINER_OF(w, struct pv_output, watch);
        bool ended = false;
        (void)revents;
        (void)keep_some(o, &ended);
        if (ended)
                w->fd = -1;
}

void pv_output_serve(struct pv_output *o, struct pv_boundary *b)
{
        if (o->from < 0)
                return;
        o->watch = (struct pv_boundary_watch){ .fd = o->from, .events = POLLIN, .ready = ready };
        if (pv_boundary_watch_add(b, &o->watch) == 0)
                o->boundary = b;
}

void pv_output_stop(struct pv_output *o)
{
        if (o->boundary)
                pv_boundary_watch_remove(o->boundary, &o->watch);
        o->boundary = NULL;
}

void pv_output_drain(struct pv_output *o, int settle_ms)
{
        bool ended = false;
        size_t kept = 0;
        while (o->from >= 0 && o->log >= 0 && !ended && kept < DRAIN_MAX) {
                struct pollfd p = { .fd = o->from, .events = POLLIN };
                size_t n = keep_some(o, &ended);
                kept += n;
                if (n == 0 && !ended && poll(&p, 1, settle_ms) == 0)
                        return;
        }
}
