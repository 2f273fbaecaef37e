/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan_text.h"

#include <string.h>
#include "base/json.h"
#include "base/mountinfo.h"
#include "boundary/root.h"
#include "cmd/jobs.h"

#define COLUMN "  %-16s "
#define INDENT 19 /* as wide as COLUMN */
#define WIDTH  80

static void put_path(struct pv_str *out, const char *what, const char *path)
{
        pv_str_putf(out, COLUMN, what);
        pv_str_put_safe(out, path);
        pv_str_putc(out, '\n');
}

static void put_line(struct pv_str *out, const char *what, const char *text)
{
        pv_str_putf(out, COLUMN "%s\n", what, text);
}

static void put_command(struct pv_str *out, const struct pv_plan *p)
{
        pv_auto_json j = pv_job_plan_json(p);
        pv_str_put(out, "Command\n  ");
        pv_cmd_put_argv(out, json_object_get(j, "argv"));
        pv_str_putc(out, '\n');
        put_path(out, "starts in", p->cwd);
}

/* Paths behind a heading, as many in a line as fit. */
static void put_paths(struct pv_str *out, const char *what, const struct pv_strv *paths)
{
        size_t column = 0;
        for (size_t i = 0; i < paths->n; i++) {
                if (i == 0 || column + strlen(paths->v[i]) + 2 > WIDTH) {
                        pv_str_putf(out, i ? "\n" COLUMN : COLUMN, i ? "" : what);
                        column = INDENT;
                } else {
                        pv_str_put(out, "  ");
                        column += 2;
                }
                pv_str_put(out, paths->v[i]);
                column += strlen(paths->v[i]);
        }
        if (paths->n)
                pv_str_putc(out, '\n');
}

static char *shown_step(const struct pv_view_step *s)
{
        pv_auto_str text = { 0 };
        pv_str_put_safe(&text, s->dst);
        if (s->op == PV_VIEW_TEXT) {
                pv_str_put(&text, " without its secrets");
        } else if (s->src && !pv_streq(s->src, s->dst)) {
                pv_str_put(&text, " from ");
                pv_str_put_safe(&text, s->src);
        }
        if (s->masks.n)
                pv_str_putf(&text, " (%zu paths in it hidden)", s->masks.n);
        return pv_str_steal(&text);
}

/* The launcher's own steps, told by what becomes of a write. */
static void put_steps(struct pv_str *out, const struct pv_view *view)
{
        static const struct {
                const char *what;
                unsigned ops;
        } rows[] = {
                { "staged", 1U << PV_VIEW_STAGE },
                { "written directly", 1U << PV_VIEW_WRITE },
                { "kept", 1U << PV_VIEW_KEPT | 1U << PV_VIEW_CACHE },
                { "thrown away", 1U << PV_VIEW_COW | 1U << PV_VIEW_PRIVATE | 1U << PV_VIEW_COPY },
                { "read-only", 1U << PV_VIEW_SYSTEM | 1U << PV_VIEW_FILE | 1U << PV_VIEW_READ | 1U << PV_VIEW_TEXT },
                { "its own", 1U << PV_VIEW_PROC | 1U << PV_VIEW_PTS },
                { "devices", 1U << PV_VIEW_DEVICE },
                { "hidden", 1U << PV_VIEW_MASK },
        };
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                pv_auto_strv paths = { 0 };
                for (size_t i = 0; i < view->n; i++)
                        if (rows[r].ops & 1U << view->v[i].op)
                                pv_strv_take(&paths, shown_step(&view->v[i]));
                put_paths(out, rows[r].what, &paths);
        }
}

static void put_view(struct pv_str *out, const struct pv_plan *p, const struct pv_view *view)
{
        pv_str_put(out, "\nView\n");
        put_path(out, "workspace", p->workspace);
        put_steps(out, view);
        put_line(out, "all else", p->filesystem == PV_FS_SANDBOX ? "is not there" : "as it is on the host");
}

/* What a profile adds, besides what View shows of it. */
static void put_profile(struct pv_str *out, const struct pv_plan *p)
{
        const struct pv_plan_profile *f = &p->profile;
        pv_auto_strv hosts = { 0 };
        if (!f->name)
                return;
        pv_str_put(out, "\nProfile\n");
        put_path(out, "name", f->name);
        put_path(out, "file", f->path);
        for (size_t i = 0; i < f->hosts.n; i++) {
                pv_auto_str safe = { 0 };
                pv_str_put_safe(&safe, f->hosts.v[i]);
                pv_strv_take(&hosts, pv_str_steal(&safe));
        }
        put_paths(out, "may reach", &hosts);
        if (f->inner_sandbox)
                put_path(out, "its own sandbox", f->inner_sandbox);
}

