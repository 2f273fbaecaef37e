/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers of the Model Context Protocol that an agent starts, as a file of HOME lists them that is hidden inside, for
 * it holds logins too: each server's command and arguments, or address, are handed to the agent as an argument.
 * Values that may be secrets are not: of a variable the name alone, which --pass-env gives; of headers none; and a
 * server that says a secret in its arguments or its address is left out.
 */
#ifndef PV_POLICY_MCP_H
#define PV_POLICY_MCP_H

#include "base/err.h"
#include "base/str.h"

struct pv_mcp {
        char *json;               /* {"mcpServers": {...}} in one line; NULL: there is none */
        struct pv_strv servers;   /* names of those in it */
        struct pv_strv left_out;  /* "NAME (why)" */
        struct pv_strv withheld;  /* names of variables that a server is not given */
        struct pv_strv variables; /* NAME=VALUE of those that the person passes and the file alone has */
};
void pv_mcp_fini(struct pv_mcp *m);
#define pv_auto_mcp __attribute__((cleanup(pv_mcp_fini))) struct pv_mcp

/*
 * Reads path's "mcpServers" and those of "projects" for this workspace, which come first. environment: the person's;
 * passed: the names that they pass. No file: nothing. PV_ERR_INPUT when it cannot be read.
 */
int pv_mcp_read(const char *path, const char *workspace, char *const *environment, const struct pv_strv *passed,
                struct pv_mcp *out, struct pv_err *err);

#endif
