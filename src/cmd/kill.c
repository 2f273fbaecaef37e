/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor kill */
#include <poll.h>
#include <signal.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/syscall.h"
#include "cmd/jobs.h"

#define DEFAULT_GRACE_MS 10000
/* After SIGKILL only the kernel's own work is left. */
#define KILL_MS 10000
/* What one poll(2) waits for at most: its time is an int. */
#define POLL_MAX_MS 3600000

struct kill_options {
        uint64_t grace;
};

static const struct pv_opt options[] = {
        { .name = "grace",
          .type = PV_OPT_DURATION,
          .arg = "TIME",
          .field = offsetof(struct kill_options, grace),
          .help = "How long the job may take to end before it is killed for good. Default: 10s." },
        { .name = NULL },
};

/* True when the process has ended within the time. */
static bool wait_for_end(int pidfd, uint64_t ms)
{
        uint64_t deadline = pv_clock_monotonic_ms() + ms;
        for (;;) {
                uint64_t now = pv_clock_monotonic_ms();
                uint64_t left = now < deadline ? deadline - now : 0;
                struct pollfd p = { .fd = pidfd, .events = POLLIN };
                int r = poll(&p, 1, left < POLL_MAX_MS ? (int)left : POLL_MAX_MS);
                if (r > 0)
                        return true;
                if ((r == 0 && left == 0) || (r < 0 && errno != EINTR))
                        return false;
        }
}

static int signal_supervisor(int pidfd, int sig, const struct pv_job *job, struct pv_err *err)
{
        if (pv_sys_pidfd_send_signal(pidfd, sig) < 0 && errno != ESRCH)
                return pv_err_set(err, PV_ERR_SYS, errno, "kill job %s", job->id);
        return 0;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct kill_options *o = opts;
        pv_auto_job job = NULL;
        pv_auto_fd pidfd = -1;
        pid_t pid = 0;
        if (pv_cmd_job(args, &job, err) < 0)
                return -1;
        if (pv_cmd_need_running(job, "kill", err) < 0)
                return -1;
        if (pv_job_open_supervisor(job, &pid, &pidfd, err) < 0)
                return -1;
        pv_job_event(job, "kill", json_pack("{s:s}", "signal", "TERM"));
        if (signal_supervisor(pidfd, SIGTERM, job, err) < 0)
                return -1;
        if (!wait_for_end(pidfd, o->grace ? o->grace : DEFAULT_GRACE_MS)) {
                pv_job_event(job, "kill", json_pack("{s:s}", "signal", "KILL"));
                if (signal_supervisor(pidfd, SIGKILL, job, err) < 0)
                        return -1;
                if (!wait_for_end(pidfd, KILL_MS))
                        return pv_err_set(err, PV_ERR_BUSY, 0, "kill: job %s (process %d) does not die", job->id,
                                          (int)pid);
        }
        pv_log_note("killed %s", job->id);
        return 0;
}

static const char *const examples[] = {
        "pvisor kill", "end the newest job of this workspace", "pvisor kill --grace 1s fix", "with little patience",
        NULL,
};

const struct pv_command pv_cmd_kill = {
        .name = "kill",
        .usage = "[options] [JOB]",
        .about =
                "Ends a running job and everything that it started: asked first (SIGTERM), killed when it takes longer "
                "than --grace. What it had changed stays staged.",
        .options = options,
        .options_size = sizeof(struct kill_options),
        .style = PV_ARGS_MIXED,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
