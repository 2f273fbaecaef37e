/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/plan_text.h"

#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "job/store.h"

#define COLUMN "  %-14s "

static void put_path(struct pv_str *out, const char *what, const char *path, const char *how)
{
        pv_str_putf(out, COLUMN, what);
        pv_str_put_safe(out, path);
        pv_str_putf(out, "%s%s\n", *how ? "  " : "", how);
}

static void put_line(struct pv_str *out, const char *what, const char *text)
{
        pv_str_putf(out, COLUMN "%s\n", what, text);
}

static void put_command(struct pv_str *out, const struct pv_plan *p)
{
        pv_str_put(out, "Command\n  ");
        for (char *const *a = p->argv; *a; a++) {
                pv_str_put(out, a == p->argv ? "" : " ");
                pv_str_put_safe(out, *a);
        }
        pv_str_putc(out, '\n');
        put_path(out, "starts in", p->cwd, "");
}

static void put_view(struct pv_str *out, const struct pv_plan *p)
{
        static const char *const access[] = {
                [PV_MOUNT_READ] = "read-only", [PV_MOUNT_STAGE] = "staged", [PV_MOUNT_WRITE] = "written directly"
        };
        bool sandbox = p->filesystem == PV_FS_SANDBOX;
        pv_str_put(out, "\nView\n");
        put_path(out, "workspace", p->workspace, p->staged ? "staged" : "written directly");
        for (size_t i = 1; i < p->n_roots; i++)
                if (p->roots[i].kind == PV_ROOT_GIT_DIR)
                        put_path(out, "git directory", p->roots[i].view, "staged");
        for (size_t i = 0; i < p->n_mounts; i++)
                put_path(out, "mount", p->mounts[i].dst, access[p->mounts[i].access]);
        for (size_t i = 0; i < p->devices.n; i++)
                put_path(out, "device", p->devices.v[i], "");
        if (!sandbox) {
                put_line(out, "all else", "as it is on the host");
                return;
        }
        put_path(out, "HOME", p->home,
                 p->home_mode == PV_HOME_COW     ? "a throw-away view, credential stores hidden"
                 : p->home_mode == PV_HOME_EMPTY ? "empty, thrown away"
                                                 : "as part of the workspace");
        put_line(out, "system", "/usr, /etc and the directories of PATH, read-only");
        put_line(out, "private", "/tmp /var/tmp /run /dev /proc");
        for (size_t i = 0; i < p->hidden.n; i++)
                put_path(out, "hidden", p->hidden.v[i], "");
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
        pv_str_putf(out, COLUMN, "variables");
        for (size_t i = 0; i < p->env.n; i++) {
                pv_str_put(out, i ? " " : "");
                pv_str_put_safe_n(out, p->env.v[i], strcspn(p->env.v[i], "="));
        }
        pv_str_putc(out, '\n');
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
                return p->net == PV_NET_DENY_ALL ? "denied" : NULL;
        case PV_DIM_CREDENTIALS:
                return sandbox ? "clean environment, no agents' sockets" : NULL;
        case PV_DIM_SUBPROCESSES:
                return sandbox || p->staged ? "ended with the run" : NULL;
        case PV_DIM_RESOURCES:
                return "as under Limits";
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
                pv_str_putf(out, "  %-18s %-38s %s\n", pv_dimension_name(d), what ? what : "not restricted",
                            p->required[i] ? "enforced, or no run"
                            : what         ? "level is recorded"
                                           : "");
                while (out->s[out->len - 2] == ' ') { /* what no column follows */
                        out->s[out->len - 2] = '\n';
                        out->s[--out->len] = '\0';
                }
        }
}

int pv_plan_show(const struct pv_plan *plan, bool as_json, struct pv_err *err)
{
        pv_auto_str out = { 0 };
        if (as_json) {
                pv_auto_json j = pv_job_plan_json(plan);
                pv_auto_free char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;
                if (!text)
                        return pv_err_set(err, PV_ERR_SYS, ENOMEM, "plan");
                pv_str_putf(&out, "%s\n", text);
        } else {
                put_command(&out, plan);
                put_view(&out, plan);
                put_limits(&out, &plan->limits);
                put_environment(&out, plan);
                put_rules(&out, plan);
        }
        return pv_fd_write_all(STDOUT_FILENO, out.s, out.len, "stdout", err);
}
