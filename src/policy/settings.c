/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/settings.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/file.h"
#include "base/json.h"
#include "policy/env.h"
#include "policy/secret_text.h"
#include "policy/toml.h"

#define FILE_MAX  (1U << 20)
#define PATH_MOST 200 /* bytes of a member's path, and of a key in it, that people are told */

void pv_settings_fini(struct pv_settings *s)
{
        free(s->content);
        pv_strv_fini(&s->left_out);
        pv_strv_fini(&s->withheld);
        pv_strv_fini(&s->variables);
        *s = (struct pv_settings){ 0 };
}

struct cleaning {
        char *const *environment;
        const struct pv_strv *passed;
        const char *reference;
        struct pv_settings *out;
        json_t *withheld; /* the names, to find one by */
};

/* For people: of one that is as long as somebody made it, the beginning. The caller's. */
static char *path_of(const char *path, const char *key)
{
        return strlen(path) > PATH_MOST ? pv_strdup(path) : pv_strf("%s%s%.*s", path, *path ? "." : "", PATH_MOST, key);
}

static bool is_one_of(const char *name, const char *const *names)
{
        for (; *names; names++)
                if (pv_streq(name, *names))
                        return true;
        return false;
}

static bool is_server_list(const char *key)
{
        static const char *const names[] = { "mcpServers", "mcp_servers", "mcp", NULL };
        return is_one_of(key, names);
}

static bool is_variables(const char *key)
{
        static const char *const names[] = { "env", "environment", "envs", NULL };
        return is_one_of(key, names);
}

static bool is_headers(const char *key)
{
        return pv_str_has_suffix(key, "eaders") && !pv_streq(key, "env_http_headers");
}

static bool is_secret(const char *key, const json_t *value)
{
        const char *text = json_string_value(value);
        return text && *text && !pv_secret_is_reference(text) &&
               (pv_secret_is_text(text) || (pv_secret_is_name(key) && !pv_secret_is_harmless(text)));
}

static void clean(struct cleaning *c, const char *path, json_t *value);

/* Of an object that holds values by name, what is a secret goes. */
static void clean_members(struct cleaning *c, const char *path, json_t *object, bool headers)
{
        const char *key;
        json_t *value;
        void *next;
        json_object_foreach_safe(object, next, key, value)
        {
                pv_auto_free char *at = path_of(path, key);
                const char *text = json_string_value(value);
                if (headers ? !text || !pv_secret_is_reference(text) : is_secret(key, value)) {
                        pv_strv_add(&c->out->left_out, at);
                        (void)json_object_del(object, key);
                } else {
                        clean(c, at, value);
                }
        }
}

/* The variable is named where the agent's file can name one; the value comes with the command's environment. */
static void refer(struct cleaning *c, json_t *server, json_t *env, const char *name, const char *text)
{
        if (!pv_env_get(c->environment, name))
                pv_strv_take(&c->out->variables, pv_strf("%s=%s", name, text));
        const char *at = strstr(c->reference, "NAME");
        if (at) {
                pv_auto_free char *reference =
                        pv_strf("%.*s%s%s", (int)(at - c->reference), c->reference, name, at + 4);
                (void)json_object_set_new(env, name, json_string(reference));
                return;
        }
        json_t *list = json_object_get(server, c->reference);
        if (!json_is_array(list) && json_object_set_new(server, c->reference, list = json_array()) < 0)
                return;
        (void)json_array_append_new(list, json_string(name));
        (void)json_object_del(env, name);
}

static void clean_variables(struct cleaning *c, json_t *server, json_t *env)
{
        const char *name;
        json_t *value;
        void *next;
        json_object_foreach_safe(env, next, name, value)
        {
                const char *text = json_string_value(value);
                if (!text || pv_secret_is_harmless(text) || pv_secret_is_reference(text))
                        continue;
                if (pv_env_is_name(name) && pv_strv_has(c->passed, name)) {
                        refer(c, server, env, name, text);
                        continue;
                }
                if (!json_object_get(c->withheld, name) && json_object_set(c->withheld, name, value) == 0)
                        pv_strv_add(&c->out->withheld, name);
                (void)json_object_del(env, name);
        }
}

/* What servers alone have. The rest of them is cleaned as anything is. */
static void clean_servers(struct cleaning *c, json_t *servers)
{
        const char *name, *key;
        json_t *server, *value;
        void *next, *next_key;
        json_object_foreach_safe(servers, next, name, server)
        {
                const char *why = pv_secret_in_server(server);
                if (why) {
                        pv_strv_take(&c->out->left_out, pv_strf("%.*s (%s)", PATH_MOST, name, why));
                        (void)json_object_del(servers, name);
                        continue;
                }
                json_object_foreach_safe(server, next_key, key, value)
                {
                        if (is_variables(key) && json_is_object(value))
                                clean_variables(c, server, value);
                }
        }
}

