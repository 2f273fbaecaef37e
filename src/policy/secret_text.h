/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What looks like a secret in an agent's settings. Whoever asks leaves out what does: a wrong yes costs the person an
 * option (--pass-env), a wrong no shows a secret to every run of the agent.
 */
#ifndef PV_POLICY_SECRET_TEXT_H
#define PV_POLICY_SECRET_TEXT_H

#include <stdbool.h>
#include "base/json.h"

/* A token by what issuers put before theirs, a random word, an address with a password in it. */
bool pv_secret_is_text(const char *text);
/* A member whose name says that its value is one: apiKey, experimental_bearer_token. */
bool pv_secret_is_name(const char *name);
/* A number, a switch, a level, a file that is there: what a server needs to be told and nobody keeps secret. */
bool pv_secret_is_harmless(const char *value);
/* A variable in place of its value, as agents' files name one: $NAME, ${NAME}, ${env:NAME}, {env:NAME}. */
bool pv_secret_is_reference(const char *text);
/* NULL, or why an MCP server says one in its command, arguments or address. */
const char *pv_secret_in_server(const json_t *server);

#endif
