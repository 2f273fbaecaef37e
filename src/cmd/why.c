/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor why */
#include "job/why.h"

#include <string.h>
#include <unistd.h>
#include "cmd/jobs.h"
#include "job/bundle.h"
#include "policy/groups.h"

struct why_options {
        bool last, json;
};

static const struct pv_opt options[] = {
        { .name = "last",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct why_options, last),
          .help = "What was refused last, of the newest job of this workspace (or of JOB)." },
        PV_OPT_JSON(struct why_options, json),
        { .name = NULL },
};

struct looking {
        struct pv_job *job;
        struct pv_plan *plan;
        json_t *granted, *refusals;
};

static void looking_fini(struct looking *l)
{
        pv_job_freep(&l->job);
        pv_plan_freep(&l->plan);
        json_decref(l->granted);
        json_decref(l->refusals);
}
#define auto_looking __attribute__((cleanup(looking_fini))) struct looking

/* A refused flow as it is written on a command line. */
static char *target_of(const json_t *event)
{
        const char *name = json_string_value(json_object_get(event, "target"));
        json_int_t port = json_integer_value(json_object_get(event, "port"));
        bool v6 = name && port && strchr(name, ':');
        if (!name)
                return pv_strdup("");
        return port ? pv_strf("%s%s%s:%lld", v6 ? "[" : "", name, v6 ? "]" : "", (long long)port) : pv_strdup(name);
}

/* How often a target was refused, and the last reason that was recorded. Of a name without a port, at any. */
static size_t count_refusals(const struct looking *l, const char *target, const char **why)
{
        size_t i, n = 0;
        json_t *one;
        json_array_foreach(l->refusals, i, one)
        {
                pv_auto_free char *text = target_of(one);
                const char *name = json_string_value(json_object_get(one, "target"));
                if (!pv_streq(text, target) && !(name && pv_streq(name, target)))
                        continue;
                *why = json_string_value(json_object_get(one, "why"));
                n++;
        }
        return n;
}

/* The shipped or own groups that hold a target, as an option; NULL: none does. */
static char *groups_with(const char *target)
{
        pv_auto_groups groups = { 0 };
        struct pv_err ignored = PV_ERR_INIT;
        if (pv_groups_load(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &groups, &ignored) < 0)
                return NULL;
        pv_auto_free char *with = pv_groups_with(&groups, target);
        return with ? pv_strf("--overlaynet-allow %s", with) : NULL;
}

static void put_row(struct pv_str *out, const char *what, const char *text)
{
        if (!text)
                return;
        pv_str_putf(out, "  %-9s ", what);
        pv_str_put_safe(out, text);
        pv_str_putc(out, '\n');
}

static void put_why(struct pv_str *out, const struct looking *l, const char *asked, const struct pv_why *w)
{
        pv_str_put_safe(out, asked);
        pv_str_putc(out, ' ');
        pv_str_put_safe(out, w->what);
        pv_str_putc(out, '\n');
        pv_auto_free char *by = w->rule && w->layer ? pv_strf("%s (%s)", w->rule, w->layer) : NULL;
        put_row(out, "rule", by);
        if (!by)
                put_row(out, "layer", w->layer);
        put_row(out, w->refused ? "allow it" : "change it", w->allow_with);
        if (w->grant && l->job->state == PV_JOB_RUNNING) {
                pv_auto_free char *now = pv_strf("pvisor allow %s %s", l->job->id, w->grant);
                put_row(out, "now", now);
        }
}

static json_t *why_json(const char *kind, const char *asked, const struct pv_why *w)
{
        return json_pack("{s:s, s:o, s:b, s:o, s:o, s:o, s:o, s:o}", "kind", kind, "asked", pv_json_bytes(asked),
                         "refused", w->refused, "what", pv_json_bytes(w->what), "layer", pv_json_bytes(w->layer),
                         "rule", pv_json_bytes(w->rule), "allow_with", pv_json_bytes(w->allow_with), "grant",
                         pv_json_bytes(w->grant));
}

