/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor allow, pvisor publish: what the person grants a running job. */
#include "base/json.h"
#include "base/log.h"
#include "cmd/jobs.h"
#include "job/control.h"
#include "policy/network.h"

struct allow_options {
        bool private_ips, json;
};

static const struct pv_opt allow_options[] = {
        { .name = "allow-private-ips",
          .type = PV_OPT_FLAG,
          .field = offsetof(struct allow_options, private_ips),
          .help = "The names may lead to private addresses (10/8, 192.168/16, fc00::/7, ...)." },
        PV_OPT_JSON(struct allow_options, json),
        { .name = NULL },
};

static const struct pv_opt publish_options[] = {
        PV_OPT_JSON(struct allow_options, json),
        { .name = NULL },
};

/* The running job that the first word names. */
static int open_job(const struct pv_args *args, const char *verb, struct pv_job **out, int *dir, struct pv_err *err)
{
        const struct pv_args one = { .words = args->words, .n = 1 };
        pv_auto_job job = NULL;
        if (pv_cmd_job(&one, &job, err) < 0)
                return -1;
        if (pv_cmd_need_running(job, verb, err) < 0)
                return -1;
        *dir = pv_job_open_dir(job, err);
        if (*dir < 0)
                return -1;
        *out = pv_steal(&job);
        return 0;
}

/* The rules of all words, groups taken apart here: the job's supervisor does not read the person's files. */
static int read_rules(const struct pv_args *args, bool private_ips, json_t *rules, json_t *asked, struct pv_err *err)
{
        pv_auto_netrules all = { 0 };
        pv_auto_groups groups = { 0 };
        pv_auto_strv texts = { 0 };
        const struct pv_strv *const lists[] = { &texts };
        for (size_t i = 1; i < args->n; i++)
                pv_strv_add(&texts, args->words[i]);
        if (pv_groups_load_for(lists, 1, environ, &groups, err) < 0)
                return -1;
        for (size_t i = 0; i < texts.n; i++) {
                uint64_t rate = 0;
                if (pv_netrules_add(&all, texts.v[i], &groups, &rate, err) < 0)
                        return -1;
                if (rate)
                        return pv_err_set(err, PV_ERR_USAGE, 0, "%s: limits are set when the job starts", texts.v[i]);
                (void)json_array_append_new(asked, pv_json_bytes(texts.v[i]));
        }
        for (size_t i = 0; i < all.n; i++) {
                pv_auto_str text = { 0 };
                all.v[i].allow_private_ips |= private_ips;
                pv_netrule_put(&text, &all.v[i]);
                (void)json_array_append_new(rules, json_string(text.s));
        }
        return 0;
}

static int run_allow(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct allow_options *o = opts;
        pv_auto_job job = NULL;
        pv_auto_fd dir = -1;
        pv_auto_json answer = NULL;
        pv_auto_json rules = json_array();
        pv_auto_json asked = json_array();
        if (read_rules(args, o->private_ips, rules, asked, err) < 0 || open_job(args, "allow", &job, &dir, err) < 0)
                return -1;
        json_t *request = pv_control_request("allow");
        (void)json_object_set(request, "rules", rules);
        (void)json_object_set(request, "asked", asked);
        if (pv_control_call(dir, request, NULL, &answer, err) < 0)
                return pv_err_wrap(err, "allow");
        if (o->json)
                return pv_cmd_print_json(pv_steal(&answer), err);
        size_t i;
        json_t *one;
        json_array_foreach(rules, i, one)
        {
                pv_log_note("%s may reach %s from now on", job->id, json_string_value(one));
        }
        return 0;
}

static int run_publish(const void *opts, const struct pv_args *args, struct pv_err *err)
{
        const struct allow_options *o = opts;
        struct pv_publication p;
        pv_auto_job job = NULL;
        pv_auto_fd dir = -1;
        pv_auto_json answer = NULL;
        pv_auto_str addr = { 0 };
        if (pv_publication_parse(args->words[1], &p, err) < 0 || open_job(args, "publish", &job, &dir, err) < 0)
                return -1;
        json_t *request = pv_control_request("publish");
        (void)json_object_set_new(request, "publish", json_string(args->words[1]));
        if (pv_control_call(dir, request, NULL, &answer, err) < 0)
                return pv_err_wrap(err, "publish");
        if (o->json)
                return pv_cmd_print_json(pv_steal(&answer), err);
        bool v6 = !pv_netaddr_is_v4(&p.addr);
        pv_netaddr_put(&addr, &p.addr);
        pv_log_note("%s%s%s:%u leads to port %u of %s", v6 ? "[" : "", addr.s, v6 ? "]" : "", p.host_port, p.port,
                    job->id);
        return 0;
}

static const char *const allow_examples[] = {
        "pvisor allow last api.example.com:443",
        "one more host for the newest job of this workspace",
        "pvisor allow fix @npm @pypi",
        "two groups (pvisor profile show @npm)",
        "pvisor allow last host.pvisor.internal:5432",
        "a port of this machine's loopback",
        NULL,
};

static const char *const publish_examples[] = {
        "pvisor publish last 3000",
        "the job's port 3000, on this machine's loopback under the same number",
        "pvisor publish last 8080:3000",
        "the same, under 8080",
        NULL,
};

const struct pv_command pv_cmd_allow = {
        .name = "allow",
        .usage = "[options] JOB TARGET...",
        .about = "Lets a running job reach more: HOST, *.SUFFIX, ADDRESS or CIDR, each with an optional :PORT or "
                 ":FIRST-LAST, or a @GROUP. It holds at once and until the job ends, is an event and stands in the "
                 "review.\n\n"
                 "A target that a deny rule of the job holds stays denied: the grant is refused. A job that was run "
                 "with "
                 "--overlaynet-deny-all or without network rules has nothing to grant. Nothing that runs inside can "
                 "call "
                 "this.",
        .options = allow_options,
        .options_size = sizeof(struct allow_options),
        .style = PV_ARGS_MIXED,
        .min_words = 2,
        .max_words = 1024,
        .words = PV_COMPLETE_JOB,
        .examples = allow_examples,
        .run = run_allow,
};

const struct pv_command pv_cmd_publish = {
        .name = "publish",
        .usage = "[options] JOB [ADDR:]HOSTPORT[:PORT]",
        .about = "Makes a port of a running job reachable on this machine, on its loopback unless ADDR says otherwise, "
                 "until the job ends. PORT is the job's own; it is HOSTPORT unless it is given. It is an event and "
                 "stands in the review.",
        .options = publish_options,
        .options_size = sizeof(struct allow_options),
        .style = PV_ARGS_MIXED,
        .min_words = 2,
        .max_words = 2,
        .words = PV_COMPLETE_JOB,
        .examples = publish_examples,
        .run = run_publish,
};
