/* SPDX-License-Identifier: Apache-2.0 */
/* pvisor profile: what an agent's profile adds to a run, before it is used. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cmd/command.h"
#include "cmd/jobs.h"
#include "policy/groups.h"
#include "policy/profile.h"

struct options {
        bool json;
};

static const struct pv_opt table[] = {
        PV_OPT_JSON(struct options, json),
        { .name = NULL },
};

static json_t *list_json(const struct pv_strv *v, const char *prefix)
{
        json_t *list = json_array();
        for (size_t i = 0; i < v->n; i++) {
                pv_auto_free char *text = pv_strf("%s%s", prefix, v->v[i]);
                (void)json_array_append_new(list, pv_json_bytes(text));
        }
        return list;
}

/* The fields by their names in the file, in the order in which they are shown. */
static json_t *profile_json(const struct pv_profile *p)
{
        json_t *j = json_object();
        (void)json_object_set_new(j, "name", pv_json_bytes(p->name));
        (void)json_object_set_new(j, "file", pv_json_bytes(p->path));
        (void)json_object_set_new(j, "about", pv_json_bytes(p->about));
        (void)json_object_set_new(j, "hosts", list_json(&p->hosts, ""));
        (void)json_object_set_new(j, "state", list_json(&p->state, "~/"));
        (void)json_object_set_new(j, "settings", list_json(&p->settings, "~/"));
        (void)json_object_set_new(j, "read", list_json(&p->read, ""));
        (void)json_object_set_new(j, "caches", list_json(&p->caches, "~/"));
        (void)json_object_set_new(j, "pass-env", list_json(&p->pass_env, ""));
        (void)json_object_set_new(j, "set-env", list_json(&p->set_env, ""));
        pv_auto_free char *servers = p->servers ? pv_strf("~/%s", p->servers) : NULL;
        (void)json_object_set_new(j, "mcp-settings", list_json(&p->mcp_settings, "~/"));
        (void)json_object_set_new(j, "mcp-reference", pv_json_bytes(p->mcp_reference));
        (void)json_object_set_new(j, "mcp-servers", pv_json_bytes(servers));
        (void)json_object_set_new(j, "mcp-servers-argument", pv_json_bytes(p->servers_argument));
        (void)json_object_set_new(j, "inner-sandbox", pv_json_bytes(p->inner_sandbox));
        (void)json_object_set_new(j, "inner-sandbox-arguments", list_json(&p->inner_args, ""));
        (void)json_object_set_new(j, "login", list_json(&p->login, ""));
        (void)json_object_set_new(j, "login-publish", list_json(&p->login_publish, ""));
        return j;
}

static void put_row(struct pv_str *out, const char *what, const char *text)
{
        pv_str_putf(out, "  %-25s ", what);
        pv_str_put_safe(out, text);
        pv_str_putc(out, '\n');
}

static void put_list(struct pv_str *out, const char *what, const char *prefix, const struct pv_strv *v)
{
        for (size_t i = 0; i < v->n; i++) {
                pv_auto_free char *text = pv_strf("%s%s", prefix, v->v[i]);
                put_row(out, i ? "" : what, text);
        }
}

static void put_words(struct pv_str *out, const char *what, const struct pv_strv *v)
{
        pv_auto_json list = list_json(v, "");
        pv_auto_str words = { 0 };
        if (v->n == 0)
                return;
        pv_cmd_put_argv(&words, list);
        pv_str_putf(out, "  %-25s %s\n", what, words.s);
}

static void put_profile(struct pv_str *out, const struct pv_profile *p)
{
        pv_str_put_safe(out, p->name);
        pv_str_put(out, "  ");
        pv_str_put_safe(out, p->about ? p->about : "");
        pv_str_putc(out, '\n');
        put_row(out, "file", p->path);
        put_list(out, "may reach", "", &p->hosts);
        put_list(out, "state of its own, kept", "~/", &p->state);
        put_list(out, "yours, read-only", "~/", &p->settings);
        put_list(out, "without their secrets", "~/", &p->mcp_settings);
        put_list(out, "also shown read-only", "", &p->read);
        put_list(out, "caches", "~/", &p->caches);
        put_list(out, "is given, where set", "", &p->pass_env);
        put_list(out, "has set", "", &p->set_env);
        if (p->servers) {
                pv_auto_free char *text = pv_strf("those of ~/%s, without their secrets", p->servers);
                put_row(out, "MCP servers", text);
        }
        if (p->inner_sandbox)
                put_row(out, "its own sandbox", p->inner_sandbox);
        put_words(out, "by the arguments", &p->inner_args);
        put_words(out, "logs in by", &p->login);
        put_list(out, "the login waits on", "", &p->login_publish);
}

static int show_group(const char *name, bool as_json, struct pv_err *err)
{
        pv_auto_groups all = { 0 };
        pv_auto_str out = { 0 };
        if (pv_groups_load(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &all, err) < 0)
                return -1;
        const struct pv_group *g = pv_groups_need(&all, name, err);
        if (!g)
                return -1;
        if (as_json)
                return pv_cmd_print_json(json_pack("{s:o, s:o, s:o}", "group", pv_json_bytes(g->name), "file",
                                                   pv_json_bytes(g->file), "targets", list_json(&g->targets, "")),
                                         err);
        pv_str_putf(&out, "@%s\n", g->name);
        put_row(&out, "file", g->file);
        put_list(&out, "targets", "", &g->targets);
        return pv_cmd_print(&out, err);
}