/* Rules as a list, a group's by its name. */
static void list_rules(const struct pv_netrule *rules, size_t n, struct pv_strv *out)
{
        for (size_t i = 0; i < n; i++) {
                pv_auto_str text = { 0 };
                if (rules[i].group[0])
                        pv_str_put(&text, rules[i].group);
                else
                        pv_netrule_put(&text, &rules[i]);
                if (!pv_strv_has(out, text.s))
                        pv_strv_take(out, pv_str_steal(&text));
        }
}

static void put_ports(struct pv_str *out, const struct pv_plan *p)
{
        for (size_t i = 0; i < p->n_publications; i++) {
                pv_auto_str addr = { 0 };
                bool v6 = !pv_netaddr_is_v4(&p->publications[i].addr);
                pv_netaddr_put(&addr, &p->publications[i].addr);
                pv_str_putf(out, COLUMN "its port %u at %s%s%s:%u of this machine\n", "published",
                            p->publications[i].port, v6 ? "[" : "", addr.s, v6 ? "]" : "",
                            p->publications[i].host_port);
        }
        for (size_t i = 0; i < p->n_host_ports; i++)
                pv_str_putf(out, COLUMN "port %u of this machine's loopback, as its own %u\n", "host port",
                            p->host_ports[i].host_port, p->host_ports[i].port);
}

static void put_network(struct pv_str *out, const struct pv_plan *p)
{
        if (p->net != PV_NET_RULES && p->net != PV_NET_PROXY)
                return;
        pv_str_put(out, "\nNetwork\n");
        for (size_t i = 0; i < p->netpolicy.n_layers; i++) {
                const struct pv_netlayer *l = &p->netpolicy.layer[i];
                pv_auto_strv allow = { 0 }, deny = { 0 };
                put_line(out, "layer", l->name);
                list_rules(l->deny, l->n_deny, &deny);
                list_rules(l->allow, l->n_allow, &allow);
                put_paths(out, "  denies", &deny);
                put_paths(out, "  allows", &allow);
                if (pv_netlayer_is_list(l) && l->n_allow == 0)
                        put_line(out, "  allows", "nothing");
        }
        for (size_t i = 0; i < p->netpolicy.n_limits; i++) {
                pv_auto_str rate = { 0 };
                pv_str_put_size(&rate, p->netpolicy.limits[i].bytes_per_second);
                pv_str_putf(out, COLUMN "%s/s for %s\n", "limit", rate.s, p->netpolicy.limits[i].target);
        }
        put_ports(out, p);
        if (p->netpolicy.n_layers == 0)
                put_line(out, "all else", "whatever is public");
}

static void put_size_limit(struct pv_str *out, const char *what, uint64_t bytes)
{
        pv_auto_str text = { 0 };
        if (!bytes)
                return;
        pv_str_put_size(&text, bytes);
        put_line(out, what, text.s);
}

static void put_time_limit(struct pv_str *out, const char *what, uint64_t ms)
{
        if (ms)
                pv_str_putf(out, COLUMN "%.6g s\n", what, (double)ms / 1000);
}

static void put_count_limit(struct pv_str *out, const char *what, uint64_t n)
{
        if (n)
                pv_str_putf(out, COLUMN "%llu\n", what, (unsigned long long)n);
}

static void put_limits(struct pv_str *out, const struct pv_limits *l)
{
        size_t before = out->len;
        pv_str_put(out, "\nLimits\n");
        size_t heading = out->len;
        put_time_limit(out, "time", l->timeout_ms);
        put_time_limit(out, "cpu time", l->max_cpu_ms);
        put_size_limit(out, "memory", l->memory_bytes);
        put_size_limit(out, "file size", l->max_file_bytes);
        put_count_limit(out, "processes", l->max_processes);
        put_count_limit(out, "open files", l->max_open_files);
        if (out->len == heading)
                out->s[out->len = before] = '\0';
}

