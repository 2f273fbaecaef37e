/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/mcp.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "policy/env.h"
#include "policy/secret_text.h"

#define FILE_MAX (32U << 20) /* agents keep their history in it */
/* Of an argument: the kernel takes 128 KiB. */
#define TEXT_MAX (64U << 10)

void pv_mcp_fini(struct pv_mcp *m)
{
        free(m->json);
        pv_strv_fini(&m->servers);
        pv_strv_fini(&m->left_out);
        pv_strv_fini(&m->withheld);
        pv_strv_fini(&m->variables);
        *m = (struct pv_mcp){ 0 };
}

struct reading {
        char *const *environment;
        const struct pv_strv *passed;
        struct pv_mcp *out;
        json_t *servers;
};

static json_t *variables_of(struct reading *r, const json_t *server)
{
        const char *name;
        json_t *value, *env = json_object();
        json_object_foreach(json_object_get(server, "env"), name, value)
        {
                const char *text = json_string_value(value);
                if (!text || !pv_env_is_name(name))
                        continue;
                bool passed = pv_strv_has(r->passed, name);
                if (pv_secret_is_harmless(text)) {
                        (void)json_object_set(env, name, value);
                } else if (passed) {
                        pv_auto_free char *reference = pv_strf("${%s}", name);
                        (void)json_object_set_new(env, name, json_string(reference));
                        if (!pv_env_get(r->environment, name) && !strstr(text, "${"))
                                pv_strv_take(&r->out->variables, pv_strf("%s=%s", name, text));
                } else if (!pv_strv_has(&r->out->withheld, name)) {
                        pv_strv_add(&r->out->withheld, name);
                }
        }
        return env;
}

/* What of a server is handed on: nothing that is not known. */
static void take_server(struct reading *r, const char *name, const json_t *server)
{
        static const char *const kept[] = { "type", "command", "args", "url" };
        const char *why = !json_is_object(server) ? "not a server" : pv_secret_in_server(server);
        if (json_object_get(r->servers, name))
                return;
        if (why) {
                pv_strv_take(&r->out->left_out, pv_strf("%s (%s)", name, why));
                return;
        }
        json_t *one = json_object();
        for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
                if (json_object_get(server, kept[i]))
                        (void)json_object_set(one, kept[i], json_object_get(server, kept[i]));
        json_t *env = variables_of(r, server);
        if (json_object_size(env))
                (void)json_object_set(one, "env", env);
        json_decref(env);
        (void)json_object_set_new(r->servers, name, one);
        pv_strv_add(&r->out->servers, name);
}

static void take_servers(struct reading *r, const json_t *servers, const json_t *disabled)
{
        const char *name;
        json_t *server, *off;
        size_t i;
        json_object_foreach((json_t *)servers, name, server)
        {
                bool wanted = true;
                json_array_foreach(disabled, i, off)
                {
                        wanted = wanted && !pv_streq(json_string_value(off) ? json_string_value(off) : "", name);
                }
                if (wanted)
                        take_server(r, name, server);
        }
}

int pv_mcp_read(const char *path, const char *workspace, char *const *environment, const struct pv_strv *passed,
                struct pv_mcp *out, struct pv_err *err)
{
        pv_auto_mcp m = { 0 };
        pv_auto_json file = NULL;
        pv_auto_json servers = json_object();
        pv_auto_free char *real = realpath(path, NULL); /* a person's own link, into a repository of settings */
        if (!real)
                return errno == ENOENT ? 0 : pv_err_set(err, PV_ERR_SYS, errno, "%s", path);
        if (pv_json_read_at(AT_FDCWD, real, FILE_MAX, &file, err) < 0)
                return pv_err_wrap(err, "%s", path);
        const json_t *project = json_object_get(json_object_get(file, "projects"), workspace);
        const json_t *disabled = json_object_get(project, "disabledMcpServers");
        struct reading r = { .environment = environment, .passed = passed, .out = &m, .servers = servers };
        take_servers(&r, json_object_get(project, "mcpServers"), disabled);
        take_servers(&r, json_object_get(file, "mcpServers"), disabled);
        if (m.servers.n) {
                pv_auto_json whole = json_pack("{s:O}", "mcpServers", servers);
                m.json = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
        }
        if (m.json && strlen(m.json) > TEXT_MAX)
                return pv_err_set(err, PV_ERR_INPUT, 0, "%s: its servers are too many for an argument", path);
        *out = m;
        m = (struct pv_mcp){ 0 };
        return 0;
}