static int show(const struct pv_profile_places *places, const char *name, bool as_json, struct pv_err *err)
{
        pv_auto_profile p = NULL;
        pv_auto_str out = { 0 };
        if (name[0] == '@')
                return show_group(name, as_json, err);
        pv_auto_free char *path = pv_profile_find(places, name);
        if (!path)
                return pv_profile_missing(places, "profile", name, err);
        if (pv_profile_load(path, name, &p, err) < 0)
                return -1;
        if (as_json)
                return pv_cmd_print_json(profile_json(p), err);
        put_profile(&out, p);
        return pv_cmd_print(&out, err);
}

static void list_groups(json_t *out, struct pv_str *text)
{
        pv_auto_groups all = { 0 };
        struct pv_err ignored = PV_ERR_INIT; /* `run` says what is wrong with them */
        if (pv_groups_load(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &all, &ignored) < 0)
                return;
        for (size_t i = 0; i < all.n; i++) {
                pv_auto_free char *name = pv_strf("@%s", all.v[i].name);
                (void)json_array_append_new(out, pv_json_bytes(name));
                pv_str_putf(text, "%s%s", text->len ? " " : "", name);
        }
}

static int list(const struct pv_profile_places *places, bool as_json, struct pv_err *err)
{
        pv_auto_strv names = { 0 };
        pv_auto_str out = { 0 }, groups = { 0 };
        pv_auto_json profiles = json_array();
        pv_auto_json group_names = json_array();
        pv_profile_list(places, &names);
        for (size_t i = 0; i < names.n; i++) {
                pv_auto_profile p = NULL;
                struct pv_err wrong = PV_ERR_INIT;
                pv_auto_free char *path = pv_profile_find(places, names.v[i]);
                bool good = path && pv_profile_load(path, names.v[i], &p, &wrong) == 0;
                bool own = path && places->own && pv_path_is_within(path, places->own);
                (void)json_array_append_new(profiles, json_pack("{s:o, s:o, s:o, s:b, s:o}", "name",
                                                                pv_json_bytes(names.v[i]), "file", pv_json_bytes(path),
                                                                "about", pv_json_bytes(good ? p->about : NULL), "own",
                                                                own, "error", pv_json_bytes(good ? NULL : wrong.msg)));
                pv_str_putf(&out, "%-14s ", names.v[i]);
                pv_str_put_safe(&out, !good ? wrong.msg : p->about ? p->about : "");
                pv_str_put(&out, own ? "  (yours)\n" : "\n");
        }
        list_groups(group_names, &groups);
        if (as_json)
                return pv_cmd_print_json(json_pack("{s:O, s:O}", "profiles", profiles, "groups", group_names), err);
        if (groups.len)
                pv_str_putf(&out, "\nGroups of hosts: %s\n", groups.s);
        return pv_cmd_print(&out, err);
}

static int run(const void *options, const struct pv_args *args, struct pv_err *err)
{
        const struct options *o = options;
        pv_auto_profile_places places = { 0 };
        pv_profile_places_find(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &places);
        if (args->n == 0 || (args->n == 1 && pv_streq(args->words[0], "list")))
                return list(&places, o->json, err);
        if (args->n == 2 && pv_streq(args->words[0], "show"))
                return show(&places, args->words[1], o->json, err);
        if (args->n == 1 && !pv_streq(args->words[0], "show"))
                return show(&places, args->words[0], o->json, err);
        (void)pv_err_set(err, PV_ERR_USAGE, 0, "profile: list, or show NAME");
        return pv_err_hint(err, "pvisor profile show claude; pvisor profile show @npm");
}

static const char *const examples[] = {
        "pvisor profile list",
        "What there is: shipped ones, and yours",
        "pvisor profile show claude",
        "All that it adds to a run",
        "pvisor profile show @npm",
        "The hosts of a group",
        NULL,
};

const struct pv_command pv_cmd_profile = {
        .name = "profile",
        .usage = "[list | show NAME | show @GROUP]",
        .about =
                "Lists profiles, and shows what one adds to a run: the hosts that the agent needs, the directories "
                "that "
                "it keeps from run to run (pVisor's own, in the place of yours), which of your settings it sees "
                "read-only, the variables that it may have, and how its own sandbox is switched off.\n\n"
                "`run --safe -- claude` takes the profile named claude; `--profile NAME` another one, `--profile none` "
                "none. A file of yours in $XDG_CONFIG_HOME/pvisor/profiles/NAME.yaml takes the place of the shipped "
                "one of that name. A profile can only add what it names; no field of it takes a limit away.",
        .options = table,
        .options_size = sizeof(struct options),
        .style = PV_ARGS_MIXED,
        .max_words = 2,
        .words = PV_COMPLETE_PROFILE,
        .examples = examples,
        .run = run,
};