static void clean_array(struct cleaning *c, const char *path, json_t *array)
{
        bool told = false;
        for (size_t i = json_array_size(array); i-- > 0;) { /* from behind: a removal moves what comes after */
                if (!is_secret("", json_array_get(array, i))) {
                        clean(c, path, json_array_get(array, i));
                        continue;
                }
                if (!told)
                        pv_strv_add(&c->out->left_out, path);
                told = true;
                (void)json_array_remove(array, i);
        }
}

/* Of anything: as deep as the reader goes. */
static void clean(struct cleaning *c, const char *path, json_t *value)
{
        const char *key;
        json_t *below;
        void *next;
        if (json_is_array(value))
                clean_array(c, path, value);
        if (!json_is_object(value))
                return;
        json_object_foreach_safe(value, next, key, below)
        {
                pv_auto_free char *at = path_of(path, key);
                if (!json_is_object(below))
                        continue;
                if (is_server_list(key))
                        clean_servers(c, below);
                else if (is_headers(key))
                        clean_members(c, at, below, true);
        }
        clean_members(c, path, value, false);
}

/* Comments and commas before a closing bracket become blanks. */
static void blank_comments(char *text)
{
        char *comma = NULL;
        for (char *p = text; *p; p++) {
                if (*p == '"') {
                        for (p++; *p && *p != '"'; p++)
                                p += *p == '\\' && p[1];
                        if (!*p)
                                return;
                        comma = NULL;
                } else if (p[0] == '/' && (p[1] == '/' || p[1] == '*')) {
                        const char *end = p[1] == '/' ? p + strcspn(p, "\n") : strstr(p + 2, "*/");
                        if (!end)
                                return; /* not closed: no JSON */
                        end += p[1] == '/' ? 0 : 2;
                        memset(p, ' ', (size_t)(end - p));
                        p = (char *)end - 1;
                } else if (*p == ',') {
                        comma = p;
                } else if (strchr("}]", *p) && comma) {
                        *comma = ' ';
                        comma = NULL;
                } else if (!strchr(" \t\r\n", *p)) {
                        comma = NULL;
                }
        }
}

static int read_tree(const char *path, char *text, json_t **out, struct pv_err *err)
{
        json_error_t why;
        if (pv_str_has_suffix(path, ".toml"))
                return pv_toml_read(text, out, err);
        blank_comments(text);
        *out = json_loads(text, JSON_REJECT_DUPLICATES, &why);
        return *out ? 0 : pv_err_set(err, PV_ERR_INPUT, 0, "line %d: %s", why.line, why.text);
}

static int read_text(const char *path, char **out, struct pv_err *err)
{
        pv_auto_fd fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        pv_auto_str text = { 0 };
        char buf[4096];
        ssize_t n = fd < 0 ? -1 : 0;
        while (fd >= 0 && text.len <= FILE_MAX && (n = read(fd, buf, sizeof buf)) > 0)
                pv_str_put_bytes(&text, buf, (size_t)n);
        if (n < 0)
                return pv_err_set(err, PV_ERR_SYS, errno, "cannot be read");
        if (text.len > FILE_MAX || (text.len && memchr(text.s, '\0', text.len)))
                return pv_err_set(err, PV_ERR_INPUT, 0, "too large, or no text");
        *out = text.len ? pv_str_steal(&text) : pv_strdup("");
        return 0;
}

int pv_settings_clean(const char *path, char *const *environment, const struct pv_strv *passed, const char *reference,
                      struct pv_settings *out, struct pv_err *err)
{
        pv_auto_settings s = { 0 };
        pv_auto_free char *text = NULL;
        pv_auto_json tree = NULL;
        pv_auto_json withheld = json_object();
        struct cleaning c = { .environment = environment,
                              .passed = passed,
                              .reference = reference ? reference : "${NAME}",
                              .out = &s,
                              .withheld = withheld };
        if (read_text(path, &text, err) < 0 || !text)
                return -1;
        if (strspn(text, " \t\r\n") == strlen(text)) {
                s.content = pv_steal(&text);
        } else if (read_tree(path, text, &tree, err) < 0) {
                return -1;
        } else {
                clean(&c, "", tree);
                pv_auto_str written = { 0 };
                pv_str_put(&written, "");
                if (pv_str_has_suffix(path, ".toml") && pv_toml_write(&written, tree, err) < 0)
                        return -1;
                s.content = pv_str_has_suffix(path, ".toml") ? pv_str_steal(&written) : json_dumps(tree, 0);
        }
        if (!s.content)
                return pv_err_set(err, PV_ERR_SYS, ENOMEM, "write it again");
        *out = s;
        s = (struct pv_settings){ 0 };
        return 0;
}
