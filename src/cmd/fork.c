/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor fork */
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cmd/jobs.h"
#include "cmd/run_end.h"
#include "job/fork.h"

struct fork_options {
        char *name;
};

static const struct pv_opt options[] = {
        { .name = "name",
          .type = PV_OPT_TEXT,
          .arg = "NAME",
          .field = offsetof(struct fork_options, name),
          .help = "A name for the new job." },
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

static int run_fork(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct fork_options *o = opts;
        const struct pv_request request = { .name = o->name };
        pv_auto_free char *selector = args->n ? pv_strdup(args->words[0]) : pv_strdup("last");
        const char *checkpoint = split_checkpoint(selector);
        pv_auto_job parent = NULL;
        pv_auto_run_plan decided = { 0 };
        struct pv_run_end end = { 0 };
        if (checkpoint && pv_job_check_name(checkpoint, err) < 0)
                return -1;
        if (pv_cmd_job_named(*selector ? selector : "last", &parent, err) < 0)
                return -1;
        const struct pv_run run_it = {
                .request = &request, .argv = args->command, .environment = environ, .summary = -1
        };
        if (pv_fork_decide(parent, checkpoint, &run_it, &decided, err) < 0)
                return -1;
        return pv_run_execute(&run_it, &decided, &end, err) < 0 ? -1 : pv_cmd_end_as(&end);
}

static const char *const examples[] = {
        "pvisor fork last -- claude --continue",
        "another run on what the newest job has staged",
        "pvisor fork fix@c1 --name plan-b -- make test",
        "from a checkpoint",
        NULL,
};

/* Before the command's start the codes are those of `run`. */
static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        int code = run_fork(opts, args, err);
        if (code >= 0)
                return code;
        pv_log_err(err);
        return pv_run_exit_code(err);
}

const struct pv_command pv_cmd_fork = {
        .name = "fork",
        .usage = "[options] [JOB[@CHECKPOINT]] -- COMMAND [ARG...]",
        .about = "Starts a command in a new job that stands on what another one has staged, now or at a checkpoint, in "
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