/*
 * What the policy says; where it allows what was refused all the same (its address, a port of pVisor's), the record's
 * reason is the answer.
 */
static int explain_target(const struct looking *l, const char *text, struct pv_str *out, json_t *list,
                          struct pv_err *err)
{
        pv_auto_why w = { 0 };
        const char *recorded = NULL;
        if (pv_why_target(l->plan, l->granted, text, &w, err) < 0)
                return -1;
        size_t n = count_refusals(l, text, &recorded);
        put_why(out, l, text, &w);
        pv_auto_free char *groups = w.refused && w.grant ? groups_with(text) : NULL;
        put_row(out, "group", groups);
        if (n) {
                pv_auto_free char *so_far = pv_strf("refused %zux%s%s", n, w.refused || !recorded ? "" : ": ",
                                                    w.refused || !recorded ? "" : recorded);
                put_row(out, "so far", so_far);
        }
        json_t *j = why_json("network", text, &w);
        (void)json_object_set_new(j, "refusals", json_integer((json_int_t)n));
        (void)json_object_set_new(j, "last_reason", recorded ? json_string(recorded) : json_null());
        (void)json_object_set_new(j, "groups", groups ? json_string(groups) : json_null());
        return json_array_append_new(list, j);
}

/* A path as the command would name it: relative ones count from where the person stands, `~` is HOME. */
static char *absolute(const struct looking *l, const char *text)
{
        pv_auto_free char *cwd = getcwd(NULL, 0), *joined = NULL;
        if (text[0] == '~' && (text[1] == '/' || text[1] == '\0'))
                joined = pv_path_join(l->plan->home, text[1] ? text + 2 : "");
        else
                joined = text[0] == '/' ? pv_strdup(text) : pv_path_join(cwd ? cwd : "/", text);
        return pv_path_normalise(joined);
}

/* What holds the answer up: Landlock has the view's list once more, where the record says that it was installed. */
static const char *walls_of(const struct looking *l)
{
        struct pv_err ignored = PV_ERR_INIT;
        pv_auto_json bundle = NULL;
        size_t i;
        json_t *one;
        if (l->plan->filesystem == PV_FS_HOST)
                return NULL;
        if (pv_bundle_read(l->job, &bundle, &ignored) < 0)
                return "mounts";
        json_array_foreach(json_object_get(bundle, "executor_observations"), i, one)
        {
                const char *control = json_string_value(json_object_get(one, "control"));
                if (control && pv_streq(control, "landlock") && json_is_true(json_object_get(one, "installed")))
                        return "mounts, Landlock";
        }
        return "mounts";
}

static int explain_path(const struct looking *l, const char *text, struct pv_str *out, json_t *list, struct pv_err *err)
{
        pv_auto_why w = { 0 };
        pv_auto_free char *path = absolute(l, text);
        if (pv_why_path(l->plan, path, &w, err) < 0)
                return -1;
        put_why(out, l, path, &w);
        put_row(out, "walls", walls_of(l));
        json_t *j = why_json("path", path, &w);
        (void)json_object_set_new(j, "walls", pv_json_bytes(walls_of(l)));
        return json_array_append_new(list, j);
}

/* All that was refused, each target once, in the order of its first refusal. */
static int explain_all(const struct looking *l, struct pv_str *out, json_t *list, struct pv_err *err)
{
        pv_auto_strv seen = { 0 };
        size_t i;
        json_t *one;
        json_array_foreach(l->refusals, i, one)
        {
                pv_auto_free char *text = target_of(one);
                struct pv_err odd = PV_ERR_INIT;
                if (!*text || pv_strv_has(&seen, text) || seen.n >= 256)
                        continue;
                pv_strv_add(&seen, text);
                if (explain_target(l, text, out, list, &odd) < 0 && odd.kind != PV_ERR_USAGE)
                        return pv_err_set(err, odd.kind, odd.sys, "%s", odd.msg);
        }
        if (seen.n == 0)
                pv_str_putf(out, "%s: nothing was refused that a rule could allow\n", l->job->id);
        return 0;
}

