/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent's file of settings, as it may be shown inside: all of it but the secrets that it says. Those are mostly in
 * its MCP servers: values of variables and headers, as of servers that are handed on in an argument (mcp.h); and
 * members of any name that says so, or of a value that looks like a token. What cannot be read is not shown.
 */
#ifndef PV_POLICY_SETTINGS_H
#define PV_POLICY_SETTINGS_H

#include "base/err.h"
#include "base/str.h"

struct pv_settings {
        char *content;            /* of the file, in its own format */
        struct pv_strv left_out;  /* "NAME (why)" of servers that are not in it, paths of other members */
        struct pv_strv withheld;  /* names of variables that a server is not given */
        struct pv_strv variables; /* NAME=VALUE of those that the person passes and the file alone has */
};
void pv_settings_fini(struct pv_settings *s);
#define pv_auto_settings __attribute__((cleanup(pv_settings_fini))) struct pv_settings

/*
 * Reads path: TOML by its name (.toml), else JSON, which may have comments. environment: the person's; passed: the
 * names that they pass; reference: how this agent's file names a variable in place of its value, with NAME for it, or
 * "env_vars": a list of names of the server. PV_ERR_INPUT when it cannot be read for certain.
 */
int pv_settings_clean(const char *path, char *const *environment, const struct pv_strv *passed, const char *reference,
                      struct pv_settings *out, struct pv_err *err);

#endif
