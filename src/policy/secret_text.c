/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/secret_text.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/str.h"

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

bool pv_secret_is_text(const char *text)
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

bool pv_secret_is_reference(const char *text)
{
        static const char *const words[] = { "${", "{env:", "{file:", NULL };
        bool whole = text[0] == '$' && text[1] && !isdigit((unsigned char)text[1]);
        for (const char *p = text + 1; whole && *p; p++)
                whole = isalnum((unsigned char)*p) || *p == '_';
        return (whole || has_word(text, words)) && !has_token(text);
}

bool pv_secret_is_name(const char *name)
{
        static const char *const ends[] = { "apikey",     "api_key",    "api-key",       "token",         "secret",
                                            "password",   "passwd",     "authorization", "client_secret", "accesskey",
                                            "access_key", "credential", "private_key",   "privatekey" };
        size_t n = strlen(name);
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
                size_t m = strlen(ends[i]);
                if (n >= m && strcasecmp(name + n - m, ends[i]) == 0)
                        return true;
        }
        return false;
}

/* What follows an option that is named for a secret is one, unless it is an option itself. */
static bool has_secret(const json_t *args)
{
        size_t i;
        json_t *arg;
        bool value_of_secret = false;
        json_array_foreach(args, i, arg)
        {
                const char *text = json_string_value(arg);
                if (!text)
                        continue;
                bool option = is_secret_option(text);
                if (!pv_secret_is_reference(text) && (pv_secret_is_text(text) || (option && strpbrk(text, "=: ")) ||
                                                      (value_of_secret && text[0] != '-')))
                        return true;
                value_of_secret = option && !strpbrk(text, "=: ");
        }
        return false;
}

const char *pv_secret_in_server(const json_t *server)
{
        static const char *const addresses[] = { "url", "httpUrl" };
        const json_t *command = json_object_get(server, "command");
        if (has_secret(json_object_get(server, "args")))
                return "a secret in its arguments";
        for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
                const char *url = json_string_value(json_object_get(server, addresses[i]));
                if (url && (is_secret_address(url) || has_token(url)))
                        return "a secret in its address";
        }
        bool secret = json_is_array(command)    ? has_secret(command)
                      : json_is_string(command) ? pv_secret_is_text(json_string_value(command))
                                                : false;
        return secret ? "a secret in its command" : NULL;
}

/* A number, a switch, a level, a file that is there: what a server needs to be told and nobody keeps secret. */
bool pv_secret_is_harmless(const char *value)
{
        static const char *const words[] = { "true", "false", "yes",   "no",    "on",         "off",        "debug",
                                             "info", "warn",  "error", "stdio", "production", "development" };
        size_t n = strlen(value);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                if (strcasecmp(value, words[i]) == 0)
                        return true;
        return (n <= 5 && strspn(value, "0123456789") == n) || (value[0] == '/' && access(value, F_OK) == 0);
}
