/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor inspect */
#include <stdlib.h>
#include <unistd.h>
#include "base/path.h"
#include "cmd/jobs.h"
#include "job/contained.h"

/* Without a command: the person's shell. */
static char *const *command_or_shell(const struct pv_args *args, char *shell[2])
{
        const char *own = getenv("SHELL");
        if (args->command && args->command[0])
                return args->command;
        shell[0] = (char *)(own && *own == '/' ? own : "/bin/sh");
        shell[1] = NULL;
        return shell;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        char *shell[2];
        int code = 0;
        struct pv_beside b = { .conn = -1 };
        pv_auto_job job = NULL;
        pv_auto_stage s = NULL;
        pv_auto_contained c = NULL;
        if (pv_cmd_job(args, &job, err) < 0)
                return -1;
        if (job->state == PV_JOB_RUNNING)
                pv_job_freep(&job); /* it may have ended by now: looked for again */
        int opened = job ? pv_cmd_stage_look(job, &s, err) : pv_cmd_stage_decide(args, "inspect", &job, &b, &s, err);
        if (opened < 0 || pv_contained_open(job, s, PV_CONTAINED_RESULT, &c, err) < 0) {
                pv_beside_close(&b, "inspect");
                return -1;
        }
        if (b.job)
                pv_contained_hold_still(c, &b.freezer);
        pv_auto_free char *cwd = getcwd(NULL, 0);
        const struct pv_contained_command command = {
                .argv = command_or_shell(args, shell),
                .cwd = cwd && pv_path_is_within(cwd, pv_contained_workspace(c)) ? cwd : NULL,
                .stdio = { STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO },
                .terminal = isatty(STDIN_FILENO),
        };
        int r = pv_contained_run(c, &command, &code, err);
        pv_beside_close(&b, "inspect");
        return r < 0 ? -1 : code;
}

static const struct pv_opt options[] = {
        PV_OPT_ELSEWHERE(0, "checkpoint", "`pvisor fork JOB@NAME -- COMMAND` stands on one"),
        PV_OPT_OUTPUT_DIR,
        { .name = NULL },
};

static const char *const examples[] = {
        "pvisor inspect last -- git log --oneline -5",
        "look at the commits that the job made",
        "pvisor inspect -- make check",
        "run the tests on its result",
        "pvisor inspect fix",
        "a shell in there",
        NULL,
};

const struct pv_command pv_cmd_inspect = {
        .name = "inspect",
        .usage = "[JOB] [-- COMMAND [ARG...]]",
        .about = "Runs a command (your shell, without one) in the result of a job: inside the job's own boundary, "
                 "without "
                 "network, over a layer that is thrown away. The scripts and the git configuration in there are the "
                 "job's; this way they cannot reach anything of yours. Nothing that the command changes is kept. Of a "
                 "job that still runs it shows what is staged when it begins: the job stands still until that is "
                 "copied. Exits as the command did.",
        .options = options,
        .options_size = 1,
        .style = PV_ARGS_AND_COMMAND,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
