/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pvisor login: runs an agent's own login inside a boundary with the profile's network, so that what it stores lies in
 * the agent's state directory, from where later runs have it. The workspace is an empty directory that goes away.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/path.h"
#include "cmd/command.h"
#include "cmd/run_end.h"
#include "job/kept.h"
#include "job/run.h"
#include "policy/profile.h"

struct options {
        bool forget;
        struct pv_strv allow;
};

static const struct pv_opt table[] = {
        { .name = "forget",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct options, forget),
          .help = "Remove the agent's state instead: its login, and what it kept of its sessions. Your own files are "
                  "not touched." },
        { .name = "overlaynet-allow",
          .type = PV_OPT_LIST,
          .arg = "TARGET",
          .field = offsetof(struct options, allow),
          .help = "Let the login reach one more target. Repeatable." },
        { .name = NULL },
};

static int load(const char *name, struct pv_profile **out, struct pv_err *err)
{
        pv_auto_profile_places places = { 0 };
        pv_profile_places_find(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &places);
        pv_auto_free char *path = pv_profile_find(&places, name);
        if (path)
                return pv_profile_load(path, name, out, err);
        (void)pv_profile_missing(&places, "login", name, err);
        return -1;
}

/* The command that was given, or the profile's. */
static char *const *command_of(const struct pv_args *args, const struct pv_profile *p, struct pv_err *err)
{
        if (args->command && args->command[0])
                return args->command;
        if (p->login.n)
                return p->login.v;
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "login %s: its profile names no command that logs in", p->name);
        if (p->pass_env.n)
                (void)pv_err_hint(err, "it takes a key from a variable (%s); or pvisor login %s -- COMMAND",
                                  p->pass_env.v[0], p->name);
        else
                (void)pv_err_hint(err, "pvisor login %s -- COMMAND", p->name);
        return NULL;
}

static int run_in(const char *workspace, const struct pv_profile *p, const struct options *o, char *const *argv,
                  struct pv_run_end *end, struct pv_err *err)
{
        pv_auto_run_plan decided = { 0 };
        const struct pv_request request = {
                .safe = true,
                .workspace = (char *)workspace,
                .profile = p->name,
                .unstaged = true,
                .no_settings = true,
                .no_caches = true,
                .overlaynet_allow = o->allow,
                .publish = p->login_publish,
        };
        const struct pv_run run = { .request = &request, .argv = argv, .environment = environ, .summary = -1 };
        if (pv_run_decide(&run, &decided, err) < 0)
                return -1;
        for (size_t i = 0; i < decided.notes.n; i++)
                pv_log_note("%s", decided.notes.v[i]);
        return pv_run_execute(&run, &decided, end, err);
}

static int log_in(const struct pv_profile *p, const struct options *o, char *const *argv, struct pv_err *err)
{
        const char *tmp = getenv("TMPDIR");
        struct pv_err ignored = PV_ERR_INIT;
        struct pv_run_end end = { 0 };
        pv_auto_free char *dir = pv_strf("%s/pvisor-login-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
        if (!mkdtemp(dir))
                return pv_err_set(err, PV_ERR_SYS, errno, "login: an empty directory to work in: %s", dir);
        int r = run_in(dir, p, o, argv, &end, err);
        pv_auto_fd parent = open(tmp && *tmp == '/' ? tmp : "/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (parent >= 0)
                (void)pv_path_remove_tree(parent, strrchr(dir, '/') + 1, &ignored);
        return r < 0 ? -1 : pv_cmd_end_as(&end);
}

static int forget(const struct pv_profile *p, struct pv_err *err)
{
        bool there = false;
        if (pv_kept_forget_state(p->name, &there, err) < 0)
                return -1;
        pv_log_note(there ? "%s: login and state removed" : "%s: there was nothing to remove", p->name);
        return 0;
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct options *o = opts;
        pv_auto_profile p = NULL;
        if (load(args->words[0], &p, err) < 0)
                return -1;
        if (o->forget)
                return forget(p, err);
        char *const *argv = command_of(args, p, err);
        if (!argv)
                return -1;
        int code = log_in(p, o, argv, err);
        if (code >= 0)
                return code;
        pv_log_err(err);
        return pv_run_exit_code(err);
}

static const char *const examples[] = {
        "pvisor login claude",
        "Sign in once; `pvisor run --safe -- claude` then works",
        "pvisor login codex -- codex login --device-auth",
        "With a command of your own",
        "pvisor login codex --forget",
        "Sign out: the agent's state is removed",
        NULL,
};

const struct pv_command pv_cmd_login = {
        .name = "login",
        .usage = "[options] AGENT [-- COMMAND [ARG...]]",
        .about =
                "Runs the login of an agent (its profile says which command that is) under --safe, with the network of "
                "its profile. What it stores lies in a directory of pVisor's own that later runs of the agent have in "
                "the place of yours; your own login stays where it is and is not shown. Exits as the command did.",
        .options = table,
        .options_size = sizeof(struct options),
        .style = PV_ARGS_AND_COMMAND,
        .min_words = 1,
        .max_words = 1,
        .words = PV_COMPLETE_PROFILE,
        .examples = examples,
        .run = run,
};
