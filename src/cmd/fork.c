/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor fork */
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cmd/jobs.h"
#include "cmd/run_start.h"
#include "job/fork.h"

struct fork_options {
        char *name, *checkpoint;
        char *json; /* "" on stderr, a number: that descriptor, else a file */
        bool detach;
};

static const struct pv_opt options[] = {
        { .name = "name",
          .type = PV_OPT_TEXT,
          .arg = "NAME",
          .field = offsetof(struct fork_options, name),
          .help = "A name for the new job." },
        { .name = "detach",
          .letter = 'd',
          .type = PV_OPT_FLAG,
          .field = offsetof(struct fork_options, detach),
          .help = "Print the job's id and return once the command runs, as with `run`." },
        { .name = "json",
          .type = PV_OPT_TEXT,
          .arg = "FD|FILE",
          .flags = PV_OPT_ARG_OPTIONAL | PV_OPT_ATTACHED,
          .field = offsetof(struct fork_options, json),
          .help = "Write a JSON summary of the finished run to stderr, a descriptor or a file." },
        { .name = "checkpoint",
          .type = PV_OPT_TEXT,
          .arg = "NAME",
          .field = offsetof(struct fork_options, checkpoint),
          .help = "Another way to say JOB@NAME." },
        PV_OPT_ELSEWHERE(0, "state", "leave it out: a new command starts on the files; memory is not kept"),
        PV_OPT_OUTPUT_DIR,
        PV_OPT_ELSEWHERE(0, "stage",
                         "leave it out: the new job's stage is in its own directory; `pvisor list --json` says where"),
        { .name = NULL },
};

/* Splits JOB@CHECKPOINT; a stage directory may hold an '@', a checkpoint's name no slash. */
static char *split_checkpoint(char *selector)
{
        char *at = strrchr(selector, '@');
        if (!at || strchr(at, '/'))
                return NULL;
        *at = '\0';
        return at + 1;
}

static int run_fork(const struct fork_options *o, const struct pv_args *args, int summary, struct pv_err *err)
{
        const struct pv_request request = { .name = o->name };
        pv_auto_free char *selector = args->n ? pv_strdup(args->words[0]) : pv_strdup("last");
        const char *split = split_checkpoint(selector), *checkpoint = o->checkpoint ? o->checkpoint : split;
        pv_auto_job parent = NULL;
        pv_auto_run_plan decided = { 0 };
        struct pv_run run_it = {
                .request = &request, .argv = args->command, .environment = environ, .summary = summary
        };
        if (split && o->checkpoint) {
                (void)pv_err_set(err, PV_ERR_USAGE, 0, "fork: @%s and --checkpoint name the same thing", split);
                return pv_cmd_not_started(err, summary);
        }
        if ((checkpoint && pv_job_check_name(checkpoint, err) < 0) ||
            pv_cmd_job_named(*selector ? selector : "last", &parent, err) < 0 ||
            pv_fork_decide(parent, checkpoint, &run_it, &decided, err) < 0)
                return pv_cmd_not_started(err, summary);
        pv_cmd_say_notes(&decided);
        return pv_cmd_start(&run_it, &decided, o->detach ? PV_CMD_DETACHED : PV_CMD_FOREGROUND, err);
}

static const char *const examples[] = {
        "pvisor fork last -- claude --continue",
        "another run on what the newest job has staged",
        "pvisor fork fix@c1 --name plan-b -- make test",
        "from a checkpoint",
        "pvisor fork --detach base -- claude --continue",
        "beside this terminal: pvisor attach, logs, kill",
        NULL,
};

/* Before the command's start the codes are those of `run`. */
static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct fork_options *o = opts;
        pv_auto_fd summary = -1;
        if (pv_cmd_open_summary(o->json, &summary, err) < 0)
                return -1;
        int code = run_fork(o, args, summary, err);
        if (code >= 0)
                return code;
        pv_log_err(err);
        return pv_run_exit_code(err);
}

const struct pv_command pv_cmd_fork = {
        .name = "fork",
        .usage = "[options] [JOB[@CHECKPOINT]] [-- COMMAND [ARG...]]",
        .about = "Starts a command (that job's own, without one) in a new job that stands on what another one has "
                 "staged, now or at a checkpoint, in "
                 "the "
                 "same kind of boundary. Nothing is copied; each job keeps its own changes from there on. Exits as "
                 "`run` "
                 "does.",
        .options = options,
        .options_size = sizeof(struct fork_options),
        .style = PV_ARGS_AND_COMMAND,
        .max_words = 1,
        .words = PV_COMPLETE_JOB,
        .examples = examples,
        .run = run,
};
