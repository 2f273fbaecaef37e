/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "base/log.h"
#include "cmd/command.h"
#include "cmd/jobs.h"
#include "cmd/plan_text.h"
#include "cmd/run_end.h"
#include "cmd/run_options.h"
#include "job/detach.h"
#include "job/run.h"
#include "job/run_report.h"

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

/* --json: stderr, a descriptor that is open, or a file that is made; *out is a new close-on-exec descriptor. */
static int open_summary(const char *where, int *out, struct pv_err *err)
{
        char *end = NULL;
        if (!where)
                return 0;
        long n = *where ? strtol(where, &end, 10) : STDERR_FILENO;
        if (*where && *end)
                *out = open(where, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0644);
        else
                *out = n >= 0 && n < INT_MAX ? fcntl((int)n, F_DUPFD_CLOEXEC, 3) : -1;
        if (*out >= 0)
                return 0;
        return pv_err_set(err, PV_ERR_USAGE, errno, "--json=%s", where);
}

static void say_what_holds(const struct pv_run_plan *decided)
{
        const struct pv_plan *p = decided->plan;
        for (size_t i = 0; i < decided->notes.n; i++)
                pv_log_note("%s", decided->notes.v[i]);
        if (p->filesystem == PV_FS_HOST && !p->staged && p->net == PV_NET_AMBIENT)
                pv_log_note("no boundary: the command has all your rights (--safe confines it)");
}

/* What the starter of a detached job says of it. */
static int say_detached(const struct pv_run_plan *decided, const char *id, int summary, struct pv_err *err)
{
        pv_auto_str line = { 0 };
        pv_str_putf(&line, "%s\n", id);
        if (summary >= 0) {
                pv_auto_json j = json_pack("{s:s, s:b, s:o}", "id", id, "detached", 1, "workspace",
                                           pv_json_bytes(decided->plan->workspace));
                pv_auto_free char *text = json_dumps(j, JSON_COMPACT);
                pv_auto_free char *whole = text ? pv_strf("%s\n", text) : NULL;
                if (!whole || pv_fd_write_all(summary, whole, strlen(whole), "--json", err) < 0)
                        return -1;
        }
        return pv_cmd_print(&line, err);
}

/* In a process of its own, of which the starter hears no more than that the command runs. */
static int run_detached(struct pv_run *r, const struct pv_run_plan *decided, struct pv_err *err)
{
        pv_auto_detached d = PV_DETACHED_INIT;
        char id[PV_JOB_ID_TEXT] = { 0 };
        struct pv_run_end end = { 0 };
        bool starter = true;
        int code = 0;
        if (pv_detach(&d, &starter, id, &code, err) < 0)
                return -1;
        if (starter)
                return !id[0] ? code : say_detached(decided, id, r->summary, err);
        r->detached = &d;
        r->summary = -1;
        int executed = pv_run_execute(r, decided, &end, err);
        r->detached = NULL;
        return executed < 0 ? -1 : end.code;
}

static int run(const struct pv_request *request, const struct pv_args *args, int summary, struct pv_err *err)
{
        pv_auto_job continued = NULL;
        pv_auto_run_plan decided = { 0 };
        struct pv_run r = { .request = request, .argv = args->command, .environment = environ, .summary = summary };
        struct pv_run_end end = { 0 };
        if (request->continue_job && pv_cmd_job_named(request->continue_job, &continued, err) < 0) {
                (void)pv_err_wrap(err, "--continue");
                return -1;
        }
        r.continued = continued;
        if (pv_run_decide(&r, &decided, err) < 0) {
                pv_run_report(&(struct pv_run_outcome){ .code = pv_run_exit_code(err), .failure = err }, summary);
                return -1;
        }
        if (request->dry_run)
                return pv_plan_show(decided.plan, request->json != NULL, err);
        say_what_holds(&decided);
        if (request->detach)
                return run_detached(&r, &decided, err);
        return pv_run_execute(&r, &decided, &end, err) < 0 ? -1 : pv_cmd_end_as(&end);
}

/* An error before the command's start has an exit code that no command's own is likely to be taken for. */
static int run_command(const void *options, const struct pv_args *args, struct pv_err *err)
{
        const struct pv_request *request = options;
        pv_auto_fd summary = -1;
        if (!request->dry_run && open_summary(request->json, &summary, err) < 0)
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