static void put_environment(struct pv_str *out, const struct pv_plan *p)
{
        pv_str_put(out, "\nEnvironment\n");
        if (p->filesystem == PV_FS_HOST) {
                put_line(out, "variables", "all of yours");
                return;
        }
        pv_auto_strv names = { 0 };
        bool git = false;
        for (size_t i = 0; i < p->env.n; i++) {
                pv_auto_str name = { 0 };
                if (pv_str_has_prefix(p->env.v[i], "GIT_CONFIG_")) { /* two for each setting, and their count */
                        if (!git)
                                pv_strv_add(&names, "GIT_CONFIG_*");
                        git = true;
                        continue;
                }
                pv_str_put_safe_n(&name, p->env.v[i], strcspn(p->env.v[i], "="));
                pv_strv_take(&names, pv_str_steal(&name));
        }
        put_paths(out, "variables", &names);
}

static const char *const networks[] = {
        [PV_NET_AMBIENT] = NULL,
        [PV_NET_DENY_ALL] = "denied",
        [PV_NET_RULES] = "what the rules allow",
        [PV_NET_PROXY] = "rules, by the proxy's good offices",
};

/* Rules that let nothing out are told as what they are. */
static const char *network(const struct pv_plan *p)
{
        for (size_t i = 0; p->net == PV_NET_RULES && i < p->netpolicy.n_layers; i++)
                if (p->netpolicy.layer[i].closed && p->netpolicy.layer[i].n_allow == 0)
                        return "denied until you allow it";
        return networks[p->net];
}

static const char *rule(const struct pv_plan *p, enum pv_dimension d)
{
        bool sandbox = p->filesystem == PV_FS_SANDBOX;
        switch (d) {
        case PV_DIM_WORKSPACE_WRITES:
                return p->staged ? "staged" : NULL;
        case PV_DIM_HOST_WRITES:
                return sandbox ? "none outside of the view" : NULL;
        case PV_DIM_READS:
                return sandbox ? "only what the view shows" : NULL;
        case PV_DIM_SENSITIVE_PATHS:
                return sandbox && p->home_mode != PV_HOME_HOST ? "credential stores hidden" : NULL;
        case PV_DIM_NETWORK:
                return network(p);
        case PV_DIM_CREDENTIALS:
                return sandbox ? "clean environment, no agents' sockets" : NULL;
        case PV_DIM_SUBPROCESSES:
                return sandbox || p->staged ? "ended with the run" : NULL;
        case PV_DIM_RESOURCES:
                return pv_limits_any(&p->limits) ? "as under Limits" : NULL;
        case PV_DIMENSIONS:
                break;
        }
        return NULL;
}

static void put_rules(struct pv_str *out, const struct pv_plan *p)
{
        pv_str_put(out, "\nRules\n");
        for (int i = 0; i < PV_DIMENSIONS; i++) {
                enum pv_dimension d = (enum pv_dimension)i;
                const char *what = rule(p, d);
                pv_str_putf(out, "  %-18s %-38s %s\n", pv_dimension_title(d), what ? what : "not restricted",
                            p->required[i] ? "enforced, or no run"
                            : what         ? "level is recorded"
                                           : "");
                while (out->s[out->len - 2] == ' ') { /* what no column follows */
                        out->s[out->len - 2] = '\n';
                        out->s[--out->len] = '\0';
                }
        }
}

static json_t *steps_json(const struct pv_view *view)
{
        json_t *list = json_array();
        for (size_t i = 0; i < view->n; i++) {
                const struct pv_view_step *s = &view->v[i];
                (void)json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "step", pv_view_op_name(s->op), "path",
                                                            pv_json_bytes(s->dst), "from", pv_json_bytes(s->src)));
        }
        return list;
}

static int make_view(const struct pv_plan *p, struct pv_view *view, struct pv_err *err)
{
        pv_auto_mountinfo mounts = { 0 };
        if (p->filesystem == PV_FS_HOST && !p->staged)
                return 0;
        return pv_mountinfo_read(&mounts, err) < 0 ? -1 : pv_root_view(p, &mounts, NULL, view, err);
}

int pv_plan_show(const struct pv_plan *plan, bool as_json, struct pv_err *err)
{
        pv_auto_str out = { 0 };
        pv_auto_view view = { 0 };
        if (make_view(plan, &view, err) < 0)
                return -1;
        if (as_json) {
                json_t *j = pv_job_plan_json(plan);
                (void)json_object_set_new(j, "view", steps_json(&view));
                return pv_cmd_print_json(j, err);
        }
        put_command(&out, plan);
        put_view(&out, plan, &view);
        put_profile(&out, plan);
        put_network(&out, plan);
        put_limits(&out, &plan->limits);
        put_environment(&out, plan);
        put_rules(&out, plan);
        return pv_cmd_print(&out, err);
}
