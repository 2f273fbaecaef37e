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

static bool has_word(const char *text, const char *const *words)
{
        for (; *words; words++)
                if (strcasestr(text, *words))
                        return true;
        return false;
}

/* What issuers put before their tokens. */
static bool has_token(const char *text)
{
        static const char *const begins[] = { "sk-",         "sk_",     "pk_",  "ghp_",    "gho_",    "ghs_", "ghu_",
                                              "github_pat_", "glpat-",  "xox",  "AKIA",    "ASIA",    "AIza", "ya29.",
                                              "eyJ",         "hf_",     "npm_", "pypi-",   "lin_api", "ntn_", "secret_",
                                              "rk_",         "dop_v1_", "SG.",  "Bearer ", "Basic " };
        for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
                for (const char *at = text; (at = strstr(at, begins[i])); at++) {
                        bool start = at == text || !isalnum((unsigned char)at[-1]);
                        if (start && strlen(at) >= strlen(begins[i]) + 8)
                                return true;
                }
        }
        return false;
}

/* So long and mixed that nobody would have typed it: a key, more likely than a name. A path has slashes. */
static bool is_random(const char *text)
{
        size_t n = strlen(text), digits = 0, letters = 0;
        if (n < 24 || strpbrk(text, "/ .@:"))
                return false;
        for (size_t i = 0; i < n; i++) {
                digits += isdigit((unsigned char)text[i]) != 0;
                letters += isalpha((unsigned char)text[i]) != 0;
        }
        return digits >= 4 && letters >= 4;
}

/* user:password@, or a parameter that is named for a secret. */
static bool is_secret_address(const char *text)
{
        static const char *const words[] = {
                "token=", "key=", "secret=", "password=", "passwd=", "auth=", "sig=", NULL
        };
        const char *host = strstr(text, "://");
        size_t n = host ? strcspn(host + 3, "/?#") : 0;
        return host && (memchr(host + 3, '@', n) || has_word(host, words));
}

static bool is_secret_text(const char *text)
{
        const char *value = strchr(text, '=');
        return has_token(text) || is_random(text) || is_secret_address(text) || (value && is_random(value + 1));
}

/* --api-key VALUE, --api-key=VALUE, -H "Authorization: ...": an option that is named for a secret, with one. */
static bool is_secret_option(const char *text)
{
        static const char *const words[] = {
                "token", "key", "secret", "password", "passwd", "auth", "credential", NULL
        };
        size_t n = strcspn(text, "=: ");
        pv_auto_free char *name = pv_strndup(text, n);
        return has_word(name, words) && (text[0] == '-' || text[n] == '=' || text[n] == ':');
}

/* NULL, or why the server is left out. ${NAME} is how these files name a variable: that is no secret. */
static const char *find_secret(const json_t *server)
{
        size_t i;
        json_t *arg;
        bool value_of_secret = false;
        json_array_foreach(json_object_get(server, "args"), i, arg)
        {
                const char *text = json_string_value(arg);
                if (!text)
                        continue;
                bool reference = strstr(text, "${") != NULL;
                bool option = is_secret_option(text);
                if (!reference &&
                    (is_secret_text(text) || (option && strpbrk(text, "=: ")) || (value_of_secret && text[0] != '-')))
                        return "a secret in its arguments";
                value_of_secret = option && !strpbrk(text, "=: ");
        }
        const char *url = json_string_value(json_object_get(server, "url"));
        const char *command = json_string_value(json_object_get(server, "command"));
        if (url && (is_secret_address(url) || has_token(url)))
                return "a secret in its address";
        return command && is_secret_text(command) ? "a secret in its command" : NULL;
}

/* A number, a switch, a level, a file that is there: what a server needs to be told and nobody keeps secret. */
static bool is_harmless(const char *value)
{
        static const char *const words[] = { "true", "false", "yes",   "no",    "on",         "off",        "debug",
                                             "info", "warn",  "error", "stdio", "production", "development" };
        size_t n = strlen(value);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                if (strcasecmp(value, words[i]) == 0)
                        return true;
        return (n <= 5 && strspn(value, "0123456789") == n) || (value[0] == '/' && access(value, F_OK) == 0);
}

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
                if (is_harmless(text)) {
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
        const char *why = !json_is_object(server) ? "not a server" : find_secret(server);
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