static int explain_last(const struct looking *l, struct pv_str *out, json_t *list, struct pv_err *err)
{
        size_t n = json_array_size(l->refusals);
        if (n == 0)
                return explain_all(l, out, list, err);
        pv_auto_free char *text = target_of(json_array_get(l->refusals, n - 1));
        return explain_target(l, text, out, list, err);
}

/*
 * Whether a word is meant as a path though it does not look like one: something of that name is here, or it has a slash
 * and is no CIDR.
 */
static bool is_path_here(const char *text)
{
        const char *slash = strchr(text, '/');
        bool cidr = slash && slash[1] && strspn(slash + 1, "0123456789") == strlen(slash + 1);
        return !strstr(text, "://") && ((slash && !cidr) || access(text, F_OK) == 0);
}

/* The job that is asked about, and the first word that is a target: one that looks like none is a job mistyped. */
static int find_job(const struct pv_args *args, struct pv_job **out, size_t *first, struct pv_err *err)
{
        const char *word = args->n ? args->words[0] : "";
        if (pv_why_is_path(word) || is_path_here(word) || word[strcspn(word, ".:@")])
                return pv_cmd_job_or_last(args, out, first, err);
        *first = args->n ? 1 : 0;
        return pv_cmd_job(args, out, err);
}

static int explain_word(const struct looking *l, const char *text, struct pv_str *out, json_t *list, struct pv_err *err)
{
        bool path = pv_why_is_path(text) || is_path_here(text);
        return (path ? explain_path : explain_target)(l, text, out, list, err);
}

static int run(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct why_options *o = opts;
        size_t first = 0;
        auto_looking l = { 0 };
        pv_auto_str out = { 0 };
        pv_auto_json list = json_array();
        if (find_job(args, &l.job, &first, err) < 0)
                return -1;
        if (o->last && args->n > first)
                return pv_err_set(err, PV_ERR_USAGE, 0, "why: --last and a target contradict each other");
        if (pv_job_plan(l.job, &l.plan, err) < 0 || pv_why_events(l.job, &l.granted, &l.refusals, err) < 0)
                return -1;
        int r = 0;
        if (o->last)
                r = explain_last(&l, &out, list, err);
        else if (args->n == first)
                r = explain_all(&l, &out, list, err);
        for (size_t i = first; i < args->n && r == 0; i++)
                r = explain_word(&l, args->words[i], &out, list, err);
        if (r < 0)
                return -1;
        return o->json ? pv_cmd_print_json(pv_steal(&list), err) : pv_cmd_print(&out, err);
}

static const char *const examples[] = {
        "pvisor why --last",
        "what was refused last, and what would allow it",
        "pvisor why last registry.npmjs.org:443",
        "may the newest job reach it, and by which rule",
        "pvisor why last ~/.ssh ./src",
        "what the job sees of two paths",
        NULL,
};

const struct pv_command pv_cmd_why = {
        .name = "why",
        .usage = "[options] [JOB] [HOST[:PORT]|PATH...]",
        .about =
                "Says which rule, of which layer, refuses a network target or hides a path, or would, and the option "
                "that would allow it; for a job that runs, what `pvisor allow` would. Without a target: all that was "
                "refused. The job's recorded plan is asked, with what was granted since; nothing is tried.\n\n"
                "Layers are the command line, the configuration file, the agent's profile, --safe itself, and the base "
                "that no option changes. A first word that is no job and looks like a target is one of the newest job. "
                "A path begins with /, . "
                "or ~, has a slash in "
                "it, or is there in the current directory.",
        .options = options,
        .options_size = sizeof(struct why_options),
        .style = PV_ARGS_MIXED,
        .max_words = 64,
        .words = PV_COMPLETE_JOB_OR_FILE,
        .examples = examples,
        .run = run,
};
