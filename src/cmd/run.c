/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "cmd/command.h"
#include "cmd/jobs.h"
#include "cmd/plan_text.h"
#include "cmd/run_options.h"
#include "cmd/run_start.h"
#include "job/run.h"

static int before(const struct pv_command *self, const struct pv_parsed *parsed, void *options, struct pv_err *err)
{
        struct pv_request *request = options;
        const char *path = NULL;
        for (size_t i = 0; i < parsed->n_uses; i++)
                if (pv_streq(parsed->use[i].opt->name, "config"))
                        path = parsed->use[i].value;
        if (pv_run_load_config(path, request, err) < 0)
                return -1;
        /* Rules of the file are a layer of their own: the command line narrows them, it does not add to them. */
        request->user_allow = request->overlaynet_allow;
        request->user_deny = request->overlaynet_deny;
        request->overlaynet_allow = request->overlaynet_deny = (struct pv_strv){ 0 };
        if (pv_opt_was_used(parsed, "clear-pass-env"))
                pv_strv_fini(&request->pass_env);
        return 0;
}

static void say_what_holds(const struct pv_run_plan *decided)
{
        const struct pv_plan *p = decided->plan;
        pv_cmd_say_notes(decided);
        if (p->filesystem == PV_FS_HOST && !p->staged && p->net == PV_NET_AMBIENT)
                pv_log_note("no boundary: the command has all your rights (--safe confines it)");
}

/*
 * `pvisor run claude --safe` would hand --safe to claude and confine nothing. Where nothing sets the command off and
 * nothing confines it, an option of ours that would have done so is taken for a slip.
 */
static int check_order(const struct pv_request *r, const struct pv_args *args, struct pv_err *err)
{
        static const char *const confine[] = { "--safe", "--strict", "--stage", "--filesystem", "--overlaynet" };
        if (args->set_off || !args->command || r->safe || r->stage || r->filesystem || r->overlaynet ||
            r->overlaynet_allow.n || r->overlaynet_deny.n || r->overlaynet_deny_all)
                return 0;
        for (char *const *a = args->command + 1; args->command[0] && *a; a++)
                for (size_t i = 0; i < sizeof confine / sizeof *confine; i++) {
                        size_t n = strlen(confine[i]);
                        if (!pv_str_has_prefix(*a, confine[i]) || !strchr("=-", (*a)[n]) ||
                            ((*a)[n] == '-' && !pv_streq(confine[i], "--overlaynet")))
                                continue; /* '\0' is found by strchr(), too */
                        (void)pv_err_set(err, PV_ERR_USAGE, 0, "run: %s stands after the command and would go to %s",
                                         *a, args->command[0]);
                        return pv_err_hint(err,
                                           "pvisor run %s -- %s ...; or, if %s is to have it: pvisor run -- %s ...", *a,
                                           args->command[0], args->command[0], args->command[0]);
                }
        return 0;
}

/* A name stands for one running job of a workspace, or `kill NAME` would end another one than was meant. */
static int check_name(const struct pv_request *request, struct pv_err *err)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_free char *workspace = NULL;
        pv_auto_job holder = NULL;
        if (!request->name || request->dry_run || pv_job_check_name(request->name, &ignored) < 0 ||
            pv_cmd_workspace(&workspace, &ignored) < 0 ||
            pv_job_select(request->name, workspace, &holder, &ignored) < 0)
                return 0;
        if (holder->state != PV_JOB_RUNNING || !holder->name || !pv_streq(holder->name, request->name) ||
            !pv_streq(holder->workspace, workspace))
                return 0;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "--name %s: job %s has that name and still runs", request->name,
                         holder->id);
        return pv_err_hint(err, "take another name, or end it: pvisor kill %s", request->name);
}

static int check_continued(const struct pv_job *job, struct pv_err *err)
{
        if (!job || job->state != PV_JOB_RUNNING)
                return job ? pv_job_check_stage_left(job, "--continue", err) : 0;
        (void)pv_err_set(err, PV_ERR_BUSY, 0, "--continue: job %s still runs", job->id);
        return pv_err_hint(err, "pvisor exec %s -- COMMAND runs beside it; pvisor kill ends it", job->id);
}

static int run(const struct pv_request *request, const struct pv_args *args, int summary, struct pv_err *err)
{
        pv_auto_job continued = NULL;
        pv_auto_run_plan decided = { 0 };
        struct pv_run r = { .request = request, .argv = args->command, .environment = environ, .summary = summary };
        if (request->continue_job && pv_cmd_job_named(request->continue_job, &continued, err) < 0) {
                (void)pv_err_wrap(err, "--continue");
                return pv_cmd_not_started(err, summary);
        }
        r.continued = continued;
        if (check_order(request, args, err) < 0 || check_name(request, err) < 0 ||
            check_continued(continued, err) < 0 || pv_run_decide(&r, &decided, err) < 0)
                return pv_cmd_not_started(err, summary);
        if (request->dry_run)
                return pv_plan_show(decided.plan, request->json != NULL, err);
        say_what_holds(&decided);
        return pv_cmd_start(&r, &decided, request->detach ? PV_CMD_DETACHED : PV_CMD_FOREGROUND, err);
}

/* An error before the command's start has an exit code that no command's own is likely to be taken for. */
static int run_command(const void *options, const struct pv_args *args, struct pv_err *err)
{
        const struct pv_request *request = options;
        pv_auto_fd summary = -1;
        if (!request->dry_run && pv_cmd_open_summary(request->json, &summary, err) < 0)
                return -1;
        int code = run(request, args, summary, err);
        if (code >= 0)
                return code;
        pv_log_err(err);
        return pv_run_exit_code(err);
}

static const char *const examples[] = {
        "pvisor run --safe -- claude",
        "An agent works unattended; nothing lands until `pvisor apply`.",
        "pvisor run --stage -- make test",
        "See what the tests write, with the network as it is.",
        "pvisor run --safe --timeout 30m --memory 4GiB -- ./agent.sh",
        "The same with limits.",
        "pvisor run --continue last -- make",
        "Another command on what the last one left.",
        NULL,
};

const struct pv_command pv_cmd_run = {
        .name = "run",
        .usage = "[options] [--] COMMAND [ARG...]",
        .about = "Runs COMMAND in the current directory. Without options it has all your rights, and its record says "
                 "so; --safe confines it.\n\n"
                 "The workspace is the git top level of the current directory, else that directory. COMMAND sees it at "
                 "its own path and starts where you stand. With --stage (or --safe) its changes are kept aside: "
                 "`pvisor review` shows them, `apply` takes them, `drop` forgets them.\n\n"
                 "Exit code: COMMAND's own; 128+N when signal N ended it; 124 time limit or --stage-max-size; 125 "
                 "pVisor failed before it "
                 "started; 126 not executable; 127 not found; 2 wrong usage; 5 a required limit cannot be enforced "
                 "here; 6 refused.\n\n"
                 "`spawn` is another name of `run`, and `pvisor [options] -- COMMAND` a shorter one.",
        .options = pv_run_options,
        .options_size = sizeof(struct pv_request),
        .style = PV_ARGS_COMMAND,
        .examples = examples,
        .before = before,
        .run = run_command,
};
